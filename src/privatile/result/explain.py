"""Why a run of a design that tunes itself asked what it asked: every choice, in sentences."""

import math

from privatile.estimator.auto import ROUNDS, SHORTEST, SUPPORTED, AutoPlan, memory_of
from privatile.estimator.plan import Plan, RoundState
from privatile.estimator.question_policy import LOCATED, PROBE_ERRORS, PROBE_REACH, PROBE_SHARE, RELAXATIONS, STABLE
from privatile.estimator.settings import ReportSettings
from privatile.estimator.straddle_plan import StraddlePlan, straddle_memory
from privatile.estimator.straddle_schedule import CLOSEST
from privatile.inference.choice import Evidence
from privatile.inference.curve import UNKNOWN_SLOPE
from privatile.inference.trajectory import Trajectory
from privatile.result.diagnostics import slope_error_text


def explain(
    settings: ReportSettings, plan: Plan, state: RoundState, trajectory: Trajectory, evidence: Evidence
) -> tuple[str, ...]:
    """The choices of a run that tunes itself; nothing for other designs, whose tables are fixed.

    Where a grid is declared nothing is said about the smooth interval.
    """
    if isinstance(plan, StraddlePlan) and settings.declared.step is not None:
        known = f"All records together leave a standard error of {_error_in_rank(plan):.4f} in rank."
        return (known, _rounds(plan), *_straddled(plan, state))
    if isinstance(plan, StraddlePlan):
        return (*_beginning(plan), *_straddled(plan, state), *_fit(evidence))
    if isinstance(plan, AutoPlan):
        theory = "The step depends on the rounds and the answers, so the paper's Assumptions 2–3 do not cover this run."
        return (*_beginning(plan), *_tuned(plan, state, trajectory), *_fit(evidence), theory)
    return ()


def _beginning(plan: AutoPlan | StraddlePlan) -> list[str]:
    """What is known before anyone is asked."""
    error = _error_in_rank(plan)
    return [
        f"All records together leave a standard error of {error:.4f} in rank. The information, "
        f"(τ(1 − τ)/{error:.4f})² = {plan.information:,.0f}, must reach {SUPPORTED:,.0f} for the smooth interval to be "
        "validated; the any-shape interval holds whatever it is.",
        _rounds(plan),
    ]


def _error_in_rank(plan: AutoPlan | StraddlePlan) -> float:
    return plan.level * (1.0 - plan.level) / math.sqrt(plan.information)


def _straddled(plan: StraddlePlan, state: RoundState) -> list[str]:
    """Search and window of the straddling design."""
    learned = straddle_memory(state).policy_state
    window = learned.window
    return [
        f"Search: {int(learned.searched[0])} rounds, {100 * float(learned.spent[0]):.2g}% of the records, until the "
        f"quantile was placed within {plan.policy.located:.2g} local spreads"
        + (" (given up before that)." if bool(learned.gave_up[0]) else "."),
        f"Window: {int(window.asked[0])} rounds, in turn below and above the quantile, {CLOSEST:g} to "
        f"{plan.policy.layout.farthest:g} standard errors of the result away, and every "
        f"{plan.policy.layout.centre_every}th at its centre, where an atom would show. The questions were placed "
        f"{int(window.placed[0])} times.",
        "Every question is a candidate for an end of the any-shape interval. It is accepted where the answers at or "
        "inside it are beyond chance, whatever the distribution.",
    ]


def _tuned(plan: AutoPlan, state: RoundState, trajectory: Trajectory) -> list[str]:
    """Search, probes and averaged rounds of the design that follows the quantile."""
    tuning = memory_of(state).tuning
    lines = [
        f"Search: {int(tuning.searched[0])} rounds, {100 * float(tuning.spent[0]):.2g}% of the records, until the "
        f"quantile was placed within {LOCATED:g} local spreads"
        + (" (given up before that)." if bool(tuning.gave_up[0]) else "."),
        f"Probes: {int(tuning.probed[0])} rounds, {100 * PROBE_SHARE:.0f}% of the records, up to {PROBE_REACH:g} local "
        f"spreads or {PROBE_ERRORS:g} standard errors from the centre, whichever is nearer; they give slope and bend.",
    ]
    if len(trajectory.steps):
        step, believed, rounds = float(trajectory.steps[0]), float(tuning.slope[0]), len(trajectory.steps)
        planned = plan.rounds - int(tuning.searched[0]) - int(tuning.probed[0])
        capped = RELAXATIONS / planned > STABLE
        # γ·f·T from the rule itself: step times density would fall to either side of a half.
        relaxations = min(RELAXATIONS, STABLE * planned)
        lines.append(
            f"Average: {rounds} rounds with the constant step {step:.4g} on the working scale, for the believed "
            f"density {believed:.4g}: {relaxations:.0f} relaxations were planned"
            + (f", fewer than {RELAXATIONS:g} because γ·f stays at or below {STABLE:g}." if capped else ".")
        )
    return lines


def _fit(evidence: Evidence) -> list[str]:
    """The curve through the answers."""
    both = evidence.readings
    if both is None:
        return []
    fit = both.fit
    percent = slope_error_text(float(fit.slope_error))
    density = f"{fit.slope:.4g} {percent}" if fit.slope_error < UNKNOWN_SLOPE else f"not known ({percent})"
    return [
        f"Fit: {100 * fit.used:.1f}% of the answers' precision lay near enough to count; density "
        f"{density}, bend {fit.bend:+.2f}. The smooth interval is "
        f"{both.smooth.quantile(0.95):.3f} standard errors either way at 95%, 1.960 with a known density."
    ]


def _rounds(plan: AutoPlan | StraddlePlan) -> str:
    smallest = min(client.records for client in plan.clients)
    if plan.wanted is not None:
        return f"Rounds: {plan.rounds}, as asked for."
    if plan.rounds == ROUNDS:
        return f"Rounds: {plan.rounds}, the default."
    return (
        f"Rounds: {plan.rounds} instead of {ROUNDS}, so that the smallest client, with {smallest} records, gives about "
        f"{SHORTEST} a round."
    )
