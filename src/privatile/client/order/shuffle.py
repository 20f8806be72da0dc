"""A column as a stream in uniformly random order, in bounded memory.

Record i of a client carries the tag i of a key that the ledger keeps (`keystream`); the order is the order of the
tags. Tags are independent and uniform, so every order is equally likely; the same key gives the same order after a
restart, whatever memory there was. Two passes: rows are scattered by the head of their tag, then each bucket is
loaded and sorted. Small columns stay in memory.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.client.ledger.ledger import Ledger
from privatile.client.ledger.overlap import SplitId
from privatile.client.order.keystream import KeyStream
from privatile.client.order.people import PersonKey, sieve
from privatile.client.order.spill import Buckets, Shelf, Words
from privatile.client.sources.source import Batch, Source
from privatile.core.arrays import Floats
from privatile.core.messages import MISSING, Missing
from privatile.errors import DataError, InputError

BATCH_ROWS = 1 << 18
"""Rows scattered at once: 4 MiB of tags and values, and as much again while they are sorted."""

MEMORY_ROWS = 1 << 21
"""Rows that stay in memory: 32 MiB, about 100 MiB while they are sorted. Buckets are half of that."""

DIGEST_BYTES = 16


class Block(NamedTuple):
    """Consecutive records of the random order, and the people they belong to (two words each), if known."""

    values: Floats
    people: Words | None


class ShuffledColumn:
    """One client's values in a random order that only the ledger's key knows."""

    def __init__(
        self,
        client: str,
        column: str,
        *,
        digest: bytes,
        values_digest: bytes,
        cuts: tuple[SplitId, ...],
        missing: int,
        person_key: PersonKey | None,
        person_column: str | None,
        buckets: Buckets,
        bucket_rows: int,
    ) -> None:
        self.client = client
        self.column = column
        self.digest = digest
        self.values_digest = values_digest
        self.cuts = cuts
        self.missing = missing
        self.person_key = person_key
        self.person_column = person_column
        self._buckets: Buckets | None = buckets
        self._starts = [0]
        for rows in buckets.cut(bucket_rows):
            self._starts.append(self._starts[-1] + rows)
        self._loaded = -1
        self._block = Block(np.empty(0), None)

    def __repr__(self) -> str:
        return f"ShuffledColumn(client={self.client!r}, column={self.column!r})"

    @property
    def records(self) -> int:
        """How many records there are, missing ones included, one a person where people are known."""
        return self._starts[-1]

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
        self._block = Block(np.empty(0), None)  # let go of the last bucket before the next one is loaded
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
            self._buckets = None  # everything is here


class _Gathering:
    """What is known of one client while its rows come in."""

    def __init__(self, ledger: Ledger, client: str, column: str) -> None:
        self.tags = KeyStream(ledger.order_key(client, column))
        self.values = hashlib.blake2b(key=ledger.digest_key(), digest_size=DIGEST_BYTES)
        self.people = hashlib.blake2b(key=ledger.digest_key(), digest_size=DIGEST_BYTES)
        self.records = 0
        self.missing = 0


def shuffle(
    source: Source,
    ledger: Ledger,
    *,
    missing: Missing = "noise",
    person_key: PersonKey | None = None,
    minimum_records: int = 2,
    memory_rows: int = MEMORY_ROWS,
    spill_folder: Path | None = None,
) -> Mapping[str, ShuffledColumn]:
    """Read a source once; each client's column in random order, by client.

    Nothing is written to the ledger. `memory_rows` bounds memory, not the result.
    """
    if missing not in MISSING:
        raise InputError(f"missing must be one of {', '.join(MISSING)}; got {missing!r}.")
    if source.by_person != (person_key is not None):
        raise InputError("a person column and a person key go together; got one without the other.")
    return _Shuffle(source, ledger, person_key, Shelf(memory_rows, spill_folder), memory_rows).columns(
        missing, minimum_records, spill_folder
    )


class _Shuffle:
    def __init__(
        self, source: Source, ledger: Ledger, person_key: PersonKey | None, shelf: Shelf, memory_rows: int
    ) -> None:
        self._source = source
        self._ledger = ledger
        self._person_key = person_key
        self._shelf = shelf
        self._memory_rows = memory_rows
        self._clients: list[_Gathering] = []
        self._choice = KeyStream(ledger.choice_key(source.column))
        self._whole = self._hash()
        self._source_values = self._hash()
        self._holders = self._hash()
        self._name_words = np.empty(0, dtype=np.uint64)

    def _hash(self, text: bytes = b"") -> hashlib.blake2b:
        return hashlib.blake2b(text, key=self._ledger.digest_key(), digest_size=DIGEST_BYTES)

    def columns(self, missing: Missing, minimum_records: int, spill_folder: Path | None) -> dict[str, ShuffledColumn]:
        for batch in _regrouped(self._source.batches(), BATCH_ROWS):
            self._scatter(batch)
        names = self._source.clients
        self._know(len(names))
        if not names:
            raise DataError(f"column {self._source.column!r} has no records. Give data with at least two.")
        shelf = self._shelf
        bucket_rows = max(1 << 14, self._memory_rows // (2 * len(names)))
        if self._person_key is not None:
            shelf = Shelf(self._memory_rows, spill_folder)
            for client in self._clients:
                client.records = client.missing = 0
            for columns in sieve(self._shelf.take("people"), max(1 << 14, self._memory_rows // 4)):
                high, low, tags, values, codes = columns
                for code, rows in _by_client(codes, len(names)):
                    self._count(code, values[rows].view(np.float64))
                    shelf.add(names[code], (tags[rows], values[rows], high[rows], low[rows]))
        whole = self._whole_digest() if self._person_key is not None else b""
        columns_by_client = {}
        for name, client in zip(names, self._clients, strict=True):
            self._check(name, client, missing, minimum_records)
            columns_by_client[name] = ShuffledColumn(
                name,
                self._source.column,
                digest=self._digest(client, whole),
                values_digest=client.values.digest(),
                cuts=self._cuts(name, client),
                missing=client.missing,
                person_key=self._person_key,
                person_column=self._source.person,
                buckets=shelf.take(name),
                bucket_rows=bucket_rows,
            )
        return columns_by_client

    def _know(self, count: int) -> None:
        for name in self._source.clients[len(self._clients) : count]:
            self._clients.append(_Gathering(self._ledger, name, self._source.column))
            word = np.frombuffer(self._hash(name.encode("utf-8", "surrogateescape")).digest()[:8], dtype=np.uint64)
            self._name_words = np.append(self._name_words, word)

    def _count(self, code: int, values: Floats) -> None:
        self._clients[code].records += len(values)
        self._clients[code].missing += int(np.count_nonzero(np.isnan(values)))

    def _scatter(self, batch: Batch) -> None:
        self._know(len(self._source.clients))
        values = np.where(np.isnan(batch.values), np.nan, batch.values)  # one kind of NaN: digests compare bytes
        codes = np.zeros(len(values), dtype=np.uint64) if batch.codes is None else batch.codes.astype(np.uint64)
        self._source_values.update(values.tobytes())
        # By name, not by number: readers number clients in different orders.
        self._holders.update(self._name_words[codes].tobytes())
        if self._person_key is None:
            for code, rows in _by_client(codes, len(self._clients)):
                own = values[rows]
                self._add(code, own, None)
                tags = self._clients[code].tags.take(len(own))
                self._shelf.add(self._source.clients[code], (tags, own.view(np.uint64)))
            return
        people = self._person_key.hash(batch.people or [])
        tags = np.empty(len(values), dtype=np.uint64)
        for code, rows in _by_client(codes, len(self._clients)):
            self._add(code, values[rows], people[rows])
            tags[rows] = self._clients[code].tags.take(len(values[rows]))
        self._whole.update(codes.tobytes())
        choice = self._choice.take(len(values))
        self._shelf.add("people", (people[:, 0], people[:, 1], choice, tags, values.view(np.uint64), codes))

    def _add(self, code: int, values: Floats, people: Words | None) -> None:
        self._count(code, values)
        self._clients[code].values.update(values.tobytes())
        if people is not None:
            self._clients[code].people.update(people.tobytes())

    def _whole_digest(self) -> bytes:
        """Which records stand for their people depends on the whole file, so every client's digest does."""
        for name, client in zip(self._source.clients, self._clients, strict=True):
            self._whole.update(repr(name).encode() + client.values.digest() + client.people.digest())
        return self._whole.digest()

    def _digest(self, client: _Gathering, whole: bytes) -> bytes:
        parts = client.values.digest() + client.people.digest() + whole
        return hashlib.blake2b(parts, key=self._ledger.digest_key(), digest_size=DIGEST_BYTES).digest()

    def _cuts(self, name: str, client: _Gathering) -> tuple[SplitId, ...]:
        """This column as a part of the whole one, and as a whole by itself."""
        people = b"people" if self._person_key is not None else b"records"
        alone = self._hash(b"alone" + people + name.encode("utf-8", "surrogateescape")).digest()
        itself = (client.values.digest(), alone)
        if len(self._clients) == 1:
            return (itself,)
        return (self._source_values.digest(), self._hash(people + self._holders.digest()).digest()), itself

    def _check(self, name: str, client: _Gathering, missing: Missing, minimum: int) -> None:
        what = f"client {name!r}, column {self._source.column!r},"
        if client.records == 0:
            raise DataError(f"{what} has no records. Leave this client out, or give it data.")
        if client.missing == client.records:
            raise DataError(f"{what} has missing values only. Leave this client out, or choose another column.")
        if missing == "fail" and client.missing:
            raise DataError(
                f"{what} has missing values, and --missing fail refuses them. Use --missing noise (they answer at "
                "random) or --missing drop (they are left out, which tells that they are missing)."
            )
        usable = client.records - client.missing if missing == "drop" else client.records
        if usable < minimum:
            raise DataError(
                f"{what} has fewer than {minimum} usable records. One record gives no quantile: merge this client "
                "with another, or leave it out."
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


def _regrouped(batches: Iterator[Batch], size: int) -> Iterator[Batch]:
    """The same rows in batches of about `size`."""
    held: list[Batch] = []
    rows = 0
    for batch in batches:
        for start in range(0, len(batch.values), size):
            piece = batch.piece(start, start + size)
            held.append(piece)
            rows += len(piece.values)
            if rows >= size:
                yield _merged(held)
                held, rows = [], 0
    if held:
        yield _merged(held)


def _merged(batches: list[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    codes = [batch.codes for batch in batches if batch.codes is not None]
    people = [batch.people for batch in batches if batch.people is not None]
    return Batch(
        np.concatenate([batch.values for batch in batches]),
        np.concatenate(codes) if codes else None,
        [person for group in people for person in group] if people else None,
    )
