"""What the answers of one level say: which interval is shown, and what stands beside it.

One rule for live runs, pages, the replay of files and simulations.

Two readings of one run: valid for every distribution, and for smooth ones. The any-shape reading is shown first unless
the values were declared continuous. Then the smooth one is, unless the answers contradict the declaration: its centre
lies outside the any-shape interval, the curve does not fit, or its slope is hardly known. Both come from the same
answers, at no further privacy cost, each with ends and a p-value at every confidence level. Which of the two stands
first does not depend on the confidence level asked for: the check uses 95%.

The any-shape reading of the straddling designs is proven (`any_shape`) and valid at every look. Designs that follow the
quantile have the questions that bracket it, together with the smooth interval: measured, not proven.

The same counts may be reported at another confidence level, with another interval or for another target; no question
depends on it.
"""

from dataclasses import dataclass

import numpy as np

from privatile.core.scale import Scale, clip
from privatile.errors import InputError
from privatile.estimator.clients import pooled_noise
from privatile.estimator.open_ended import Bets, OpenPlan, OpenRun, open_memory
from privatile.estimator.plan import Plan, RoundState
from privatile.estimator.settings import ReportSettings
from privatile.estimator.straddle import Run, StraddlePlan, straddle_memory
from privatile.estimator.tuned import SUPPORTED, AutoPlan, information, supported, tuned_run
from privatile.inference.any_shape import CHECKED_AT, AnyShape
from privatile.inference.anytime import STRADDLED, AnytimeLaw, OpenAnytimeLaw
from privatile.inference.curve import (
    MAX_MISFIT,
    MAX_SLOPE_ERROR,
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
    endpoint_variance,
    finite_self_normalized,
    self_normalized,
)
from privatile.inference.smooth import SmoothFits, fit_smooth, placement_factor
from privatile.inference.trajectory import Trajectory
from privatile.laws.ratio import FiellerLaw, low_information_factor

OUTSIDE = "the curve's quantile lies outside the interval that holds for every distribution"
LITTLE = f"the answers hold less information than the {SUPPORTED:,.0f} from which on it is validated"
UNKNOWN_STEEPNESS = "the answers do not show how steep the distribution is at the quantile"
NO_CURVE = "the answers do not follow a smooth curve"
SUSPECT = "the answers follow a smooth curve less well than most do"
"""Why the any-shape interval of a run that was looked at stands first if its curve is suspect, and its misfit not yet a
contradiction."""

FARTHEST_APART = 2.0
"""Standard errors that may lie between the slopes of the two fits (`SmoothFits.apart`). Answers from far away show a
slope in the middle of a gap or beside a heap, where those nearby show none or another one. Of 1,500 runs at 120,000
people and ε = 1 a smooth interval is shown and misses in .10 (gap), .09 (trough), .03 (zeros 49%) and .51 (density
step), with the freer curve alone in .42, .27, .23 and .77, with the stiffer alone in .22, .11, .06 and .60."""

NOTHING_KNOWN = 25.0
"""Information below which a path that gives no slope bounds nothing by default: fewer than five standard errors to a
local spread, so the path has not settled anywhere. `--interval self-normalized` shows the asymptotic interval still."""


@dataclass(frozen=True, eq=False)
class Reading:
    """What the answers of one level say, as a result is asked to report them."""

    shown: Inference
    """The interval asked for; by default the any-shape one, or the smooth one for values declared continuous."""
    other: Inference | None
    """The other of the two readings, where it may stand beside the first one."""
    anytime: Inference | None
    """What is valid however often it is looked at, and wherever the run stops; none where nothing is."""
    beside_anytime: Inference | None
    """The other reading that is valid at every look, if any."""
    valid_at_every_look: bool
    """Whether the interval shown is that one, and not one for the planned end only."""
    any_shape: Inference | None = None
    smooth: Inference | None = None
    fit: CurveFit | None = None
    """Both readings and their curve; none in local mode and before two averaged rounds."""
    contradiction: str = ""
    """In words, what in the answers contradicts a smooth distribution; empty where nothing does."""
    suspect: bool = False
    """Whether a run that was looked at has no smooth reading because its curve is `SUSPECT`."""
    tests: AnyShape | None = None
    """Of a straddled run: what its any-shape interval comes from, valid at every look."""
    may_stop: bool = True
    """Whether the diagnostics of a smooth interval allow the run to stop by its width."""

    def crossed(self, confidence_level: float) -> bool:
        """Whether the answers contradict each other: those of one side exclude what those of the other leave."""
        return self.tests is not None and self.tests.crossed(confidence_level)


