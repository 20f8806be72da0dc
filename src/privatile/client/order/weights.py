"""A client's records divided by their survey weights: each class a column of its own, less those who do not take part.

Who takes part is drawn once for every record, by a word of the ledger's key: the one that belongs to the record's tag
or, where people are known, to the person, whatever the order of the rows. No run, no question and no restart enters it,
so that nobody is chosen by asking often enough. The key comes from the operating system's randomness, and no one who
lacks it can tell who takes part.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from privatile.client.sources.source import ONLY_CLIENT
from privatile.core.arrays import Floats
from privatile.core.messages import LONGEST_NAME
from privatile.errors import DataError, InputError

WIDEST = 1.2
"""The largest ratio of two weights of a class that has records enough."""

STEP = 1.02
"""Ratio of the bins that classes are made of: finer ones would gain less than a thousandth."""

MOST_BINS = 1024

ONE_MORE = 0.001
"""What a further class must gain, as a part of Kish's variance: a table of many classes is hard to read."""

TOO_WIDE = 0.02
"""What a class wider than `WIDEST` counts for on top: where a narrower one has records enough, it is taken."""

SIZES = (200, 160, 120, 80, 60, 40)
"""Records per level that every class may be asked to have, and rounds of the run; the best of them is taken."""

MOST_ROUNDS = 200

SEARCH = 12.0
"""Rounds in which the place of the quantile is searched: each takes a record of every class, however small it is."""

FEW_ROUNDS = 4.0
"""A run of T rounds loses about the part 4/T of its precision (T = 40: a tenth)."""


class WeightClass(NamedTuple):
    """One class of one holder: the smallest and the largest weight, how many records, Σw and Σw²."""

    low: float
    high: float
    records: int
    total: float
    squares: float

    @property
    def expected(self) -> float:
        """How many records take part, on average."""
        return self.total / self.high

    def __str__(self) -> str:
        low, high = f"{self.low:.4g}", f"{self.high:.4g}"
        return f"weight {low}" if low == high else f"weight {low} to {high}"


