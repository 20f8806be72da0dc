"""The likelihood ratio of a report: exact confidence bounds from counts, and how many reports they need.

Clopper and Pearson: the lower bound at error α is the p with P(X ≥ x | p) = α, the upper the p with P(X ≤ x | p) = α;
both tails are incomplete beta functions, which scipy inverts.
"""

import math

from scipy.special import betaincinv

from privatile.laws.normal import one_sided_z


def clopper_pearson(ones: int, trials: int, alpha: float) -> tuple[float, float]:
    """Bounds that each miss with probability at most `alpha`.

    >>> tuple(round(end, 6) for end in clopper_pearson(5, 10, 0.025))
    (0.187086, 0.812914)
    """
    low = 0.0 if ones == 0 else float(betaincinv(ones, trials - ones + 1, alpha))
    high = 1.0 if ones == trials else float(betaincinv(ones + 1, trials - ones, 1.0 - alpha))
    return low, high


def ratio_bounds(
    ones_true: int, ones_false: int, trials: int, alpha: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Bounds of P(1 | truth 1)/P(1 | truth 0) and of P(0 | truth 0)/P(0 | truth 1), each at error `alpha` per side.

    Both ratios are e^ε for randomized response. The counts are ones among `trials` reports whose truth is 1, or 0.

    >>> [tuple(round(end, 3) for end in bounds) for bounds in ratio_bounds(731, 269, 1000, 0.001)]
    [(2.152, 3.459), (2.152, 3.459)]
    """
    low_true, high_true = clopper_pearson(ones_true, trials, alpha / 2)
    low_false, high_false = clopper_pearson(ones_false, trials, alpha / 2)
    return (
        (_quotient(low_true, high_false), _quotient(high_true, low_false)),
        (_quotient(1 - high_false, 1 - low_true), _quotient(1 - low_false, 1 - high_true)),
    )


def _quotient(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.inf


def reports_needed(truth_rate: float, off: float, alpha: float, power: float) -> int:
    """Reports per side that show a truth rate wrong by the share `off`, at error `alpha` on either side.

    n = p(1 − p)·((z_α + z_power)/δ)² with p = (1 + r)/2 and δ = off·r/2.

    >>> 250_000 < reports_needed(0.4621, 0.02, 0.0005, 0.99) < 350_000
    True
    """
    p = (1.0 + truth_rate) / 2.0
    delta = off * truth_rate / 2.0
    z = one_sided_z(alpha) + one_sided_z(1.0 - power)
    return math.ceil(p * (1.0 - p) * (z / delta) ** 2)
