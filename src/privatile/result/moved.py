"""The change alarm of an open-ended run in its result (`inference.change`): a caveat to act on, and a row of facts."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from privatile.core.words import moment
from privatile.estimator.plan import Plan, RoundState
from privatile.inference.change import FALSE_ALARMS, Change, change
from privatile.inference.trajectory import Trajectory
from privatile.result.number_words import finite
from privatile.result.result import Caveat, QuantileResult
from privatile.result.rows import Row
from privatile.result.severity import most_important_first


def change_found(plan: Plan, state: RoundState, trajectory: Trajectory) -> Change:
    """What the answers of an open-ended run say about a change."""
    weights = np.array([client.weight for client in plan.clients])
    return change(trajectory.by_client, weights, state.round - state.averages.rounds)


def is_series(intervals: Iterable[object]) -> bool:
    """Whether the weeks show a change: more than one of them has an interval. `intervals` has none for the others.

    >>> is_series([(1.0, 2.0), None]), is_series([(1.0, 2.0), None, (3.0, 4.0)])
    (False, True)
    """
    return sum(interval is not None for interval in intervals) > 1


def with_change(
    result: QuantileResult, found: Change, times: Sequence[float] = (), *, series: bool = False
) -> QuantileResult:
    """The result of an open-ended run with what its answers say about a change.

    `times` says when each round closed, in seconds since 1970, where a file has kept it. `series` says that a series
    over weeks stands beside the result (`server.periods`): the caveat points to it.
    """
    way = "up" if found.jump > 0.0 else "down"
    since = moment(times[found.round - 1]) if found.alarm and 0 < found.round <= len(times) else None
    when = f"since about round {found.round:,}"
    when += f" ({since[:16].replace('T', ' ')} UTC)" if since else ""
    shown = f"moved {way}, {when}" if found.alarm else "no sign of one"
    facts = {
        "alarm": found.alarm,
        "log_evidence": finite(found.log_evidence),
        "round": found.round if found.alarm else None,
        "since": since,
        "jump": found.jump if found.alarm else None,
    }
    result = replace(result, diagnostics=(*result.diagnostics, Row("change", "change", facts, shown)))
    if not found.alarm:
        return result
    text = (
        f"The quantile has moved {way} during the run, {when}: the share of values below the questions has changed by "
        f"{abs(found.jump):.2g} since then. Estimate and interval mix both times; "
        f"{'read the series over weeks in its report, or begin' if series else 'begin'} a new run. Without a "
        f"change such an alarm comes in at most {100.0 * FALSE_ALARMS:g}% of studies, however long they are."
    )
    return replace(result, caveats=most_important_first(Caveat("moved", text), *result.caveats))
