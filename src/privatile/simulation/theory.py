"""What Theorem 3.1 says, as a function: the efficiency bound."""

import math
from collections.abc import Sequence

from privatile.core.mechanism import report_variance


def efficiency_bound(
    weights: Sequence[float],
    truth_rates: Sequence[float],
    local_ranks: Sequence[float],
    densities: Sequence[float],
    records: Sequence[int],
) -> float:
    """Smallest asymptotic standard error with every record asked once: √Σp_k²σ_k²/n_k / Σp_k f_k.

    σ_k² = (r_k⁻² − (2F_k − 1)²)/4 is the variance of one debiased report. With equal n this is Theorem 3.1 at ν = 1.

    >>> round(efficiency_bound([1.0], [0.5], [0.5], [0.39894228], [10_000]), 6)
    0.025066
    """
    top = math.fsum(
        p * p * report_variance(r, rank) / n
        for p, r, rank, n in zip(weights, truth_rates, local_ranks, records, strict=True)
    )
    return math.sqrt(top) / math.fsum(p * f for p, f in zip(weights, densities, strict=True))
