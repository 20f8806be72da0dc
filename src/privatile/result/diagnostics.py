"""What a run shows about itself, in numbers and in words, and why it asked what it asked.

What a run shows about itself, in numbers and in words.

How precise the answer can be is one number known beforehand, the information (τ(1 − τ))²/Σ(p_k²/4r_k²n_k): the square
of how many standard errors fit into a local spread. The any-shape interval holds whatever it is. The smooth one is
validated where it is large enough. Where it is not, or where the run itself shows trouble, the result says so.

Why a run of a design that tunes itself asked what it asked, as far as no row of its result has it.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from privatile.core.scale import Scale, clip
from privatile.estimator.clients import Client, pooled_noise
from privatile.estimator.open_ended import OpenPlan
from privatile.estimator.plan import Plan, RoundState
from privatile.estimator.settings import ReportSettings
from privatile.estimator.straddle import CLOSEST, StraddlePlan, straddle_memory
from privatile.estimator.tuned import (
    LOCATED,
    PROBE_ERRORS,
    PROBE_REACH,
    PROBE_SHARE,
    RELAXATIONS,
    ROUNDS,
    SHORTEST,
    STABLE,
    SUPPORTED,
    AutoPlan,
    information,
    supported,
    tuned_run,
)
from privatile.inference.curve import LARGEST_MISFIT, LARGEST_SLOPE_ERROR, SUSPECT_MISFIT, UNKNOWN_SLOPE, CurveFit
from privatile.inference.inference import ANY_SHAPE_METHOD
from privatile.inference.reading import Reading
from privatile.inference.series import largest_influences
from privatile.inference.trajectory import Trajectory
from privatile.result.result import Caveat
from privatile.result.shown import CLIENTS, PartWords, Row, finite, parts_of, rank_text

DIGITS = 4
"""Decimals of what describes a search or a curve's bend: beside an atom machines agree on eight."""

FEW_RELAXATIONS = 12.0
"""Below this the average of the path is little more than its end."""

UNKNOWN_BEND = 0.3
"""Share of the squared error from the unknown bend above which curvature, not noise, limits the run."""

DOMINANT = 0.5
"""A client that makes up more than this share of the variance decides the width alone."""

BEYOND_WEIGHT = 1.1
"""How far its share of the variance must exceed its weight: a client that holds most of the records may decide."""


def curve_warnings(fit: CurveFit) -> dict[str, bool]:
    """By the code of the caveat, whether the fit of a run calls for it."""
    return {
        "misfit": fit.suspect,
        "slope": fit.slope_error > LARGEST_SLOPE_ERROR or fit.slope_clipped,
        "curvature": fit.bend_share > UNKNOWN_BEND,
    }


def warned(have: float, fit: CurveFit, gave_up: bool) -> bool:
    """Whether the result of a run of design auto warns about its interval."""
    return gave_up or not supported(have) or any(curve_warnings(fit).values())


def diagnose(
    settings: ReportSettings,
    plan: Plan,
    state: RoundState,
    trajectory: Trajectory,
    reading: Reading,
) -> tuple[list[Row], list[Caveat]]:
    """All that can be read from plan, state and fit. A run that may stop by its width leaves records unasked.

    Where the any-shape interval is shown, nothing that the fit may lack is a caveat about it.
    """
    asked, shown = state.asked if settings.until_width is not None else None, reading.shown
    grid = not settings.declared.may_be_smooth
    parts = parts_of(settings.weighting)
    first, *others = known_beforehand(plan.level, plan.clients, shown.method, asked, grid=grid, parts=parts)
    found = [first, *_stages(plan, state), *_curve(plan, trajectory, reading), *others]
    if isinstance(plan, OpenPlan):
        found += _if_people_lie(plan, trajectory, reading)
    about_the_fit = ("not-located", "misfit", "slope", "curvature", "relaxations") if shown.is_any_shape else ()
    caveats = [one for one in found if isinstance(one, Caveat) and one.code not in about_the_fit]
    # The contradiction of a smooth interval says the same.
    if shown.method.startswith("smooth") and reading.contradiction:
        caveats = [one for one in caveats if one.code != "not-validated"]
    return [one for one in found if isinstance(one, Row)], caveats


OUTVOTED = (
    "The curve through all answers places the quantile outside the interval, and the estimate is the end of the "
    "interval next to it: the answers of some rounds contradict the others. In honest answers this is rare. People who "
    "came together may have answered something else than was asked, or the quantile has moved."
)


