"""Planted files: records whose truths the auditor knows, of the kinds that a client could treat in another way.

    spread  six clusters of twelve values: a marked one, and whole numbers beside it
    edges   half of the records missing; the others outside the range, at its ends, and in its outer fifths
    equal   people with one record each, all of one value
    people  people with one row, and people with three

A marked value has nine digits: it is looked for in all that a client writes and sends. Queries are multiples of 0.5,
which share no six digits with a marked value.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privatile.core.arrays import Floats
from privatile.federation.audit.scores import Counts

RANGE = (0.0, 100_000.0)

VALUE_SHARES = (0.02, 0.08, 0.40, 0.40, 0.08, 0.02)
"""Shares of the records of a spread file in its first, second … cluster, in rising order."""

TIED = 1
"""The place of the commonest whole number of a cluster, the first one above the marked value."""

PERSON = "code"
"""The column that tells people apart, in every file; only some clients are told so."""

_WITHIN = np.array([0.6, 0.3, *[0.01] * 10])
_TENTHS = (0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9)
_EDGES = {-4_000.0: 0.5, 0.0: 0.1, 12_000.0: 0.1, 88_000.0: 0.05, 100_000.0: 0.05, 103_000.0: 0.2}


@dataclass(frozen=True, eq=False)
class PlantedFile:
    """A site's file: `copies` records hold each of `values`, `missing` have none.

    `people` is the beginning of everybody's identifier where the file has a column of people. A record is then a
    person, who has as many equal rows as `rows` says for the value.
    """

    values: Floats
    copies: Counts
    missing: int = 0
    people: str = ""
    rows: tuple[int, ...] = ()

    @property
    def records(self) -> int:
        """How many records there are; people where they are known."""
        return int(self.copies.sum()) + self.missing

    @property
    def marks(self) -> list[float]:
        """The marked values, as a client reads them."""
        return [float(f"{value:.4f}") for value in self.values.tolist() if value % 1.0]

    @cached_property
    def gaps(self) -> list[tuple[float, float]]:
        """The ends of the wide gaps between values."""
        wide = np.flatnonzero(np.diff(self.values) > 500.0)
        return [(float(self.values[place]), float(self.values[place + 1])) for place in wide]

    @property
    def middle(self) -> float:
        """A query in the middle of the middle gap."""
        low, high = self.gaps[len(self.gaps) // 2]
        return at_half((low + high) / 2.0)

    def above(self, queries: Floats) -> Floats:
        """The share of all records that is above each query."""
        return np.asarray((self.values > np.asarray(queries)[..., None]) @ self.copies / self.records)

    def text(self, column: str) -> str:
        """The file, in rising order of the values: a client that asks in the file's order shows it."""
        values = [f"{value:.4f}" for value in np.repeat(self.values, self.copies)] + [""] * self.missing
        lines = [f"{value},{self.people}{number:06d}\n" for number, value in enumerate(values)]
        if self.rows:
            lines = [line * times for line, times in zip(lines, np.repeat(self.rows, self.copies), strict=True)]
        return f"{column},{PERSON}\n" + "".join(lines)


def at_half(query: float) -> float:
    """The query, rounded to a multiple of 0.5 inside the range.

    >>> at_half(31415.9267), at_half(-1.0)
    (31416.0, 0.0)
    """
    return float(min(max(round(2.0 * query) / 2.0, RANGE[0]), RANGE[1]))


def marked(places: Floats, rng: np.random.Generator) -> Floats:
    """A marked value in each thousand that begins at `places`."""
    size = len(places)
    tenths, rest = rng.choice(_TENTHS, size), rng.integers(0, 100, size) / 1000.0
    return np.asarray(places + rng.integers(1, 900, size) + tenths + rest + 0.0007)


def spread(records: int, rng: np.random.Generator, *, close: bool = False) -> PlantedFile:
    """Six clusters; `close` puts them within 12,000 of each other.

    >>> file = spread(300, np.random.default_rng(1))
    >>> file.records, len(file.values), len(file.marks), len(file.gaps)
    (300, 72, 6, 5)
    """
    number = len(VALUE_SHARES)
    places = np.arange(20.0, 80.0, 2.0)
    start = int(rng.integers(len(places) - number))
    chosen = places[start : start + number] if close else np.sort(rng.choice(places, number, replace=False))
    marks = marked(1000.0 * chosen, rng)
    whole = np.ceil(marks)[:, None] + 2.0 + 3.0 * np.arange(len(_WITHIN) - 1)
    values = np.concatenate([marks[:, None], whole], axis=1).ravel()
    return PlantedFile(values, _copies(np.outer(VALUE_SHARES, _WITHIN).ravel(), records))


def edges(records: int, rng: np.random.Generator) -> PlantedFile:
    """Half of the records missing, the others at the edges of the range and beyond."""
    values = np.array(list(_EDGES))
    values[[2, 3]] = marked(values[[2, 3]], rng)
    known = records // 2
    return PlantedFile(values, _copies(np.array(list(_EDGES.values())), known), records - known)


def equal(records: int, rng: np.random.Generator) -> PlantedFile:
    """People with one record each, all of one value."""
    return PlantedFile(marked(np.array([50_000.0]), rng), np.array([records]), people=_identifier(rng))


def people(records: int, query: float, rng: np.random.Generator) -> PlantedFile:
    """Half of the people have three rows and a value below the query, half have one row and a value above it."""
    low = records // 2
    values = marked(1000.0 * (query // 1000.0 + np.array([-1.0, 1.0])), rng)
    return PlantedFile(values, np.array([low, records - low]), people=_identifier(rng), rows=(3, 1))


def _identifier(rng: np.random.Generator) -> str:
    return f"Q{rng.integers(10**6, 10**7)}X"


def _copies(shares: Floats, records: int) -> Counts:
    """Whole numbers in proportion to the shares, `records` in all."""
    ends = np.rint(np.cumsum(shares) / math.fsum(shares) * records).astype(np.int64)
    return np.diff(ends, prepend=0)
