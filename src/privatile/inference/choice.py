"""Which interval a run is given: one rule for live runs, for pages and for simulations.

The same counts may be reported at another confidence level, with another interval or for another target; no question
depends on it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from privatile.core.scale import Scale
from privatile.errors import InputError
from privatile.estimator.auto import AutoPlan, memory_of
from privatile.estimator.clients import pooled_noise
from privatile.estimator.plan import Plan, RoundState
from privatile.estimator.question_policy import information
from privatile.estimator.settings import ReportSettings
from privatile.inference.anytime import AnytimeLaw
from privatile.inference.inference import Inference, clip_to_range, hull, simultaneous
from privatile.inference.plug_in import Curve, plug_in
from privatile.inference.self_normalized import (
    AveragedPath,
    averaged_path,
    endpoint_variance,
    finite_self_normalized,
    self_normalized,
)
from privatile.inference.trajectory import Trajectory

NOTHING_KNOWN = 25.0
"""Information below which a path that gives no slope bounds nothing by default: fewer than five standard errors to a
local spread, so the path has not settled anywhere. `--interval self-normalized` shows the asymptotic interval still."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the interval of one run is chosen from."""

    curve: Curve | None
    """The curve through all answers; none in local mode and before two averaged rounds."""
    path: Callable[[], AveragedPath]
    """The averaged rounds; called only where an interval needs them."""
    information: float
    asked_share: float
    """Share of all records asked so far."""


def gather_evidence(settings: ReportSettings, plan: Plan, state: RoundState, trajectory: Trajectory) -> Evidence:
    """The evidence of a run as it stands after any round."""
    file = settings.target == "file"
    curve = None
    if plan.mode == "cohort" and state.averages.rounds >= 2:
        guess = float(memory_of(state).tuning.slope[0]) if isinstance(plan, AutoPlan) else None
        curve = plug_in(state, trajectory, plan, guess=guess, file=file)

    def path() -> AveragedPath:
        share = endpoint_variance(state, plan, trajectory) if file else 1.0
        return averaged_path(state, trajectory, share)

    asked = sum(state.asked) / sum(client.records for client in plan.clients)
    return Evidence(curve, path, information(plan.level, pooled_noise(plan.clients)), min(asked, 1.0))


def choose_interval(settings: ReportSettings, evidence: Evidence) -> Inference:
    """The interval asked for; by default the plug-in one where its diagnostics hold, else the hull of several."""
    curve = evidence.curve
    if settings.until_width is not None:
        if curve is None:
            raise InputError("a run that stops by its width needs cohort mode; leave out --mode local.")
        return anytime_inference(curve, evidence)
    if settings.interval == "default":
        return _default_interval(settings, evidence)
    if settings.interval == "plug-in":
        if curve is None:
            raise InputError(
                "the plug-in interval needs cohort mode and two averaged rounds; take --interval self-normalized."
            )
        return curve.inference
    usual = settings.interval == "self-normalized" and settings.normalizer == "l2" and settings.target != "file"
    if usual and curve is not None and curve.fit.holds:
        return finite_self_normalized(evidence.path(), float(curve.fit.slope))
    return self_normalized(evidence.path(), settings.normalizer)


def _default_interval(settings: ReportSettings, evidence: Evidence) -> Inference:
    """The plug-in interval where it holds; elsewhere it is widened.

    The self-normalised interval alone does not replace it: where the slope is hardly known the path has had few
    relaxations, and its law is then too narrow. A slope that may be zero leaves the whole range.
    """
    curve = evidence.curve
    if curve is not None and settings.normalizer == "l2" and curve.fit.holds:
        return curve.inference
    path = self_normalized(evidence.path(), settings.normalizer)
    if curve is None:
        return path.unbounded() if evidence.information < NOTHING_KNOWN else path
    if settings.normalizer != "l2":
        return path
    if curve.fit.slope_clipped or not curve.fit.smooth:
        center = path.center if curve.fit.slope_clipped else curve.inference.center
        members = (curve.inference, path, curve.bracket)
        return hull(center, members, "bracketing questions, plug-in and self-normalized: the widest")
    return hull(curve.inference.center, (curve.inference, path), "wider of plug-in and self-normalized")


def anytime_inference(curve: Curve, evidence: Evidence) -> Inference:
    """The confidence sequence at this look: valid however often it is looked at, and wherever the run stops."""
    law = AnytimeLaw(evidence.asked_share, float(curve.fit.slope_error))
    # A file as the target narrows the end of a run more than its beginning: the sequence keeps a population's noise.
    error_scale = curve.inference.error_scale / curve.file_share**0.5
    sequence = Inference("anytime", curve.inference.center, error_scale, law.quantile, law.tail)
    if not curve.fit.suspect and not curve.fit.slope_clipped:
        return sequence
    center = evidence.path().center if curve.fit.slope_clipped else sequence.center
    return hull(center, (sequence, curve.bracket), "anytime")


def as_displayed(inference: Inference, settings: ReportSettings, scale: Scale) -> Inference:
    """The inference as a result shows it: adjusted for simultaneous levels, its centre inside the range."""
    return clip_to_range(simultaneous(inference, settings.joint), scale)
