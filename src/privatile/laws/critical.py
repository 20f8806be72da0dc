"""Critical values and p-values of the self-normalised statistic, exact for the schedule that was run.

With w_m = 1/E_m the variance weight of round m (or weights given directly when clients differ), the clock is
r_m = Σ_{i≤m} w_i/Σw_i, and under the true value the statistic (Q_T − Q*)/√V has the law of

    S = B(1) / ‖B(r_m) − (m/T)·B(1)‖,    ‖x‖² = Σ_m (r_m − r_{m−1})·x_m²  (`l2`)

with B a Brownian motion (Theorem 3.2). The law depends on the schedule: 6.7473 is the 95% value of constant lengths
only. The values are those of the *finite* sum over the T rounds that were run, not of its limit: a constant schedule of
20 rounds has 6.818.

Other norms of the same path: `l1` is Σ_m (r_m − r_{m−1})·|x_m|, `sup` is max_m |x_m|. The l2 law is exact
(`brownian.py`); the other two are simulated once per schedule with a fixed seed and state their error
(`simulated_law.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from privatile.core.arrays import Floats
from privatile.core.kinds import CONFIDENCE, Normalizer, checked
from privatile.errors import InputError
from privatile.laws.brownian import brownian_law, residual_variance
from privatile.laws.ratio import RatioLaw
from privatile.laws.simulated import SimulatedLaw, simulated_law

NORMALIZERS: tuple[Normalizer, ...] = ("l2", "l1", "sup")

WIDEST_RATIO = 1e12
"""Largest ratio of two weights: beyond it a round vanishes in the clock's rounding. No real schedule comes near."""


@dataclass(frozen=True)
class CriticalValue:
    """v in Q_T ± v·√V, with what is known about its error.

    >>> v = critical_value(lengths=[1] * 2000)
    >>> round(v.value, 3), v.standard_error, v.method
    (6.747, 0.0, 'exact')
    >>> 2.0 * float(v) > 13.49
    True
    """

    value: float
    standard_error: float
    """Monte Carlo standard error of `value`; 0 where the value is exact (its numerical error is below 1e-6)."""
    method: Literal["exact", "simulated"]

    def __float__(self) -> float:
        return self.value


def critical_value(
    lengths: Sequence[float] | Floats | None = None,
    confidence_level: float = 0.95,
    normalizer: Normalizer = "l2",
    weights: Sequence[float] | Floats | None = None,
    endpoint_variance: float = 1.0,
) -> CriticalValue:
    """The v with P(|S| ≤ v) = confidence_level: the (1 − α/2) quantile of the symmetric S.

    Give the round lengths E_m, or the round weights w_m (up to scale) when clients ask unequal numbers. With
    `endpoint_variance` κ < 1 (the file itself is the target) Var B(1) is κ, all else equal: drawing without replacement
    adds −c·m·l to the covariance of the partial sums, and detrending by m/T removes exactly that.

    >>> round(critical_value([1] * 50 + [5] * 190).value, 3)
    5.537
    >>> critical_value([1, 1, 1], confidence_level=95)
    Traceback (most recent call last):
    ...
    privatile.errors.OptionError: confidence_level must lie strictly between 0 and 1, and be at most 1 - 1e-12; \
got 95. Write 95% as 0.95.
    """
    level = checked("confidence_level", CONFIDENCE, confidence_level)
    law = statistic_law(lengths, weights, normalizer, endpoint_variance)
    if isinstance(law, SimulatedLaw):
        return CriticalValue(law.quantile(level), law.quantile_standard_error(level), "simulated")
    return CriticalValue(law.quantile(level), 0.0, "exact")


def statistic_law(
    lengths: Sequence[float] | Floats | None = None,
    weights: Sequence[float] | Floats | None = None,
    normalizer: Normalizer = "l2",
    endpoint_variance: float = 1.0,
) -> RatioLaw | SimulatedLaw:
    """The law of |S| on a schedule: `quantile` gives critical values, `tail` two-sided p-values.

    >>> round(statistic_law(lengths=[1] * 2000).tail(6.7473), 6)
    0.05
    """
    if normalizer not in NORMALIZERS:
        raise InputError(f"normalizer must be one of {', '.join(NORMALIZERS)}; got {normalizer!r}. l2 is the default.")
    increments = clock_increments(lengths, weights)
    if increments.size < 2:
        raise InputError(
            "a schedule must have at least 2 rounds to normalise itself; got 1. Split the records over more rounds."
        )
    kappa = checked_endpoint_variance(endpoint_variance, increments)
    if normalizer == "l2":
        return brownian_law(increments, kappa)
    return simulated_law(increments, normalizer, kappa)


def clock_increments(
    lengths: Sequence[float] | Floats | None = None, weights: Sequence[float] | Floats | None = None
) -> Floats:
    """r_m − r_{m−1}, checked: exactly one of lengths and weights, each positive and finite."""
    if lengths is not None and weights is not None:
        raise InputError(
            "give lengths or weights, not both; got both. Lengths E_m stand for weights 1/E_m; with unequal clients "
            "give the weights alone."
        )
    if lengths is not None:
        values, name = lengths, "lengths"
    elif weights is not None:
        values, name = weights, "weights"
    else:
        raise InputError(
            "a schedule is needed: give lengths or weights; got neither. Constant lengths are [1] * rounds."
        )
    array = checked_rounds(values, name)
    raw = array.min() / array if name == "lengths" else array / array.max()
    return np.asarray(raw / raw.sum())


def checked_rounds(values: Sequence[float] | Floats, name: str) -> Floats:
    """One positive finite number per round, within a factor `WIDEST_RATIO` of each other."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"{name} must be numbers, one per round; got {type(values).__name__}. Pass a list or array."
        ) from None
    if array.ndim != 1 or array.size == 0:
        raise InputError(
            f"{name} must be one number per round, at least one; got an array of shape {array.shape}. Constant lengths "
            "are [1] * rounds."
        )
    good = np.isfinite(array) & (array > 0.0)
    if not good.all():
        where = int(np.flatnonzero(~good)[0])
        raise InputError(
            f"{name} must be positive and finite; got {float(array[where])!r} in round {where + 1}. A round that asked "
            "nobody is no round: leave it out."
        )
    smallest, largest = float(array.min()), float(array.max())
    if largest / smallest > WIDEST_RATIO:
        raise InputError(
            f"{name} must lie within a factor {WIDEST_RATIO:g} of each other; got {largest / smallest:g}. Join or drop "
            "the shortest rounds."
        )
    return array


def checked_endpoint_variance(endpoint_variance: float, increments: Floats) -> float:
    """κ in (0, 1] and not below 1 − Var(B(1) | the detrended path), where no joint law would exist."""
    kappa = float(endpoint_variance)
    if not 0.0 < kappa <= 1.0:
        raise InputError(
            f"endpoint_variance must lie in (0, 1]; got {kappa!r}. It is the share of the estimate's variance left "
            "when the file itself is the target; 1 means a population."
        )
    least = 1.0 - residual_variance(increments)
    if kappa < least - 1e-12:
        raise InputError(
            f"endpoint_variance must be at least {least:.6g} for this schedule; got {kappa!r}. Below it no Gaussian "
            "law has the stated covariances: check the share of the file that was asked, or use the population target."
        )
    return kappa
