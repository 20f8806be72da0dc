"""What a run shows about itself, in numbers and in words.

The supported region is one number known beforehand, the information (τ(1 − τ))²/Σ(p_k²/4r_k²n_k): the square of how
many standard errors fit into a local spread. The default interval is validated by the coverage study where this number
is large enough. Where it is not, or where the run itself shows trouble, the result says so.
"""

import math
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.estimator.auto import SUPPORTED, AutoPlan, memory_of, supported
from privatile.estimator.clients import Client, pooled_noise
from privatile.estimator.plan import Plan, RoundState
from privatile.estimator.question_policy import information
from privatile.estimator.settings import ReportSettings
from privatile.inference.curve import LARGEST_SLOPE_ERROR, SUSPECT_MISFIT, UNKNOWN_SLOPE, CurveFit
from privatile.inference.plug_in import Curve
from privatile.inference.trajectory import Trajectory
from privatile.result.result import Caveat, Row, finite

FEW_RELAXATIONS = 12.0
"""Below this the average of the path is little more than its end."""

UNKNOWN_BEND = 0.3
"""Share of the squared error from the unknown bend above which curvature, not noise, limits the run."""

DOMINANT = 0.5
"""A client that makes up more than this share of the variance decides the width alone."""

BEYOND_WEIGHT = 1.1
"""How far its share of the variance must exceed its weight: a client that holds most of the records may decide."""


def curve_warnings(fit: CurveFit) -> dict[str, NDArray[np.bool_]]:
    """By the code of the caveat, whether the fit of a run calls for it; for one run and for many at once."""
    return {
        "misfit": fit.suspect,
        "slope": (fit.slope_error > LARGEST_SLOPE_ERROR) | fit.slope_clipped,
        "curvature": fit.bend_share > UNKNOWN_BEND,
    }


