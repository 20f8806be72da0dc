"""Kin: data sets that hold the same records under other names, and what a record has spent in all of them together.

A data set is known by keyed digests of values in their order, which no name enters: of its own values, and of the
whole column it was cut from, each with the split (who holds which row, and whether people are known). Data sets are
kin where a digest is shared and the split or the column's name is not: the same column cut by another client column
or by none, a client or a column renamed, a client's part as a file of its own. Parts of one split hold different
rows, and are no kin. Two data sets that both know people are none either: people are charged one by one.

Which rows two splits share is not kept, so what kin have spent is added up at its worst: over splits the sum, within
a split the maximum. What differs in one value, one row or the order is not recognised.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from privatile.client.ledger.ledger import Ledger

SplitId = tuple[bytes, bytes]
"""Digest of a whole column, digest of how it is split."""


class OverlappingDataset(NamedTuple):
    """A data set that shares records; `identical`: all of them."""

    dataset: int
    identical: bool


def overlapping_datasets(
    ledger: Ledger, cuts: Iterable[SplitId], column: str, by_person: bool, values: bytes
) -> list[OverlappingDataset]:
    """The data sets next of kin to one with these cuts; `values` is the digest of its own values."""
    mine = sorted(cuts)
    found: dict[int, bool] = {}
    for source, split in mine:
        # Ranges of an index: the parts of the same split, perhaps thousands, are not read.
        for where, values_ in (
            ("split < ?", (source, split)),
            ("split > ?", (source, split)),
            ("split = ? AND column < ?", (source, split, column)),
            ("split = ? AND column > ?", (source, split, column)),
        ):
            rows = ledger.execute(f"SELECT dataset FROM splits WHERE source = ? AND {where}", values_).fetchall()
            for (dataset,) in rows:
                if dataset not in found:
                    found[dataset] = _identical(ledger, dataset, values)
    return [
        OverlappingDataset(dataset, identical)
        for dataset, identical in sorted(found.items())
        if not (by_person and _by_person(ledger, dataset)) and not _same_split(ledger, dataset, mine, column)
    ]


def _identical(ledger: Ledger, dataset: int, values: bytes) -> bool:
    (known,) = ledger.execute("SELECT content FROM datasets WHERE id = ?", (dataset,)).fetchone()
    return bool(bytes(known) == values)


def _by_person(ledger: Ledger, dataset: int) -> bool:
    (person,) = ledger.execute("SELECT person FROM datasets WHERE id = ?", (dataset,)).fetchone()
    return person is not None


def _same_split(ledger: Ledger, dataset: int, cuts: Iterable[SplitId], column: str) -> bool:
    theirs = set(_cuts(ledger, dataset))
    (name,) = ledger.execute("SELECT column FROM datasets WHERE id = ?", (dataset,)).fetchone()
    return bool(name == column) and any(cut in theirs for cut in cuts)


def _cuts(ledger: Ledger, dataset: int) -> list[SplitId]:
    rows = ledger.execute("SELECT source, split FROM splits WHERE dataset = ? ORDER BY source, split", (dataset,))
    return [(bytes(source), bytes(split)) for source, split in rows]


def spent_by_kin(ledger: Ledger, cuts: Iterable[SplitId], column: str, by_person: bool, values: bytes) -> float:
    """The most one record has spent in data sets other than its own: kin, and their kin."""
    mine = list(cuts)
    seen: set[int] = set()
    splits: dict[tuple[SplitId, str], float] = {}
    waiting = overlapping_datasets(ledger, mine, column, by_person, values)
    while waiting:
        dataset = waiting.pop().dataset
        if dataset in seen:
            continue
        seen.add(dataset)
        name, person, own = ledger.execute(
            "SELECT column, person, content FROM datasets WHERE id = ?", (dataset,)
        ).fetchone()
        theirs = _cuts(ledger, dataset)
        waiting += overlapping_datasets(ledger, theirs, name, person is not None, bytes(own))
        if name == column and any(cut in mine for cut in theirs):
            continue  # itself, or another part of its own split
        # The split of a larger column, where there is one, gathers the parts.
        part = min(theirs, key=lambda cut: (cut[0] == own, cut))
        splits[part, name] = max(splits.get((part, name), 0.0), own_spent(ledger, dataset))
    return math.fsum(splits.values())


def most_spent(ledger: Ledger, dataset: int) -> float:
    """The largest ε spent by one record of a data set, there and in its kin."""
    return own_spent(ledger, dataset) + spent_elsewhere(ledger, dataset)


def spent_elsewhere(ledger: Ledger, dataset: int) -> float:
    """The largest ε that a record of a data set has spent in its kin."""
    column, person, content = ledger.execute(
        "SELECT column, person, content FROM datasets WHERE id = ?", (dataset,)
    ).fetchone()
    return spent_by_kin(ledger, _cuts(ledger, dataset), column, person is not None, bytes(content))


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
    deepest, running = 0.0, []
    for _, opens, epsilon in sorted(ends):
        if opens:
            running.append(epsilon)
            deepest = max(deepest, math.fsum(running))
        else:
            running.remove(epsilon)
    return deepest
