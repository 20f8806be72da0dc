"""A run's rounds as a page needs them: read from its file, one level at a time, and only what is new.

The file holds questions and counts; `Track` leads from them to the state, as the run itself did.
"""

import math
from array import array
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.errors import ProtocolError
from privatile.estimator.open_plan import OpenPlan
from privatile.estimator.plan import Ask, RoundState
from privatile.estimator.schedule import MOST_COUNTS
from privatile.estimator.spec import RunSpec
from privatile.estimator.straddle_plan import StraddlePlan
from privatile.inference.trajectory import Trajectory
from privatile.server.coordinator import Track
from privatile.server.run_file import RunStore, StoredRound

MARKS = 120
"""Rounds after which the interval so far is computed; between them it is drawn straight."""

LONG, FEWER_MARKS = 2000, 32
"""A run of more rounds than this gets fewer marks: each costs a fit through all rounds before it."""

Integers = NDArray[np.int64]


class Snapshot(NamedTuple):
    """Estimate and intervals after a round, working scale; NaN where there is none."""

    estimate: float
    """Only where the quantile is located, as in the words of the result."""
    low: float
    high: float
    anytime_low: float
    anytime_high: float
    other_low: float
    other_high: float
    """Of the reading that stands beside the headline."""


class Mark(NamedTuple):
    """The state after a round, kept now and then, so that the interval at that time can be computed."""

    round: int
    state: RoundState


