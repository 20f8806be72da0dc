"""Two readings of one run: valid for every distribution, and for smooth ones.

The any-shape reading is the headline unless the values were declared continuous. Then the smooth one is, unless the
answers contradict the declaration: its centre lies outside the any-shape interval, the curve does not fit, or its slope
is hardly known. Both come from the same answers, at no further privacy cost, each with ends and a p-value at every
confidence level. Which of the two stands first does not depend on the confidence level asked for: the check uses 95%.

The any-shape reading of the straddling design is proven (`any_shape`) and valid at every look. Designs that follow the
quantile have the questions that bracket it (`bracket`), together with the smooth interval: measured, not proven.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privatile.core.arrays import Floats, array_namespace
from privatile.core.scale import clip
from privatile.estimator.auto import SUPPORTED, supported
from privatile.estimator.candidates import Candidates
from privatile.estimator.open_plan import OpenPlan, open_memory
from privatile.estimator.plan import RoundState
from privatile.estimator.straddle_plan import StraddlePlan, straddle_memory
from privatile.inference.any_shape import CHECKED_AT, AnyShape
from privatile.inference.anytime import OpenAnytimeLaw
from privatile.inference.client_curves import fit_by_client
from privatile.inference.curve import LARGEST_MISFIT, LARGEST_SLOPE_ERROR, CurveFit
from privatile.inference.inference import ANY_SHAPE_METHOD, Inference, from_ends, hull
from privatile.inference.smooth_reading import SmoothFits, Straddled, fit_smooth, placement_factor
from privatile.inference.trajectory import ClientAnswers
from privatile.inference.tuned_reading import Curve, information_in, left_for_file
from privatile.inference.variance import variance_share
from privatile.laws.fieller import FiellerLaw

OUTSIDE = "the curve's quantile lies outside the interval that holds for every distribution"
LITTLE = f"the answers hold less information than the {SUPPORTED:,.0f} from which on it is validated"
UNKNOWN_STEEPNESS = "the answers do not show how steep the distribution is at the quantile"
NO_CURVE = "the answers do not follow a smooth curve"

FARTHEST_APART = 2.0
"""Standard errors that may lie between the slopes of the two fits (`SmoothFits.apart`). Answers from far away show a
slope in the middle of a gap or beside a heap, where those nearby show none or another one. Of 1,500 runs at 120,000
people and ε = 1 a smooth interval is shown and misses in .10 (gap), .09 (trough), .03 (zeros 49%) and .51 (density
step), with the freer curve alone in .42, .27, .23 and .77, with the stiffer alone in .22, .11, .06 and .60."""

REASONS = ("", OUTSIDE, LITTLE, UNKNOWN_STEEPNESS, NO_CURVE)
"""What speaks against the smooth reading, in words; `reason_against` gives the place."""


@dataclass(frozen=True, eq=False)
class Readings:
    """Both readings of one run."""

    any_shape: Inference
    smooth: Inference
    fit: CurveFit
    contradiction: str
    """In words, what in the answers contradicts a smooth distribution; empty where nothing does."""
    tests: AnyShape | None = None
    """Of a straddled run: what its any-shape interval comes from, valid at every look."""
    open_end: bool = False
    """Whether no end was fixed beforehand, or it is not reached: then the smooth interval is one for every look."""

    def headline(self, *, continuous: bool) -> Inference:
        """The reading that a result shows first."""
        return self.smooth if continuous and not self.contradiction else self.any_shape

    def crossed(self, confidence_level: float) -> bool:
        """Whether the answers contradict each other: those of one side exclude what those of the other leave."""
        return self.tests is not None and bool(self.tests.crossed(confidence_level)[0])

    def with_boundaries_moved(self, share: float) -> "Readings":
        """The same with every candidate a share nearer to acceptance, or, below zero, further from it."""
        if self.tests is None:
            return self
        tests = self.tests.with_boundaries_moved(share)
        any_shape = any_shape_inference(tests, self.any_shape.center, self.any_shape.error_scale)
        return replace(self, any_shape=any_shape, tests=tests)


def readings(
    plan: StraddlePlan | OpenPlan,
    state: RoundState,
    answers: Floats,
    clients: ClientAnswers | None = None,
    *,
    file: bool = False,
    at_fixed_end: bool = True,
    at_every_look: bool = False,
) -> "Readings":
    """Both readings of a straddled run as it stands after any round.

    `answers` has three rows: queries, τ − F̂ there, and its noise. `clients` is given where some were silent. Where the
    `file` itself is the target the smooth error is smaller; the any-shape interval keeps the population's noise.
    `at_fixed_end` is false for an open-ended run that has not reached an end fixed before its first answer;
    `at_every_look` is true for a run that stops by its width.
    """
    window, tests = straddled(plan, state)
    queries, residuals, noise = answers
    share = variance_share(state, plan)
    rows = queries[None], residuals[None], share * noise[None]
    every = fit_smooth(*rows, plan.level, window, plan.information, at_every_look=at_every_look)
    fits = every.of_run(0)
    if clients is not None:
        weights = np.array([client.weight for client in plan.clients])
        # Their own curves take over the bend: the stiffer one has nobody to agree with.
        fit = fit_by_client(fits.nearer, clients, weights, plan.level, share)
        fit = fit._replace(error=placement_factor(window) * fit.error)
        fits = SmoothFits(fit, fit)
    fit = fits.curve
    center, error = float(fit.center), float(fit.error)
    if file:
        error *= left_for_file(fit, answers, state, plan) ** 0.5
    is_open, known = isinstance(plan, OpenPlan) and not at_fixed_end, information_in(noise, plan.level)
    law: FiellerLaw | OpenAnytimeLaw = FiellerLaw(float(fit.slope_error), known)
    if is_open:
        law = OpenAnytimeLaw(known, float(fit.slope_error))
    smooth = Inference("anytime" if is_open else "smooth", center, error, law.quantile, law.tail)
    any_shape = any_shape_inference(tests, clip(plan.scale, center), error)
    against = REASONS[int(reason_against(fits, *tests.ends(CHECKED_AT), plan.information))]
    return Readings(any_shape, smooth, fit, against, tests, is_open)


def straddled(plan: StraddlePlan | OpenPlan, state: RoundState) -> tuple[Straddled, AnyShape]:
    """What the window of a run has learned, and its tests: by the normal law, or exact for few records and bets."""
    if isinstance(plan, OpenPlan):
        learned = open_memory(state).policy_state
        return learned, AnyShape(learned.tests)
    window = straddle_memory(state).policy_state.window
    return window, known_end(plan, window.tests)


def known_end(plan: StraddlePlan, tests: Candidates) -> AnyShape:
    """The tests of runs with a known number of records, of one or of many at once (`exact_tests`)."""
    return AnyShape(tests, plan.exact)


def any_shape_inference(tests: AnyShape, center: float, error: float) -> Inference:
    """The any-shape interval of one run with an estimate inside it at every level (`AnyShape.around`)."""
    inside, every = tests.around(np.array([center]))

    def ends(level: float) -> tuple[float, float]:
        low, high = every(level)
        return float(low[0]), float(high[0])

    return from_ends(ANY_SHAPE_METHOD, float(inside[0]), error, ends)


def reason_against(fits: SmoothFits, low: Any, high: Any, information: float) -> Any:
    """Place in `REASONS` of what speaks against the smooth reading, 0 for nothing; for one run or many at once.

    `low` and `high` are the ends of the any-shape interval at `CHECKED_AT`; `information` is that of all records.
    """
    xp = array_namespace(fits.curve.center)
    reason = xp.where(fits.apart > FARTHEST_APART, 4, 0)
    for fit in fits:
        reason = xp.where(fit.misfit > LARGEST_MISFIT, 4, reason)
    for fit in fits:
        reason = xp.where(fit.slope_clipped | ~(fit.slope_error <= LARGEST_SLOPE_ERROR), 3, reason)
    if not supported(information):
        reason = xp.full_like(reason, 2)
    center = fits.curve.center
    return xp.where((center >= low) & (center <= high), reason, 1)


def curve_readings(curve: Curve, average: float, information: float) -> "Readings":
    """Both readings of a run that follows the quantile; `average` is the mean of its questions."""
    fit = curve.fit
    center = average if bool(fit.slope_clipped) else curve.inference.center
    any_shape = hull(center, (curve.inference, curve.bracket), ANY_SHAPE_METHOD)
    if not bool(fit.smooth):
        contradiction = NO_CURVE
    elif not supported(information):
        contradiction = LITTLE
    else:
        contradiction = "" if bool(fit.holds) else UNKNOWN_STEEPNESS
    return Readings(any_shape, curve.inference, fit, contradiction)