class ClassRule(NamedTuple):
    """What a class must have records for: every level in every round; without `rounds` the design chooses them."""

    levels: int = 1
    rounds: int | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of records that a class may be asked to have, one of which is chosen."""
        if self.rounds is None:
            return tuple(size * self.levels for size in SIZES)
        least = self.rounds * self.levels
        # Five standard errors of a number that is drawn: the class has enough of them as good as always.
        return (math.ceil(least + 5.0 * math.sqrt(least)),)


class AgreedClass(NamedTuple):
    """A class whose bounds, smallest and largest weight, are agreed, and those of all classes of the same records."""

    bounds: tuple[float, float]
    every: tuple[tuple[float, float], ...]

    @property
    def name(self) -> str:
        """The name under which it answers."""
        return "weight {!r} to {!r}".format(*self.bounds)


@dataclass
class WeightTally:
    """The weights of one holder, counted in bins while its records are read: memory does not grow with the records."""

    bins: dict[int, WeightClass] = field(default_factory=dict)

    def add(self, weights: Floats) -> None:
        """Count positive weights."""
        if not len(weights):
            return
        places = np.floor(np.log(weights) / math.log(STEP)).astype(np.int64)
        order = np.argsort(places, kind="stable")
        kinds, starts, counts = np.unique(places[order], return_index=True, return_counts=True)
        ordered = weights[order]
        lows, highs = np.minimum.reduceat(ordered, starts), np.maximum.reduceat(ordered, starts)
        totals, squares = np.add.reduceat(ordered, starts), np.add.reduceat(ordered**2, starts)
        for place, *found in zip(*(a.tolist() for a in (kinds, lows, highs, counts, totals, squares)), strict=True):
            new = WeightClass(*found)
            old = self.bins.get(place)
            self.bins[place] = new if old is None else joined((old, new))

    def classes(self) -> list[WeightClass]:
        """The bins, lightest first; few enough to compare every grouping of them."""
        found = [self.bins[place] for place in sorted(self.bins)]
        while len(found) > MOST_BINS:
            found = [joined(found[at : at + 2]) for at in range(0, len(found), 2)]
        return found


def joined(classes: Sequence[WeightClass]) -> WeightClass:
    """Several classes as one.

    >>> joined([WeightClass(1.0, 1.1, 10, 10.5, 11.0), WeightClass(2.0, 2.0, 1, 2.0, 4.0)])
    WeightClass(low=1.0, high=2.0, records=11, total=12.5, squares=15.0)
    """
    return WeightClass(
        min(one.low for one in classes),
        max(one.high for one in classes),
        sum(one.records for one in classes),
        math.fsum(one.total for one in classes),
        math.fsum(one.squares for one in classes),
    )


def grouped(bins: Sequence[WeightClass], least: float, levels: int = 1) -> list[WeightClass]:
    """Neighbouring bins as classes in each of which at least `least` records take part on average.

    Of all such groupings the one with the smallest variance; all bins are one class where there is no such grouping.

    >>> [str(one) for one in grouped([WeightClass(w, w, 100, 100 * w, 100 * w * w) for w in (1.0, 2.0, 3.0)], 50)]
    ['weight 1', 'weight 2', 'weight 3']
    >>> few = WeightClass(2.2, 2.2, 5, 11.0, 24.2)
    >>> [str(one) for one in grouped([WeightClass(w, w, 100, 100 * w, 100 * w * w) for w in (1.0, 2.0)] + [few], 50)]
    ['weight 1', 'weight 2 to 2.2']
    """
    count = len(bins)
    totals = np.concatenate([[0.0], np.cumsum([one.total for one in bins])])
    lows = np.array([one.low for one in bins])
    scale = math.fsum(one.squares for one in bins)
    cost, start = np.full(count + 1, np.inf), np.zeros(count + 1, dtype=np.int64)
    cost[0] = 0.0
    for stop in range(1, count + 1):
        high = bins[stop - 1].high
        inside = totals[stop] - totals[:stop]
        # The bins from each possible first one up to `stop`, as one class.
        spent = np.minimum(levels * SEARCH * high / inside, 0.9)
        variance = inside * high / (1.0 - spent) / scale
        whole = cost[:stop] + variance + ONE_MORE + TOO_WIDE * (high > WIDEST * lows[:stop])
        whole[inside < least * high] = np.inf
        start[stop] = int(np.argmin(whole))
        cost[stop] = whole[start[stop]]
    if not np.isfinite(cost[count]):
        return [joined(bins)]
    edges = [count]
    while edges[-1]:
        edges.append(int(start[edges[-1]]))
    edges.reverse()
    return [joined(bins[first:last]) for first, last in pairwise(edges)]


def variance_factor(classes: Sequence[WeightClass]) -> float:
    """Σ W_c·w_max,c/Σw²: the variance against that of Kish's effective number.

    >>> variance_factor([WeightClass(1.0, 1.0, 9, 9.0, 9.0), WeightClass(2.0, 2.0, 4, 8.0, 16.0)])
    1.0
    """
    return math.fsum(one.total * one.high for one in classes) / math.fsum(one.squares for one in classes)


def weight_classes(tallies: Mapping[str, WeightTally], rule: ClassRule) -> dict[str, tuple[WeightClass, ...]]:
    """The classes of every holder.

    Where the number of rounds is free, more of them want larger classes: of several sizes the one that costs least.
    """
    bins = {name: tally.classes() for name, tally in tallies.items()}
    best: tuple[float, dict[str, tuple[WeightClass, ...]]] | None = None
    for size in rule.sizes:
        found = {name: tuple(grouped(own, size, rule.levels)) for name, own in bins.items()}
        every = [one for own in found.values() for one in own]
        smallest = min(one.expected for one in every) / rule.levels
        cost = variance_factor(every) * (1.0 + FEW_ROUNDS / min(smallest, MOST_ROUNDS))
        if best is None or cost < best[0]:
            best = cost, found
    if best is None:
        raise ValueError("a rule of classes has at least one size")
    return best[1]


def takes_part(
    weights: Floats, high: float, draws: np.ndarray[tuple[int], np.dtype[np.uint64]]
) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Whose draw, a uniform 64-bit integer kept with the record, lets them take part: with probability w/w_max.

    >>> takes_part(np.array([1.0, 0.5, 0.5]), 1.0, np.array([2**64 - 1, 2**63 - 1, 2**63], dtype=np.uint64)).tolist()
    [True, True, False]
    """
    return (draws >> np.uint64(11)).astype(np.float64) * 2.0**-53 < weights / high


