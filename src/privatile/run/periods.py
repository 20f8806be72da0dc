"""What the times in a run's file add to the result of an open-ended run: its quantile week by week, and since when.

The times come from the caller, who has read them from a file. One rule for surveys, federations and all other
open-ended runs: live, in reports, in records and when those are checked.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from privatile.core.text import counted, week
from privatile.estimator.open_ended import OpenPlan
from privatile.estimator.plan import Plan, RoundState
from privatile.inference.series import series
from privatile.inference.trajectory import ClientAnswers, Trajectory
from privatile.result.caveats import caveat
from privatile.result.result import ConfidenceInterval, QuantileResult, in_units
from privatile.result.shown import SMOOTH, Row
from privatile.result.summary import change_found, is_series, may_stand_beside, with_caveat, with_change


class Period(NamedTuple):
    """One period of a run: its name, how many answered in it, and what they say; none where they say nothing."""

    name: str
    people: int
    estimate: float | None
    interval: ConfidenceInterval | None

    def facts(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "week": self.name,
            "answers": self.people,
            "estimate": self.estimate,
            "interval": None if self.interval is None else list(self.interval),
            "condition": None if self.interval is None else SMOOTH,
        }


def weekly(
    plan: Plan, state: RoundState, trajectory: Trajectory, times: Sequence[float], confidence_level: float | None
) -> list[Period]:
    """The weeks in which rounds of the window were closed, in order. A round counts in the week in which it closed.

    `times` are those of all rounds, in seconds since 1970; there is no series where one is missing, or is no time.
    Without a confidence level the weeks have their numbers of answers alone.
    """
    # The search asks too far away for a line.
    first = state.round - state.averages.rounds
    names = [week(seconds) for seconds in times[first : state.round]]
    if not names or untimed(state, times):
        return []
    weeks = sorted({name for name in names if name is not None})
    clients = plan.so_far(state).clients
    every = trajectory.by_client
    answers = ClientAnswers(every.queries[first:], every.residuals[first:], every.precisions[first:])
    parts = series(
        answers,
        [weeks.index(name) for name in names if name is not None],
        np.array([client.weight for client in clients]),
        np.array([client.mechanism.truth_rate for client in clients]),
        confidence_level or 0.5,
    )
    found = []
    for name, part in zip(weeks, parts, strict=True):
        if part.estimate != part.estimate or confidence_level is None:
            found.append(Period(name, part.people, None, None))
            continue
        ends = ConfidenceInterval(in_units(plan.scale, part.low), in_units(plan.scale, part.high))
        found.append(Period(name, part.people, in_units(plan.scale, part.estimate), ends))
    return found


def untimed(state: RoundState, times: Sequence[float]) -> int:
    """Rounds of the window without a time, or with one that is none of our calendar."""
    names = [week(seconds) for seconds in times[state.round - state.averages.rounds : state.round]]
    return state.averages.rounds - sum(name is not None for name in names)


def with_times(
    result: QuantileResult, plan: Plan, state: RoundState, trajectory: Trajectory, times: Sequence[float]
) -> QuantileResult:
    """The result of an open-ended run with its series over weeks and what its answers say about a change."""
    if not isinstance(plan, OpenPlan):
        return result
    found = change_found(plan, state, trajectory)
    shown = may_stand_beside(result, moved=found.alarm)
    weeks = weekly(plan, state, trajectory, times, result.confidence_level if shown else None)
    text = ""
    if weeks:
        text = counted(len(weeks), "week") + f", {weeks[0].name}" + (f" to {weeks[-1].name}" if len(weeks) > 1 else "")
    row = Row("series", "week by week", [one.facts() for one in weeks], text)
    result = with_change(result, found, times, series=is_series(one.interval for one in weeks))
    result = replace(result, diagnostics=(*result.diagnostics, row))
    if not (lost := untimed(state, times)):
        return result
    return with_caveat(result, caveat("no-times", lost=counted(lost, "round"), rounds=state.averages.rounds))
