"""Data sets that hold the same records under other names, and what a record has spent in all of them together.

A data set is known by keyed digests of values in their order, which no name enters: of its own values, and of the
whole column it is a part of, each with the split (who holds which row, and whether people are known). Two data sets
overlap where a digest is shared and the split or the column's name is not: the same column split by another client
column or by none, a client or a column renamed, a client's part as a file of its own. Parts of one split hold
different rows and do not overlap. Nor do two data sets that both know people: people are charged one by one.

Which rows two splits share is not stored, so what overlapping data sets have spent is added up at its worst: over
splits the sum, within a split the maximum. What differs in one value, one row or the order is not recognised.
"""

from __future__ import annotations

import math

from privatile.client.ledger.datasets import Identity, SplitId, own_spent
from privatile.client.ledger.ledger import Ledger

OTHER_PARTS = ("split < ?", "split > ?", "split = ? AND column < ?", "split = ? AND column > ?")
"""Ranges of the index, so that the parts of the same split, perhaps thousands, are not read.

`(split, column) <> (?, ?)` reads them all, and so does `<` of the pair: SQLite seeks with `<=` and then filters.
"""


def stored_identity(ledger: Ledger, dataset: int) -> Identity:
    """The identity of a data set of the ledger."""
    splits = ledger.execute("SELECT source, split FROM splits WHERE dataset = ?", (dataset,)).fetchall()
    row = ledger.execute("SELECT column, person IS NOT NULL, content FROM datasets WHERE id = ?", (dataset,))
    column, by_person, values_digest = row.fetchone()
    return Identity(column, bool(by_person), values_digest, tuple(splits))


def overlapping_datasets(ledger: Ledger, this: Identity) -> dict[int, Identity]:
    """The data sets that overlap with this one directly."""
    found = set()
    for source, split in this.splits:
        for part in OTHER_PARTS:
            values = (source, split, this.column)[: 1 + part.count("?")]
            rows = ledger.execute(f"SELECT dataset FROM splits WHERE source = ? AND {part}", values)
            found |= {dataset for (dataset,) in rows}
    others = {dataset: stored_identity(ledger, dataset) for dataset in sorted(found)}
    return {dataset: other for dataset, other in others.items() if this.overlaps(other)}


def spent_elsewhere(ledger: Ledger, this: Identity) -> float:
    """The most that one record has spent in other data sets: those that overlap, and those that overlap with them."""
    seen: dict[int, Identity] = {}
    waiting = overlapping_datasets(ledger, this)
    while waiting:
        dataset, other = waiting.popitem()
        if dataset not in seen:
            seen[dataset] = other
            waiting |= overlapping_datasets(ledger, other)
    splits: dict[tuple[SplitId, str], float] = {}
    for dataset, other in seen.items():
        if not this.same_split(other):
            # The split of a larger column, where there is one, gathers the parts.
            part = min(other.splits, key=lambda split: (split[0] == other.values_digest, split)), other.column
            splits[part] = max(splits.get(part, 0.0), own_spent(ledger, dataset))
    return math.fsum(splits.values())


def most_spent(ledger: Ledger, dataset: int) -> float:
    """The largest ε spent by one record of a data set, there and under other names."""
    return own_spent(ledger, dataset) + spent_elsewhere(ledger, stored_identity(ledger, dataset))
