"""Seeds: every replication of every cell has a generator of its own.

A stream is named by (seed, cell, replication) alone. So results do not depend on the number of threads, on how
replications are cut into blocks, on the other cells of a design, or on an interruption.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2⁶⁴/φ, the increment of SplitMix64."""


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The output function of SplitMix64 (Steele, Lea and Flood): a bijection that scatters every bit."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _words(seed: int, cell: str, first: int, count: int, each: int) -> NDArray[np.uint64]:
    """`each` 64-bit words for replications first … first + count − 1, one row per replication."""
    digest = hashlib.sha256(f"{seed}:{cell}".encode()).digest()
    origin = np.frombuffer(digest[:8], dtype="<u8").astype(np.uint64)
    replications = np.arange(first, first + count, dtype=np.uint64)[:, None]
    with np.errstate(over="ignore"):
        own = _mix(origin + _mix(replications * GOLDEN + GOLDEN))
        return _mix(own + GOLDEN * np.arange(1, each + 1, dtype=np.uint64))


def states(seed: int, cell: str, first: int, count: int) -> NDArray[np.uint32]:
    """128 bits of generator state for each replication, as four rows of 32-bit words.

    >>> bool((states(1, "a", 0, 4) == states(1, "a", 2, 4)).any())
    False
    >>> bool((states(1, "a", 0, 4)[:, 2:] == states(1, "a", 2, 2)).all())
    True
    """
    pairs = _words(seed, cell, first, count, 2)
    rows = np.ascontiguousarray(pairs).view(np.uint32).T.copy()
    # All zeros is the one state that xoshiro never leaves; its chance is 2⁻¹²⁸.
    rows[0] |= np.uint32(1) * (rows == 0).all(axis=0)
    return rows


def uniforms(seed: int, cell: str, first: int, count: int) -> Floats:
    """One number inside (0, 1) for each replication, independent of its generator: the start is drawn from it."""
    third = _words(seed, cell, first, count, 3)[:, 2]
    return ((third >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
