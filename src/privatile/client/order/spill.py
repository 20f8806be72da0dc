"""Parts of a table on their way through a shuffle: rows of 64-bit words, in memory or on disk.

A spill file is private: of mode 0600 and without a name (`tempfile.TemporaryFile`), so that the space comes back when
the process ends, however it ends. Keys of rows are random tags or keyed hashes and are written as they are; everything
else is hidden under a key stream whose key never leaves memory, so that what a disk keeps of the file after a crash
reveals no value.
"""

from __future__ import annotations

import errno
import os
import secrets
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privatile.client.ledger.keys import KEY_BYTES
from privatile.client.order.keystream import words_at
from privatile.errors import DataError

Words = NDArray[np.uint64]

Columns = tuple[Words, ...]
"""Columns of equal length; the first is the key."""

HEAD_BITS = 16
"""Parts are sorted by the first 16 bits of their key: numpy sorts 16-bit integers by radix, nine times faster."""

HEADS = 1 << HEAD_BITS


def heads_of(keys: Words) -> NDArray[np.uint16]:
    """The first 16 bits of each key."""
    return (keys >> np.uint64(64 - HEAD_BITS)).astype(np.uint16)


def by_head(columns: Columns) -> Columns:
    """Rows sorted by the head of their key, ties in their order."""
    order = np.argsort(heads_of(columns[0]), kind="stable")
    return tuple(column[order] for column in columns)


def joined(pieces: list[Columns]) -> Columns:
    """All rows of several pieces, in sequence."""
    return pieces[0] if len(pieces) == 1 else tuple(np.concatenate(column) for column in zip(*pieces, strict=True))


