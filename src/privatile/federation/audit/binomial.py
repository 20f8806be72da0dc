"""Exact confidence bounds of a proportion, and the sample size that a deviation needs. No tables, no approximations.

Clopper and Pearson: the lower bound at error α is the p with P(X ≥ x | p) = α, the upper the p with P(X ≤ x | p) = α;
both tails are incomplete beta functions.
"""

from __future__ import annotations

import math
from statistics import NormalDist


def incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b), by Lentz's continued fraction on the side where it converges fast.

    >>> round(incomplete_beta(2.0, 3.0, 0.5), 12)
    0.6875
    """
    if not 0.0 < x < 1.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - incomplete_beta(b, a, 1.0 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    result = d
    for m in range(1, 100_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + term * d
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = 1.0 + term / c
            c = c if abs(c) > tiny else tiny
            result *= d * c
        if abs(d * c - 1.0) < 1e-15:
            break
    return front * result / a


def _solve(target: float, a: float, b: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2.0
        if incomplete_beta(a, b, middle) < target:
            low = middle
        else:
            high = middle
        if high - low < 1e-15:
            break
    return (low + high) / 2.0


def clopper_pearson(ones: int, trials: int, alpha: float) -> tuple[float, float]:
    """Bounds that each miss with probability at most `alpha`.

    >>> tuple(round(end, 6) for end in clopper_pearson(5, 10, 0.025))
    (0.187086, 0.812914)
    """
    low = 0.0 if ones == 0 else _solve(alpha, ones, trials - ones + 1)
    high = 1.0 if ones == trials else _solve(1.0 - alpha, ones + 1, trials - ones)
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
