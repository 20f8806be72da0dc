"""A run as a page shows it: read from its file, only what is new; per level a result and the interval over time.

A run's rounds as a page needs them: read from its file, one level at a time, and only what is new.

The file holds questions and counts; `Track` leads from them to the state, as the run itself did.

A run as a page shows it: its specification and, per level, a result, a history and the interval over time.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.core.scale import Scale
from privatile.errors import InputError, ProtocolError
from privatile.estimator.open_ended import OpenPlan
from privatile.estimator.plan import Ask, RoundState
from privatile.estimator.schedule import MOST_COUNTS
from privatile.estimator.spec import RunSpec
from privatile.estimator.straddle import StraddlePlan
from privatile.inference.trajectory import Trajectory
from privatile.result.result import QuantileResult, Results, in_units
from privatile.result.summary import LevelFacts, make_results, summarize
from privatile.run.coordinator import Track
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
    def facts(self) -> LevelFacts:
        """What a result needs."""
        return self._track.facts

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


POINTS = 4500
"""Points of all levels together in a page: each costs about 60 bytes, and a screen is some 2,000 pixels wide."""


REACH = 1.0
"""Widths of the last interval, to each side of it, that a drawing shows of the intervals before."""

USEFUL = 4.0
"""Widths of the questions' own window, to each side of it, that a drawing shows of the last interval."""

FEWEST_WHOLE = 3.0
"""Units from bottom to top of a drawing from which on whole numbers are labels enough."""

LOW_ENDS = ("low", "anytime_low", "other_low")
ENDS = (*LOW_ENDS, "high", "anytime_high", "other_high")
"""Columns of a path that are ends of intervals."""


@dataclass(frozen=True)
class ThinPath:
    """A thinned path in units of the data, ready to be drawn; NaN where there is no estimate or interval."""

    rounds: NDArray[np.int64]
    records: NDArray[np.int64]
    question_low: Floats
    question_high: Floats
    question_center: Floats
    """Questions at the centre of a design that straddles; NaN elsewhere."""
    estimate: Floats
    low: Floats
    high: Floats
    anytime_low: Floats
    anytime_high: Floats
    other_low: Floats
    other_high: Floats
    range: tuple[float, float]
    """The stated one."""
    search: int = 0
    """The last round of the search, whose questions are drawn as a strip; 0: none, or nothing else to draw yet."""
    whole: bool = False
    """Whether every value is declared to be a whole number."""
    digits_width: float = math.nan
    """The width that decides how many digits the last interval is shown with; NaN without one."""

    @property
    def searched(self) -> NDArray[np.bool_]:
        """The points that belong to the search."""
        return self.rounds <= self.search

    @property
    def heights(self) -> tuple[float, float]:
        """What a drawing should show: the interval as it stands last, and those before it that are not far wider.

        An interval that is still far wider than the questions lie apart says little, and would flatten all else.
        """
        first, last = self._last_interval()
        if math.isnan(first):
            low, high = np.quantile(np.concatenate([self.question_low, self.question_high]), [0.04, 0.96])
        else:
            reach = REACH * (last - first)
            seen = np.concatenate([self.low, self.high, self.estimate])
            seen = seen[(seen >= first - reach) & (seen <= last + reach)]
            low, high = np.quantile(seen, [0.04, 0.96]) if len(seen) else (first, last)
            low, high = min(first, low), max(last, high)
            if not math.isnan(self.other_low[-1]):  # the interval beside it is seen too
                low = min(low, max(self.other_low[-1], first - 2 * reach))
                high = max(high, min(self.other_high[-1], last + 2 * reach))
        room = 0.12 * (high - low) or abs(high) * 0.01 or 1.0
        low, high = float(low - room), float(high + room)
        missing = FEWEST_WHOLE - (high - low) if self.whole else 0.0
        return (low - missing / 2, high + missing / 2) if missing > 0 else (low, high)

    @property
    def whole_ticks(self) -> bool:
        """Whether an axis over `heights` is labelled with whole numbers only."""
        low, high = self.heights
        return self.whole or (all(end == round(end) for end in self.range) and high - low >= FEWEST_WHOLE)

    def _last_interval(self) -> tuple[float, float]:
        """As far as it is bounded: an end of the stated range is no end that the answers gave. NaN without any."""
        middle, low, high = (float(values[-1]) for values in (self.estimate, self.low, self.high))
        if math.isnan(low):
            return low, high
        below, above = float(self.question_low[-1]), float(self.question_high[-1])
        open_low, open_high = low <= self.range[0], high >= self.range[1]
        if open_low and open_high:
            return below, above
        if math.isnan(middle):  # "14 or less": drawn to the end of the range
            first, last = low, high
        else:
            first, last = (2 * middle - high if open_low else low), (2 * middle - low if open_high else high)
        if below == above:  # one question at a time
            return first, last
        useful = USEFUL * (above - below)
        return max(first, below - useful), min(last, above + useful)

    def to_dict(self) -> dict[str, list[float | None] | list[float] | list[int] | float | None]:
        """Plain lists: values to four significant digits of the last interval's width, ends of intervals outward."""
        width = float(self.high[-1] - self.low[-1]) if len(self.high) else math.nan
        if not (math.isfinite(width) and width > 0):
            width = abs(float(self.question_high[-1])) / 100 if len(self.question_high) else 1.0
        digits = 3 - math.floor(math.log10(width)) if width > 0 else 6

        def plain(name: str) -> list[float | None]:
            values = getattr(self, name)
            rounded = np.round(values, digits)
            if name in ENDS:
                outside = values < rounded if name in LOW_ENDS else values > rounded
                step = -(10.0**-digits) if name in LOW_ENDS else 10.0**-digits
                rounded = np.where(outside, np.round(rounded + step, digits), rounded)
            return [None if math.isnan(value) else _short(round(value, digits)) for value in rounded.tolist()]

        names = ["question_low", "question_high", "estimate", "low", "high"]
        for more in (("question_center",), ("anytime_low", "anytime_high"), ("other_low", "other_high")):
            same = more[0] == "anytime_low" and np.array_equal(self.anytime_low, self.low, equal_nan=True)
            if not (same or np.isnan(getattr(self, more[0])).all()):
                names += more
        return {
            "round": self.rounds.tolist(),
            "records": self.records.tolist(),
            **{name: plain(name) for name in names},
            "range": list(self.range),
            "search": self.search,
            "whole": self.whole,
            "digits_width": None if math.isnan(self.digits_width) else self.digits_width,
        }