def checked_weights(column: str, weights: Floats, rows: int) -> Floats:
    """Weights as they were read, after `rows` earlier records; refused where one is none. No error shows a weight."""
    for wrong, what in (
        (np.isnan(weights), "is missing"),
        (np.isinf(weights), "is infinite"),
        (weights < 0.0, "is negative"),
    ):
        if wrong.any():
            record = rows + int(np.flatnonzero(wrong)[0]) + 1
            raise DataError(
                f"the weight column {column!r} must hold a number of 0 or more for every record; that of record "
                f"{record} {what}. Give every record its weight (0: it is not asked), or leave the record out."
            )
    return weights


def check_all_agreed(column: str, weights: Floats, agreed: AgreedClass) -> None:
    """Refuse positive weights that lie in no agreed class: without these records another quantile would be estimated.

    No error shows a weight.

    >>> check_all_agreed("w", np.array([1.0, 1.2, 1.5]), AgreedClass((1.0, 1.2), ((1.0, 1.2), (1.3, 1.5))))
    >>> check_all_agreed("w", np.array([1.25]), AgreedClass((1.0, 1.2), ((1.0, 1.2), (1.3, 1.5))))
    Traceback (most recent call last):
    privatile.errors.DataError: every record with a positive weight must lie in an agreed class; ...
    """
    inside = np.zeros(len(weights), dtype=np.bool_)
    for low, high in agreed.every:
        inside |= (weights >= low) & (weights <= high)
    if not inside.all():
        count = len(agreed.every)
        classes = "the 1 class" if count == 1 else f"any of the {count} classes"
        raise DataError(
            f"every record with a positive weight must lie in an agreed class; in the column {column!r} there are "
            f"weights outside {classes} that the study agreed for this site. Ask for classes that cover all weights "
            "(`privatile estimate ... --weight COLUMN --dry-run --json`), or give these records the weight 0."
        )


class Stratum(NamedTuple):
    """One weight class of one holder."""

    name: str
    holder: str
    weights: WeightClass | None
    """None where a column is not divided: all of it."""


def name_strata(classes: Mapping[str, Sequence[WeightClass]]) -> list[Stratum]:
    """The classes of all holders, lightest first, under names of their own."""
    strata = []
    for holder, own in classes.items():
        short = len({str(one) for one in own}) == len(own)
        for one in own:
            words = str(one) if short else f"weight {one.low!r} to {one.high!r}"
            name = words if holder == ONLY_CLIENT else f"{holder}, {words}"
            if len(name) > LONGEST_NAME:
                raise DataError(
                    f"with survey weights a client's name may have {LONGEST_NAME - len(words) - 2} characters, as the "
                    "names of its weight classes begin with it; the client column holds a longer one."
                )
            strata.append(Stratum(name, holder, one))
    return strata


def agreed_stratum(agreed: AgreedClass, holders: Sequence[str]) -> Stratum:
    """A class whose bounds are agreed, of the one holder there is."""
    if list(holders) != [ONLY_CLIENT]:
        raise InputError(
            "a class that was agreed is one of a site's own records: give one file without a client column."
        )
    low, high = agreed.bounds
    return Stratum(agreed.name, ONLY_CLIENT, WeightClass(low, high, 0, 0.0, 0.0))
