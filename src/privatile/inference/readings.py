"""Two readings of one straddling run: valid for every distribution, and for smooth ones.

The any-shape reading is the headline unless the values were declared continuous. Then the smooth one is, unless the
answers contradict the declaration: its centre lies outside the any-shape interval, the curve does not fit, or its slope
is hardly known. Both come from the same answers, at no further privacy cost, each with ends and a p-value at every
confidence level. Which of the two stands first does not depend on the confidence level asked for: the check uses 95%.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from privatile.core.arrays import Floats, array_namespace
from privatile.estimator.plan import RoundState
from privatile.estimator.straddle_plan import StraddlePlan, straddle_memory
from privatile.inference.any_shape import AnyShape
from privatile.inference.client_curves import client_lines
from privatile.inference.curve import LARGEST_MISFIT, LARGEST_SLOPE_ERROR, CurveFit
from privatile.inference.inference import Inference, from_ends
from privatile.inference.smooth_reading import LowInformationLaw, fit_smooth
from privatile.inference.trajectory import ClientAnswers

CHECKED_AT = 0.95
"""Confidence of the any-shape interval that a smooth centre must lie in."""

REASONS = (
    "",
    "the curve's quantile lies outside the interval that holds for every distribution",
    "the answers do not show how steep the distribution is at the quantile",
    "the answers do not follow a smooth curve",
)
"""What contradicts a smooth distribution, in words; `reason_against` gives the place."""


@dataclass(frozen=True, eq=False)
class Readings:
    """Both readings of one run."""

    any_shape: Inference
    smooth: Inference
    fit: CurveFit
    contradiction: str
    """In words, what in the answers contradicts a smooth distribution; empty where nothing does."""

    def headline(self, *, continuous: bool) -> Inference:
        """The reading that a result shows first."""
        return self.smooth if continuous and not self.contradiction else self.any_shape


def readings(
    plan: StraddlePlan, state: RoundState, answers: Floats, share: float = 1.0, clients: ClientAnswers | None = None
) -> "Readings":
    """Both readings as the run stands after any round.

    `answers` has three rows: queries, τ − F̂ there, and its noise. `share` is what knowing the clients' ranks leaves
    of the noise (`variance_share`); `clients` is given where some were silent.
    """
    learned = straddle_memory(state).policy_state
    queries, residuals, noise = answers
    fit = fit_smooth(queries[None], residuals[None], share * noise[None], plan.level, learned.window).of_run(0)
    center, error, slope_error = float(fit.center), float(fit.error), float(fit.slope_error)
    if clients is not None:
        weights = np.array([client.weight for client in plan.clients])
        lines = client_lines(clients.queries, clients.residuals, clients.precisions, weights, plan.level, fit)
        center, error, slope_error = lines.center, lines.error * share**0.5, lines.slope_error
    law = LowInformationLaw(slope_error, plan.information)
    smooth = Inference("smooth", center, error, law.quantile, law.tail)
    tests = AnyShape(learned.window.tests)
    return Readings(any_shape_inference(tests, center, error), smooth, fit, contradiction_of(fit, center, tests))


def any_shape_inference(tests: AnyShape, center: float, error: float) -> Inference:
    """The any-shape interval with an estimate inside it at every level: the smooth centre, moved into the 95% one."""
    low, high = tests.ends(CHECKED_AT)
    inside = min(max(center, low), high)

    def ends(level: float) -> tuple[float, float]:
        first, last = tests.ends(level)
        return min(first, inside), max(last, inside)

    return from_ends("any shape", inside, error, ends)


def contradiction_of(fit: CurveFit, center: float, tests: AnyShape) -> str:
    """What in the answers speaks against a smooth distribution; empty where nothing does."""
    return REASONS[int(reason_against(fit, center, *tests.ends(CHECKED_AT)))]


def reason_against(fit: CurveFit, center: Any, low: Any, high: Any) -> Any:
    """Place in `REASONS` of what speaks against a smooth distribution, 0 for nothing; for one run or many at once.

    `low` and `high` are the ends of the any-shape interval at `CHECKED_AT`.
    """
    xp = array_namespace(fit.center)
    unknown = fit.slope_clipped | ~(fit.slope_error <= LARGEST_SLOPE_ERROR)
    reason = xp.where(unknown, 2, xp.where(fit.misfit > LARGEST_MISFIT, 3, 0))
    return xp.where((center >= low) & (center <= high), reason, 1)