def _if_people_lie(plan: OpenPlan, trajectory: Trajectory, reading: Reading) -> Iterator[Row | Caveat]:
    """How far a few people who lie could move the rank of the estimate (`inference.influence`).

    The estimate is the curve's quantile, for which this holds, unless the any-shape interval excludes it. Its tests
    keep what they have accepted: a few rounds in a row of people who lie can decide it for good, and nothing bounds
    what they have done.
    """
    if reading.fit is None or reading.any_shape is None:
        return
    center = reading.fit.center
    if reading.any_shape.center != clip(plan.scale, center):
        yield Caveat("contradiction", OUTVOTED)
        yield Row("liars", "if people lie", [], "not bounded: the interval contradicts the curve through all answers")
        return
    found = largest_influences(plan.clients, trajectory.by_client, center)
    text = "; ".join(f"{each.people:,}: {rank_text(each.rank)}" for each in found)
    yield Row("liars", "if people lie", [each._asdict() for each in found], text)


def known_beforehand(
    level: float,
    clients: Sequence[Client],
    method: str,
    asked: Sequence[int] | None = None,
    *,
    grid: bool = False,
    parts: PartWords = CLIENTS,
) -> list[Row | Caveat]:
    """What sizes, budgets and weights alone show: whether they are enough, and which client decides the width.

    `method` is that of the interval that is shown, or will be. A dry run says it before anybody has answered, and the
    result says the same. The row of the information comes first. Where a `grid` is declared nobody expects a smooth
    interval, and nothing is said about it.
    """
    support = support_of(level, clients, asked, grid=grid)
    caveats = support.caveats
    if caveats and not method.startswith(ANY_SHAPE_METHOD):
        caveats = (other_support(level, clients, method),)
    return [support.row, *caveats, *_dominance(clients, parts)]


def other_support(level: float, clients: Sequence[Client], method: str) -> Caveat:
    """Too little information, where another interval than the any-shape one is shown.

    A smooth one is not validated then. A self-normalised one is wide, or bounds nothing.
    """
    have = information(level, pooled_noise(clients))
    text = "Few or very private answers for this level. "
    if method.startswith("self-normalized"):
        return Caveat("support", f"{text}The interval may be wide or reach the ends of the range.")
    text += f"The smooth interval is validated from an information of {SUPPORTED:,.0f} on; that would take "
    return Caveat("not-validated", f"{text}{cure(SUPPORTED / have, clients)}.")


class Support(NamedTuple):
    """Whether one level of a run has enough information; known before anyone is asked."""

    row: Row
    caveats: tuple[Caveat, ...]


def support_of(
    level: float, clients: Sequence[Client], asked: Sequence[int] | None = None, *, grid: bool = False
) -> Support:
    """Information and, where it is too little for a smooth interval, the caveat.

    A run that stops by its width has `asked` fewer than there are: the row then tells what those gave.
    """
    planned = information(level, pooled_noise(clients))
    enough = supported(planned)
    have, words = planned, f"{planned:,.0f}: {rank_error_text(level, planned)}"
    if asked is not None and any(count < client.records for count, client in zip(asked, clients, strict=True)):
        pairs = zip(clients, asked, strict=True)
        have = information(level, math.fsum(client.noise(count) for client, count in pairs)) if all(asked) else 0.0
        words = f"{have:,.0f} from those asked: {rank_error_text(level, have)}; {planned:,.0f} in all records"
    row = Row("information", "information", have, words)
    if enough:
        return Support(row, ())
    text = "Few or very private answers for this level. The interval "
    if grid:
        text += "holds, and may be wide or reach the ends of the range."
    else:
        text += (
            "that holds whatever the distribution is shown, and it may be wide or reach the ends of the range. The "
            f"smooth interval is validated from an information of {SUPPORTED:,.0f} on; that would take "
            f"{cure(SUPPORTED / planned, clients)}."
        )
    return Support(row, (Caveat("support", text),))


def rank_error_text(level: float, information: float) -> str:
    """How precise the answers are, in rank: s = τ(1 − τ)/√I.

    >>> rank_error_text(0.5, 6_000.0), rank_error_text(0.5, 0.0)
    ('the rank is known within a standard error of 0.0032', 'the rank is not known yet')
    """
    if not information > 0.0:
        return "the rank is not known yet"
    return f"the rank is known within a standard error of {level * (1.0 - level) / math.sqrt(information):.2g}"


STRAIGHTEN = ("A scale on which it is straighter (a log scale) or more records", "More records")
"""Advice where the curve bends: where the logarithm is possible and not taken yet, and elsewhere."""

NARROW = ("A narrower range, a log scale, or more records", "A narrower range, or more records")
"""Advice where the search did not settle: likewise."""


def no_log(scale: Scale) -> bool:
    """Whether the logarithm is no advice: it was taken, or the range reaches 0."""
    return scale.name == "log" or scale.low <= 0.0


