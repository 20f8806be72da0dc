"""Which interval a run is given: one rule for live runs, for pages and for simulations.

The same counts may be reported at another confidence level, with another interval or for another target; no question
depends on it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from privatile.core.scale import Scale
from privatile.errors import InputError
from privatile.estimator.auto import AutoPlan, memory_of, supported
from privatile.estimator.candidates import Candidates
from privatile.estimator.clients import pooled_noise
from privatile.estimator.open_plan import OpenPlan
from privatile.estimator.plan import Plan, RoundState
from privatile.estimator.question_policy import information
from privatile.estimator.settings import ReportSettings
from privatile.estimator.straddle_plan import StraddlePlan
from privatile.inference.anytime import STRADDLED, AnytimeLaw
from privatile.inference.curve import CurveFit
from privatile.inference.inference import ANY_SHAPE_METHOD, Inference, clip_to_range, hull, simultaneous
from privatile.inference.readings import Readings, curve_readings, readings
from privatile.inference.self_normalized import (
    AveragedPath,
    averaged_path,
    endpoint_variance,
    finite_self_normalized,
    self_normalized,
)
from privatile.inference.trajectory import Trajectory
from privatile.inference.tuned_reading import Curve, fit_run
from privatile.laws.fieller import low_information_factor

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
