"""Which records are the same, what they have spent, and what a ledger reports about them.

Data sets of a ledger: a client's column, known by keyed digests of its content, and what its records have spent.

The digests are of values in their order, which no name enters: of a data set's own values, and of the whole column it
is a part of, each with the split (who holds which row, and whether people are known). Two data sets overlap, that is,
hold the same records under other names, where a digest is shared and the split or the column's name is not: the same
column split by another client column or by none, a client or a column renamed, a client's part as a file of its own.
Of a CSV file there is a further digest, of the column's text: the same text read as other numbers is the same records.
Parts of one split hold different rows and do not overlap. Nor do two data sets that both know people: people are
charged one by one.

Which rows two splits share is not stored, so what overlapping data sets have spent is added up at its worst: over
splits the sum, within a split the maximum. What differs in one value, one row or the order is not recognised.

So a person's worst case for life is what was spent under that name, plus the same sum over all data sets without a
person column, less those that hold new people by the holder's word and share no digest with another.

What a ledger says about itself: who has answered how much, and what it cost. Never a value.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from privatile.client.ledger.integrity import PersonKey
from privatile.client.ledger.ledger import DAMAGED, Ledger
from privatile.client.sources.source import ONLY_CLIENT
from privatile.errors import InputError, LedgerError

SplitId = tuple[bytes, bytes]
"""Digest of a whole column, digest of how it is split among clients."""

Part = tuple[SplitId, str]
"""The split, and its column, by which a data set is counted."""

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

    @property
    def split(self) -> Part:
        """What all parts of one split have in common."""
        return self.splits[0], self.column

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
    ledger.insert(
        "datasets",
        if_absent=True,  # entered by an earlier run
        client=content.client,
        holder=content.holder,
        column=content.column,
        digest=content.digest,
        content=content.values_digest,
        person=content.person_column,
        records=content.records,
        cursor=0,
    )
    own = (content.client, content.column, content.digest)
    row = ledger.execute("SELECT id FROM datasets WHERE client = ? AND column = ? AND digest = ?", own)
    (dataset,) = row.fetchone()
    for source, split in content.splits:
        ledger.insert("splits", if_absent=True, source=source, split=split, column=content.column, dataset=dataset)
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


def known_spent(ledger: Ledger, dataset: int, *, reserved: bool = False) -> float:
    """The largest ε spent by one record in a data set alone, by what the ledger holds."""
    (records,) = ledger.execute("SELECT records FROM datasets WHERE id = ?", (dataset,)).fetchone()
    return most_within(spans_of(ledger, dataset, reserved=reserved), records, (0, records))


def own_spent(ledger: Ledger, dataset: int, *, reserved: bool = False) -> float:
    """The largest ε spent by one record in a data set alone; ∞ where a restore has lost what was spent."""
    (lost,) = ledger.execute("SELECT lost FROM datasets WHERE id = ?", (dataset,)).fetchone()
    return math.inf if lost else known_spent(ledger, dataset, reserved=reserved)


def any_lost(ledger: Ledger, datasets: Iterable[int]) -> bool:
    """Whether one of these data sets was there when the ledger was restored."""
    return not {one for (one,) in ledger.execute("SELECT id FROM datasets WHERE lost")}.isdisjoint(datasets)


def stored_identity(ledger: Ledger, dataset: int) -> "Identity":
    """The identity of a data set of the ledger."""
    splits = ledger.execute("SELECT source, split FROM splits WHERE dataset = ?", (dataset,)).fetchall()
    row = ledger.execute("SELECT column, person IS NOT NULL, content FROM datasets WHERE id = ?", (dataset,)).fetchone()
    if row is None or not splits:
        raise LedgerError(DAMAGED.format(path=ledger.path))
    column, by_person, values_digest = row
    return Identity(column, bool(by_person), values_digest, tuple(splits))


def sharing_datasets(ledger: Ledger, this: "Identity") -> "dict[int, Identity]":
    """The data sets that share a digest with this one and are not parts of the same split."""
    found = set()
    for source, split in this.splits:
        for part in OTHER_PARTS:
            values = (source, split, this.column)[: 1 + part.count("?")]
            rows = ledger.execute(f"SELECT dataset FROM splits WHERE source = ? AND {part}", values)
            found |= {dataset for (dataset,) in rows}
    others = {dataset: stored_identity(ledger, dataset) for dataset in sorted(found)}
    return {dataset: other for dataset, other in others.items() if not this.same_split(other)}


def overlapping_datasets(ledger: Ledger, this: "Identity") -> "dict[int, Identity]":
    """The data sets that overlap with this one directly."""
    others = sharing_datasets(ledger, this)
    return {dataset: other for dataset, other in others.items() if not (this.by_person and other.by_person)}


def spent_elsewhere(ledger: Ledger, this: "Identity") -> float:
    """The most that the same record has spent in other data sets: those that overlap, and those that overlap with them.

    To nameless records that overlap with one where people are known, the most that any person has spent by name counts.
    """
    seen = _reached(ledger, overlapping_datasets(ledger, this))
    named = {dataset for dataset, other in seen.items() if other.by_person}
    by_name = 0.0
    if named and not this.by_person:
        by_name = math.inf if any_lost(ledger, named) else ledger.lifetime_budgets.totals()[1]
    others = {dataset: seen[dataset] for dataset in seen.keys() - named if not this.same_split(seen[dataset])}
    return by_name + added_up((part, own_spent(ledger, dataset)) for dataset, part in _parts(others).items())


def most_spent(ledger: Ledger, dataset: int) -> float:
    """The largest ε spent by one record of a data set, there and under other names."""
    return own_spent(ledger, dataset) + spent_elsewhere(ledger, stored_identity(ledger, dataset))


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


def _parts(sets: "Mapping[int, Identity]") -> dict[int, Part]:
    """By which split each of these data sets is counted: that of a larger column, where there is one, gathers them."""
    shared = Counter(split for one in sets.values() for split in one.splits)
    return {key: (min(one.splits, key=lambda split: (-shared[split], split)), one.column) for key, one in sets.items()}


def added_up(spent: Iterable[tuple[Part, float]]) -> float:
    """Over splits the sum, within a split the maximum."""
    most: dict[Part, float] = {}
    for part, epsilon in spent:
        most[part] = max(most.get(part, 0.0), epsilon)
    return math.fsum(most.values())


# -- whose a nameless record is, is not known ------------------------------------------------------------------------


Nameless = tuple[Identity, Part, float]
"""A data set without a person column: its identity, by which split it is counted, the most that a record has spent."""


def nameless(ledger: Ledger, left_out: Set[int], *, reserved: bool) -> list[Nameless]:
    """The data sets without a person column, whose records may be anybody's, but those `left_out` (`apart`)."""
    rows = ledger.execute("SELECT id FROM datasets WHERE person IS NULL").fetchall()
    sets = {key: stored_identity(ledger, key) for key in {key for (key,) in rows} - left_out}
    return [(sets[key], part, known_spent(ledger, key, reserved=reserved)) for key, part in _parts(sets).items()]