def _short(value: float) -> float:
    return int(value) if value == int(value) and abs(value) < 2**53 else value


@dataclass(frozen=True)
class LevelView:
    """One level: its result (none before two averaged rounds), its history and its interval over time."""

    level: float
    result: QuantileResult | None
    history: LevelHistory
    snapshots: tuple[tuple[int, Snapshot], ...]
    """Rounds after which the interval was computed, the last round among them."""
    scale: Scale
    whole: bool = False
    """Whether every value is declared to be a whole number."""

    def path(self, most: int) -> ThinPath:
        """At most `most` points; between two snapshots the interval is drawn straight, along a running mean."""
        history = self.history
        ends = bucket_ends(len(history), most)
        # Questions on both sides of the quantile have no mean to draw along: straight lines.
        mean = np.zeros(len(history)) if history.straddles else history.mean
        center = mean[ends - 1]
        reach = {name: np.full(len(ends), np.nan) for name in Snapshot._fields}
        if self.snapshots:
            at = np.array([number for number, _ in self.snapshots])
            known = ends >= at[0]
            for name, values in zip(
                Snapshot._fields, np.array([snapshot for _, snapshot in self.snapshots]).T, strict=True
            ):
                if not name.startswith("other") or (self.result is not None and self.result.other is not None):
                    reach[name][known] = center[known] + np.interp(ends[known], at, values - mean[at - 1])
        low, high, center = (
            _in_units(values, self.scale)
            for values in (
                envelope(history.low, ends)[0],
                envelope(history.high, ends)[1],
                last_in_bucket(history.center, ends),
            )
        )
        intervals = {name: _in_units(values, self.scale) for name, values in reach.items()}
        stated = (self.scale.low, self.scale.high)
        # Before there is an interval the questions of the search are all there is to see.
        search = history.burn_in if self.snapshots and len(history) > history.burn_in else 0
        return ThinPath(
            ends,
            history.records[ends - 1],
            low,
            high,
            center,
            **intervals,
            range=stated,
            search=search,
            whole=self.whole,
            digits_width=math.nan if self.result is None else self.result.shown.first.width,
        )

    def shown_path(self, most: int) -> ThinPath:
        """The path with the interval that stands first beside it: while the run is unfinished the anytime one."""
        path = self.path(most)
        if self.result is None or not self.result.shown.is_so_far:
            return path
        return replace(path, low=path.anytime_low, high=path.anytime_high)


