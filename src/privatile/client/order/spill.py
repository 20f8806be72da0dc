"""Rows of 64-bit words on their way through a shuffle, in memory or on disk.

A spill file is private: of mode 0600 and without a name (`tempfile.TemporaryFile`), so that the space comes back when
the process ends, however it ends. All of it is hidden under a key stream whose key never leaves memory, so that what a
disk keeps of the file after a crash reveals no value. The file only grows: no word of the stream hides two words.
"""

import errno
import os
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privatile.client.ledger.integrity import KEY_BYTES
from privatile.client.order.tags import Words, words_at
from privatile.errors import DataError


def spill_folder() -> Path:
    """Where spill files go unless told: TMPDIR where set, else /var/tmp (on disk; /tmp is often memory)."""
    large = Path("/var/tmp")
    if os.environ.get("TMPDIR") or not (large.is_dir() and os.access(large, os.W_OK)):
        return Path(tempfile.gettempdir())
    return large


Span = tuple[int, int, int]
"""A label, and from where to where its rows stand."""


def grouped(labels: NDArray[np.integer[Any]]) -> tuple[NDArray[np.intp] | slice, list[Span]]:
    """An order that brings rows of one label together, and where they then stand; labels are of 16 bits at most.

    >>> order, spans = grouped(np.array([7, 2, 7], dtype=np.uint8))
    >>> order.tolist(), spans
    ([1, 0, 2], [(2, 0, 1), (7, 1, 3)])
    """
    counts = np.bincount(labels)
    present = np.flatnonzero(counts)
    stops = np.cumsum(counts[present])
    spans = list(zip(present.tolist(), (stops - counts[present]).tolist(), stops.tolist(), strict=True))
    if len(spans) < 2:
        return slice(None), spans
    return np.argsort(labels.astype(np.uint8 if len(counts) <= 1 << 8 else np.uint16), kind="stable"), spans  # by radix


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
            "Free some space (up to 40 bytes per record, 112 with a person column, 24 more with a weight column), or "
            "set TMPDIR to a folder with more."
        )

    def write(self, rows: Words) -> int:
        """Append words; the number of the first one in the file."""
        first = self._end
        self._end += rows.size  # also where writing fails: what hid these words hides no others
        view = (np.ravel(rows) ^ words_at(self._key, first, rows.size)).view(np.uint8).data
        at = 8 * first
        while view:
            written = self._call(os.pwrite, self._file.fileno(), view, at)
            at += written
            view = view[written:]
        return first

    def read(self, first: int, count: int) -> Words:
        """`count` words from number `first` on."""
        words = np.empty(count, dtype=np.uint64)
        view, at = words.view(np.uint8).data, 8 * first
        while view:
            count_read = self._call(os.preadv, self._file.fileno(), [view], at)
            if count_read == 0:
                raise self._failure(errno.EIO)
            at += count_read
            view = view[count_read:]
        words ^= words_at(self._key, first, count)
        return words

    def close(self) -> None:
        """Give the space back."""
        if hasattr(self, "_file"):
            self._file.close()

    def __del__(self) -> None:
        self.close()


class Extent:
    """Rows that lie together, in memory or in a spill file."""

    def __init__(self, rows: Words) -> None:
        self._rows: Words | None = rows
        self.records, self._width = rows.shape

    def spill(self, file: SpillFile) -> None:
        """Move the rows from memory into a file."""
        if self._rows is not None:
            self._file, self._first, self._rows = file, file.write(self._rows), None

    def read(self, start: int, stop: int) -> Words:
        """The rows from `start` up to `stop`."""
        if self._rows is not None:
            return self._rows[start:stop]
        words = self._file.read(self._first + self._width * start, self._width * (stop - start))
        return words.reshape(-1, self._width)


class SpillBuffer:
    """Rows by label, those of a label as they were added: in memory up to `memory_words` in all, else in one file."""

    def __init__(self, memory_words: int, folder: Path | None = None) -> None:
        self._memory_words = memory_words
        self._folder = folder
        self._words = 0
        self._waiting: list[Extent] = []
        self._file: SpillFile | None = None
        self._places: dict[int, list[tuple[Extent, int, int]]] = {}

    def add(self, rows: Words, spans: Iterable[Span]) -> None:
        """Keep rows that `grouped` has brought together by label."""
        extent = self.keep(rows)
        for label, start, stop in spans:
            self._places.setdefault(label, []).append((extent, start, stop))

    def keep(self, rows: Words) -> Extent:
        """Keep rows as they are."""
        extent = Extent(rows)
        self._words += rows.size
        self._waiting.append(extent)
        if self._words > self._memory_words:
            self._file = self._file or SpillFile(self._folder)
            for each in self._waiting:
                each.spill(self._file)
            self._waiting.clear()
        return extent

    @property
    def labels(self) -> list[int]:
        """The labels, in their order."""
        return sorted(self._places)

    def count(self, label: int) -> int:
        """How many rows a label has."""
        return sum(stop - start for _, start, stop in self._places.get(label, ()))

    def take(self, label: int, size: int) -> Iterator[Words]:
        """The rows of a label in pieces of about `size`; they leave the buffer, and no more are added to it."""
        self._waiting.clear()
        pieces: list[Words] = []
        rows = 0
        for extent, start, stop in self._places.pop(label, ()):
            pieces.append(extent.read(start, stop))
            rows += stop - start
            if rows >= size:
                yield np.concatenate(pieces)
                pieces, rows = [], 0
        if pieces:
            yield np.concatenate(pieces)

    def take_all(self, label: int) -> Words:
        """All rows of a label."""
        (rows,) = self.take(label, self.count(label))
        return rows
