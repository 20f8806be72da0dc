"""From a run's state to its result: the estimand in words, the interval, the facts and the caveats."""

from dataclasses import replace

from privatile.core.scale import Scale
from privatile.estimator.open_plan import OpenPlan
from privatile.estimator.plan import Plan, RoundState
from privatile.estimator.settings import ReportSettings
from privatile.estimator.straddle_plan import StraddlePlan
from privatile.inference.choice import (
    Evidence,
    anytime_inference,
    as_displayed,
    choose_interval,
    gather_evidence,
    valid_at_every_look,
)
from privatile.inference.inference import level_each
from privatile.inference.readings import straddled
from privatile.inference.trajectory import Trajectory
from privatile.result.both_readings import both_readings, one_of
from privatile.result.caveats import caveats, interval_caveats, said_once
from privatile.result.client_facts import by_holder, client_facts
from privatile.result.diagnostics import diagnose
from privatile.result.explain import explain
from privatile.result.part_words import parts_of
from privatile.result.result import QuantileResult, in_units, interval_in_units
from privatile.result.sentence import ANY_SHAPE, SMOOTH
from privatile.result.severity import most_important_first

FIRST_LOOK = 10
"""Averaged rounds before a run may stop by its width: earlier the slope rests on the probes alone."""


def summarize(
    settings: ReportSettings,
    plan: Plan,
    state: RoundState,
    trajectory: Trajectory,
    run: str,
    *,
    at_fixed_end: bool = True,
) -> QuantileResult:
    """The result as it stands after any round.

    `at_fixed_end` is false for an open-ended run that goes on, or that somebody ended: then nothing is shown that holds
    at an end fixed beforehand only.
    """
    plan = plan.so_far(state)
    evidence = gather_evidence(settings, plan, state, trajectory, at_fixed_end=at_fixed_end)
    alone = choose_interval(settings, evidence)
    inference = as_displayed(alone, settings, plan.scale)
    interval = interval_in_units(inference, plan.scale, settings.confidence_level)
    any_shape = alone.is_any_shape
    rows, warnings = diagnose(settings, plan, state, trajectory, evidence, alone)
    both = both_readings(settings, evidence, alone, interval, plan.scale)
    anytime, sequence = None, anytime_inference(evidence)
    if sequence is not None:
        sequence = as_displayed(sequence, settings, plan.scale)
        anytime = interval_in_units(sequence, plan.scale, settings.confidence_level)
    usual = settings.normalizer == "l2"
    facts = client_facts(plan, state, settings.confidence_level)
    divided = any(client.holder for client in plan.clients)
    return QuantileResult(
        estimand=estimand_in_words(settings, plan),
        level=common_level(plan),
        estimate=one_of(both.grid_values, in_units(plan.scale, inference.center)),
        confidence_interval=interval,
        confidence_level=settings.confidence_level,
        method=inference.method if usual else f"{inference.method} ({settings.normalizer} normaliser)",
        target=settings.target,
        rounds=state.round,
        averaged_rounds=state.averages.rounds,
        records=sum(state.asked),
        design=settings.design,
        mode=plan.mode,
        clients=by_holder(plan, state, settings.confidence_level, facts) if divided else facts,
        classes=facts if divided else (),
        caveats=most_important_first(
            *both.caveats,
            *warnings,
            *said_once(
                interval_caveats(settings, plan, state, interval, any_shape=any_shape),
                caveats(settings, plan, state, alone),
            ),
        ),
        run=run,
        simulated=settings.simulated,
        inference=inference,
        scale=plan.scale,
        diagnostics=tuple(rows),
        anytime=anytime,
        anytime_condition="" if sequence is None else ANY_SHAPE if sequence.is_any_shape else SMOOTH,
        valid_at_every_look=valid_at_every_look(settings, evidence, alone),
        explanation=explain(settings, plan, state, trajectory, evidence),
        condition=both.condition,
        other=both.other,
        contradiction=both.contradiction,
        values=settings.values,
        grid_values=both.grid_values,
        missing=settings.missing,
        column=settings.value,
        simultaneous=settings.joint > 1,
        parts=parts_of(settings.weighting),
    )


def narrow_enough(
    settings: ReportSettings, plan: Plan, state: RoundState, trajectory: Trajectory, boundary_shift: float = 0.0
) -> bool:
    """Whether a run that is to stop at a width may stop now; `boundary_shift` as in `may_stop`."""
    if settings.until_width is None or state.averages.rounds < FIRST_LOOK:
        return False
    if isinstance(plan, StraddlePlan | OpenPlan):
        # Its tests alone say when the interval is still too wide: most looks need no fit.
        _, tests = straddled(plan, state)
        ends = tests.with_boundaries_moved(boundary_shift).ends(level_each(settings.confidence_level, settings.joint))
        low, high = (in_units(plan.scale, end) for end in ends)
        if high - low > settings.until_width * (1.0 + boundary_shift):
            return False
    evidence = gather_evidence(settings, plan.so_far(state), state, trajectory, at_fixed_end=False)
    return may_stop(settings, evidence, plan.scale, boundary_shift)


def may_stop(settings: ReportSettings, evidence: Evidence, scale: Scale, boundary_shift: float = 0.0) -> bool:
    """Whether the displayed interval is as narrow as asked for, and the diagnostics of a smooth one hold.

    `boundary_shift` moves the width and the limits of the diagnostics by a share, so that the run stops sooner (later
    where it is below zero): two machines may differ in a decision only where both of these differ
    (`estimator.transcript`).
    """
    curve, straddled, holds = evidence.curve, evidence.straddled, True
    if settings.until_width is None or (curve is None and straddled is None):
        return False
    if curve is not None:
        curve = replace(curve, fit=curve.fit.with_boundaries_moved(boundary_shift))
        holds = bool(curve.fit.holds)
    if straddled is not None:
        straddled = straddled.with_boundaries_moved(boundary_shift)
    chosen = choose_interval(settings, replace(evidence, curve=curve, straddled=straddled))
    low, high = interval_in_units(as_displayed(chosen, settings, scale), scale, settings.confidence_level)
    return holds and high - low <= settings.until_width * (1.0 + boundary_shift)


def common_level(plan: Plan) -> float:
    """τ, as it was asked for where all clients have the same: Σp_kτ_k may differ from it in the last digit."""
    levels = {client.level for client in plan.clients}
    return levels.pop() if len(levels) == 1 else plan.level


def estimand_in_words(settings: ReportSettings, plan: Plan) -> str:
    """Which quantile of which mixture: changing the weights changes it when the clients differ."""
    level = common_level(plan)
    name = {0.25: " (the lower quartile)", 0.5: " (the median)", 0.75: " (the upper quartile)"}.get(level, "")
    value = settings.value + (f", dithered by ±{settings.dither / 2:g}," if settings.dither else "")
    words = f"The {level:.6g} quantile{name} of {value}"
    if settings.survey is not None:
        words += f" (weighted by {settings.survey.column})"
    number, parts = len({client.held_by for client in plan.clients}), parts_of(settings.weighting)
    if number > 1:
        mixture = {
            "equal": f"the mixture of {number} clients with equal weight",
            "size": f"all records asked of {number} clients together",
            "precision": f"{number} clients, said to share one distribution, weighted by precision",
        }.get(settings.weighting, f"the mixture of {number} {parts.many} with the weights given")
        words += f" in {mixture}"
    if any(client.level != plan.clients[0].level for client in plan.clients):
        words += f" (clients' own levels average to {plan.level:.6g})"
    return words
