"""What an open-ended run says about time: whether its quantile has moved, and, by the times in its file, week by week.

One rule for surveys, federations and all other open-ended runs: live, in reports, in records and their verification.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from privatile.core.kinds import declaration
from privatile.core.text import counted, moment, percent_text, week
from privatile.estimator.open_ended import OpenPlan
from privatile.estimator.plan import Plan, RoundState
from privatile.inference.series import FALSE_ALARMS, Change, change, series
from privatile.inference.trajectory import ClientAnswers, Trajectory
from privatile.result.caveats import Caveat, caveat, most_important_first
from privatile.result.result import QuantileResult, in_units
from privatile.result.shown import CONDITIONS, Row, finite


def over_time(
    result: QuantileResult, plan: Plan, state: RoundState, trajectory: Trajectory, times: Sequence[float] | None
) -> QuantileResult:
    """The result of an open-ended run with what its answers say about a change, and with its series over weeks.

    `times` says when each round closed, in seconds since 1970; none where no file has kept it: then there is no series.
    """
    if not isinstance(plan, OpenPlan):
        return result
    weights = np.array([client.weight for client in plan.clients])
    found = change(trajectory.by_client, weights, state.round - state.averages.rounds)
    level = result.confidence_level if _may_have_weeks(result, moved=found.alarm) else None
    weeks = [] if times is None else _weekly(plan, state, trajectory, times, level)
    since = moment(times[found.round - 1]) if times and found.alarm and 0 < found.round <= len(times) else None
    rows, caveats = [_change_row(found, since)], list(result.caveats)
    if found.alarm:
        caveats.insert(0, _moved(found, since, series=is_series(one["interval"] for one in weeks)))
    if times is not None:
        names = [one["week"] for one in weeks]
        text = counted(len(weeks), "week") + ", " + " to ".join(dict.fromkeys([names[0], names[-1]])) if weeks else ""
        rows.append(Row("series", "week by week", weeks, text))
        if lost := _untimed(state, times):
            caveats.insert(0, caveat("no-times", lost=counted(lost, "round"), rounds=state.averages.rounds))
    return replace(result, diagnostics=(*result.diagnostics, *rows), caveats=most_important_first(*caveats))


def is_series(intervals: Iterable[object]) -> bool:
    """Whether the weeks show a change: more than one of them has an interval. `intervals` has none for the others.

    >>> is_series([(1.0, 2.0), None]), is_series([(1.0, 2.0), None, (3.0, 4.0)])
    (False, True)
    """
    return sum(interval is not None for interval in intervals) > 1


def _may_have_weeks(result: QuantileResult, *, moved: bool) -> bool:
    """Whether smooth intervals of single weeks may stand beside a result.

    Not where the quantile is not located, where a declared grid says that the values are not continuous, or where the
    answers contradict a smooth distribution. Where it has `moved` they do: one curve through all of them fits neither
    time, and says nothing against the weeks, each of which has its own.
    """
    return result.located and (moved or not result.contradiction) and declaration(result.value_kind).may_be_smooth


def _weekly(
    plan: Plan, state: RoundState, trajectory: Trajectory, times: Sequence[float], confidence_level: float | None
) -> list[dict[str, Any]]:
    """The weeks in which rounds of the window were closed, in order. A round counts in the week in which it closed.

    There is no series where a round has no time. Without a confidence level the weeks have their numbers of answers
    alone.
    """
    # The search asks too far away for a line.
    first = state.round - state.averages.rounds
    names = [week(seconds) for seconds in times[first : state.round]]
    if not names or _untimed(state, times):
        return []
    weeks = sorted({name for name in names if name is not None})
    clients, every = plan.so_far(state).clients, trajectory.by_client
    parts = series(
        ClientAnswers(every.queries[first:], every.residuals[first:], every.precisions[first:]),
        [weeks.index(name) for name in names if name is not None],
        np.array([client.weight for client in clients]),
        np.array([client.mechanism.truth_rate for client in clients]),
        confidence_level or 0.5,
    )
    found = []
    for name, part in zip(weeks, parts, strict=True):
        says = part.estimate == part.estimate and confidence_level is not None
        ends = [in_units(plan.scale, part.low), in_units(plan.scale, part.high)] if says else None
        found.append(
            {
                "week": name,
                "answers": part.people,
                "estimate": in_units(plan.scale, part.estimate) if says else None,
                "interval": ends,
                "condition": CONDITIONS["smooth"] if says else None,
            }
        )
    return found


def _untimed(state: RoundState, times: Sequence[float]) -> int:
    """Rounds of the window without a time, or with one that is none of our calendar."""
    names = [week(seconds) for seconds in times[state.round - state.averages.rounds : state.round]]
    return state.averages.rounds - sum(name is not None for name in names)


def _change_row(found: Change, since: str | None) -> Row:
    facts = {
        "alarm": found.alarm,
        "log_evidence": finite(found.log_evidence),
        "round": found.round if found.alarm else None,
        "since": since,
        "jump": found.jump if found.alarm else None,
    }
    return Row("change", "change", facts, f"moved {_when(found, since)}" if found.alarm else "no sign of one")


def _when(found: Change, since: str | None) -> str:
    when = f"{'up' if found.jump > 0.0 else 'down'}, since about round {found.round:,}"
    return when + (f" ({since[:16].replace('T', ' ')} UTC)" if since else "")


def _moved(found: Change, since: str | None, *, series: bool) -> Caveat:
    """The caveat of a change; it points to the `series` over weeks where one stands beside the result."""
    way, when = _when(found, since).split(", ", 1)
    return caveat(
        "moved",
        way=way,
        since=when,
        share=abs(found.jump),
        advice="read the series over weeks in its report, or begin" if series else "begin",
        percent=percent_text(FALSE_ALARMS),
    )
