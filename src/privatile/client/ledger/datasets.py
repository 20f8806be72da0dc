"""Data sets of a ledger: a client's column, known by keyed digests of its content, and what its records have spent.

The digests are of values in their order, which no name enters: of a data set's own values, and of the whole column it
is a part of, each with the split (who holds which row, and whether people are known). Two data sets overlap, that is,
hold the same records under other names, where a digest is shared and the split or the column's name is not: the same
column split by another client column or by none, a client or a column renamed, a client's part as a file of its own.
Of a CSV file there is a further digest, of the column's text: the same text read as other numbers is the same records.
Parts of one split hold different rows and do not overlap. Nor do two data sets that both know people: people are
charged one by one.

Which rows two splits share is not stored, so what overlapping data sets have spent is added up at its worst: over
splits the sum, within a split the maximum. What differs in one value, one row or the order is not recognised.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from privatile.client.ledger.keys import PersonKey
from privatile.client.ledger.ledger import Ledger
from privatile.client.sources.source import ONLY_CLIENT

SplitId = tuple[bytes, bytes]
"""Digest of a whole column, digest of how it is split among clients."""

OTHER_PARTS = ("split < ?", "split > ?", "split = ? AND column < ?", "split = ? AND column > ?")
"""Ranges of the index, so that the parts of the same split, perhaps thousands, are not read.

`(split, column) <> (?, ?)` reads them all, and so does `<` of the pair: SQLite seeks with `<=` and then filters.
"""


@dataclass(frozen=True)
class Identity:
    """By what a data set is compared with others."""

    column: str
    by_person: bool
    values_digest: bytes
    """Keyed digest of its values alone, before reduction to one per person."""
    splits: tuple[SplitId, ...]
    """The whole column that it is a part of, and how that is split; itself as a whole; the text they are read from."""

    def same_split(self, other: "Identity") -> bool:
        """Whether both are the same data set, or parts of one split."""
        return self.column == other.column and not set(self.splits).isdisjoint(other.splits)

    def overlaps(self, other: "Identity") -> bool:
        """Whether the two, which share a digest, hold the same records under other names."""
        return not (self.by_person and other.by_person) and not self.same_split(other)


@dataclass(frozen=True)
class Content(Identity):
    """What the ledger needs to know of a client's column that was read."""

    client: str
    """By what name it answers: the client, or one of its weight classes."""
    holder: str
    """Whose records they are: the client, whatever its records are divided into."""
    digest: bytes
    """Keyed digest of the content, in its order."""
    records: int
    """How many, after reduction to one per person."""
    person_column: str | None
    person_key: PersonKey | None
    """The key under which its people are known; None without a person column."""

    def __str__(self) -> str:
        # Where nobody has named a client, its name in the ledger says nothing.
        if self.client == ONLY_CLIENT:
            return f"column {self.column!r}"
        return f"{part_in_words(self.client, self.holder)}, column {self.column!r},"


def part_in_words(client: str, holder: str) -> str:
    """Who answers, by the name in the ledger: a client, or a weight class of one.

    >>> part_in_words("north", "north"), part_in_words("weight 1 to 1.2", "all")
    ("client 'north'", "weight class 'weight 1 to 1.2'")
    """
    return f"client {client!r}" if client == holder else f"weight class {client!r}"


def dataset_id(ledger: Ledger, content: Content) -> int | None:
    """The ledger's number for this content; None where it has never answered."""
    row = ledger.execute(
        "SELECT id FROM datasets WHERE client = ? AND column = ? AND digest = ?",
        (content.client, content.column, content.digest),
    ).fetchone()
    return None if row is None else int(row[0])


