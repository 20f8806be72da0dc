"""The target of a weighted run: the inverse of the weighted distribution function."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def weighted_quantile(
    values: NDArray[np.float64] | Sequence[float], weights: NDArray[np.float64] | Sequence[float], level: float
) -> float:
    """The smallest value at which the weights up to it reach the share `level` of all weights.

    The same as `inverted_cdf` of numpy where all weights are alike, and as `svyquantile(qrule = "math")` of R's survey
    package (`svyquantile.R`).

    >>> weighted_quantile([1.0, 2.0, 3.0], [1.0, 1.0, 2.0], 0.5), weighted_quantile([1.0, 2.0, 3.0], [1, 1, 2], 0.51)
    (2.0, 3.0)
    """
    numbers, sizes = np.asarray(values, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    order = np.argsort(numbers, kind="stable")
    reached = np.cumsum(sizes[order])
    # A sum that is τ·W up to rounding has reached it.
    place = int(np.searchsorted(reached, level * reached[-1] * (1.0 - 1e-12)))
    return float(numbers[order][min(place, len(numbers) - 1)])