def most_by_name(ledger: Ledger, left_out: Set[int]) -> float:
    """The most that a person may have spent, or runs have reserved, by name; not in the data sets `left_out`."""
    asked, held = ledger.execute(
        "SELECT total(asked), total(held) FROM (SELECT sum(r.epsilon) asked,"
        " max(r.epsilon * (r.reserved > r.next)) held FROM runs r JOIN datasets d ON d.id = r.dataset"
        f" WHERE d.person IS NOT NULL AND d.id NOT IN ({','.join(map(str, left_out))}) GROUP BY r.run)"
    ).fetchone()
    return min(asked, ledger.lifetime_budgets.totals()[1] + held) if asked else 0.0


NEW_PEOPLE = "new people {}"
"""The ledger's own fact about a data set, by its number: by the holder's word its people are in no other one."""


def said_new(ledger: Ledger) -> set[int]:
    """The data sets of new people, by the holder's word."""
    rows = ledger.execute("SELECT d.id FROM datasets d JOIN meta m ON m.key = 'new people ' || d.id")
    return {dataset for (dataset,) in rows}


def apart(ledger: Ledger) -> set[int]:
    """Of them those that share no digest with another data set: there the word is taken."""
    return {one for one in said_new(ledger) if not sharing_datasets(ledger, stored_identity(ledger, one))}


