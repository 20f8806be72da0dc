"""Data sets of a ledger: a client's column, known by keyed digests of its content, and what its records have spent."""

from __future__ import annotations

import math
from dataclasses import dataclass

from privatile.client.ledger.keys import PersonKey
from privatile.client.ledger.ledger import Ledger

SplitId = tuple[bytes, bytes]
"""Digest of a whole column, digest of how it is split among clients."""


@dataclass(frozen=True)
class Identity:
    """By what a data set is compared with others."""

    column: str
    by_person: bool
    values_digest: bytes
    """Keyed digest of its values alone, before reduction to one per person."""
    splits: tuple[SplitId, ...]
    """The whole column that it is a part of, and how that is split; and itself as a whole."""

    def same_split(self, other: Identity) -> bool:
        """Whether both are the same data set, or parts of one split."""
        return self.column == other.column and not set(self.splits).isdisjoint(other.splits)

    def overlaps(self, other: Identity) -> bool:
        """Whether the two, which share a digest, hold the same records under other names."""
        return not (self.by_person and other.by_person) and not self.same_split(other)


@dataclass(frozen=True)
class Content(Identity):
    """What the ledger needs to know of a client's column that was read."""

    client: str
    digest: bytes
    """Keyed digest of the content, in its order."""
    records: int
    """How many, after reduction to one per person."""
    person_column: str | None
    person_key: PersonKey | None
    """The key under which its people are known; None without a person column."""

    def __str__(self) -> str:
        return f"client {self.client!r}, column {self.column!r},"


def dataset_id(ledger: Ledger, content: Content) -> int | None:
    """The ledger's number for this content; None where it has never answered."""
    row = ledger.execute(
        "SELECT id FROM datasets WHERE client = ? AND column = ? AND digest = ?",
        (content.client, content.column, content.digest),
    ).fetchone()
    return None if row is None else int(row[0])


def own_spent(ledger: Ledger, dataset: int) -> float:
    """The largest ε spent by one record in a data set alone: a sweep over the ends of all answered spans, modulo n."""
    (records,) = ledger.execute("SELECT records FROM datasets WHERE id = ?", (dataset,)).fetchone()
    # Answers of a run that follow each other are one span: between them, length so far minus stop stays the same.
    spans = ledger.execute(
        "SELECT min(start), max(stop), epsilon FROM (SELECT a.run, a.client, a.start, a.stop, r.epsilon,"
        " sum(a.stop - a.start) OVER (PARTITION BY a.run, a.client ORDER BY a.start) - a.stop AS span FROM answers a"
        " JOIN runs r ON r.run = a.run AND r.client = a.client WHERE r.dataset = ?) GROUP BY run, client, span",
        (dataset,),
    ).fetchall()
    ends: list[tuple[int, int, float]] = []
    for start, stop, epsilon in spans:
        low, high = start % records, start % records + (stop - start)
        for left, right in ((low, min(high, records)), (0, high - records)):
            if right > left:
                ends += [(left, 1, epsilon), (right, 0, epsilon)]
    # Sums are formed afresh at every end: ∞ − ∞ has no value, and differences would drift.
    most, open_spans = 0.0, []
    for _, opens, epsilon in sorted(ends):
        if opens:
            open_spans.append(epsilon)
            most = max(most, math.fsum(open_spans))
        else:
            open_spans.remove(epsilon)
    return most