def read(
    settings: ReportSettings,
    plan: Plan,
    state: RoundState,
    trajectory: Trajectory,
    *,
    at_fixed_end: bool = True,
    boundary_shift: float = 0.0,
) -> Reading:
    """The reading of a run as it stands after any round.

    `at_fixed_end` is false for an open-ended run that has not reached an end fixed before its first answer.
    `boundary_shift` moves the limits of the diagnostics and of the tests by a share, so that a run stops sooner, or
    later where it is below zero.
    """
    if state.averages.give_interval:
        if isinstance(plan, StraddlePlan | OpenPlan):
            return _read_straddled(settings, plan, state, trajectory, at_fixed_end, boundary_shift)
        if plan.mode == "cohort":
            return _read_curve(settings, plan, state, trajectory, boundary_shift)
    if settings.until_width is not None:
        raise InputError(
            "a run that stops by its width needs cohort mode and two averaged rounds; leave out mode='local'."
        )
    if settings.interval in ("any-shape", "smooth"):
        raise InputError(
            f"the {settings.interval} interval needs cohort mode and two averaged rounds; take "
            "interval='self-normalized'."
        )
    path = _read_path(settings, plan, state, trajectory)
    # The asymptotic interval of a path that has not settled anywhere is too narrow.
    lost = settings.interval == "default" and information(plan.level, pooled_noise(plan.clients)) < NOTHING_KNOWN
    return Reading(path.unbounded() if lost else path, None, None, None, False)


def _read_path(settings: ReportSettings, plan: Plan, state: RoundState, trajectory: Trajectory) -> Inference:
    """The self-normalised interval for the target."""
    share = endpoint_variance(state, plan, trajectory) if settings.target == "file" else 1.0
    return self_normalized(state, trajectory, settings.normalizer, share)


def asked_share(plan: Plan, state: RoundState) -> float:
    """Share of all records asked so far."""
    return min(sum(state.asked) / sum(client.records for client in plan.clients), 1.0)


def _read_straddled(
    settings: ReportSettings,
    plan: StraddlePlan | OpenPlan,
    state: RoundState,
    trajectory: Trajectory,
    at_fixed_end: bool,
    boundary_shift: float,
) -> Reading:
    """Both readings of a straddled run; for a file as the target the any-shape one keeps the population's noise."""
    run, tests = straddled(plan, state)
    looked_at = settings.until_width is not None
    answers, clients = trajectory.answers, trajectory.clients
    queries, residuals, noise = answers
    share = variance_share(state, plan)
    fits = fit_smooth(queries, residuals, share * noise, plan.level, run, plan.information, at_every_look=looked_at)
    if clients is not None:
        weights = np.array([client.weight for client in plan.clients])
        # Their own curves take over the bend: the stiffer one has nobody to agree with.
        fit = fit_by_client(fits.nearer, clients, weights, plan.level, share)
        fit = fit._replace(error=placement_factor(run) * fit.error)
        fits = SmoothFits(fit, fit)
    fit, error = fits.curve, fits.curve.error
    if settings.target == "file":
        error *= left_for_file(fit, answers, state, plan) ** 0.5
    is_open, known = isinstance(plan, OpenPlan) and not at_fixed_end, information_in(noise, plan.level)
    law = OpenAnytimeLaw(known, fit.slope_error) if is_open else FiellerLaw(fit.slope_error, known)
    smooth = Inference("anytime" if is_open else "smooth", fit.center, error, law.quantile, law.tail)
    against = reason_against(fits, tests.ends(CHECKED_AT), plan.information)
    moved = tests.with_boundaries_moved(boundary_shift) if boundary_shift else tests
    any_shape = any_shape_inference(moved, clip(plan.scale, fit.center), error)
    beside_anytime = _beside_tests(plan, state, tests, fit)
    if looked_at:
        shown, beside = any_shape, beside_anytime
    else:
        shown = _of_two(settings, any_shape, smooth, against)
        beside = smooth if shown is any_shape else any_shape
    welcome = shown is not any_shape or (not against and settings.declared.may_be_smooth)
    return Reading(
        shown,
        beside if welcome and not is_open else None,
        any_shape,
        beside_anytime,
        looked_at or is_open or shown is any_shape,
        any_shape,
        smooth,
        fit,
        against,
        tests=moved,
    )


def straddled(plan: StraddlePlan | OpenPlan, state: RoundState) -> tuple[Run | OpenRun, AnyShape]:
    """What a straddled run has learned, and its tests: by the normal law, or exact for few records and bets."""
    if isinstance(plan, OpenPlan):
        learned = open_memory(state).run
        return learned, AnyShape((learned.sides[0].bets, learned.sides[1].bets))
    run = straddle_memory(state).run
    return run, any_shape_of(plan, run)


def any_shape_of(plan: StraddlePlan, run: Run) -> AnyShape:
    """The tests of a run with a known number of records."""
    return AnyShape((run.sides[0].candidates, run.sides[1].candidates), plan.exact)


