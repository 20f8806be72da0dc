"""A source's columns in uniformly random order, in bounded memory.

Record i of a client has the tag i of a key that the ledger keeps (`tags`); the order is the order of the tags, equal
tags in the order of the rows. Tags are independent and uniform, so every order is equally likely; the same key gives
the same order after a restart, whatever memory there was, and whatever rows of others stand between a client's own.

The rows of a source are gathered by client, in memory or, if there are more, in a spill file; each client's are then
put in order at once, or by the first byte of their tags. With a person column they are gathered by person before that,
and one record of each person is kept.
"""

import hashlib
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.client.ledger.datasets import Content, SplitId
from privatile.client.ledger.integrity import PersonKey
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.spill import Extent, SpillBuffer, grouped
from privatile.client.order.tags import Words, by_tag, person_words, words_at, words_of
from privatile.client.order.weights import (
    AgreedClass,
    ClassRule,
    Stratum,
    WeightClass,
    WeightTally,
    agreed_stratum,
    check_all_agreed,
    checked_weights,
    name_strata,
    takes_part,
    weight_classes,
)
from privatile.client.sources.source import MOST_CLIENTS, ONLY_CLIENT, Batch, Source
from privatile.core.arrays import Floats
from privatile.core.messages import MISSING, Missing
from privatile.errors import DataError, InputError

PIECE = 1 << 18
"""Records that are read at once."""


class Block(NamedTuple):
    """Consecutive records of the random order, and the people they belong to, if known."""

    values: Floats
    people: Words | None


class ShuffledColumn:
    """One client's values in a random order that only the ledger's key knows."""

    def __init__(
        self, content: Content, missing: int, extents: Sequence[Extent], weights: WeightClass | None = None
    ) -> None:
        """`missing` values are among the records; rows of the extents hold the value and, where known, the person.

        `weights` is the weight class whose records these are, less those who do not take part.
        """
        self.content = content
        self.missing = missing
        self.weights = weights
        self._extents = extents
        self._starts = list(accumulate((extent.records for extent in extents), initial=0))

    def __repr__(self) -> str:
        return f"ShuffledColumn(client={self.content.client!r}, column={self.content.column!r})"

    @property
    def records(self) -> int:
        """How many records there are, missing ones included, one per person where people are known."""
        return self.content.records

    def blocks(self, start: int, stop: int) -> Iterator[Block]:
        """The records at positions `start` up to `stop` of the order, 0 ≤ start ≤ stop ≤ records, piece by piece."""
        while start < stop:
            place = bisect_right(self._starts, start) - 1
            base, end = self._starts[place], min(stop, self._starts[place + 1], start + PIECE)
            rows = self._extents[place].read(start - base, end - base)
            yield Block(rows[:, 0].view(np.float64), rows[:, 1] if self.content.by_person else None)
            start = end


HEAVY = 0.25
"""Of a run's standard error in rank, how much a value must hold to be a heap: less shifts no interval visibly."""

MOST_HEAPED = 0.05
"""Share of the records that may lie on heaps before the values are called heaped."""

FEWEST_HEAPED = 5
"""Records that a heap has at least: in a large run fewer of a small site can tie by chance."""

