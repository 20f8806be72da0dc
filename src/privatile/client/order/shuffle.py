"""A source's columns in uniformly random order, in bounded memory.

Record i of a client carries the tag i of a key that the ledger keeps (`keystream`); the order is the order of the
tags. Tags are independent and uniform, so every order is equally likely; the same key gives the same order after a
restart, whatever memory there was. Two passes: rows are scattered by the head of their tag, then each bucket is
loaded and sorted. Small columns stay in memory.

The rows of a source in batches of about one size, whatever the source's own are.

A client's values in random order, loaded bucket by bucket.
"""

import hashlib
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.client.ledger.datasets import Content, SplitId
from privatile.client.ledger.integrity import PersonKey
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.spill import Buckets, Columns, Shelf, Words
from privatile.client.order.tags import KeyStream
from privatile.client.order.weights import (
    AgreedClass,
    ClassRule,
    Stratum,
    StratumRows,
    WeightClass,
    WeightTally,
    agreed_stratum,
    check_all_agreed,
    checked_weights,
    name_strata,
    person_draws,
    thinned,
    weight_classes,
)
from privatile.client.sources.source import ONLY_CLIENT, Batch, Source
from privatile.core.arrays import Floats
from privatile.core.messages import MISSING, Missing
from privatile.errors import DataError, InputError


def regrouped(batches: Iterator[Batch], size: int) -> Iterator[Batch]:
    """The same rows in batches of about `size`."""
    waiting: list[Batch] = []
    rows = 0
    for batch in batches:
        for start in range(0, len(batch.values), size):
            piece = batch.piece(start, start + size)
            waiting.append(piece)
            rows += len(piece.values)
            if rows >= size:
                yield _merged(waiting)
                waiting, rows = [], 0
    if waiting:
        yield _merged(waiting)