def any_shape_inference(tests: AnyShape, center: float, error: float) -> Inference:
    """The any-shape interval with an estimate inside it at every level (`AnyShape.around`)."""
    inside, ends = tests.around(center)
    return from_ends(ANY_SHAPE_METHOD, inside, error, ends)


def reason_against(fits: SmoothFits, ends: tuple[float, float], known: float) -> str:
    """What speaks against the smooth reading, in words; empty for nothing.

    `ends` are those of the any-shape interval at `CHECKED_AT`; `known` is the information of all records.
    """
    if not ends[0] <= fits.curve.center <= ends[1]:
        return OUTSIDE
    if not supported(known):
        return LITTLE
    if any(fit.slope_clipped or not fit.slope_error <= MAX_SLOPE_ERROR for fit in fits):
        return UNKNOWN_STEEPNESS
    if fits.apart > FARTHEST_APART or any(fit.misfit > MAX_MISFIT for fit in fits):
        return NO_CURVE
    return ""


def _beside_tests(plan: StraddlePlan | OpenPlan, state: RoundState, tests: AnyShape, fit: CurveFit) -> Inference | None:
    """The smooth reading of a straddled run that is valid at every look.

    None if the number of records was not known (its clock is another one), or while the answers so far hold too little
    information for a smooth reading.
    """
    share = asked_share(plan, state)
    so_far = plan.information * share
    if isinstance(tests.sides[0], Bets) or not supported(so_far):
        return None
    return smooth_sequence(fit, share, STRADDLED * float(low_information_factor(so_far)))


def _of_two(settings: ReportSettings, any_shape: Inference, smooth: Inference, against: str) -> Inference:
    """The reading that was asked for; by default the smooth one if it was declared and nothing speaks against it."""
    if settings.interval == "default":
        return smooth if settings.declared.continuous and not against else any_shape
    return any_shape if settings.interval == "any-shape" else smooth


def _read_curve(
    settings: ReportSettings, plan: Plan, state: RoundState, trajectory: Trajectory, boundary_shift: float
) -> Reading:
    """The readings of a run that follows the quantile, in cohort mode."""
    guess = tuned_run(state).slope if isinstance(plan, AutoPlan) else None
    curve = fit_run(state, trajectory, plan, guess=guess, file=settings.target == "file")
    fit = curve.fit.with_boundaries_moved(boundary_shift) if boundary_shift else curve.fit
    average, share = state.averages.estimate, asked_share(plan, state)
    center = average if fit.slope_clipped else curve.inference.center
    any_shape = hull(center, (curve.inference, curve.bracket), ANY_SHAPE_METHOD)
    if not fit.smooth:
        against = NO_CURVE
    elif not supported(information(plan.level, pooled_noise(plan.clients))):
        against = LITTLE
    else:
        against = "" if fit.holds else UNKNOWN_STEEPNESS
    # A confidence sequence may come from this curve alone if it has a slope, and no atom or gap shows.
    trusted = not fit.suspect and not fit.slope_clipped
    sequence = smooth_sequence(fit, share)
    around = hull(
        average if fit.slope_clipped else sequence.center, (sequence, curve.anytime_bracket(share)), ANY_SHAPE_METHOD
    )
    anytime, beside_anytime = (sequence, around) if trusted else (around, None)
    looked_at = settings.until_width is not None
    if looked_at:
        shown, beside = anytime, beside_anytime
    elif settings.interval in ("any-shape", "smooth") or (settings.interval, settings.normalizer) == ("default", "l2"):
        shown = _of_two(settings, any_shape, curve.inference, against)
        beside = curve.inference if shown is any_shape else any_shape
    else:
        usual = settings.interval == "self-normalized" and settings.normalizer == "l2" and settings.target != "file"
        if usual and fit.holds:
            shown = finite_self_normalized(state, trajectory, fit.slope)
        else:
            shown = _read_path(settings, plan, state, trajectory)
        beside = any_shape
    suspect = looked_at and not trusted
    welcome = not shown.is_any_shape or (not against and not suspect and settings.declared.may_be_smooth)
    return Reading(
        shown,
        beside if welcome else None,
        anytime,
        beside_anytime,
        looked_at,
        any_shape,
        curve.inference,
        fit,
        against,
        suspect,
        may_stop=fit.holds,
    )


def smooth_sequence(fit: CurveFit, share: float, wider: float = 1.0) -> Inference:
    """The confidence sequence of a curve (`anytime`); a file as the target keeps a population's noise.

    A file narrows the end of a run more than its beginning.
    """
    law = AnytimeLaw(share, fit.slope_error, wider)
    return Inference("anytime", fit.center, fit.error, law.quantile, law.tail)


def as_displayed(inference: Inference, settings: ReportSettings, scale: Scale) -> Inference:
    """The inference as a result shows it: adjusted for simultaneous levels, its centre inside the range."""
    return clip_to_range(simultaneous(inference, settings.joint), scale)
