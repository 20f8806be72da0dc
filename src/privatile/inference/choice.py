"""Which interval a run is given, from its two readings: one rule for live runs, pages and simulations.

Two readings of one run: valid for every distribution, and for smooth ones.

The any-shape reading is the headline unless the values were declared continuous. Then the smooth one is, unless the
answers contradict the declaration: its centre lies outside the any-shape interval, the curve does not fit, or its slope
is hardly known. Both come from the same answers, at no further privacy cost, each with ends and a p-value at every
confidence level. Which of the two stands first does not depend on the confidence level asked for: the check uses 95%.

The any-shape reading of the straddling design is proven (`any_shape`) and valid at every look. Designs that follow the
quantile have the questions that bracket it (`bracket`), together with the smooth interval: measured, not proven.

Which interval a run is given: one rule for live runs, for pages and for simulations.

The same counts may be reported at another confidence level, with another interval or for another target; no question
depends on it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from privatile.core.arrays import Floats, array_namespace
from privatile.core.scale import Scale, clip
from privatile.errors import InputError
from privatile.estimator.candidates import Candidates
from privatile.estimator.clients import pooled_noise
from privatile.estimator.open_ended import OpenPlan, open_memory
from privatile.estimator.plan import Plan, RoundState
from privatile.estimator.settings import ReportSettings
from privatile.estimator.straddle import StraddlePlan, straddle_memory
from privatile.estimator.tuned import SUPPORTED, AutoPlan, information, memory_of, supported
from privatile.inference.any_shape import CHECKED_AT, AnyShape
from privatile.inference.anytime import STRADDLED, AnytimeLaw, OpenAnytimeLaw
from privatile.inference.curve import (
    LARGEST_MISFIT,
    LARGEST_SLOPE_ERROR,
    Curve,
    CurveFit,
    fit_by_client,
    fit_run,
    information_in,
    left_for_file,
)
from privatile.inference.inference import (
    ANY_SHAPE_METHOD,
    Inference,
    clip_to_range,
    from_ends,
    hull,
    simultaneous,
    variance_share,
)
from privatile.inference.self_normalized import (
    AveragedPath,
    averaged_path,
    endpoint_variance,
    finite_self_normalized,
    self_normalized,
)
from privatile.inference.smooth import SmoothFits, Straddled, fit_smooth, placement_factor
from privatile.inference.trajectory import ClientAnswers, Trajectory
from privatile.laws.ratio import FiellerLaw, low_information_factor

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


NOTHING_KNOWN = 25.0
"""Information below which a path that gives no slope bounds nothing by default: fewer than five standard errors to a
local spread, so the path has not settled anywhere. `--interval self-normalized` shows the asymptotic interval still."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the interval of one run is chosen from."""

    curve: Curve | None
    """The curve through all answers of a run that follows the quantile; none in local mode, before two averaged rounds,
    and for straddled runs, whose readings have their own."""
    path: Callable[[], AveragedPath]
    """The averaged rounds; called only where an interval needs them."""
    information: float
    asked_share: float
    """Share of all records asked so far."""
    straddled: Readings | None = None
    """Both readings of a straddled run, once it has two rounds in its window."""

    @cached_property
    def readings(self) -> Readings | None:
        """Both readings; none in local mode and before two averaged rounds."""
        if self.straddled is not None or self.curve is None:
            return self.straddled
        return curve_readings(self.curve, self.path().center, self.information)


def gather_evidence(
    settings: ReportSettings, plan: Plan, state: RoundState, trajectory: Trajectory, *, at_fixed_end: bool = True
) -> Evidence:
    """The evidence of a run as it stands after any round; `at_fixed_end` as in `readings`."""
    file = settings.target == "file"
    curve = straddled = None
    if isinstance(plan, StraddlePlan | OpenPlan):
        if state.averages.give_interval:
            straddled = readings(
                plan,
                state,
                trajectory.answers,
                trajectory.clients,
                file=file,
                at_fixed_end=at_fixed_end,
                at_every_look=settings.until_width is not None,
            )
    elif plan.mode == "cohort" and state.averages.give_interval:
        guess = float(memory_of(state).tuning.slope[0]) if isinstance(plan, AutoPlan) else None
        curve = fit_run(state, trajectory, plan, guess=guess, file=file)

    def path() -> AveragedPath:
        share = endpoint_variance(state, plan, trajectory) if file else 1.0
        return averaged_path(state, trajectory, share)

    asked = sum(state.asked) / sum(client.records for client in plan.clients)
    known = information(plan.level, pooled_noise(plan.clients))
    return Evidence(curve, path, known, min(asked, 1.0), straddled)


