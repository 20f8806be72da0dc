"""Coins: the uniform 64-bit integers that randomize reports.

A responder takes its coins through its constructor and nowhere else. Real data meet `OperatingSystemCoins` only;
`SeededCoins` exist for simulation and for tests, and no option, file or environment variable leads to them.
"""

import os
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

LARGEST_READ = 1 << 18
"""Bytes asked of the operating system at once: fits a second-level cache, and larger reads are no faster."""


class Coins(Protocol):
    """A source of independent integers, uniform on 0 … 2⁶⁴ − 1."""

    def draw(self, count: int) -> NDArray[np.uint64]:
        """The next `count` coins."""
        ...


class OperatingSystemCoins:
    """Coins from the operating system's cryptographic source.

    >>> OperatingSystemCoins().draw(3).dtype
    dtype('uint64')
    """

    def draw(self, count: int) -> NDArray[np.uint64]:
        """The next `count` coins; they cannot be replayed."""
        size = 8 * count
        if size <= LARGEST_READ:
            return np.frombuffer(os.urandom(size), dtype=np.uint64)
        coins = np.empty(count, dtype=np.uint64)
        words = LARGEST_READ // 8
        for start in range(0, count, words):
            part = coins[start : start + words]
            part[:] = np.frombuffer(os.urandom(8 * len(part)), dtype=np.uint64)
        return coins


class SeededCoins:
    """Coins from a generator whose draws can be repeated: for made-up data only.

    >>> import numpy as np
    >>> draw = lambda: SeededCoins(np.random.default_rng(7)).draw(2).tolist()
    >>> draw() == draw()
    True
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def draw(self, count: int) -> NDArray[np.uint64]:
        """The next `count` coins of the generator."""
        return self._rng.integers(0, 1 << 64, size=count, dtype=np.uint64)
