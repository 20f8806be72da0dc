"""Parts of a table on their way through a shuffle: rows of 64-bit words, in memory or on disk.

A spill file is private: of mode 0600 and without a name (`tempfile.TemporaryFile`), so that the space comes back when
the process ends, however it ends. Keys of rows are random tags or keyed hashes and are written as they are; everything
else is hidden under a key stream whose key never leaves memory, so that what a disk keeps of the file after a crash
reveals no value.
"""

import errno
import os
import secrets
import tempfile
from bisect import bisect_left
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privatile.client.ledger.integrity import KEY_BYTES
from privatile.client.order.tags import words_at
from privatile.errors import DataError

Words = NDArray[np.uint64]

Columns = tuple[Words, ...]
"""Columns of equal length; the first is the key."""

HEAD_BITS = 16
"""Parts are sorted by the first 16 bits of their key: numpy sorts 16-bit integers by radix, nine times faster."""

HEADS = 1 << HEAD_BITS


class Part:
    """Rows sorted by the head of their key, ties in their order: in memory, or column after column in a spill file."""

    def __init__(self, columns: Columns) -> None:
        order = np.argsort((columns[0] >> np.uint64(64 - HEAD_BITS)).astype(np.uint16), kind="stable")
        self.rows, self._width = len(order), len(columns)
        self._columns = tuple(column[order] for column in columns)
        self._file: SpillFile | None = None

    def spill(self, file: "SpillFile") -> None:
        """Move the rows from memory into a file."""
        self._offset = file.write(self._columns)
        self._file, self._columns = file, ()

    def find(self, head: int) -> int:
        """How many rows have a head below `head`."""
        return bisect_left(
            range(self.rows), head, key=lambda row: int(self._read(0, row, row + 1)[0]) >> (64 - HEAD_BITS)
        )

    def read(self, start: int, stop: int) -> Columns:
        """The rows from `start` up to `stop`."""
        return tuple(self._read(column, start, stop) for column in range(self._width))

    def _read(self, column: int, start: int, stop: int) -> Words:
        if self._file is None:
            return self._columns[column][start:stop]
        return self._file.read(self._offset + 8 * (self.rows * column + start), stop - start, hidden=column > 0)


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
        self._file = self._call(lambda: tempfile.TemporaryFile(buffering=0, dir=self._where))  # noqa: SIM115  see `close`

    def _call(self, call: Callable[..., Any], *arguments: object) -> Any:
        """Call the operating system; its failures become errors that say how to fix it."""
        try:
            return call(*arguments)
        except OSError as error:
            number = error.errno
        raise self._failure(number)

    def _failure(self, number: int | None) -> DataError:
        why = os.strerror(number).lower() if number else "it cannot be used"
        if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            why = "the disk is full"
            self.close()
        return DataError(
            f"the column is shuffled through a temporary file in {self._where}, and {why}. Nothing was answered. "
            "Free some space (16 bytes per record, 80 with a person column, up to 56 more with a weight column), or "
            "set TMPDIR to a folder with more."
        )

    def write(self, columns: Columns) -> int:
        """Append columns, all but the first hidden; the offset of the first."""
        start = self._end
        for place, column in enumerate(columns):
            if place:
                column = column ^ words_at(self._key, self._end // 8, len(column))
            view = np.ascontiguousarray(column).view(np.uint8).data
            while view:
                written = self._call(os.pwrite, self._file.fileno(), view, self._end)
                self._end += written
                view = view[written:]
        return start

    def read(self, offset: int, count: int, *, hidden: bool) -> Words:
        """`count` words from `offset`, which were hidden or not."""
        first = offset // 8
        words = np.empty(count, dtype=np.uint64)
        view = words.view(np.uint8).data
        while view:
            count_read = self._call(os.preadv, self._file.fileno(), [view], offset)
            if count_read == 0:
                raise self._failure(errno.EIO)
            offset += count_read
            view = view[count_read:]
        return words ^ words_at(self._key, first, count) if hidden else words

    def close(self) -> None:
        """Give the space back."""
        if hasattr(self, "_file"):
            self._file.close()

    def __del__(self) -> None:
        self.close()


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
        part = Part(columns)
        self._parts.setdefault(label, []).append(part)
        self._rows += part.rows
        if self._file is not None:
            part.spill(self._file)
        elif self._rows > self._memory_rows:
            self._file = SpillFile(self._folder)
            for each in chain.from_iterable(self._parts.values()):
                each.spill(self._file)

    def take(self, label: str) -> "Buckets":
        """The parts under `label`, which leave the shelf."""
        return Buckets(self._parts.pop(label, []), in_memory=self._file is None)


class Buckets:
    """Rows divided by the head of their key into buckets of about equal size, small enough to be loaded."""

    def __init__(self, parts: list[Part], *, in_memory: bool) -> None:
        self._parts = parts
        self._in_memory = in_memory
        self._edges: list[list[int]] = []

    def divide(self, bucket_rows: int) -> list[int]:
        """Choose the buckets; the number of rows in each. What is in memory stays in one piece."""
        rows = sum(part.rows for part in self._parts)
        wanted = 1 if self._in_memory else min(HEADS, -(-rows // bucket_rows))
        count = 1 << max(0, wanted - 1).bit_length()
        heads = [HEADS // count * edge for edge in range(count + 1)]
        self._edges = [[part.find(head) for head in heads] for part in self._parts]
        return [sum(edges[k + 1] - edges[k] for edges in self._edges) for k in range(count)]

    def load(self, bucket: int) -> Columns:
        """All rows of a bucket, each part's in their order."""
        pairs = zip(self._parts, self._edges, strict=True)
        pieces = [part.read(edges[bucket], edges[bucket + 1]) for part, edges in pairs]
        return pieces[0] if len(pieces) == 1 else tuple(np.concatenate(column) for column in zip(*pieces, strict=True))