def warned(have: float, fit: CurveFit, gave_up: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether the result of a run of design auto warns about its interval; for one run and for many at once."""
    return reduce(or_, curve_warnings(fit).values(), gave_up | (not supported(have)))


def diagnose(
    settings: ReportSettings, plan: Plan, state: RoundState, trajectory: Trajectory, curve: Curve | None
) -> tuple[list[Row], list[Caveat]]:
    """All that can be read from plan, state and fit. A run that may stop by its width leaves records unasked."""
    stops_early = settings.until_width is not None
    support = support_of(plan.level, plan.clients, state.asked if stops_early else None)
    found = [
        support.row,
        *support.caveats,
        *_stages(plan, state),
        *_curve(plan, trajectory, curve, settings.may_dither),
        *_dominance(plan.clients),
    ]
    return [one for one in found if isinstance(one, Row)], [one for one in found if isinstance(one, Caveat)]


class Support(NamedTuple):
    """Whether one level of a run has enough information; known before anyone is asked."""

    row: Row
    caveats: tuple[Caveat, ...]


def support_of(level: float, clients: Sequence[Client], asked: Sequence[int] | None = None) -> Support:
    """Information and, where it is too little, the caveat.

    A run that stops by its width has `asked` fewer than there are: the row then tells what those gave. Whether it is
    enough is decided by all records, because the coverage study scores such runs by their anytime interval wherever
    they stop (stopped with a third of I = 3,000, it covers: docs/intervals.md, Until-width).
    """
    planned = information(level, pooled_noise(clients))
    enough = supported(planned)
    verdict = "enough" if enough else f"too little, {SUPPORTED:,.0f} are needed"
    have, words = planned, f"{planned:,.0f}: {verdict}"
    if asked is not None and any(count < client.records for count, client in zip(asked, clients, strict=True)):
        pairs = zip(clients, asked, strict=True)
        have = information(level, math.fsum(client.noise(count) for client, count in pairs)) if all(asked) else 0.0
        words = f"{have:,.0f} from those asked; {planned:,.0f} in all records: {verdict}"
    row = Row("information", "information", have, words)
    if enough:
        return Support(row, ())
    text = (
        f"Too little information for this level: {planned:,.0f} where intervals are validated from "
        f"{SUPPORTED:,.0f} on. The interval may be too narrow. It would take {cure(SUPPORTED / planned, clients)}."
    )
    return Support(row, (Caveat("support", text),))


STRAIGHTEN = ("A scale on which it is straighter (--log) or more records", "More records")
"""Advice where the curve bends: on another scale than the logarithm, and on it."""

NARROW = ("A narrower --range, --log, or more records", "A narrower --range, or more records")
"""Advice where the search did not settle: likewise."""


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
    """What the design auto did before averaging."""
    if not isinstance(plan, AutoPlan):
        return
    tuning = memory_of(state).tuning
    searched, probed, spent = int(tuning.searched[0]), int(tuning.probed[0]), float(tuning.spent[0])
    words = (
        f"{searched} rounds with {100 * spent:.2g}% of the records to place the quantile, {probed} to probe around it"
    )
    yield Row("search", "search", {"rounds": searched, "share": spent, "probes": probed}, words)
    if bool(tuning.gave_up[0]):
        yield Caveat(
            "not-located",
            "The search for the quantile ended before it had settled: the estimate may be far off. "
            f"{NARROW[plan.scale.name == 'log']} would help.",
        )


def slope_error_text(slope_error: float) -> str:
    """The relative error of a slope in percent; from 100% on the slope is not known at all.

    >>> slope_error_text(0.123), slope_error_text(6693.57)
    ('± 12%', '± 100% or more')
    """
    return f"± {100 * slope_error:.0f}%" if slope_error < UNKNOWN_SLOPE else "± 100% or more"


def _curve(plan: Plan, trajectory: Trajectory, curve: Curve | None, may_dither: bool) -> Iterator[Row | Caveat]:
    """What the fitted curve shows."""
    if curve is None:
        return
    fit, calls_for = curve.fit, curve_warnings(curve.fit)
    slope, slope_error, misfit = float(fit.slope), float(fit.slope_error), float(fit.misfit)
    bend, bend_share = float(fit.bend), float(fit.bend_share)
    percent, known = slope_error_text(slope_error), slope_error < UNKNOWN_SLOPE
    at = plan.scale.slope(curve.inference.center)
    density = slope / at if at else math.nan
    reached = slope * float(trajectory.steps.sum())
    facts = {"estimate": density, "relative_error": slope_error}
    rows = (
        Row("density", "density there", facts, f"{density:.3g} per unit {percent}"),
        Row("relaxations", "relaxations", reached, f"{reached:.0f}"),
        Row(
            "bend",
            "bend",
            {"estimate": bend, "share": bend_share},
            f"{bend:+.2f}, {100 * bend_share:.0f}% of the squared error",
        ),
        Row(
            "misfit",
            "misfit of the curve",
            finite(misfit),
            f"χ² = {misfit:.1f}, at most {SUSPECT_MISFIT:g} where smooth",
        ),
    )
    yield from (row if known else row._replace(value=None, text=f"not known (density {percent})") for row in rows)
    if calls_for["misfit"] and not fit.smooth:
        yield Caveat(
            "misfit",
            "The answers do not follow a smooth curve near the quantile: heaped or whole-number values, an atom, "
            "or a gap. The default interval is widened to the questions that bracket the quantile."
            + (
                " For heaps try --dither WIDTH, as wide as the values are apart (1 for whole numbers)."
                if may_dither
                else ""
            ),
        )
    elif calls_for["misfit"]:
        yield Caveat(
            "misfit",
            "The answers follow a smooth curve near the quantile less well than most do (1 or 2 in 100 that are "
            "smooth look so by chance). With heaped or whole-number values, an atom or a gap the interval is too "
            + ("narrow; for heaps try --dither WIDTH, as wide as the values are apart." if may_dither else "narrow."),
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
            f"stems from not knowing how. {STRAIGHTEN[plan.scale.name == 'log']} would help.",
        )
    if reached < FEW_RELAXATIONS and not isinstance(plan, AutoPlan):
        yield Caveat(
            "relaxations",
            f"The averaged rounds hold {reached:.0f} relaxations only: self-normalised intervals are coarse here. "
            "More rounds or design auto would help.",
        )


def _dominance(clients: Sequence[Client]) -> Iterator[Row | Caveat]:
    """Which client adds most to the variance."""
    if len(clients) < 2:
        return
    parts = {client.name: client.noise(client.records) for client in clients}
    name = max(parts, key=parts.__getitem__)
    share = parts[name] / math.fsum(parts.values())
    (weight,) = (client.weight for client in clients if client.name == name)
    text = f"{name}, {100 * share:.0f}% of the variance"
    yield Row("dominance", "largest part", {"client": name, "share": share}, text)
    if share > max(DOMINANT, BEYOND_WEIGHT * weight):
        yield Caveat(
            "dominance",
            f"Client {name} makes up {100 * share:.0f}% of the variance: more records or a larger ε there narrow "
            "the interval most.",
        )
