"""A client's values in random order, loaded bucket by bucket."""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from privatile.client.ledger.datasets import Content
from privatile.client.order.spill import Buckets, Words
from privatile.client.order.weight_classes import WeightClass
from privatile.core.arrays import Floats


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