def _merged(batches: list[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    codes = [batch.codes for batch in batches if batch.codes is not None]
    people = [batch.people for batch in batches if batch.people is not None]
    weights = [batch.weights for batch in batches if batch.weights is not None]
    return Batch(
        np.concatenate([batch.values for batch in batches]),
        np.concatenate(codes) if codes else None,
        [person for group in people for person in group] if people else None,
        np.concatenate(weights) if weights else None,
    )


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


BATCH_ROWS = 1 << 18
"""Rows scattered at once: 4 MiB of tags and values, and as much again while they are sorted."""

MEMORY_ROWS = 1 << 21
"""Rows that stay in memory: 32 MiB, about 100 MiB while they are sorted. Buckets are half of that."""

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
class _ClientRows:
    """What is known of one client while its rows come in."""

    tags: KeyStream
    values: hashlib.blake2b
    people: hashlib.blake2b
    draws: KeyStream
    weights: hashlib.blake2b
    tally: WeightTally = field(default_factory=WeightTally)
    records: int = 0
    missing: int = 0

    def count(self, values: Floats) -> None:
        self.records += len(values)
        self.missing += int(np.count_nonzero(np.isnan(values)))


@dataclass(eq=False, repr=False)
class _Shuffle:
    """One pass over a source: rows go to a shelf by the head of their tag, their content into digests."""

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
        self._shelf = self._new_shelf()
        self._clients: list[_ClientRows] = []
        self._choice = KeyStream(self.ledger.key("choice", self.source.column))
        self._whole = self._hash()
        self._source_values = self._hash()
        self._texts: tuple[hashlib.blake2b, hashlib.blake2b] | None = None
        self._holders = self._hash()
        self._name_words = np.empty(0, dtype=np.uint64)
        self._rows = 0

    def _new_shelf(self) -> Shelf:
        return Shelf(self.memory_rows, self.spill_folder)

    def _hash(self, text: bytes = b"") -> hashlib.blake2b:
        return hashlib.blake2b(text, key=self.ledger.key("digest"), digest_size=DIGEST_BYTES)

    def columns(self) -> dict[str, ShuffledColumn]:
        for batch in regrouped(self._noted(self.source.batches()), BATCH_ROWS):
            self._scatter(batch)
        self._add_new_clients()
        names = self.source.clients
        if not names:
            raise DataError(f"column {self.source.column!r} has no records. Give data with at least two.")
        if self.person_key is not None:
            self._keep_one_row_each()
        whole = self._whole_digest() if self.person_key is not None else b""
        strata = self._split_by_weight()
        structure = b"" if strata is None else self._structure(strata)
        parts = strata or [
            StratumRows(Stratum(name, name, None), client.records, client.missing)
            for name, client in zip(names, self._clients, strict=True)
        ]
        bucket_rows = max(1 << 14, self.memory_rows // (2 * len(parts)))
        clients = dict(zip(names, self._clients, strict=True))
        columns = {}
        for stratum, records, missing in parts:
            client = clients[stratum.holder]
            own = structure + stratum.name.encode("utf-8", "surrogateescape") if structure else b""
            content = Content(
                column=self.source.column,
                by_person=self.person_key is not None,
                values_digest=client.values.digest(),
                splits=self._splits(stratum.holder, client, structure),
                client=stratum.name,
                holder=stratum.holder,
                digest=self._hash(client.values.digest() + client.people.digest() + whole + own).digest(),
                records=records,
                person_column=self.source.person,
                person_key=self.person_key,
            )
            columns[stratum.name] = ShuffledColumn(
                content, missing, self._shelf.take(stratum.name), bucket_rows, stratum.weights
            )
        return columns

    def _noted(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The same batches; what their values are read from goes into digests, wherever one batch ends."""
        for batch in batches:
            if batch.texts is not None:
                self._texts = self._texts or (self._hash(b"lengths"), self._hash(b"texts"))
                self._texts[0].update(batch.texts.lengths.astype("<u4").tobytes())
                self._texts[1].update(batch.texts.written)
            yield batch
        self.source.refuse_copies()

    def _split_by_weight(self) -> list[StratumRows] | None:
        """The weight classes of every client in the place of the clients; None without a weight column."""
        if self.source.weight is None:
            return None
        tallies = {name: one.tally for name, one in zip(self.source.clients, self._clients, strict=True)}
        for name in [name for name, tally in tallies.items() if not tally.bins]:
            if self.checked:
                raise DataError(f"all records of client {name!r} have the weight 0. Leave this client out.")
            del tallies[name]
        if isinstance(self.classes, AgreedClass):
            strata = [agreed_stratum(self.classes, self.source.clients)]
        else:
            strata = name_strata(weight_classes(tallies, self.classes))
        old, self._shelf = self._shelf, self._new_shelf()
        return list(thinned(old, self._shelf, strata, max(1 << 14, self.memory_rows // 4)))

    def _structure(self, strata: list[StratumRows]) -> bytes:
        """Who is in which class, and who takes part, follow from the weights and the classes' bounds."""
        classes: object = [(rows.stratum.name, rows.stratum.weights) for rows in strata]
        if isinstance(self.classes, AgreedClass):
            classes = self.classes.every  # each of them is read by itself
        text = repr(classes).encode("utf-8", "surrogateescape")
        return self._hash(b"weights" + text + b"".join(one.weights.digest() for one in self._clients)).digest()

    def _add_new_clients(self) -> None:
        column = self.source.column
        for name in self.source.clients[len(self._clients) :]:
            tags, draws = (KeyStream(self.ledger.key(use, name, column)) for use in ("order", "thinning"))
            self._clients.append(_ClientRows(tags, self._hash(), self._hash(), draws, self._hash()))
            word = np.frombuffer(self._hash(name.encode("utf-8", "surrogateescape")).digest()[:8], dtype=np.uint64)
            self._name_words = np.append(self._name_words, word)

    def _scatter(self, batch: Batch) -> None:
        self._add_new_clients()
        # One kind of NaN and of zero: digests compare bytes.
        values = np.where(np.isnan(batch.values), np.nan, batch.values) + 0.0
        codes = np.zeros(len(values), dtype=np.uint64) if batch.codes is None else batch.codes.astype(np.uint64)
        people = None if self.person_key is None else self.person_key.hash(batch.people or [])
        tags = np.empty(len(values), dtype=np.uint64)
        weights = None
        if batch.weights is not None:
            weights = checked_weights(self.source.weight or "", batch.weights, self._rows) + 0.0
        self._rows += len(values)
        self._source_values.update(values.tobytes())
        # By name, not by number: readers number clients in different orders.
        self._holders.update(self._name_words[codes].tobytes())
        for code, rows in _by_client(codes, len(self._clients)):
            client, own = self._clients[code], values[rows]
            client.count(own)
            client.values.update(own.tobytes())
            tags[rows] = own_tags = client.tags.take(len(own))
            if weights is not None:
                client.weights.update(weights[rows].tobytes())
            if people is not None:
                client.people.update(people[rows].tobytes())
            elif weights is None:
                self._shelf.add(self.source.clients[code], (own_tags, own.view(np.uint64)))
            else:
                self._add_weighted(code, own_tags, own, weights[rows], client.draws.take(len(own)))
        if people is not None:
            self._whole.update(codes.tobytes())
            choice = self._choice.take(len(values))
            weighted = () if weights is None else (weights.view(np.uint64),)
            self._shelf.add(
                "people", (people[:, 0], people[:, 1], choice, tags, values.view(np.uint64), codes, *weighted)
            )

    def _add_weighted(
        self, code: int, tags: Words, values: Floats, weights: Floats, draws: Words, *people: Words
    ) -> None:
        """Keep weighted rows of a client until the classes are known; count the weights of those who may be asked."""
        may = weights > 0.0
        if self.missing == "drop":
            may = may & ~np.isnan(values)
        if isinstance(self.classes, AgreedClass):
            check_all_agreed(self.source.weight or "", weights[may], self.classes)
        self._clients[code].tally.add(weights[may])
        self._shelf.add(
            self.source.clients[code],
            (
                tags,
                np.ascontiguousarray(values).view(np.uint64),
                np.ascontiguousarray(weights).view(np.uint64),
                draws,
                *people,
            ),
        )

    def _keep_one_row_each(self) -> None:
        """Reduce the rows to one per person, counted again."""
        buckets, self._shelf = self._shelf.take("people"), self._new_shelf()
        for client in self._clients:
            client.records = client.missing = 0
        # All rows of a person share a head, hence a bucket.
        for bucket, count in enumerate(buckets.divide(max(1 << 14, self.memory_rows // 4))):
            if count:
                high, low, choice, *rest = buckets.load(bucket)
                kept = one_each((high, low), choice)
                high, low, tags, values, codes, *weights = (column[kept] for column in (high, low, *rest))
                if self.arriving:
                    tags = person_draws(self.ledger.key("order", "arriving", self.source.column), high, low)
                for code, rows in _by_client(codes, len(self._clients)):
                    own = values[rows].view(np.float64)
                    self._clients[code].count(own)
                    if not weights:
                        self._shelf.add(self.source.clients[code], (tags[rows], values[rows], high[rows], low[rows]))
                        continue
                    people = (high[rows], low[rows])
                    draws = person_draws(self.ledger.key("thinning", self.source.column), *people)
                    self._add_weighted(code, tags[rows], own, weights[0][rows].view(np.float64), draws, *people)

    def _whole_digest(self) -> bytes:
        """Which records stand for their people depends on the whole file, so every client's digest does."""
        for name, client in zip(self.source.clients, self._clients, strict=True):
            self._whole.update(repr(name).encode() + client.values.digest() + client.people.digest())
        return self._whole.digest()

    def _splits(self, name: str, client: _ClientRows, structure: bytes) -> tuple[SplitId, ...]:
        """This column as a part of the whole one, and as a whole by itself, divided by weight or not (`structure`).

        And as a part of the text it is read from: other numbers read from the same text are another split of it.
        """
        people = structure + (b"people" if self.person_key is not None else b"records")
        alone = self._hash(b"alone" + people + name.encode("utf-8", "surrogateescape")).digest()
        itself = (client.values.digest(), alone)
        whole = (self._source_values.digest(), self._hash(people + self._holders.digest()).digest())
        splits = (itself,) if len(self._clients) == 1 else (whole, itself)
        if self._texts is None:
            return splits
        text = self._hash(b"".join(one.digest() for one in self._texts)).digest()
        return *splits, (text, self._hash(b"read" + b"".join(splits[0])).digest())


def one_each(people: Columns, choice: Words) -> NDArray[np.intp]:
    """One row per person, the one with the smallest tag of a keyed stream over the rows, in the order of the rows.

    Each of a person's rows, across all clients, is equally likely, whatever the values are, and the same key chooses
    the same again.

    >>> import numpy as np
    >>> words = lambda *numbers: np.array(numbers, dtype=np.uint64)
    >>> one_each((words(5, 7, 5, 7), words(0, 0, 0, 1)), words(9, 1, 3, 2)).tolist()
    [1, 2, 3]
    """
    high, low = people
    order = np.lexsort((choice, low, high))
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (high[order][1:] != high[order][:-1]) | (low[order][1:] != low[order][:-1])
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


def _by_client(codes: Words, clients: int) -> Iterator[tuple[int, slice | NDArray[np.intp]]]:
    """Each client's rows, in their order."""
    if clients == 1:
        if len(codes):
            yield 0, slice(None)
        return
    order = np.argsort(codes.astype(np.uint16) if clients <= 1 << 16 else codes, kind="stable")
    ends = np.cumsum(np.bincount(codes.astype(np.intp), minlength=clients))
    for code in range(clients):
        start = int(ends[code - 1]) if code else 0
        if ends[code] > start:
            yield code, order[start : ends[code]]
