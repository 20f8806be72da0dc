"""The one reader of a run's file: its rounds replayed and checked, what they asked as columns, and the results.

Pages, the dashboard, `status`, comparisons and records read a run through `RunView`, also while it goes on. Everything
is as of one moment: the last `refresh`.
"""

import math
from array import array
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.core.scale import Scale
from privatile.errors import InputError
from privatile.estimator.open_ended import OpenPlan
from privatile.estimator.plan import Ask, Plan, RoundState
from privatile.estimator.schedule import MAX_COUNTS
from privatile.estimator.spec import RunSpec
from privatile.estimator.straddle import StraddlePlan
from privatile.result.result import QuantileResult, Results
from privatile.result.summary import make_results, summarize
from privatile.run.coordinator import ClientTotals, LevelRun, RunSource, client_totals, replay
from privatile.run.run_file import RunStore, StoredRound

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


def mark_rounds(planned: int) -> frozenset[int]:
    """Rounds to keep a mark at, known beforehand: all of a short run, else evenly spaced and, early on, geometric.

    Without a planned number (0) they are geometric throughout.

    >>> sorted(mark_rounds(5)), len(mark_rounds(100_000)) <= FEWER_MARKS, len(mark_rounds(0))
    ([1, 2, 3, 4, 5], True, 145)
    """
    if not planned:
        return frozenset(np.geomspace(1, MAX_COUNTS, MARKS + 40).round().astype(np.int64).tolist())
    return frozenset(bucket_ends(planned, MARKS if planned <= LONG else FEWER_MARKS).tolist())


class LevelView:
    """One level of a run: where it is, and as columns what stood after each of its rounds."""

    def __init__(self, run: "RunView", level_index: int) -> None:
        self._run = run
        self._level_index = level_index
        self.track = LevelRun(run.asked_as, level_index)
        self.plan: Plan = self.track.plan
        self.level = run.spec.levels[level_index]
        clients = len(self.plan.clients)
        self.answered = np.zeros(clients, dtype=np.int64)
        """Rounds with an answer, by client."""
        self.last_answer = np.full(clients, np.nan)
        """When each client last answered (seconds since 1970)."""
        self.straddles = isinstance(self.plan, StraddlePlan | OpenPlan)
        """Whether the questions lie on both sides of the quantile, so that their mean is no estimate."""
        self._mark_rounds = mark_rounds(self.plan.rounds)
        self._snapshots: dict[int, Snapshot] = {}
        self._low, self._high, self._center = array("d"), array("d"), array("d")
        self._mean, self._records = array("d"), array("q")

    def __len__(self) -> int:
        return len(self._records)

    @property
    def result(self) -> QuantileResult | None:
        """The result so far; none while the quantile is still being searched for."""
        return self._run.results()[self._level_index]

    @property
    def state(self) -> RoundState:
        """Where the rounds led."""
        return self.track.state

    @property
    def scale(self) -> Scale:
        """The scale that the run works on."""
        return self.plan.scale

    @property
    def whole(self) -> bool:
        """Whether every value is declared to be a whole number."""
        step = self._run.spec.declared.step
        return step is not None and step == round(step)

    @property
    def silent(self) -> Integers:
        """Rounds without an answer, by client."""
        return len(self) - self.answered

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
        return np.array(self.track.times)

    @property
    def records(self) -> Integers:
        """Records that had answered after each round."""
        return np.array(self._records, dtype=np.int64)

    @property
    def snapshots(self) -> tuple[tuple[int, Snapshot], ...]:
        """The intervals after some rounds, the last round among them; none while there is no result."""
        if self.result is None:
            return ()
        return tuple(sorted({**self._snapshots, len(self): snapshot_of(self.result, self.scale)}.items()))

    def add(self, stored: StoredRound) -> None:
        """Take a round that the level has just replayed."""
        here = np.array([ones is not None for ones in stored.ones])
        self.answered += here
        self.last_answer[here] = stored.at
        low, high, center = self._questions(stored.ask)
        self._low.append(low)
        self._high.append(high)
        self._center.append(center)
        self._mean.append(math.nan if self.straddles else self.state.averages.estimate)
        self._records.append(sum(self.state.asked))
        if self._run.drawn and len(self) in self._mark_rounds:
            self._mark()

    def _mark(self) -> None:
        """Compute the interval as it stands now: it does not change as the run grows."""
        track, averages = self.track, self.state.averages
        if not averages.rounds:
            self._snapshots.clear()  # averaging starts again: the intervals before belong to the burn-in
        elif averages.give_interval:
            found = summarize(
                self._run.spec, track.plan, track.state, track.trajectory, "", at_fixed_end=track.at_fixed_end
            )
            self._snapshots[len(self)] = snapshot_of(found, self.scale)

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