def cure(more: float, clients: Sequence[Client]) -> str:
    """What gives `more` times the information: so many records, or budgets with truth rates √more times as large."""
    digits = two_digits if more >= 1.1 else three_digits
    words = f"{digits(more)} times the records"
    need = math.sqrt(more) * max(client.mechanism.truth_rate for client in clients)
    # A truth rate ends at 1: beyond, only records help.
    if need < 1.0:
        alike = len({client.mechanism.epsilon for client in clients}) == 1
        words += f", or {'' if alike else 'the largest '}ε near {digits(2.0 * math.atanh(need))}"
    return words


def two_digits(value: float) -> str:
    """Two significant digits, never in powers of ten.

    >>> two_digits(943.0), two_digits(1.52), two_digits(31_400.0)
    ('940', '1.5', '31,000')
    """
    return f"{float(f'{value:.2g}'):,.10g}"


def three_digits(value: float) -> str:
    """Three significant digits, where two would say "1 times".

    >>> three_digits(1.0109)
    '1.01'
    """
    return f"{float(f'{value:.3g}'):,.10g}"


def _stages(plan: Plan, state: RoundState) -> Iterator[Row | Caveat]:
    """What a design that tunes itself did before its window."""
    if isinstance(plan, StraddlePlan):
        learned = straddle_memory(state).run
        searched, spent = learned.searched, learned.spent
        words = f"{searched} rounds with {100 * spent:.2g}% of the records to place the quantile"
        yield Row("search", "search", {"rounds": searched, "share": round(spent, DIGITS)}, words)
        return
    if not isinstance(plan, AutoPlan):
        return
    run = tuned_run(state)
    searched, probed, spent = run.searched, run.probed, run.spent
    words = (
        f"{searched} rounds with {100 * spent:.2g}% of the records to place the quantile, {probed} to probe around it"
    )
    found = {"rounds": searched, "share": round(spent, DIGITS), "probes": probed}
    yield Row("search", "search", found, words)
    if run.gave_up:
        yield Caveat(
            "not-located",
            "The search for the quantile ended before it had settled: the estimate may be far off. "
            f"{NARROW[no_log(plan.scale)]} would help.",
        )


def slope_error_text(slope_error: float) -> str:
    """The relative error of a slope in percent; from 100% on the slope is not known at all.

    >>> slope_error_text(0.123), slope_error_text(6693.57)
    ('± 12%', '± 100% or more')
    """
    return f"± {100 * slope_error:.0f}%" if slope_error < UNKNOWN_SLOPE else "± 100% or more"


def _curve(plan: Plan, trajectory: Trajectory, reading: Reading) -> Iterator[Row | Caveat]:
    """What the fitted curve shows."""
    fit, smooth = reading.fit, reading.smooth
    if fit is None or smooth is None:
        return
    calls_for, straddled = curve_warnings(fit), reading.tests is not None
    slope, slope_error, misfit, bend, bend_share = fit.slope, fit.slope_error, fit.misfit, fit.bend, fit.bend_share
    percent, known = slope_error_text(slope_error), slope_error < UNKNOWN_SLOPE
    at = plan.scale.slope(smooth.center)
    density = slope / at if at else math.nan
    reached = slope * float(trajectory.steps.sum())
    facts = {"estimate": density, "relative_error": slope_error}
    rows = (
        Row("density", "density there", facts, f"{density:.3g} per unit {percent}"),
        *(() if straddled else (Row("relaxations", "relaxations", reached, f"{reached:.0f}"),)),
        Row(
            "bend",
            "bend",
            {"estimate": round(bend, DIGITS), "share": round(bend_share, DIGITS)},
            f"{bend:+.2f}, {100 * bend_share:.0f}% of the squared error",
        ),
        Row(
            "misfit",
            "misfit of the curve",
            finite(misfit),
            f"χ² = {misfit:.1f}; seldom above {SUSPECT_MISFIT:g} where smooth, withdrawn above {LARGEST_MISFIT:g}",
        ),
    )
    yield from (row if known else row._replace(value=None, text=f"not known (density {percent})") for row in rows)
    if calls_for["misfit"] and not reading.contradiction:
        yield Caveat(
            "misfit",
            "The answers follow a smooth curve near the quantile less well than most do (1 or 2 in 100 that are "
            "smooth look so by chance). With heaped or whole-number values, an atom or a gap the interval is too "
            "narrow: read the one that holds whatever the distribution.",
        )
    if calls_for["slope"]:
        yield Caveat(
            "slope",
            f"The distribution's slope at the estimate is known within {percent} only (at most "
            f"{100 * LARGEST_SLOPE_ERROR:.0f}% will do): intervals are unreliable here.",
        )
    if calls_for["curvature"]:
        yield Caveat(
            "curvature",
            f"The distribution bends within the reach of the questions: {100 * bend_share:.0f}% of the squared error "
            f"stems from not knowing how. {STRAIGHTEN[no_log(plan.scale)]} would help.",
        )
    if reached < FEW_RELAXATIONS and not straddled and not isinstance(plan, AutoPlan):
        yield Caveat(
            "relaxations",
            f"The averaged rounds hold {reached:.0f} relaxations only: self-normalised intervals are coarse here. "
            "More rounds or design auto would help.",
        )