def choose_interval(settings: ReportSettings, evidence: Evidence) -> Inference:
    """The interval asked for; by default the any-shape one, or the smooth one for values declared continuous."""
    curve, both = evidence.curve, evidence.readings
    if settings.until_width is not None:
        sequence = anytime_inference(evidence)
        if sequence is None:
            raise InputError(
                "a run that stops by its width needs cohort mode and two averaged rounds; leave out mode='local'."
            )
        return sequence
    if settings.interval == "default":
        if both is not None and settings.normalizer == "l2":
            return both.headline(continuous=settings.declared.continuous)
        path = self_normalized(evidence.path(), settings.normalizer)
        # The asymptotic interval of a path that has not settled anywhere is too narrow.
        return path.unbounded() if both is None and evidence.information < NOTHING_KNOWN else path
    if settings.interval in ("any-shape", "smooth"):
        if both is None:
            raise InputError(
                f"the {settings.interval} interval needs cohort mode and two averaged rounds; take "
                "interval='self-normalized'."
            )
        return both.any_shape if settings.interval == "any-shape" else both.smooth
    usual = settings.interval == "self-normalized" and settings.normalizer == "l2" and settings.target != "file"
    if usual and curve is not None and curve.fit.holds:
        return finite_self_normalized(evidence.path(), float(curve.fit.slope))
    return self_normalized(evidence.path(), settings.normalizer)


def anytime_inference(evidence: Evidence) -> Inference | None:
    """What is valid however often it is looked at, and wherever the run stops; none where nothing is.

    A straddled run's any-shape interval is; for other runs it is the confidence sequence at this look, and where the
    curve is suspect or has no slope the any-shape interval, which holds that sequence.
    """
    if evidence.straddled is not None:
        return evidence.straddled.any_shape
    curve = evidence.curve
    if curve is None:
        return None
    return smooth_sequence(curve.fit, evidence.asked_share) if _trusted(curve) else _with_bracket(evidence, curve)


def beside_anytime(evidence: Evidence) -> Inference | None:
    """The other reading of the same answers that is valid at every look, for what `anytime_inference` gives.

    None without a curve, for straddled runs whose number of records was not known (their clock is another one), while
    the answers so far hold too little information for a smooth reading, and where the any-shape interval stands first
    because the curve is not to be trusted.
    """
    straddled, curve = evidence.straddled, evidence.curve
    if straddled is not None:
        known = straddled.tests is not None and isinstance(straddled.tests.tests, Candidates)
        so_far = evidence.information * evidence.asked_share
        if not known or not supported(so_far):
            return None
        wider = STRADDLED * float(low_information_factor(so_far))
        return smooth_sequence(straddled.fit, evidence.asked_share, wider)
    if curve is None or not _trusted(curve):
        return None
    return _with_bracket(evidence, curve)


def smooth_sequence(fit: CurveFit, asked_share: float, wider: float = 1.0) -> Inference:
    """The confidence sequence of a curve (`anytime`); a file as the target keeps a population's noise.

    A file narrows the end of a run more than its beginning.
    """
    law = AnytimeLaw(asked_share, float(fit.slope_error), wider)
    return Inference("anytime", float(fit.center), float(fit.error), law.quantile, law.tail)


def _trusted(curve: Curve) -> bool:
    """Whether a confidence sequence may come from this curve alone: it has a slope, and no atom or gap shows."""
    return not bool(curve.fit.suspect) and not bool(curve.fit.slope_clipped)


def _with_bracket(evidence: Evidence, curve: Curve) -> Inference:
    """The any-shape interval of a run that follows the quantile, at any look."""
    sequence = smooth_sequence(curve.fit, evidence.asked_share)
    center = evidence.path().center if curve.fit.slope_clipped else sequence.center
    return hull(center, (sequence, curve.anytime_bracket(evidence.asked_share)), ANY_SHAPE_METHOD)


def valid_at_every_look(settings: ReportSettings, evidence: Evidence, chosen: Inference) -> bool:
    """Whether the interval that was chosen is the one of `anytime_inference`, and not one for the planned end only."""
    both = evidence.straddled
    return settings.until_width is not None or (both is not None and (chosen.is_any_shape or both.open_end))


def as_displayed(inference: Inference, settings: ReportSettings, scale: Scale) -> Inference:
    """The inference as a result shows it: adjusted for simultaneous levels, its centre inside the range."""
    return clip_to_range(simultaneous(inference, settings.joint), scale)
