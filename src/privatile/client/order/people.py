"""One record per person.

Of several records of one person, across all clients of a file, one is used: the one with the smallest tag of a
keyed stream over the rows of the file. Each is equally likely, whatever the values are, and the same key chooses
the same again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from privatile.client.order.spill import Buckets, Columns, Words


def one_each(people: Columns, choice: Words) -> NDArray[np.intp]:
    """Of each person the row with the smallest tag, in the order of the rows.

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


def one_row_each(buckets: Buckets, bucket_rows: int) -> Iterator[Columns]:
    """One row per person, without its choice, from rows (high, low, choice, tag, value, client).

    All rows of a person share a head, hence a bucket.
    """
    for bucket, rows in enumerate(buckets.divide(bucket_rows)):
        if rows:
            high, low, choice, *rest = buckets.load(bucket)
            kept = one_each((high, low), choice)
            yield tuple(column[kept] for column in (high, low, *rest))