def bucket_ends(rounds: int, most: int) -> Integers:
    """Last round (1-based) of each bucket: at most `most` of them, the last is `rounds`.

    Half of the edges are evenly spaced, half are geometric: zooming in on the first hundred rounds shows rounds, and
    zooming out loses no excursion.

    >>> bucket_ends(5, 10).tolist()
    [1, 2, 3, 4, 5]
    >>> ends = bucket_ends(100_000, 1000)
    >>> len(ends) <= 1000, ends[:4].tolist(), int(ends[-1])
    (True, [1, 2, 3, 4], 100000)
    """
    if rounds <= most:
        return np.arange(1, rounds + 1)
    even = np.linspace(rounds / (most - most // 2), rounds, most - most // 2)
    early = np.geomspace(1, rounds, most // 2)
    return np.unique(np.ceil(np.concatenate([even, early]) - 1e-9).astype(np.int64))


def envelope(values: Floats, ends: Integers) -> tuple[Floats, Floats]:
    """Lowest and highest value in each bucket.

    >>> envelope(np.array([3.0, 1.0, 2.0, 9.0]), np.array([1, 4]))
    (array([3., 1.]), array([3., 9.]))
    """
    if not len(values):
        return values, values
    starts = np.concatenate([[0], ends[:-1]])
    return np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)


def last_in_bucket(values: Floats, ends: Integers) -> Floats:
    """The last value in each bucket that is none of NaN; NaN where there is none.

    >>> last_in_bucket(np.array([np.nan, 1.0, 2.0, np.nan, np.nan]), np.array([1, 4, 5]))
    array([nan,  2., nan])
    """
    places = np.maximum.accumulate(np.where(np.isnan(values), -1, np.arange(len(values))))
    at = places[ends - 1]
    starts = np.concatenate([[0], ends[:-1]])
    return np.where(at >= starts, values[at], np.nan)


def mark_rounds(planned: int) -> frozenset[int]:
    """Rounds to keep a mark at, known beforehand: all of a short run, else evenly spaced and, early on, geometric.

    Without a planned number (0) they are geometric throughout.

    >>> sorted(mark_rounds(5)), len(mark_rounds(100_000)) <= FEWER_MARKS, len(mark_rounds(0))
    ([1, 2, 3, 4, 5], True, 145)
    """
    if not planned:
        return frozenset(np.geomspace(1, MOST_COUNTS, MARKS + 40).round().astype(np.int64).tolist())
    return frozenset(bucket_ends(planned, MARKS if planned <= LONG else FEWER_MARKS).tolist())


class LevelHistory:
    """One level's rounds: questions, running mean, records and time as columns, silence by client, and the state."""

    def __init__(self, spec: RunSpec, level_index: int) -> None:
        self.level_index = level_index
        self._track = Track(spec, level_index)
        self.plan = self._track.plan
        clients = len(self.plan.clients)
        self.answered = np.zeros(clients, dtype=np.int64)
        """Rounds with an answer, by client."""
        self.silent = np.zeros(clients, dtype=np.int64)
        """Rounds without one, by client."""
        self.last_answer = np.full(clients, np.nan)
        """When each client last answered (seconds since 1970)."""
        self.marks: list[Mark] = []
        self.snapshots: dict[int, Snapshot] = {}
        """Intervals already computed at marks, by round: they do not change as the run grows."""
        self._mark_rounds = mark_rounds(self.plan.rounds)
        self.straddles = isinstance(self.plan, StraddlePlan | OpenPlan)
        """Whether the questions lie on both sides of the quantile, so that their mean is no estimate."""
        self._low, self._high, self._center = array("d"), array("d"), array("d")
        self._mean, self._at, self._records = array("d"), array("d"), array("q")

    def __len__(self) -> int:
        return len(self._at)

    def refresh(self, store: RunStore) -> int:
        """Read the rounds that are new; returns how many."""
        before = len(self)
        for stored in store.rounds(self.level_index, after=before):
            try:
                self._track.replay(stored)
            except ProtocolError as error:
                raise store.unreadable(str(error)) from None
            self._add(stored)
            if len(self) in self._mark_rounds:
                if self.state.averages.rounds:
                    self.marks.append(Mark(len(self), self.state))
                else:
                    self.marks.clear()  # averaging starts again: the intervals before belong to the burn-in
                    self.snapshots.clear()
        return len(self) - before

    @property
    def is_over(self) -> bool:
        """Whether the design asks no more at this level."""
        return self._track.ask is None

    def end(self, store: RunStore) -> None:
        """Check that the level is over, as the file says; refused where its design would have gone on."""
        try:
            self._track.end(store.why_ended)
        except ProtocolError as error:
            raise store.unreadable(str(error)) from None

    def _add(self, stored: StoredRound) -> None:
        here = np.array([ones is not None for ones in stored.ones])
        self.answered += here
        self.silent += ~here
        self.last_answer[here] = stored.at
        low, high, center = self._questions(stored.ask)
        self._low.append(low)
        self._high.append(high)
        self._center.append(center)
        self._mean.append(math.nan if self.straddles else self.state.averages.estimate)
        self._at.append(stored.at)
        self._records.append(sum(self.state.asked))

    def _questions(self, ask: Ask) -> tuple[float, float, float]:
        """The low and the high question that stand after a round, and the one at the centre where it asked there."""
        if not self.straddles:
            return self.state.query, self.state.query, math.nan
        if ask.stage == "search" or not self._low:
            return ask.query, ask.query, math.nan
        low, high = self._low[-1], self._high[-1]
        if ask.stage == "low":
            return ask.query, high, math.nan
        return (low, ask.query, math.nan) if ask.stage == "high" else (low, high, ask.query)

    @property
    def at_fixed_end(self) -> bool:
        """Whether an end is reached that was fixed before the first answer (`Track.at_fixed_end`)."""
        return self._track.at_fixed_end

    @property
    def state(self) -> RoundState:
        """Where the rounds led."""
        return self._track.state

    @property
    def trajectory(self) -> Trajectory:
        """The averaged rounds."""
        return self._track.trajectory

    @property
    def burn_in(self) -> int:
        """Rounds before averaging (last) started."""
        return len(self) - self.state.averages.rounds

    @property
    def low(self) -> Floats:
        """The question after each round, working scale; where the design straddles, the low one that stands."""
        return np.minimum(self._low, self._high)

    @property
    def high(self) -> Floats:
        """Likewise the high one."""
        return np.maximum(self._low, self._high)

    @property
    def center(self) -> Floats:
        """The questions at the centre of a design that straddles; NaN in all other rounds."""
        return np.array(self._center)

    @property
    def mean(self) -> Floats:
        """Running mean Q_m, working scale; NaN in the burn-in, and where the design straddles: no mean is made."""
        return np.array(self._mean)

    @property
    def at(self) -> Floats:
        """When each round was stored (seconds since 1970)."""
        return np.array(self._at)

    @property
    def records(self) -> Integers:
        """Records that had answered after each round."""
        return np.array(self._records, dtype=np.int64)
