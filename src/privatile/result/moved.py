"""The change alarm of an open-ended run in its result (`inference.change`): a caveat to act on, and a row of facts."""

from dataclasses import replace

import numpy as np

from privatile.estimator.open_plan import OpenPlan
from privatile.estimator.plan import Plan, RoundState
from privatile.inference.change import FALSE_ALARMS, change
from privatile.inference.trajectory import Trajectory
from privatile.result.number_words import finite
from privatile.result.result import Caveat, QuantileResult
from privatile.result.rows import Row
from privatile.result.severity import most_important_first


def with_change(result: QuantileResult, plan: Plan, state: RoundState, trajectory: Trajectory) -> QuantileResult:
    """The result of an open-ended run with what its answers say about a change; every other result as it is."""
    if not isinstance(plan, OpenPlan):
        return result
    weights = np.array([client.weight for client in plan.clients])
    found = change(trajectory.by_client, weights, state.round - state.averages.rounds)
    way = "up" if found.jump > 0.0 else "down"
    shown = f"moved {way}, since about round {found.round:,}" if found.alarm else "no sign of one"
    facts = {
        "alarm": found.alarm,
        "log_evidence": finite(found.log_evidence),
        "round": found.round if found.alarm else None,
        "jump": found.jump if found.alarm else None,
    }
    result = replace(result, diagnostics=(*result.diagnostics, Row("change", "change", facts, shown)))
    if not found.alarm:
        return result
    text = (
        f"The quantile has moved {way} during the run, since about round {found.round:,}: the share of values below "
        f"the questions has changed by {abs(found.jump):.2g} since then. Estimate and interval mix both times; read "
        "the series over weeks, or begin a new run. Without a change such an alarm comes in at most "
        f"{100.0 * FALSE_ALARMS:g}% of studies, however long they are."
    )
    return replace(result, caveats=most_important_first(Caveat("moved", text), *result.caveats))
