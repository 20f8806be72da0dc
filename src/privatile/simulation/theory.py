"""What the theorems say, as functions: estimand, variance, ν, the efficiency bound, Assumptions 2–3.

Nothing here touches data; distributions are any objects with a CDF and a density.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from privatile.core.mechanism import report_variance
from privatile.errors import InputError
from privatile.estimator.schedule import LengthRule, Power


def estimand(
    cdfs: Sequence[Callable[[float], float]], weights: Sequence[float], level: float, low: float, high: float
) -> float:
    """Q* with Σ p_k F_k(Q*) = τ, on [low, high].

    >>> from statistics import NormalDist
    >>> round(estimand([NormalDist(0, 1).cdf, NormalDist(2, 1).cdf], [0.5, 0.5], 0.5, -10, 10), 9)
    1.0
    """

    def excess(value: float) -> float:
        return math.fsum(p * cdf(value) for p, cdf in zip(weights, cdfs, strict=True)) - level

    if not excess(low) <= 0.0 <= excess(high):
        raise InputError(f"the range {low:g} … {high:g} does not hold the quantile of level {level:g}. Widen it.")
    from scipy.optimize import brentq

    return float(brentq(excess, low, high, xtol=1e-300, rtol=1e-15))


def asymptotic_variance(
    weights: Sequence[float],
    truth_rates: Sequence[float],
    local_ranks: Sequence[float],
    densities: Sequence[float],
    nu: float = 1.0,
) -> float:
    """Variance of √t_T(Q_T − Q*) (Theorem 3.1): ν·Σp_k²(r_k⁻² − (2F_k − 1)²) / (4(Σp_k f_k)²).

    >>> round(asymptotic_variance([1.0], [1.0], [0.5], [0.39894228]), 4)  # π/2, the plain sample median
    1.5708
    """
    return nu * efficiency_bound(weights, truth_rates, local_ranks, densities, (1,) * len(weights)) ** 2


def schedule_nu(lengths: ArrayLike) -> float:
    """ν of a schedule, (ΣE_m)(Σ1/E_m)/T²: what unequal rounds cost in variance; 1 when all are equal.

    >>> schedule_nu([1, 1, 4, 4])
    1.5625
    """
    table = np.asarray(lengths, dtype=np.float64)
    if table.ndim != 1 or not len(table) or not bool(np.all(table >= 1)):
        raise InputError("lengths must be a list of rounds, each of at least 1 record.")
    return float(table.sum() * (1.0 / table).sum() / len(table) ** 2)


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


def check_assumptions(
    rule: LengthRule, exponent: float = 0.51, *, steps_depend_on_rounds: bool = False
) -> tuple[str, ...]:
    """What Assumptions 2–3 have against steps γ_m ∝ 1/(m^a + b) and lengths that follow a rule; empty: nothing.

    Assumption 2 holds iff ½ < a < 1: Σγ² < ∞ needs a > ½, Σγ = ∞ needs a ≤ 1, and (γ_m − γ_{m+1})/γ_m ~ a/m = o(γ_m)
    needs a < 1. Assumption 3 with lengths like m^β: (a) holds, (b) holds iff β < 1 (then ν = 1/(1 − β²)), and (c)
    √t_T/T·Σγ ~ T^{(1+β)/2−a} → 0 iff β < 2a − 1, √t_T/T·γ_T^{−½} ~ T^{(β+a−1)/2} → 0 iff β < 1 − a. Constant and
    logarithmic lengths have β = 0 (a logarithm loses against any power). A list says nothing about growth: it must
    not decrease, or it counts as bounded.

    >>> from privatile.estimator.schedule import Logarithmic
    >>> check_assumptions(Logarithmic())
    ()
    >>> for line in check_assumptions(Power(0.5)): print(line)
    Assumption 3(c): lengths growing like m^0.5 need an exponent of the step above 0.75; it is 0.51.
    Assumption 3(c): lengths growing like m^0.5 need an exponent of the step below 0.5; it is 0.51.
    """
    failures: list[str] = []
    if steps_depend_on_rounds:
        failures.append("Assumption 2: the steps depend on the number of rounds, so they are no single sequence.")
    if not 0.5 < exponent < 1.0:
        failures.append(f"Assumption 2: the exponent of the step must lie in (1/2, 1); it is {exponent:g}.")
    growth = rule.exponent if isinstance(rule, Power) else 0.0
    if growth >= 1.0:
        failures.append(f"Assumption 3(b): lengths growing like m^{growth:g} have no finite ν; β must be below 1.")
    for fails, side, limit in (
        (growth > 0.0 and growth >= 2.0 * exponent - 1.0, "above", (1.0 + growth) / 2.0),
        (growth >= 1.0 - exponent, "below", 1.0 - growth),
    ):
        if fails:
            failures.append(
                f"Assumption 3(c): lengths growing like m^{growth:g} need an exponent of the step {side} {limit:g}; "
                f"it is {exponent:g}."
            )
    return tuple(failures)