class MemoryPart:
    """Rows sorted by the head of their key, in memory."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    def find(self, head: int) -> int:
        """How many rows have a head below `head`."""
        keys = self.columns[0]
        return int(np.searchsorted(keys >> np.uint64(64 - HEAD_BITS), np.uint64(head))) if head < HEADS else len(keys)

    def read(self, start: int, stop: int) -> Columns:
        """The rows from `start` up to `stop`."""
        return tuple(column[start:stop] for column in self.columns)


class SpilledPart:
    """Rows sorted by the head of their key, in a spill file, column after column."""

    def __init__(self, file: SpillFile, offset: int, rows: int, width: int) -> None:
        self._file, self._offset, self._rows, self._width = file, offset, rows, width

    def find(self, head: int) -> int:
        """How many rows have a head below `head`, by bisection."""
        low, high = 0, self._rows
        while low < high:
            middle = (low + high) // 2
            if int(self._file.read(self._offset + 8 * middle, 1, hidden=False)[0]) >> (64 - HEAD_BITS) < head:
                low = middle + 1
            else:
                high = middle
        return low

    def read(self, start: int, stop: int) -> Columns:
        """The rows from `start` up to `stop`."""
        return tuple(
            self._file.read(self._offset + 8 * (self._rows * column + start), stop - start, hidden=column > 0)
            for column in range(self._width)
        )


def spill_folder() -> Path:
    """Where spill files go unless told: TMPDIR where set, else /var/tmp (on disk; /tmp is often memory)."""
    large = Path("/var/tmp")
    if os.environ.get("TMPDIR") or not (large.is_dir() and os.access(large, os.W_OK)):
        return Path(tempfile.gettempdir())
    return large


class SpillFile:
    """One private, nameless file of words."""

    def __init__(self, folder: Path | None = None) -> None:
        self._end = 0
        self._key = secrets.token_bytes(KEY_BYTES)
        self._where = folder or spill_folder()
        problem: OSError
        try:
            self._file = tempfile.TemporaryFile(buffering=0, dir=self._where)  # noqa: SIM115  closed by `close`
            return
        except OSError as error:
            problem = error
        raise self._failure(problem)

    def _failure(self, error: OSError) -> DataError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            why = "the disk is full"
        else:
            why = os.strerror(error.errno).lower() if error.errno else "it cannot be used"
        return DataError(
            f"the column is shuffled through a temporary file in {self._where}, and {why}. Nothing was answered. "
            "Free some space (16 bytes per record, 80 with a person column), or set TMPDIR to a folder with more."
        )

    def write(self, columns: Columns) -> int:
        """Append columns, all but the first hidden; the offset of the first."""
        start = self._end
        problem: OSError
        try:
            for place, column in enumerate(columns):
                if place:
                    column = column ^ words_at(self._key, self._end // 8, len(column))
                view = np.ascontiguousarray(column).view(np.uint8).data
                while view:
                    written = os.pwrite(self._file.fileno(), view, self._end)
                    self._end += written
                    view = view[written:]
            return start
        except OSError as error:
            problem = error
        self.close()
        raise self._failure(problem)

    def read(self, offset: int, count: int, *, hidden: bool) -> Words:
        """`count` words from `offset`, which were hidden or not."""
        first = offset // 8
        words = np.empty(count, dtype=np.uint64)
        view = words.view(np.uint8).data
        problem: OSError
        try:
            while view:
                got = os.preadv(self._file.fileno(), [view], offset)
                if got == 0:
                    raise OSError(errno.EIO, "short read")
                offset += got
                view = view[got:]
            return words ^ words_at(self._key, first, count) if hidden else words
        except OSError as error:
            problem = error
        raise self._failure(problem)

    def close(self) -> None:
        """Give the space back."""
        if hasattr(self, "_file"):
            self._file.close()

    def __del__(self) -> None:
        self.close()


Part = MemoryPart | SpilledPart


class Shelf:
    """Parts by label: in memory up to `memory_rows` rows in all, in one spill file beyond."""

    def __init__(self, memory_rows: int, folder: Path | None = None) -> None:
        self._memory_rows = memory_rows
        self._folder = folder
        self._rows = 0
        self._file: SpillFile | None = None
        self._parts: dict[str, list[Part]] = {}

    def add(self, label: str, columns: Columns) -> None:
        """Keep these rows under `label`."""
        self._rows += len(columns[0])
        if self._file is None and self._rows > self._memory_rows:
            self._file = SpillFile(self._folder)
            for name, parts in self._parts.items():
                self._parts[name] = [self._store(part) for part in parts]
        self._parts.setdefault(label, []).append(self._store(MemoryPart(by_head(columns))))

    def _store(self, part: Part) -> Part:
        if self._file is None or not isinstance(part, MemoryPart):
            return part
        columns = part.columns
        return SpilledPart(self._file, self._file.write(columns), len(columns[0]), len(columns))

    def take(self, label: str) -> Buckets:
        """The parts under `label`, which leave the shelf."""
        return Buckets(self._parts.pop(label, []), in_memory=self._file is None)


class Buckets:
    """Rows divided by the head of their key into buckets of about equal size, small enough to be loaded."""

    def __init__(self, parts: list[Part], *, in_memory: bool) -> None:
        self._parts = parts
        self._in_memory = in_memory
        self._edges: list[list[int]] = []

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(part.find(HEADS) for part in self._parts)

    def divide(self, bucket_rows: int) -> list[int]:
        """Choose the buckets; the number of rows in each. What is in memory stays in one piece."""
        wanted = 1 if self._in_memory else min(HEADS, -(-self.rows // bucket_rows))
        count = 1 << max(0, wanted - 1).bit_length()
        heads = [HEADS // count * edge for edge in range(count + 1)]
        self._edges = [[part.find(head) for head in heads] for part in self._parts]
        return [sum(edges[k + 1] - edges[k] for edges in self._edges) for k in range(count)]

    def load(self, bucket: int) -> Columns:
        """All rows of a bucket, each part's in their order."""
        pairs = zip(self._parts, self._edges, strict=True)
        return joined([part.read(edges[bucket], edges[bucket + 1]) for part, edges in pairs])
