"""What a run shows about itself, in numbers and in words, and why it asked what it asked.

How precise the answer can be is one number known beforehand, the information (τ(1 − τ))²/Σ(p_k²/4r_k²n_k): the square
of how many standard errors fit into a local spread. The any-shape interval holds whatever it is. The smooth one is
validated where it is large enough. Where it is not, or where the run itself shows trouble, the result says so.
"""

import math
from collections.abc import Iterator, Sequence

from privatile.core.scale import Scale, clip
from privatile.core.text import CLIENTS, PartWords, parts_of, percent_text
from privatile.estimator.clients import Client, pooled_noise
from privatile.estimator.open_ended import OpenPlan
from privatile.estimator.plan import Plan, RoundState
from privatile.estimator.settings import ReportSettings
from privatile.estimator.straddle import CLOSEST, StraddlePlan, straddle_memory
from privatile.estimator.tuned import (
    MIN_RECORDS,
    RELAXATIONS,
    ROUNDS,
    STABLE,
    SUPPORTED,
    AutoPlan,
    information,
    supported,
    tuned_run,
)
from privatile.inference.curve import MAX_MISFIT, MAX_SLOPE_ERROR, SUSPECT_MISFIT, UNKNOWN_SLOPE, CurveFit
from privatile.inference.inference import ANY_SHAPE_METHOD
from privatile.inference.reading import Reading
from privatile.inference.series import largest_influences
from privatile.inference.trajectory import Trajectory
from privatile.result.caveats import Caveat, caveat, what_it_takes
from privatile.result.shown import Row, finite, rank_text

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
        "slope": fit.slope_error > MAX_SLOPE_ERROR or fit.slope_clipped,
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
        yield caveat("contradiction", "outvoted")
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
    result says the same. The row of the information comes first: of a run that stops by its width, which has `asked`
    fewer than there are, it tells what those gave. Where a `grid` is declared nobody expects a smooth interval, and
    nothing is said about it.
    """
    planned = information(level, pooled_noise(clients))
    have, words = planned, f"{planned:,.0f}: {rank_error_text(level, planned)}"
    if asked is not None and any(count < client.records for count, client in zip(asked, clients, strict=True)):
        pairs = zip(clients, asked, strict=True)
        have = information(level, math.fsum(client.noise(count) for client, count in pairs)) if all(asked) else 0.0
        words = f"{have:,.0f} from those asked: {rank_error_text(level, have)}; {planned:,.0f} in all records"
    found: list[Row | Caveat] = [Row("information", "information", have, words)]
    if not supported(planned):
        takes = what_it_takes(SUPPORTED / planned, clients)
        if method.startswith("self-normalized"):
            found.append(caveat("support", "self-normalized"))
        elif not method.startswith(ANY_SHAPE_METHOD):
            found.append(caveat("not-validated", least=SUPPORTED, takes=takes))
        else:
            told = caveat("support", "grid") if grid else caveat("support", "any-shape", least=SUPPORTED, takes=takes)
            found.append(told)
    return [*found, *_dominance(clients, parts)]


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


def _stages(plan: Plan, state: RoundState) -> Iterator[Row | Caveat]:
    """What a design that tunes itself did before its window."""
    if isinstance(plan, StraddlePlan):
        learned = straddle_memory(state).run
        searched, spent = learned.searched, learned.spent
        words = f"{searched} rounds with {percent_text(spent, 2)} of the records to place the quantile"
        yield Row("search", "search", {"rounds": searched, "share": round(float(spent), DIGITS)}, words)
        return
    if not isinstance(plan, AutoPlan):
        return
    run = tuned_run(state)
    searched, probed, spent = run.searched, run.probed, run.spent
    words = f"{searched} rounds with {percent_text(spent, 2)} of the records to place the quantile"
    words += f", {probed} to probe around it"
    found = {"rounds": searched, "share": round(float(spent), DIGITS), "probes": probed}
    yield Row("search", "search", found, words)
    if run.gave_up:
        yield caveat("not-located", helps=NARROW[no_log(plan.scale)])


def slope_error_text(slope_error: float) -> str:
    """The relative error of a slope in percent; from 100% on the slope is not known at all.

    >>> slope_error_text(0.123), slope_error_text(6693.57)
    ('± 12%', '± 100% or more')
    """
    return f"± {slope_error:.0%}" if slope_error < UNKNOWN_SLOPE else "± 100% or more"


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
            f"{bend:+.2f}, {bend_share:.0%} of the squared error",
        ),
        Row(
            "misfit",
            "misfit of the curve",
            finite(misfit),
            f"χ² = {misfit:.1f}; seldom above {SUSPECT_MISFIT:g} where smooth, withdrawn above {MAX_MISFIT:g}",
        ),
    )
    yield from (row if known else row._replace(value=None, text=f"not known (density {percent})") for row in rows)
    if calls_for["misfit"] and not reading.contradiction:
        yield caveat("misfit")
    if calls_for["slope"]:
        yield caveat("slope", error=percent, most=f"{MAX_SLOPE_ERROR:.0%}")
    if calls_for["curvature"]:
        yield caveat("curvature", percent=f"{bend_share:.0%}", helps=STRAIGHTEN[no_log(plan.scale)])
    if reached < FEW_RELAXATIONS and not straddled and not isinstance(plan, AutoPlan):
        yield caveat("relaxations", number=reached)


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
    text = f"{name}, {share:.0%} of the variance"
    yield Row("dominance", "largest part", {"client": name, "share": share}, text)
    if share > max(DOMINANT, BEYOND_WEIGHT * weight):
        bounded = any(math.isfinite(client.mechanism.epsilon) for client in clients if client.held_by == name)
        helps = "more records or a larger ε" if bounded else "more records"
        yield caveat("dominance", part=parts.one.capitalize(), name=name, percent=f"{share:.0%}", helps=helps)


def explain(
    settings: ReportSettings, plan: Plan, state: RoundState, trajectory: Trajectory, reading: Reading
) -> tuple[str, ...]:
    """The choices of a run that tunes itself, as far as no row has them; nothing for designs whose tables are fixed.

    Where a grid is declared nothing is said about the smooth interval.
    """
    if not isinstance(plan, StraddlePlan | AutoPlan):
        return ()
    lines = []
    if plan.wanted is None and plan.rounds != ROUNDS:
        lines.append(
            f"Rounds: {plan.rounds} instead of {ROUNDS}, so that the smallest client, with "
            f"{min(client.records for client in plan.clients)} records, gives about {MIN_RECORDS} a round."
        )
    if isinstance(plan, StraddlePlan):
        placed, layout = straddle_memory(state).run.window.placed, plan.rules.layout
        lines.append(
            f"Window: {CLOSEST:g} to {layout.farthest:g} standard errors of the result below and above the quantile in "
            f"turn, and every {layout.centre_every}th round at its centre, where an atom would show. The questions "
            f"were placed {placed} times."
        )
    elif len(trajectory.steps):
        run = tuned_run(state)
        planned = plan.rounds - run.searched - run.probed
        # γ·f·T from the rule itself: step times density would fall to either side of a half.
        reached = min(RELAXATIONS, STABLE * planned)
        capped = reached < RELAXATIONS
        why = f", fewer than {RELAXATIONS:g} because γ·f stays at or below {STABLE:g}" if capped else ""
        lines.append(
            f"Average: the constant step {float(trajectory.steps[0]):.4g} on the working scale, for the believed "
            f"density {run.slope:.4g}: {reached:.0f} relaxations were planned{why}."
        )
    if reading.fit is not None and reading.smooth is not None and settings.declared.may_be_smooth:
        lines.append(
            f"Fit: {reading.fit.used:.1%} of the answers' precision lay near enough to count. The smooth interval "
            f"is {reading.smooth.quantile(0.95):.3f} standard errors either way at 95%, 1.960 with a known density."
        )
    if isinstance(plan, AutoPlan):
        lines.append(
            "The step depends on the rounds and the answers, so the paper's Assumptions 2–3 do not cover this run."
        )
    return tuple(lines)
