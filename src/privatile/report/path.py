"""The path of a run, thinned for drawing: questions, estimate and intervals over the rounds, in units of the data."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.core.scale import Scale
from privatile.result.result import in_units
from privatile.run.view import LevelView, RunView, Snapshot, bucket_ends

Integers = NDArray[np.int64]

POINTS = 4500
"""Points of all levels together in a page: each costs about 60 bytes, and a screen is some 2,000 pixels wide."""


REACH = 1.0
"""Widths of the last interval, to each side of it, that a drawing shows of the intervals before."""

USEFUL = 4.0
"""Widths of the questions' own window, to each side of it, that a drawing shows of the last interval."""

MIN_WHOLE = 3.0
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
        missing = MIN_WHOLE - (high - low) if self.whole else 0.0
        return (low - missing / 2, high + missing / 2) if missing > 0 else (low, high)

    @property
    def whole_ticks(self) -> bool:
        """Whether an axis over `heights` is labelled with whole numbers only."""
        low, high = self.heights
        return self.whole or (all(end == round(end) for end in self.range) and high - low >= MIN_WHOLE)

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


def thin_path(level: LevelView, most: int) -> ThinPath:
    """At most `most` points; between two snapshots the interval is drawn straight, along a running mean."""
    result, scale, snapshots = level.result, level.scale, level.snapshots
    ends = bucket_ends(len(level), most)
    # Questions on both sides of the quantile have no mean to draw along: straight lines.
    mean = np.zeros(len(level)) if level.straddles else level.mean
    center = mean[ends - 1]
    reach = {name: np.full(len(ends), np.nan) for name in Snapshot._fields}
    if snapshots:
        at = np.array([number for number, _ in snapshots])
        known = ends >= at[0]
        for name, values in zip(Snapshot._fields, np.array([snapshot for _, snapshot in snapshots]).T, strict=True):
            if not name.startswith("other") or (result is not None and result.other is not None):
                reach[name][known] = center[known] + np.interp(ends[known], at, values - mean[at - 1])
    low, high, center = (
        _in_units(values, scale)
        for values in (
            envelope(level.low, ends)[0],
            envelope(level.high, ends)[1],
            last_in_bucket(level.center, ends),
        )
    )
    intervals = {name: _in_units(values, scale) for name, values in reach.items()}
    stated = (scale.low, scale.high)
    # Before there is an interval the questions of the search are all there is to see.
    search = level.burn_in if snapshots and len(level) > level.burn_in else 0
    return ThinPath(
        ends,
        level.records[ends - 1],
        low,
        high,
        center,
        **intervals,
        range=stated,
        search=search,
        whole=level.whole,
        digits_width=math.nan if result is None else result.shown.first.width,
    )


def shown_path(level: LevelView, most: int) -> ThinPath:
    """The path with the interval that stands first beside it: while the run is unfinished the anytime one."""
    path = thin_path(level, most)
    if level.result is None or not level.result.shown.is_so_far:
        return path
    return replace(path, low=path.anytime_low, high=path.anytime_high)


def most_points(view: RunView) -> int:
    """Points a level may have, so that the page stays small."""
    return max(200, min(2000, POINTS // len(view.levels)))


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


def _in_units(values: Floats, scale: Scale) -> Floats:
    return np.array([value if math.isnan(value) else in_units(scale, value) for value in values.tolist()])