def _dominance(clients: Sequence[Client], parts: PartWords) -> Iterator[Row | Caveat]:
    """Which client adds most to the variance."""
    added: dict[str, float] = {}
    for client in clients:
        added[client.held_by] = added.get(client.held_by, 0.0) + client.noise(client.records)
    if len(added) < 2:
        return
    name = max(added, key=added.__getitem__)
    share = added[name] / math.fsum(added.values())
    weight = math.fsum(client.weight for client in clients if client.held_by == name)
    text = f"{name}, {100 * share:.0f}% of the variance"
    yield Row("dominance", "largest part", {"client": name, "share": share}, text)
    if share > max(DOMINANT, BEYOND_WEIGHT * weight):
        bounded = any(math.isfinite(client.mechanism.epsilon) for client in clients if client.held_by == name)
        larger = " or a larger ε" if bounded else ""
        yield Caveat(
            "dominance",
            f"{parts.one.capitalize()} {name} makes up {100 * share:.0f}% of the variance: more records{larger} there "
            "narrow the interval most.",
        )


def explain(
    settings: ReportSettings, plan: Plan, state: RoundState, trajectory: Trajectory, reading: Reading
) -> tuple[str, ...]:
    """The choices of a run that tunes itself; nothing for other designs, whose tables are fixed.

    Where a grid is declared nothing is said about the smooth interval.
    """
    if not isinstance(plan, StraddlePlan | AutoPlan):
        return ()
    lines = []
    if plan.wanted is None and plan.rounds != ROUNDS:
        lines.append(
            f"Rounds: {plan.rounds} instead of {ROUNDS}, so that the smallest client, with "
            f"{min(client.records for client in plan.clients)} records, gives about {SHORTEST} a round."
        )
    if isinstance(plan, StraddlePlan):
        learned, layout = straddle_memory(state).run, plan.rules.layout
        lines += [
            _search(plan.rules.located, gave_up=learned.gave_up),
            f"Window: {CLOSEST:g} to {layout.farthest:g} standard errors of the result below and above the quantile in "
            f"turn, and every {layout.centre_every}th round at its centre, where an atom would show. The questions "
            f"were placed {learned.window.placed} times.",
        ]
    else:
        lines += [
            _search(LOCATED, gave_up=tuned_run(state).gave_up),
            *_average(plan, state, trajectory),
        ]
    if reading.fit is not None and reading.smooth is not None and settings.declared.may_be_smooth:
        lines.append(
            f"Fit: {100 * reading.fit.used:.1f}% of the answers' precision lay near enough to count. The smooth "
            f"interval is {reading.smooth.quantile(0.95):.3f} standard errors either way at 95%, 1.960 with a known "
            "density."
        )
    if isinstance(plan, AutoPlan):
        lines.append(
            "The step depends on the rounds and the answers, so the paper's Assumptions 2–3 do not cover this run."
        )
    return tuple(lines)


def _search(located: float, *, gave_up: bool) -> str:
    """When the search was over."""
    end = " (given up before that)." if gave_up else "."
    return f"Search: until the quantile was placed within {located:.2g} local spreads{end}"


def _average(plan: AutoPlan, state: RoundState, trajectory: Trajectory) -> Iterator[str]:
    """Where the probes were, and which step the averaged rounds took."""
    run = tuned_run(state)
    yield (
        f"Probes: {100 * PROBE_SHARE:.0f}% of the records, up to {PROBE_REACH:g} local spreads or {PROBE_ERRORS:g} "
        "standard errors from the centre, whichever is nearer; they give slope and bend."
    )
    if len(trajectory.steps):
        planned = plan.rounds - run.searched - run.probed
        capped = RELAXATIONS / planned > STABLE
        # γ·f·T from the rule itself: step times density would fall to either side of a half.
        yield (
            f"Average: the constant step {float(trajectory.steps[0]):.4g} on the working scale, for the believed "
            f"density {run.slope:.4g}: {min(RELAXATIONS, STABLE * planned):.0f} relaxations were planned"
            + (f", fewer than {RELAXATIONS:g} because γ·f stays at or below {STABLE:g}." if capped else ".")
        )