HEAPS = (
    f"more than {MOST_HEAPED:.0%}% of the records of %s lie on heaps: values that each hold more than a quarter of the "
    "run's standard error in rank. They are declared continuous, and are not: the interval can miss the quantile in "
    "most runs, mostly without a caveat. %s This stands here only and is sent to no one."
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
        for values, _ in column.blocks(0, column.records):
            yield values[~np.isnan(values)], share / max(1, column.records - column.missing)


BATCH_ROWS = 1 << 17
"""Rows that are gathered at once: a megabyte of values, which stays in the second-level cache."""

MEMORY_ROWS = 5 << 21
"""Rows of one word that stay in memory: 80 MiB, and as much twice again while one client has all of them."""

DIGEST_BYTES = 16


def shuffle(
    source: Source,
    ledger: Ledger,
    *,
    missing: Missing = "noise",
    person_key: PersonKey | None = None,
    minimum_records: int = 2,
    memory_rows: int = MEMORY_ROWS,
    spill_folder: Path | None = None,
    classes: ClassRule | AgreedClass | None = None,
    checked: bool = True,
) -> Mapping[str, ShuffledColumn]:
    """Read a source once; each client's column in random order, by client.

    With a weight column, each weight class of each client in the place of the client (`weight_classes`, `strata`), made
    by the rule `classes`; or one class that was agreed. Nothing is written to the ledger. `memory_rows` bounds memory,
    not the result. A client that cannot be asked is refused (`check_column`); not `checked`, it is left to the caller,
    and is absent where it has no record.
    """
    if missing not in MISSING:
        raise InputError(f"missing must be one of {', '.join(MISSING)}; got {missing!r}.")
    if (source.person is None) != (person_key is None):
        raise InputError("a person column and a person key go together; got one without the other.")
    made = _Shuffle(source, ledger, person_key, memory_rows, spill_folder, missing, classes or ClassRule(), checked)
    columns = made.columns()
    if not checked:
        return {name: column for name, column in columns.items() if column.records}
    for column in columns.values():
        check_column(column, missing, minimum_records)
    return columns


def read_arrived(
    source: Source, ledger: Ledger, *, missing: Missing = "noise", person_key: PersonKey | None = None
) -> ShuffledColumn:
    """The one column of a source whose people arrive over weeks: as many as have come by now, perhaps nobody.

    Its order is that of keyed tags of the people: wherever they stand in the file, and however it is sorted.
    """
    made = _Shuffle(source, ledger, person_key, MEMORY_ROWS, None, missing, ClassRule(), False, arriving=True)
    columns = made.columns()
    if list(columns) != [ONLY_CLIENT]:
        raise InputError("people arrive at one client: give one file, without columns of clients or weights.")
    if missing == "fail" and columns[ONLY_CLIENT].missing:
        check_column(columns[ONLY_CLIENT], missing)
    return columns[ONLY_CLIENT]


@dataclass
class _Client:
    """What is known of one client while its rows are read."""

    values: hashlib.blake2b
    people: hashlib.blake2b
    weights: hashlib.blake2b
    tally: WeightTally = field(default_factory=WeightTally)
    read: int = 0


@dataclass
class _Part:
    """A client, or a weight class of one, and its rows in final order."""

    stratum: Stratum
    extents: list[Extent] = field(default_factory=list)
    records: int = 0
    missing: int = 0

    def add(self, final: SpillBuffer, rows: Words) -> None:
        """Append rows."""
        if len(rows):
            self.extents.append(final.keep(rows))
            self.records += len(rows)
            self.missing += int(np.count_nonzero(np.isnan(rows[:, 0].view(np.float64))))


_Update = tuple[hashlib.blake2b, NDArray[Any]]


def _hash_all(updates: Sequence[_Update]) -> None:
    for digest, content in updates:
        digest.update(content.data)


@dataclass(eq=False, repr=False)
class _Shuffle:
    """One pass over a source: rows go to a buffer by client or person, their content into digests."""

    source: Source
    ledger: Ledger
    person_key: PersonKey | None
    memory_rows: int
    spill_folder: Path | None
    missing: Missing
    classes: ClassRule | AgreedClass
    checked: bool
    arriving: bool = False

    def __post_init__(self) -> None:
        self._clients: dict[int, _Client] = {}
        self._places = np.zeros(MOST_CLIENTS, dtype="<u2")
        self._values, self._holders = self._hash(), self._hash()
        self._texts: tuple[hashlib.blake2b, hashlib.blake2b] | None = None
        self._rows = 0
        self._gathered = self._buffer()

    def _buffer(self) -> SpillBuffer:
        return SpillBuffer(self.memory_rows, self.spill_folder)

    def _hash(self, text: bytes = b"") -> hashlib.blake2b:
        return hashlib.blake2b(text, key=self.ledger.key("digest"), digest_size=DIGEST_BYTES)

    def _key(self, use: Literal["order", "choice", "thinning"], *names: str) -> bytes:
        return self.ledger.key(use, *names, self.source.column)

    def columns(self) -> dict[str, ShuffledColumn]:
        with ThreadPoolExecutor(1) as aside:  # digests of a piece are made while the next one is read
            hashing = aside.submit(_hash_all, [])
            for batch in self.source.batches():
                if batch.texts is not None:  # what values are read from goes into digests, wherever one batch ends
                    self._texts = self._texts or (self._hash(b"lengths"), self._hash(b"texts"))
                    self._texts[0].update(batch.texts.lengths.astype("<u4").tobytes())
                    self._texts[1].update(batch.texts.written)
                for start in range(0, len(batch.values), BATCH_ROWS):
                    updates = self._gather(batch.piece(start, start + BATCH_ROWS))
                    hashing.result()
                    hashing = aside.submit(_hash_all, updates)
            hashing.result()
        self.source.refuse_copies()
        names = self.source.clients
        if not names:
            raise DataError(f"column {self.source.column!r} has no records. Give data with at least two.")
        self._enter(range(len(names)))
        # By name, not by number: readers number clients in different orders.
        self._holders.update(repr([names[code] for code in self._clients]).encode("utf-8", "surrogateescape"))
        if self.person_key is not None:
            self._keep_one_row_each()
        strata = self._strata()
        final, columns = self._buffer(), {}
        for code, name in enumerate(names):
            parts = [_Part(stratum) for stratum in strata if stratum.holder == name]
            if parts:
                self._put_in_order(code, parts, final)
            for part in parts:
                content = self._content(self._clients[code], part, strata)
                columns[content.client] = ShuffledColumn(content, part.missing, part.extents, part.stratum.weights)
        return columns

    # -- reading -------------------------------------------------------------------------------------------------

    def _enter(self, codes: Iterable[int]) -> None:
        """Number the clients that are new, in the order in which they appear."""
        for code in codes:
            if code not in self._clients:
                self._places[code] = len(self._clients)
                self._clients[code] = _Client(self._hash(), self._hash(), self._hash())

    def _gather(self, batch: Batch) -> list[_Update]:
        """Take rows of the source: values, then weights, persons and numbers of rows as far as there are such.

        What is left to do is to update these digests.
        """
        # One kind of NaN and of zero: digests compare bytes.
        values = np.where(np.isnan(batch.values), np.nan, batch.values) + 0.0
        codes = np.zeros(len(values), dtype=np.uint16) if batch.codes is None else batch.codes
        order, spans = grouped(codes)
        new = [code for code, _, _ in spans if code not in self._clients]
        self._enter(sorted(new, key=lambda code: int(np.argmax(codes == code))))
        updates: list[_Update] = [(self._values, values), (self._holders, self._places[codes])]
        values = values[order]
        columns: list[NDArray[Any]] = [values]
        weights = people = None
        if batch.weights is not None:
            weights = checked_weights(self.source.weight or "", batch.weights, self._rows)[order] + 0.0
            columns.append(weights)
        if self.person_key is not None:
            people = self.person_key.hash(batch.people or [])[order]
            numbers = np.empty(len(values), dtype=np.uint64)
            rows = np.arange(self._rows, self._rows + len(values), dtype=np.uint64)
            columns += [people, numbers, rows[order], codes[order].astype(np.uint64)]
        self._rows += len(values)
        for code, start, stop in spans:
            client, own = self._clients[code], slice(start, stop)
            updates.append((client.values, values[own]))
            if weights is not None:
                updates.append((client.weights, weights[own]))
            if people is not None:
                updates.append((client.people, people[own]))
                numbers[own] = np.arange(client.read, client.read + stop - start)
                client.read += stop - start
            elif weights is not None:
                self._count(client, values[own], weights[own])
        matrix = np.stack([column.view(np.uint64) for column in columns], axis=1)
        if people is not None:
            order, spans = grouped((people >> np.uint64(56)).astype(np.uint8))
            matrix = matrix[order]
        self._gathered.add(matrix, spans)
        return updates

    def _count(self, client: _Client, values: Floats, weights: Floats) -> None:
        """Count the weights of those who may be asked."""
        may = weights > 0.0
        if self.missing == "drop":
            may = may & ~np.isnan(values)
        if isinstance(self.classes, AgreedClass):
            check_all_agreed(self.source.weight or "", weights[may], self.classes)
        client.tally.add(weights[may])

    def _keep_one_row_each(self) -> None:
        """Reduce the rows to one per person, and gather them by client."""
        people, self._gathered = self._gathered, self._buffer()
        key = self._key("choice")
        for label in people.labels:  # all rows of a person share it
            rows = people.take_all(label)
            *_, persons, _, numbers, codes = rows.T
            kept = one_each(persons, words_of(key, numbers))
            order, spans = grouped(codes[kept].astype(np.uint16))
            rows = rows[kept[order], :-2]
            if self.source.weight is not None:
                values, weights = rows[:, 0].view(np.float64), rows[:, 1].view(np.float64)
                for code, start, stop in spans:
                    self._count(self._clients[code], values[start:stop], weights[start:stop])
            self._gathered.add(rows, spans)

    # -- putting in order ----------------------------------------------------------------------------------------

    def _strata(self) -> list[Stratum]:
        """The weight classes of every client; without a weight column the clients."""
        names = self.source.clients
        if self.source.weight is None:
            return [Stratum(name, name, None) for name in names]
        tallies = {names[code]: client.tally for code, client in self._clients.items()}
        for name in [name for name, tally in tallies.items() if not tally.bins]:
            if self.checked:
                raise DataError(f"all records of client {name!r} have the weight 0. Leave this client out.")
            del tallies[name]
        if isinstance(self.classes, AgreedClass):
            return [agreed_stratum(self.classes, names)]
        return name_strata(weight_classes(tallies, self.classes))

    def _put_in_order(self, code: int, parts: list[_Part], final: SpillBuffer) -> None:
        """Put a client's rows in order, all at once or, if they are many, by the first byte of their tags."""
        holder, records = self.source.clients[code], self._gathered.count(code)
        if 0 < records <= self.memory_rows:
            rows = self._gathered.take_all(code)
            self._finish(parts, rows, self._tags(holder, rows, 0), final)
            return
        buckets, read = self._buffer(), 0
        for rows in self._gathered.take(code, BATCH_ROWS):
            tags = self._tags(holder, rows, read)
            read += len(rows)
            order, spans = grouped((tags >> np.uint64(56)).astype(np.uint8))
            buckets.add(np.column_stack([rows, tags])[order], spans)
        for label in buckets.labels:
            rows = buckets.take_all(label)
            self._finish(parts, rows[:, :-1], rows[:, -1], final)

    def _tags(self, holder: str, rows: Words, read: int) -> Words:
        """The tags of a client's rows, of which so many were read before: each belongs to the row as it was read."""
        if self.arriving:
            return person_words(self._key("order", "arriving"), rows[:, -2])
        key = self._key("order", holder)
        return words_at(key, read, len(rows)) if self.person_key is None else words_of(key, rows[:, -1])

    def _finish(self, parts: list[_Part], rows: Words, tags: Words, final: SpillBuffer) -> None:
        """Put rows in the order of their tags, and give each class its own that take part."""
        by_person = self.person_key is not None
        order = by_tag(tags, rows[:, -1] if by_person else None)
        if self.source.weight is None:
            (part,) = parts
            kept = rows[order][:, :2] if by_person else rows.ravel()[order][:, np.newaxis]
            part.add(final, kept)
            return
        names = () if by_person else (parts[0].stratum.holder,)
        draws = person_words(self._key("thinning", *names), rows[:, -2] if by_person else tags)[order]
        rows = rows[order]
        weights = rows[:, 1].view(np.float64)
        for part in parts:
            low, high, *_ = part.stratum.weights or (0.0, math.inf)
            own = np.flatnonzero((weights >= low) & (weights <= high))
            own = own[takes_part(weights[own], high, draws[own])]
            part.add(final, rows[own][:, [0, 2] if by_person else [0]])

    # -- digests -------------------------------------------------------------------------------------------------

    def _content(self, client: _Client, part: _Part, strata: list[Stratum]) -> Content:
        stratum, structure = part.stratum, self._structure(strata)
        own = structure + stratum.name.encode("utf-8", "surrogateescape") if structure else b""
        people = client.people.digest() + (self._whole if self.person_key is not None else b"")
        return Content(
            column=self.source.column,
            by_person=self.person_key is not None,
            values_digest=client.values.digest(),
            splits=self._splits(stratum.holder, client, structure),
            client=stratum.name,
            holder=stratum.holder,
            digest=self._hash(client.values.digest() + people + own).digest(),
            records=part.records,
            person_column=self.source.person,
            person_key=self.person_key,
        )

    @cached_property
    def _whole(self) -> bytes:
        """Which records stand for their people depends on the whole file, so every client's digest does."""
        each = (client.values.digest() + client.people.digest() for client in self._clients.values())
        return self._hash(b"".join((self._holders.digest(), *each))).digest()

    def _structure(self, strata: list[Stratum]) -> bytes:
        """Who is in which class, and who takes part, follow from the weights and the classes' bounds."""
        if self.source.weight is None:
            return b""
        bounds: object = [(stratum.name, stratum.weights and stratum.weights[:2]) for stratum in strata]
        if isinstance(self.classes, AgreedClass):
            bounds = self.classes.every  # each of them is read by itself
        text = repr(bounds).encode("utf-8", "surrogateescape")
        weights = b"".join(client.weights.digest() for client in self._clients.values())
        return self._hash(b"weights" + text + weights).digest()

    def _splits(self, name: str, client: _Client, structure: bytes) -> tuple[SplitId, ...]:
        """This column as a part of the whole one, and as a whole by itself, divided by weight or not (`structure`).

        And as a part of the text it is read from: other numbers read from the same text are another split of it.
        """
        people = structure + (b"people" if self.person_key is not None else b"records")
        alone = self._hash(b"alone" + people + name.encode("utf-8", "surrogateescape")).digest()
        itself = (client.values.digest(), alone)
        whole = (self._values.digest(), self._hash(people + self._holders.digest()).digest())
        splits = (itself,) if len(self._clients) == 1 else (whole, itself)
        if self._texts is None:
            return splits
        text = self._hash(b"".join(one.digest() for one in self._texts)).digest()
        return *splits, (text, self._hash(b"read" + b"".join(splits[0])).digest())


def one_each(people: Words, choice: Words) -> NDArray[np.intp]:
    """One row per person, the one with the smallest word of a keyed stream over the rows, in the order of the rows.

    Each of a person's rows, across all clients, is equally likely, whatever the values are, and the same key chooses
    the same again.

    >>> import numpy as np
    >>> words = lambda *numbers: np.array(numbers, dtype=np.uint64)
    >>> one_each(words(5, 7, 5, 9), words(9, 1, 3, 2)).tolist()
    [1, 2, 3]
    """
    order = np.lexsort((choice, people))
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = people[order][1:] != people[order][:-1]
    return np.sort(order[first])


def check_column(column: ShuffledColumn, missing: Missing, minimum: int = 2) -> None:
    """Refuse a column that cannot be asked."""
    content, missing_values = column.content, column.missing
    if content.records == 0:
        raise DataError(f"{content} has no records. Leave this client out, or give it data.")
    if missing_values == content.records:
        raise DataError(f"{content} has missing values only. Leave this client out, or choose another column.")
    if missing == "fail" and missing_values:
        raise DataError(
            f"{content} has missing values, and missing='fail' refuses them. Use missing='noise' (they answer at "
            "random) or missing='drop' (they are left out, which tells that they are missing)."
        )
    usable = content.records - missing_values if missing == "drop" else content.records
    if usable < minimum:
        raise DataError(
            f"{content} has fewer than {minimum} usable records. One record gives no quantile: merge this client with "
            "another, leave it out, or name no client column, so that all records are one client's."
        )