def enter_dataset(ledger: Ledger, content: Content) -> int:
    """Enter a data set and the whole columns that it is a part of, where they are new; call inside a transaction."""
    ledger.entered += 1
    seal, own = ledger.seal, (content.client, content.column, content.digest)
    with seal.changing("datasets", "client = ? AND column = ? AND digest = ?", own):
        ledger.execute(
            "INSERT INTO datasets (client, column, digest, holder, content, person, records, cursor)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, 0) ON CONFLICT DO NOTHING",
            (*own, content.holder, content.values_digest, content.person_column, content.records),
        )
    (dataset,) = ledger.execute(
        "SELECT id FROM datasets WHERE client = ? AND column = ? AND digest = ?", own
    ).fetchone()
    with seal.changing("splits", "dataset = ?", (dataset,)):
        ledger.execute_many(
            "INSERT INTO splits (source, split, column, dataset) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            [(source, split, content.column, dataset) for source, split in content.splits],
        )
    return int(dataset)


Span = tuple[int, int, float]
"""Positions from, up to, and the ε that a record there spends."""


def spans_of(ledger: Ledger, dataset: int, *, reserved: bool, but: tuple[str, str] = ("", "")) -> list[Span]:
    """The spans of a data set's order that were answered; with `reserved` also those that runs keep to themselves.

    `but` leaves out one run at one client.
    """
    # Answers of a run that follow each other are one span: between them, length so far minus stop stays the same.
    spans = ledger.execute(
        "SELECT min(start), max(stop), epsilon FROM (SELECT a.run, a.client, a.start, a.stop, r.epsilon,"
        " sum(a.stop - a.start) OVER (PARTITION BY a.run, a.client ORDER BY a.start) - a.stop AS span FROM answers a"
        " JOIN runs r ON r.run = a.run AND r.client = a.client WHERE r.dataset = ? AND (r.run, r.client) <> (?, ?))"
        " GROUP BY run, client, span",
        (dataset, *but),
    ).fetchall()
    if reserved:
        spans += ledger.execute(
            "SELECT next, reserved, epsilon FROM runs WHERE dataset = ? AND reserved > next"
            " AND (run, client) <> (?, ?)",
            (dataset, *but),
        )
    return spans


def most_within(spans: Sequence[Span], records: int, within: tuple[int, int]) -> float:
    """The largest ε spent by one record at the positions `within`: a sweep over the ends of all spans, modulo n.

    >>> most_within([(0, 6, 1.0), (4, 12, 2.0)], 10, (0, 10)), most_within([(0, 6, 1.0), (4, 12, 2.0)], 10, (12, 14))
    (3.0, 1.0)
    """
    asked = _folded(*within, records)
    ends: list[tuple[int, int, float]] = []
    for start, stop, epsilon in spans:
        for left, right in _folded(start, stop, records):
            for low, high in asked:
                if (first := max(left, low)) < (last := min(right, high)):
                    ends += [(first, 1, epsilon), (last, 0, epsilon)]
    # Sums are formed afresh at every end: ∞ − ∞ has no value, and differences would drift.
    most, open_spans = 0.0, []
    for _, opens, epsilon in sorted(ends):
        if opens:
            open_spans.append(epsilon)
            most = max(most, math.fsum(open_spans))
        else:
            open_spans.remove(epsilon)
    return most


def _folded(start: int, stop: int, records: int) -> list[tuple[int, int]]:
    """Positions of the order as records, in one piece or in two; none is longer than all records."""
    low = start % records
    high = low + min(stop - start, records)
    return [(left, right) for left, right in ((low, min(high, records)), (0, high - records)) if right > left]


def own_spent(ledger: Ledger, dataset: int, *, reserved: bool = False) -> float:
    """The largest ε spent by one record in a data set alone; ∞ where a restore has lost what was spent."""
    records, lost = ledger.execute("SELECT records, lost FROM datasets WHERE id = ?", (dataset,)).fetchone()
    spans = spans_of(ledger, dataset, reserved=reserved)
    return math.inf if lost else most_within(spans, records, (0, records))


def stored_identity(ledger: Ledger, dataset: int) -> "Identity":
    """The identity of a data set of the ledger."""
    splits = ledger.execute("SELECT source, split FROM splits WHERE dataset = ?", (dataset,)).fetchall()
    row = ledger.execute("SELECT column, person IS NOT NULL, content FROM datasets WHERE id = ?", (dataset,))
    column, by_person, values_digest = row.fetchone()
    return Identity(column, bool(by_person), values_digest, tuple(splits))