class RunView:
    """A run as its file has it. `drawn` computes the intervals after earlier rounds too, for charts."""

    def __init__(self, source: RunSource, spec: RunSpec | None = None, *, drawn: bool = False) -> None:
        """`spec` may report the same answers in another way (`RunSpec.with_report`)."""
        self.source = source
        self.run, self.created, self.date = source.run, source.created, source.date
        self.finished: float | None = None
        self.asked_as = source.spec
        """Questions and stopping follow it."""
        self.spec = spec or source.spec
        """Wording and intervals follow it."""
        self.drawn = drawn
        self.levels = tuple(LevelView(self, index) for index in range(len(self.spec.levels)))
        self._results: tuple[QuantileResult | None, ...] | None = None
        self.refresh()

    @classmethod
    def read(cls, path: str | Path, *, drawn: bool = False, **report: Any) -> Self:
        """A file as it is now, reported as `report` says (`RunSpec.with_report`)."""
        with RunStore.open(path, read_only=True) as store:
            return cls(store, store.spec.with_report(**report), drawn=drawn)

    def refresh(self) -> bool:
        """Read what is new, as of one moment; whether there is anything. Refused where the file does not replay."""
        before = self._place
        with self.source.snapshot():
            tracks = [level.track for level in self.levels]
            replay(self.source, tracks, lambda stored: self.levels[stored.level_index].add(stored))
            self.finished = self.source.finished
        if before == self._place:
            return False
        self._results = None
        return True

    @property
    def _place(self) -> tuple[object, ...]:
        """What results depend on."""
        return (self.finished, *((len(level), level.track.ask) for level in self.levels))

    @property
    def done(self) -> int:
        """Rounds completed by every level."""
        return min(len(level) for level in self.levels)

    @property
    def planned(self) -> int:
        """The largest number of rounds that the run may have; 0: not known."""
        return max(level.plan.rounds for level in self.levels)

    @property
    def records(self) -> int:
        """Records that have answered, at all levels together."""
        return sum(sum(level.state.asked) for level in self.levels)

    @property
    def clients(self) -> dict[str, ClientTotals]:
        """What every client was asked and has answered."""
        return client_totals([level.track for level in self.levels])

    def results(self) -> tuple[QuantileResult | None, ...]:
        """The results of all levels; none while a quantile is still being searched for."""
        if self._results is None:
            levels = [level.track.facts for level in self.levels]
            self._results = make_results(self.spec, levels, run=self.run, date=self.date, asked_as=self.asked_as)
        return self._results

    def all_results(self) -> Results:
        """The results of all levels; refused while one has no interval."""
        found = Results(result for result in self.results() if result is not None)
        if len(found) == len(self.levels):
            return found
        if self.finished is not None:
            why = "the run ended while it was still searching for the quantile."
            raise InputError(f"{self.source.path} has no interval: {why}")
        why = "the run is still searching for the quantile. Try again later."
        raise InputError(f"{self.source.path} has no interval yet: {why}")


def snapshot_of(result: QuantileResult, scale: Scale) -> Snapshot:
    """A result's estimate and intervals on the working scale."""
    anytime = result.anytime or (math.nan, math.nan)
    other = (math.nan, math.nan) if result.other is None else result.other.interval
    estimate = result.estimate if result.located else math.nan
    values = (estimate, *result.confidence_interval, *anytime, *other)
    return Snapshot(*(value if math.isnan(value) else scale.to_working(value) for value in values))