def say_new(ledger: Ledger, dataset: int) -> None:
    """Keep the holder's word that the people of a data set, by its number, are in no other one of this ledger."""
    with ledger.transaction():
        if ledger.execute("SELECT 1 FROM datasets WHERE id = ?", (dataset,)).fetchone() is None:
            raise InputError(
                f"the ledger {ledger.path} has no data set {dataset}; `privatile ledger show` numbers them."
            )
        if sharing := sharing_datasets(ledger, stored_identity(ledger, dataset)):
            raise InputError(
                f"data set {dataset} of the ledger {ledger.path} holds records of data set {min(sharing)}: its "
                "people are no new ones."
            )
        ledger.put(NEW_PEOPLE.format(dataset), b"\x01")
        ledger.moves[None] += 1


@dataclass(frozen=True)
class DatasetLine:
    """One client's column: `reports` given in all, records neither asked nor reserved, the most any record has spent.

    `number` counts the data sets in the order in which they first answered, and `first_run` is the run that came first:
    two data sets of one client and column differ in both. `reserved` are records that unfinished runs keep for
    themselves. `epsilon` includes what the same records have spent under other names (`datasets`); it is ∞ where
    records answered without privacy, and where the ledger was `restored`, when it is not known.
    """

    number: int
    client: str
    column: str
    by_person: bool
    records: int
    reports: int
    reserved: int
    unasked: int
    runs: int
    first_run: str
    epsilon: float
    restored: bool
    new_people: bool
    """Whether by the holder's word its people are in no other data set."""


@dataclass(frozen=True)
class Statement:
    """A line for each data set; `people` known by a person column, and the most any of them has spent for life by name.

    On top of it a person may have spent `nameless_epsilon`, in the data sets without a person column. Once the ledger
    was `restored` from a backup neither is known: `person_epsilon` is ∞ if it knows people, the other if it has such.
    `max_epsilon` is the last limit that was given.
    """

    datasets: tuple[DatasetLine, ...]
    people: int
    person_epsilon: float
    entries: int
    restored: bool
    nameless_epsilon: float = 0.0
    max_epsilon: float | None = None


def statement(ledger: Ledger) -> Statement:
    """Read the whole ledger.

    >>> statement(Ledger.in_memory())
    Statement(datasets=(), people=0, person_epsilon=0.0, entries=0, restored=False, \
nameless_epsilon=0.0, max_epsilon=None)
    """
    rows = ledger.execute(
        "SELECT d.id, d.client, d.column, d.person IS NOT NULL, d.records, coalesce(sum(a.length), 0),"
        " CASE WHEN d.lost THEN 0 ELSE max(0, d.records - d.cursor) END, count(DISTINCT a.run), d.lost,"
        " (SELECT coalesce(sum(k.reserved - k.next), 0) FROM runs k WHERE k.dataset = d.id AND k.reserved > k.next),"
        " coalesce((SELECT b.run FROM runs k JOIN answers b ON b.run = k.run AND b.client = k.client"
        "  WHERE k.dataset = d.id ORDER BY b.sequence LIMIT 1), min(r.run), '') FROM datasets d"
        " LEFT JOIN runs r ON r.dataset = d.id"
        " LEFT JOIN answers a ON a.run = r.run AND a.client = r.client"
        " GROUP BY d.id ORDER BY d.client, d.column, d.id"
    ).fetchall()
    people, most = ledger.lifetime_budgets.totals()
    added = added_up((part, epsilon) for _, part, epsilon in nameless(ledger, apart(ledger), reserved=False))
    new = said_new(ledger)
    restored = ledger.meta("restored") is not None
    lines = tuple(
        DatasetLine(
            number=dataset,
            client=client,
            column=column,
            by_person=bool(by_person),
            records=records,
            reports=reports,
            reserved=reserved,
            unasked=unasked,
            runs=runs,
            first_run=first_run,
            epsilon=most_spent(ledger, dataset),
            restored=bool(lost),
            new_people=dataset in new,
        )
        for dataset, client, column, by_person, records, reports, unasked, runs, lost, reserved, first_run in rows
    )
    most, added = (math.inf if restored and epsilon else epsilon for epsilon in (most, added))
    return Statement(lines, people, most, ledger.position.sequence, restored, added, ledger.max_epsilon)
