"""Keyed streams: the secret tags from which an order is made, and the words that hide what is spilled.

Tag i of a key is word i of SHAKE-128(key ‖ block number), block by block. The same key gives the same tags
for ever, on every machine and with every version of every library, which a generator's `permutation` does not promise:
an order that changed between a crash and a restart would let records answer twice.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

BLOCK = 1024
"""Words of one block: 8 KiB, made in about 20 µs. Part of the definition: other blocks would be other tags."""


def words_at(key: bytes, start: int, count: int) -> NDArray[np.uint64]:
    """The words of a key from number `start` on, wherever that is.

    >>> key = b"k" * 32
    >>> bool((words_at(key, 1000, 2000) == KeyStream(key).take(3000)[1000:]).all())
    True
    """
    first, stop = start // BLOCK, -(-(start + count) // BLOCK)
    text = b"".join(
        hashlib.shake_128(key + number.to_bytes(8, "little")).digest(8 * BLOCK) for number in range(first, stop)
    )
    return np.frombuffer(text, dtype="<u8").astype(np.uint64, copy=False)[start - first * BLOCK :][:count]


class KeyStream:
    """The tags of a key, in sequence.

    >>> whole = KeyStream(b"k" * 32).take(3000)
    >>> parts = KeyStream(b"k" * 32)
    >>> [bool((parts.take(n) == whole[a : a + n]).all()) for a, n in ((0, 5), (5, 1500), (1505, 1495))]
    [True, True, True]
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._next = 0

    def take(self, count: int) -> NDArray[np.uint64]:
        """The next `count` tags, uniform on 0 … 2⁶⁴ − 1."""
        tags = words_at(self._key, self._next, count)
        self._next += count
        return tags
