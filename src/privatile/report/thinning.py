"""Fewer points, same picture: long paths cut into buckets that keep every extreme.

The buckets are fine at the start and even later on: half of their edges are evenly spaced, half are geometric, so
that zooming in on the first hundred rounds shows rounds and zooming out loses no excursion.
"""

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats

Whole = NDArray[np.int64]


def bucket_ends(rounds: int, most: int) -> Whole:
    """Last round (1-based) of each bucket: at most `most` of them, the last is `rounds`.

    >>> bucket_ends(5, 10).tolist()
    [1, 2, 3, 4, 5]
    >>> ends = bucket_ends(100_000, 1000)
    >>> len(ends) <= 1000, ends[:4].tolist(), int(ends[-1])
    (True, [1, 2, 3, 4], 100000)
    """
    if rounds <= most:
        return np.arange(1, rounds + 1)
    even = np.linspace(rounds / (most - most // 2), rounds, most - most // 2)
    early = np.geomspace(1, rounds, most // 2)
    return np.unique(np.ceil(np.concatenate([even, early]) - 1e-9).astype(np.int64))


def envelope(values: Floats, ends: Whole) -> tuple[Floats, Floats]:
    """Lowest and highest value in each bucket.

    >>> envelope(np.array([3.0, 1.0, 2.0, 9.0]), np.array([1, 4]))
    (array([3., 1.]), array([3., 9.]))
    """
    if not len(values):
        return values, values
    starts = np.concatenate([[0], ends[:-1]])
    return np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