def overlapping_datasets(ledger: Ledger, this: "Identity") -> "dict[int, Identity]":
    """The data sets that overlap with this one directly."""
    found = set()
    for source, split in this.splits:
        for part in OTHER_PARTS:
            values = (source, split, this.column)[: 1 + part.count("?")]
            rows = ledger.execute(f"SELECT dataset FROM splits WHERE source = ? AND {part}", values)
            found |= {dataset for (dataset,) in rows}
    others = {dataset: stored_identity(ledger, dataset) for dataset in sorted(found)}
    return {dataset: other for dataset, other in others.items() if this.overlaps(other)}


def overlapping_nameless(ledger: Ledger) -> "dict[int, Identity]":
    """The data sets without a person column that hold records of people whom the ledger knows."""
    # Whether people are known enters the split, so a shared source is enough.
    rows = ledger.execute(
        "SELECT DISTINCT s.dataset FROM splits s JOIN datasets d ON d.id = s.dataset AND d.person IS NULL"
        " WHERE s.source IN (SELECT n.source FROM datasets o JOIN splits n ON n.dataset = o.id"
        " WHERE o.person IS NOT NULL)"
    ).fetchall()
    return {dataset: stored_identity(ledger, dataset) for (dataset,) in rows}


def spent_elsewhere(ledger: Ledger, this: "Identity", *, reserved: bool = False) -> float:
    """The most that one record has spent in other data sets: those that overlap, and those that overlap with them.

    With `reserved`, what runs have reserved there counts as spent. What people spend by name is added up person by
    person (`lifetime_budgets`), over all columns; which people a nameless record may belong to is not known. So:

    - to people, all nameless data sets count that overlap with one where people are known, this one or another;
    - to nameless records that overlap with one where people are known, what those people count, and on top of it the
      most that any person has spent by name.
    """
    seen = _reached(ledger, overlapping_datasets(ledger, this))
    named = {dataset for dataset, other in seen.items() if other.by_person}
    by_name = 0.0
    if named and not this.by_person:
        by_name = _spent_by_name(ledger, named, reserved=reserved)
    if named or this.by_person:
        seen = _reached(ledger, seen | overlapping_nameless(ledger))
    shared = Counter(split for other in seen.values() for split in other.splits)
    splits: dict[tuple[SplitId, str], float] = {}
    for dataset, other in seen.items():
        if not other.by_person and not this.same_split(other):
            # The split of a larger column, where there is one, gathers the parts.
            part = min(other.splits, key=lambda split: (-shared[split], split)), other.column
            splits[part] = max(splits.get(part, 0.0), own_spent(ledger, dataset, reserved=reserved))
    return math.fsum(splits.values()) + by_name


def _reached(ledger: Ledger, first: "dict[int, Identity]") -> "dict[int, Identity]":
    """These data sets, those that overlap with them, and so on."""
    seen: dict[int, Identity] = {}
    waiting = dict(first)
    while waiting:
        dataset, other = waiting.popitem()
        if dataset not in seen:
            seen[dataset] = other
            waiting |= overlapping_datasets(ledger, other)
    return seen


def _spent_by_name(ledger: Ledger, named: "set[int]", *, reserved: bool) -> float:
    """The most that a person of these data sets may have spent by name, in whichever data set."""
    if any(lost for dataset, lost in ledger.execute("SELECT id, lost FROM datasets") if dataset in named):
        return math.inf
    _, most = ledger.lifetime_budgets.totals()
    held: dict[str, float] = {}
    if reserved:
        for dataset, run, epsilon in ledger.execute("SELECT dataset, run, epsilon FROM runs WHERE reserved > next"):
            if dataset in named:
                held[run] = max(held.get(run, 0.0), epsilon)
    return math.fsum([most, *held.values()])


def most_spent(ledger: Ledger, dataset: int) -> float:
    """The largest ε spent by one record of a data set, there and under other names."""
    return own_spent(ledger, dataset) + spent_elsewhere(ledger, stored_identity(ledger, dataset))
