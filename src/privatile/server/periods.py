"""A run's quantile week by week (`inference.series`), from its file's times and its own state."""

from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from privatile.errors import InputError
from privatile.inference.series import series
from privatile.inference.trajectory import ClientAnswers
from privatile.result.result import ConfidenceInterval, in_units
from privatile.server.coordinator import Coordinator


class Period(NamedTuple):
    """One period of a run: its name, how many answered in it, and what they say; none where they say nothing."""

    name: str
    people: int
    estimate: float | None
    interval: ConfidenceInterval | None


def week(seconds: float) -> str:
    """The ISO week of a time, in UTC.

    >>> week(0.0)
    '1970-W01'
    """
    return "{}-W{:02}".format(*datetime.fromtimestamp(seconds, UTC).isocalendar()[:2])


def weekly(coordinator: Coordinator, level_index: int = 0) -> list[Period]:
    """The weeks in which rounds of the window were closed, in order. A round counts in the week in which it closed."""
    track, spec = coordinator.tracks[level_index], coordinator.spec
    if spec.round_mode != "cohort":
        raise InputError("a series over weeks needs cohort mode, where all records of a round answer about the same q.")
    plan = track.plan.so_far(track.state)
    # The search asks too far away for a line.
    first = track.state.round - track.state.averages.rounds
    names = [week(stored.at) for stored in coordinator.store.rounds(level_index, after=first)]
    every = track.trajectory.by_client
    answers = ClientAnswers(every.queries[first:], every.residuals[first:], every.precisions[first:])
    if not names or len(names) != len(answers.queries):
        return []
    weeks = sorted(set(names))
    weights = np.array([client.weight for client in plan.clients])
    rates = np.array([client.mechanism.truth_rate for client in plan.clients])
    numbers = [weeks.index(name) for name in names]
    parts = series(answers, numbers, weights, rates, spec.confidence_level)
    found = []
    for name, part in zip(weeks, parts, strict=True):
        nothing = part.estimate != part.estimate
        estimate = None if nothing else in_units(plan.scale, part.estimate)
        ends = ConfidenceInterval(in_units(plan.scale, part.low), in_units(plan.scale, part.high))
        found.append(Period(name, part.people, estimate, None if nothing else ends))
    return found
