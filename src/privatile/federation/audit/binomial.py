"""Exact confidence bounds of a proportion, and the sample size that a deviation needs.

Clopper and Pearson: the lower bound at error α is the p with P(X ≥ x | p) = α, the upper the p with P(X ≤ x | p) = α;
both tails are incomplete beta functions, which scipy inverts.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from scipy.special import betaincinv


def clopper_pearson(ones: int, trials: int, alpha: float) -> tuple[float, float]:
    """Bounds that each miss with probability at most `alpha`.

    >>> tuple(round(end, 6) for end in clopper_pearson(5, 10, 0.025))
    (0.187086, 0.812914)
    """
    low = 0.0 if ones == 0 else float(betaincinv(ones, trials - ones + 1, alpha))
    high = 1.0 if ones == trials else float(betaincinv(ones + 1, trials - ones, 1.0 - alpha))
    return low, high


def reports_needed(truth_rate: float, off: float, alpha: float, power: float) -> int:
    """Reports a side that show a truth rate wrong by the share `off`, at error `alpha` on either side.

    n = p(1 − p)·((z_α + z_power)/δ)² with p = (1 + r)/2 and δ = off·r/2.

    >>> 250_000 < reports_needed(0.4621, 0.02, 0.0005, 0.99) < 350_000
    True
    """
    p = (1.0 + truth_rate) / 2.0
    delta = off * truth_rate / 2.0
    z = NormalDist().inv_cdf(1.0 - alpha) + NormalDist().inv_cdf(power)
    return math.ceil(p * (1.0 - p) * (z / delta) ** 2)