@dataclass(frozen=True)
class RunView:
    """All that a page says about a run."""

    run: str
    created: float
    finished: float | None
    spec: RunSpec
    levels: tuple[LevelView, ...]
    planned: int

    @property
    def done(self) -> int:
        """Rounds completed by every level."""
        return min(len(level.history) for level in self.levels)

    @property
    def records(self) -> int:
        """Records that have answered, at all levels together."""
        return sum(sum(level.history.state.asked) for level in self.levels)

    @property
    def points(self) -> int:
        """Points a level may have, so that the page stays small."""
        return max(200, min(2000, POINTS // len(self.levels)))


def _in_units(values: Floats, scale: Scale) -> Floats:
    return np.array([value if math.isnan(value) else in_units(scale, value) for value in values.tolist()])


class RunRecord:
    """A run's histories, read from its store and kept up to date; a view is computed when asked for."""

    def __init__(self, store: RunStore, spec: RunSpec | None = None) -> None:
        """`spec` may report the same answers in another way (`RunSpec.with_report`)."""
        self.run = store.run
        self.spec = spec or store.spec
        self._asked = store.spec
        self.created = store.created
        self.date = store.date
        self.finished = store.finished
        self.histories = tuple(LevelHistory(store.spec, index) for index in range(len(store.spec.levels)))
        self.refresh(store)

    def refresh(self, store: RunStore) -> int:
        """Read what is new; returns how many rounds."""
        self.finished = store.finished
        fresh = sum(history.refresh(store) for history in self.histories)
        if store.finished is not None:
            for history in self.histories:
                history.end(store)
        return fresh

    def _summary(self, history: LevelHistory, state: RoundState, trajectory: Trajectory) -> QuantileResult | None:
        """The result at a state; none before two averaged rounds."""
        if not state.averages.give_interval:
            return None
        # At a mark an open-ended run went on.
        at_fixed_end = history.facts.at_fixed_end if state is history.state else not history.plan.open_ended
        result = summarize(self.spec, history.plan, state, trajectory, self.run, at_fixed_end=at_fixed_end)
        return replace(result, date=self.date)

    def results(self) -> list[QuantileResult | None]:
        """The results of all levels as the run itself reports them; none before two averaged rounds."""
        levels = [history.facts for history in self.histories]
        return list(make_results(self.spec, levels, run=self.run, date=self.date, asked_as=self._asked))

    def view(self, results: Sequence[QuantileResult] | None = None) -> RunView:
        """The run as it is now. `results`, one per level, replace those computed here: they may carry more caveats."""
        found = self.results() if results is None else list(results)
        levels = tuple(self._level(history, result) for history, result in zip(self.histories, found, strict=True))
        planned = max(history.plan.rounds for history in self.histories)  # 0: not known
        return RunView(self.run, self.created, self.finished, self.spec, levels, planned)

    def _level(self, history: LevelHistory, result: QuantileResult | None) -> LevelView:
        """One level as it is now, and as it was at its marks."""
        scale, snapshots = history.plan.scale, history.snapshots
        if result is not None:
            for mark in history.marks:
                if mark.round not in snapshots:
                    before = history.trajectory.until(mark.round, mark.state.averages.rounds)
                    if (then := self._summary(history, mark.state, before)) is not None:
                        snapshots[mark.round] = snapshot_of(then, scale)
            snapshots = {**snapshots, len(history): snapshot_of(result, scale)}
        shown = () if result is None else tuple(sorted(snapshots.items()))
        step = self.spec.declared.step
        whole = step is not None and step == round(step)
        return LevelView(self.spec.levels[history.level_index], result, history, shown, scale, whole)


def snapshot_of(result: QuantileResult, scale: Scale) -> Snapshot:
    """A result's estimate and intervals on the working scale."""
    anytime = result.anytime or (math.nan, math.nan)
    other = (math.nan, math.nan) if result.other is None else result.other.interval
    estimate = result.estimate if result.located else math.nan
    values = (estimate, *result.confidence_interval, *anytime, *other)
    return Snapshot(*(value if math.isnan(value) else scale.to_working(value) for value in values))


def read_view(path: str | Path, **report: Any) -> RunView:
    """The view of a run's file, reported as `report` says (`RunSpec.with_report`); the file is only read."""
    with RunStore.open(path, read_only=True) as store:
        return RunRecord(store, store.spec.with_report(**report)).view()


def read_results(path: str | Path, **report: str) -> Results:
    """The results of a run's file as they stand; refused while a level has no interval yet."""
    with RunStore.open(path, read_only=True) as store:
        found = RunRecord(store, store.spec.with_report(**report)).results()
        over = store.finished is not None
    results = [result for result in found if result is not None]
    if len(results) < len(found):
        if over:
            raise InputError(f"{path} has no interval: the run ended while it was still searching for the quantile.")
        raise InputError(f"{path} has no interval yet: the run is still searching for the quantile. Try again later.")
    return Results(results)
