"""Why a run of a design that tunes itself asked what it asked, as far as no row of its result has it."""

from collections.abc import Iterator

from privatile.estimator.auto import ROUNDS, SHORTEST, AutoPlan, memory_of
from privatile.estimator.plan import Plan, RoundState
from privatile.estimator.question_policy import LOCATED, PROBE_ERRORS, PROBE_REACH, PROBE_SHARE, RELAXATIONS, STABLE
from privatile.estimator.settings import ReportSettings
from privatile.estimator.straddle_plan import StraddlePlan, straddle_memory
from privatile.estimator.straddle_schedule import CLOSEST
from privatile.inference.choice import Evidence
from privatile.inference.trajectory import Trajectory


def explain(
    settings: ReportSettings, plan: Plan, state: RoundState, trajectory: Trajectory, evidence: Evidence
) -> tuple[str, ...]:
    """The choices of a run that tunes itself; nothing for other designs, whose tables are fixed.

    Where a grid is declared nothing is said about the smooth interval.
    """
    if not isinstance(plan, StraddlePlan | AutoPlan):
        return ()
    lines = []
    if plan.wanted is None and plan.rounds != ROUNDS:
        lines.append(
            f"Rounds: {plan.rounds} instead of {ROUNDS}, so that the smallest client, with "
            f"{min(client.records for client in plan.clients)} records, gives about {SHORTEST} a round."
        )
    if isinstance(plan, StraddlePlan):
        learned = straddle_memory(state).policy_state
        lines += [
            _search(plan.policy.located, gave_up=bool(learned.gave_up[0])),
            f"Window: {CLOSEST:g} to {plan.policy.layout.farthest:g} standard errors of the result below and above the "
            f"quantile in turn, and every {plan.policy.layout.centre_every}th round at its centre, where an atom would "
            f"show. The questions were placed {int(learned.window.placed[0])} times.",
        ]
    else:
        lines += [
            _search(LOCATED, gave_up=bool(memory_of(state).tuning.gave_up[0])),
            *_average(plan, state, trajectory),
        ]
    if evidence.readings is not None and settings.declared.may_be_smooth:
        both = evidence.readings
        lines.append(
            f"Fit: {100 * both.fit.used:.1f}% of the answers' precision lay near enough to count. The smooth interval "
            f"is {both.smooth.quantile(0.95):.3f} standard errors either way at 95%, 1.960 with a known density."
        )
    if isinstance(plan, AutoPlan):
        lines.append(
            "The step depends on the rounds and the answers, so the paper's Assumptions 2–3 do not cover this run."
        )
    return tuple(lines)


def _search(located: float, *, gave_up: bool) -> str:
    """When the search was over."""
    end = " (given up before that)." if gave_up else "."
    return f"Search: until the quantile was placed within {located:.2g} local spreads{end}"


def _average(plan: AutoPlan, state: RoundState, trajectory: Trajectory) -> Iterator[str]:
    """Where the probes were, and which step the averaged rounds took."""
    tuning = memory_of(state).tuning
    yield (
        f"Probes: {100 * PROBE_SHARE:.0f}% of the records, up to {PROBE_REACH:g} local spreads or {PROBE_ERRORS:g} "
        "standard errors from the centre, whichever is nearer; they give slope and bend."
    )
    if len(trajectory.steps):
        planned = plan.rounds - int(tuning.searched[0]) - int(tuning.probed[0])
        capped = RELAXATIONS / planned > STABLE
        # γ·f·T from the rule itself: step times density would fall to either side of a half.
        yield (
            f"Average: the constant step {float(trajectory.steps[0]):.4g} on the working scale, for the believed "
            f"density {float(tuning.slope[0]):.4g}: {min(RELAXATIONS, STABLE * planned):.0f} relaxations were planned"
            + (f", fewer than {RELAXATIONS:g} because γ·f stays at or below {STABLE:g}." if capped else ".")
        )
