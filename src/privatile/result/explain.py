"""Why a run of the default design asked what it asked: every choice, in sentences."""

import math

from privatile.estimator.auto import ROUNDS, SHORTEST, SUPPORTED, AutoPlan, memory_of
from privatile.estimator.plan import Plan, RoundState
from privatile.estimator.question_policy import LOCATED, PROBE_ERRORS, PROBE_REACH, PROBE_SHARE, RELAXATIONS, STABLE
from privatile.inference.curve import UNKNOWN_SLOPE
from privatile.inference.plug_in import Curve
from privatile.inference.trajectory import Trajectory
from privatile.result.diagnostics import slope_error_text


def explain(plan: Plan, state: RoundState, trajectory: Trajectory, curve: Curve | None) -> tuple[str, ...]:
    """The choices of a run of design auto; nothing for other designs, whose tables are fixed."""
    if not isinstance(plan, AutoPlan):
        return ()
    tuning = memory_of(state).tuning
    smallest = min(client.records for client in plan.clients)
    error = math.sqrt(plan.policy.noise)
    lines = [
        f"All records together leave a standard error of {error:.4f} in rank. The information, "
        f"(τ(1 − τ)/{error:.4f})² = {plan.information:,.0f}, must reach {SUPPORTED:,.0f} for the interval to be "
        "validated.",
        _rounds(plan, smallest),
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
    if curve is not None:
        percent = slope_error_text(float(curve.fit.slope_error))
        density = (
            f"{curve.fit.slope:.4g} {percent}" if curve.fit.slope_error < UNKNOWN_SLOPE else f"not known ({percent})"
        )
        lines.append(
            f"Fit: {100 * curve.fit.used:.1f}% of the answers' precision lay near enough to count; density "
            f"{density}, bend {curve.fit.bend:+.2f}. The interval is "
            f"{curve.inference.quantile(0.95):.3f} standard errors either way at 95%, 1.960 with a known density."
        )
    lines.append(
        "The step depends on the rounds and the answers, so the paper's Assumptions 2–3 do not cover this run."
    )
    return tuple(lines)


def _rounds(plan: AutoPlan, smallest: int) -> str:
    if plan.wanted is not None:
        return f"Rounds: {plan.rounds}, as asked for."
    if plan.rounds == ROUNDS:
        return f"Rounds: {plan.rounds}, the default."
    return (
        f"Rounds: {plan.rounds} instead of {ROUNDS}, so that the smallest client, with {smallest} records, gives about "
        f"{SHORTEST} a round."
    )
