"""A client's values in random order, loaded bucket by bucket."""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from privatile.client.ledger.datasets import Content
from privatile.client.order.spill import Buckets, Words
from privatile.client.order.weight_classes import WeightClass
from privatile.core.arrays import Floats

PIECE = 1 << 18
"""Records that are counted at once (`has_heaps`)."""


class Block(NamedTuple):
    """Consecutive records of the random order, and the people they belong to (two words each), if known."""

    values: Floats
    people: Words | None


class ShuffledColumn:
    """One client's values in a random order that only the ledger's key knows."""

    def __init__(
        self,
        content: Content,
        missing: int,
        buckets: Buckets,
        bucket_rows: int,
        weights: WeightClass | None = None,
    ) -> None:
        """`missing` values are among the records; rows of the buckets hold tag, value and, where known, person.

        `weights` is the weight class whose records these are, less those who do not take part.
        """
        self.content = content
        self.missing = missing
        self.weights = weights
        self._buckets: Buckets | None = buckets
        self._starts = list(accumulate(buckets.divide(bucket_rows), initial=0))
        self._loaded = -1
        self._block = Block(np.empty(0), None)

    def __repr__(self) -> str:
        return f"ShuffledColumn(client={self.content.client!r}, column={self.content.column!r})"

    @property
    def records(self) -> int:
        """How many records there are, missing ones included, one per person where people are known."""
        return self.content.records

    def blocks(self, start: int, stop: int) -> Iterator[Block]:
        """The records at positions `start` up to `stop` of the order, 0 ≤ start ≤ stop ≤ records."""
        while start < stop:
            bucket = bisect_right(self._starts, start) - 1
            self._load(bucket)
            base = self._starts[bucket]
            end = min(stop, self._starts[bucket + 1])
            values, people = self._block
            piece = slice(start - base, end - base)
            yield Block(values[piece], None if people is None else people[piece])
            start = end

    def _load(self, bucket: int) -> None:
        if bucket == self._loaded or self._buckets is None:
            return
        self._block = Block(np.empty(0), None)  # free the last bucket before the next one is loaded
        tags, values, *people = self._buckets.load(bucket)
        order = np.argsort(tags)
        ordered = tags[order]
        if (ordered[1:] == ordered[:-1]).any():
            order = np.argsort(tags, kind="stable")  # equal tags: in the order of the rows, on every machine
        del tags, ordered
        known = np.stack([half[order] for half in people], axis=1) if people else None
        self._block = Block(values[order].view(np.float64), known)
        self._loaded = bucket
        if len(self._starts) == 2:
            self._buckets = None  # everything is loaded


HEAVY = 0.25
"""Of a run's standard error in rank, how much a value must hold to be a heap: less shifts no interval visibly."""

MOST_HEAPED = 0.05
"""Share of the records that may lie on heaps before the values are called heaped."""

FEWEST_HEAPED = 5
"""Records that a heap has at least: in a large run fewer of a small site can tie by chance."""

HEAPS = (
    f"more than {MOST_HEAPED:.0%}% of the records of %s lie on heaps: values that so many records share that each "
    "holds more than a quarter of the run's standard error in rank. The values are declared continuous, and are not. "
    "The interval can miss the quantile in most runs, mostly without a caveat. %s This stands here only and is sent "
    "to no one."
)
"""A log line for the holder alone: whose records, and what to do."""


def has_heaps(parts: Sequence[tuple[ShuffledColumn, float]], error_in_rank: float) -> bool:
    """Whether values that each hold over `HEAVY` × `error_in_rank` together hold over `MOST_HEAPED` of the records.

    `parts` are columns with their shares of the whole, which sum to 1; missing values are left out. `error_in_rank` is
    the run's standard error in rank, 1/√V. The first pass is a summary by Misra and Gries with m = 1/(HEAVY·error)
    places, which is all the memory beside a piece of the column: with n records at most 8√n. It holds every value of a
    share above 1/(m + 1). The second pass counts the values that it holds, so the answer is exact.
    """
    heavy = HEAVY * error_in_rank
    most = math.ceil(1.0 / heavy)
    kept, held = np.empty(0), np.empty(0)
    for values, share in _pieces(parts):
        kept, places = np.unique(np.concatenate([kept, values]), return_inverse=True)
        held = np.bincount(places, np.concatenate([held, np.full(len(values), share)])).astype(np.float64)
        if len(kept) > most:
            held -= np.partition(held, -most - 1)[-most - 1]
            kept, held = kept[held > 0.0], held[held > 0.0]
    records, held = np.zeros(len(kept), dtype=np.intp), np.zeros(len(kept))
    for values, share in _pieces(parts):
        found = np.bincount(np.searchsorted(kept, values[np.isin(values, kept)]), minlength=len(kept))
        records += found
        held += share * found
    return bool(held[(held > heavy) & (records >= FEWEST_HEAPED)].sum() > MOST_HEAPED)


def _pieces(parts: Sequence[tuple[ShuffledColumn, float]]) -> Iterator[tuple[Floats, float]]:
    """The values of columns, piece by piece, and the share of the whole that one record has."""
    for column, share in parts:
        for start in range(0, column.records, PIECE):
            for values, _ in column.blocks(start, min(start + PIECE, column.records)):
                yield values[~np.isnan(values)], share / max(1, column.records - column.missing)
