"""The codes of a survey in memory: which exist, of which stratum, in which state. A look-up takes no disk.

A million codes take 19 MB. A code's place is that of its row in the order of the hashes. Of a hash the first 128 bits
are kept here, as many as a code has; the file has all of it, and every change is made there by the whole hash.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Self

import numpy as np

HASH = 32
"""Bytes of a code's hash."""

AT_ONCE = 50_000
"""Rows that are read together."""


class CodeTable:
    """Codes in the order of their hashes; `states` and `strata` are read by place."""

    def __init__(self, hashes: "Sequence[array[int]]", strata: "array[int]", states: bytearray) -> None:
        """Use `read`. `hashes` has the first 64 bits of every hash, and the next 64."""
        self._first, self._second = hashes
        self.strata = strata
        self.states = states

    @classmethod
    def read(cls, rows: Iterable[tuple[bytes, int, int]]) -> Self:
        """The table of rows (hash, stratum, state), which must come in the order of the hashes.

        >>> table = CodeTable.read([(b"a" * 32, 0, 0), (b"b" * 32, 1, 2)])
        >>> place = table.find(b"b" * 32)
        >>> place, table.strata[place], table.states[place], table.find(b"c" * 32), len(table)
        (1, 1, 2, None, 2)
        """
        hashes = array("Q"), array("Q")
        strata, states = array("H"), bytearray()
        left = iter(rows)
        while part := list(islice(left, AT_ONCE)):
            names, places, found = zip(*part, strict=True)
            if any(len(name) != HASH for name in names):
                raise ValueError(f"a hash has {HASH} bytes")
            numbers = np.frombuffer(b"".join(names), dtype=">u8").reshape(len(part), -1)
            for half, column in zip(hashes, numbers.T[:2], strict=True):
                half.frombytes(column.astype("=u8").tobytes())
            strata.extend(places)
            states += bytes(found)
        numbers = np.frombuffer(hashes[0], dtype=np.uint64)
        if np.any(numbers[1:] < numbers[:-1]):
            raise ValueError("the codes are not in the order of their hashes")
        return cls(hashes, strata, states)

    def __len__(self) -> int:
        return len(self.states)

    @property
    def changes(self) -> int:
        """A number that grows with every change of a state: 1 for a question handed out, 2 for a spent code.

        >>> CodeTable.read([(b"a" * 32, 0, 0), (b"b" * 32, 0, 1), (b"c" * 32, 0, 3)]).changes
        3
        """
        return 2 * len(self.states) - 2 * self.states.count(0) - self.states.count(1)

    def find(self, code: bytes) -> int | None:
        """The place of a code by its hash; none for one that was never issued."""
        first, second = int.from_bytes(code[:8], "big"), int.from_bytes(code[8:16], "big")
        place = bisect_left(self._first, first)
        while place < len(self._first) and self._first[place] == first:
            if self._second[place] == second:
                return place
            place += 1
        return None
