"""Data sets of a ledger: a client's column, known by keyed digests of its content, and what its records have spent."""

from __future__ import annotations

import math
from dataclasses import dataclass

from privatile.client.ledger.keys import PersonKey
from privatile.client.ledger.ledger import Ledger

SplitId = tuple[bytes, bytes]
"""Digest of a whole column, digest of how it is split among clients."""


@dataclass(frozen=True)
class Content:
    """What the ledger needs to know of a client's column."""

    client: str
    column: str
    digest: bytes
    """Keyed digest of the content, in its order."""
    values_digest: bytes
    """Keyed digest of its values alone, before reduction to one per person."""
    splits: tuple[SplitId, ...]
    """The whole column that it is a part of, and how that is split; and itself as a whole."""
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
    spans: list[tuple[int, int, float]] = []
    runs = ledger.execute(
        "SELECT a.run, a.client, min(a.start), max(a.stop), sum(a.stop - a.start), r.epsilon FROM answers a"
        " JOIN runs r ON r.run = a.run AND r.client = a.client WHERE r.dataset = ? GROUP BY a.run, a.client",
        (dataset,),
    ).fetchall()
    for run, client, start, stop, total, epsilon in runs:
        if total == stop - start:
            spans.append((start, stop, epsilon))
        else:
            rows = ledger.execute("SELECT start, stop FROM answers WHERE run = ? AND client = ?", (run, client))
            spans.extend((begin, end, epsilon) for begin, end in rows)
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
