"""Reading the answers: which interval a run is given, and the law behind it.

The same counts may be read at another confidence level, with another interval or for another target; no question
depends on it.
"""

from __future__ import annotations

import math
from dataclasses import replace

from privatile.core.scale import clip, working_range
from privatile.errors import InputError
from privatile.estimator.auto import AutoPlan, memory_of
from privatile.estimator.clients import pooled_noise
from privatile.estimator.plan import Plan, RoundState
from privatile.estimator.question_policy import information
from privatile.estimator.settings import ReportSettings
from privatile.inference.inference import (
    Inference,
    IntervalInference,
    Trajectory,
    endpoint_variance,
    finite_self_normalized,
    hull,
    self_normalized,
)
from privatile.inference.plug_in import Curve, plug_in
from privatile.inference.sequence import SequenceLaw

NOTHING_KNOWN = 25.0
"""Information below which a path that gives no slope bounds nothing by default: fewer than five standard errors to a
local spread, so the path has not settled anywhere. `--interval self-normalized` shows the asymptotic interval still."""


def read(
    settings: ReportSettings, plan: Plan, state: RoundState, trajectory: Trajectory
) -> tuple[Inference, Curve | None]:
    """The inference asked for: by default the plug-in one where its diagnostics hold, else the hull of both.

    Self-normalisation alone does not stand in: where the slope is hardly known the path has had few relaxations, and
    its law is then too narrow. A slope that may be zero leaves the whole range.
    """
    file = settings.target == "file"
    curve = None
    if plan.mode == "cohort" and state.averages.rounds >= 2:
        guess = float(memory_of(state).tuning.slope[0]) if isinstance(plan, AutoPlan) else None
        curve = plug_in(state, trajectory, plan, guess=guess, file=file)
    if settings.until_width is not None:
        if curve is None:
            raise InputError("a run that stops by its width needs cohort mode; leave out --mode local.")
        return anytime_inference(curve, plan, state), curve
    chosen = settings.interval
    if chosen == "default":
        usable = curve is not None and curve.holds and settings.normalizer == "l2"
        chosen = "plug-in" if usable else "self-normalized"
        if curve is not None and not curve.holds and settings.normalizer == "l2":
            share = endpoint_variance(state, plan, trajectory) if file else 1.0
            other = self_normalized(state, trajectory, variance_share=share)
            center = other.center if curve.held else curve.inference.center
            if curve.smooth and not curve.held:
                return hull(center, (curve.inference, other), "wider of plug-in and self-normalized"), curve
            every = (curve.inference, other, curve.bracket)
            return hull(center, every, "bracketing questions, plug-in and self-normalized: the widest"), curve
        if curve is None and information(plan.level, pooled_noise(plan.clients)) < NOTHING_KNOWN:
            path = self_normalized(state, trajectory, settings.normalizer)
            return replace(path, quantile=lambda level: math.inf, tail=lambda distance: 1.0), None
    if chosen == "plug-in":
        if curve is None:
            raise InputError(
                "the plug-in interval needs cohort mode and two averaged rounds; take --interval self-normalized."
            )
        return curve.inference, curve
    share = endpoint_variance(state, plan, trajectory) if file else 1.0
    if chosen == "self-normalized" and curve is not None and curve.holds and settings.normalizer == "l2" and not file:
        return finite_self_normalized(state, trajectory, curve.slope), curve
    return self_normalized(state, trajectory, settings.normalizer, share), curve


def anytime_inference(curve: Curve, plan: Plan, state: RoundState) -> Inference:
    """The confidence sequence at this look: honest however often it is looked at, and wherever the run stops."""
    time = sum(state.asked) / sum(client.records for client in plan.clients)
    law = SequenceLaw(min(time, 1.0), curve.slope_error)
    # A file as the target narrows the end of a run more than its beginning: the sequence keeps a population's noise.
    unit = curve.inference.unit / math.sqrt(curve.file_share)
    sequence = Inference("anytime", curve.inference.center, unit, law.quantile, law.tail)
    if not curve.suspect and not curve.held:
        return sequence
    center = state.averages.estimate if curve.held else sequence.center
    return hull(center, (sequence, curve.bracket), "anytime")


def clip_to_range(inference: Inference, plan: Plan) -> Inference:
    """The same about a centre inside the range, where the estimand is known to lie: no interval shrinks to an end.

    A centre beyond an end stands for "at or beyond": moved there with its reach. A path that stood still at an end has
    no spread to measure, so nothing bounds it.
    """
    low, high = working_range(plan.scale)
    center = clip(plan.scale, inference.center)
    if inference.unit == 0.0 and center in (low, high):
        return replace(inference, center=center, unit=1.0, quantile=lambda level: math.inf, tail=lambda distance: 1.0)
    if center == inference.center:
        return inference
    if isinstance(inference, IntervalInference):
        ends, shift = inference.ends, center - inference.center

        def moved(level: float) -> tuple[float, float]:
            first, last = ends(level)
            return first + shift, last + shift

        return IntervalInference.of(inference.method, center, inference.unit, moved)
    return replace(inference, center=center)
