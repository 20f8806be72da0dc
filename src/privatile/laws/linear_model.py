"""The linear model of a run: how few relaxations change the law of the self-normalised statistic.

Near the true value Q* the recursion of a run is linear,

    q_m − Q* = (1 − γ_m·f)·(q_{m−1} − Q*) + γ_m·e_m,    e_m ~ N(0, w_m) independent,

f the density at Q* (the slope of the rank), γ_m the step and w_m the variance of the round's mean debiased report,
known up to scale. Then Q_T − Q* and V are a linear and a quadratic form of the same noise, and the critical value comes
from the same integral as the Brownian one. The number that governs it is the relaxations N = f·Σγ_m over the averaged
rounds: with steps A/(m^0.51 + T^0.51/4), a tenth dropped and T = 300 the 95% value is 9.67 for N = 12, 7.26 for N = 60,
and 6.747 is the limit. The rounds matter a little beside it (N = 60: 7.22 at T = 200, 7.33 at T = 10,000), so the value
is computed from the steps that were taken.

The run starts at Q* (what is left of a wrong start is no noise and is not modelled) and the noise of the rounds before
averaging starts is kept, so after a burn-in the averaged window starts from its true, nearly stationary, spread.
"""

from collections.abc import Sequence

import numpy as np

from privatile.core.arrays import Floats
from privatile.errors import InputError
from privatile.laws.critical import checked_rounds
from privatile.laws.ratio import RatioLaw, from_covariance

POINTS = 320
"""Windows of more rounds are sampled at this many. The sums are smooth (an integrated process), so little is lost:
against all of 2,000 rounds v moves by 4e-6 at N = 12 to 140, and by 2e-5 with log-normal weights."""


def linear_law(
    steps: Sequence[float] | Floats, noise_weights: Sequence[float] | Floats, slope: float, burn_in: int = 0
) -> RatioLaw:
    """The law of |Q_T − Q*|/√V in the linear model: `quantile` gives critical values, `tail` p-values.

    `steps` and `noise_weights` are γ_m and w_m of every round, those of the burn-in included; `slope` is f > 0, so that
    γ_m·f is a pure number. V is Σ (r_m − r_{m−1})(m/T)²(Q_m − Q_T)² over the averaged rounds, at least two, r from
    their weights.

    >>> import numpy as np
    >>> m = np.arange(200)
    >>> table = 1 / (m**0.51 + 200**0.51 / 4)
    >>> slope = 60 / table[20:].sum()  # 60 relaxations after a burn-in of 10%
    >>> round(linear_law(table, np.ones(200), slope, burn_in=20).quantile(0.95), 2)
    7.22
    """
    gains = checked_rounds(steps, "steps")
    weights = checked_rounds(noise_weights, "noise_weights")
    rates = gains * float(slope)
    if rates.max() >= 2.0:
        raise InputError(
            f"steps times slope must stay below 2, where the recursion turns unstable; got {rates.max():.3g}. Lower "
            "the steps (at most one half is a good rule) or use more rounds."
        )
    # The common scale of the noise cancels in Q/√V; taking q in units of 1/f leaves only γ·f.
    weights = weights / weights.max()
    window = weights[burn_in:]
    points = sampled_rounds(rates[burn_in:], window)
    form_weights = hat_weights(window / window.sum(), points)
    covariance = partial_sum_covariance(rates, weights, burn_in, points)
    trend = (points + 1.0) / window.size
    with_end = covariance[:, -1].copy()
    end = float(with_end[-1])
    detrended = covariance - np.outer(trend, with_end) - np.outer(with_end, trend) + end * np.outer(trend, trend)
    root = np.sqrt(form_weights)
    # The last point is Q_T − Q_T = 0 and is left out.
    keep = slice(0, -1)
    form = (root[:, None] * detrended * root)[keep, keep]
    return from_covariance(form, (root * (with_end - trend * end))[keep], end)


def sampled_rounds(rates: Floats, weights: Floats) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Rounds at which the running sums are evaluated: all of them, or `POINTS` spread over rounds, steps and clock."""
    rounds = rates.size
    if rounds <= POINTS:
        return np.arange(rounds)
    spread = np.arange(1, rounds + 1) / rounds + np.cumsum(rates) / rates.sum() + np.cumsum(weights) / weights.sum()
    wanted = np.linspace(0.0, spread[-1], POINTS + 1)[1:]
    chosen = np.unique(np.searchsorted(spread, wanted * (1.0 - 1e-12)))
    return np.unique(np.append(chosen, rounds - 1))


def hat_weights(increments: Floats, points: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Floats:
    """Weight of each sampled round in Σ d_m·x_m² when x² runs straight between samples, from 0 at the start."""
    rounds = np.arange(1, increments.size + 1)
    knots = np.concatenate([[0], points + 1])
    right = np.searchsorted(knots, rounds)
    share = (rounds - knots[right - 1]) / (knots[right] - knots[right - 1])
    total = np.zeros(knots.size)
    np.add.at(total, right, increments * share)
    np.add.at(total, right - 1, increments * (1.0 - share))
    return total[1:]


def partial_sum_covariance(
    rates: Floats, weights: Floats, burn_in: int, points: np.ndarray[tuple[int], np.dtype[np.intp]]
) -> Floats:
    """Cov(S_i, S_j) of the sums S_m of f·(q − Q*) over the averaged rounds, at the sampled rounds.

    For i ≤ j: S_j = S_i + H_ij·q_i + noise after i, so Cov = Var S_i + H_ij·Cov(S_i, q_i); Var and Cov follow the
    recursion round by round, H_ij = η_i + φ_i·H_{i+1,j} from sample to sample.
    """
    spread = 0.0
    for rate, weight in zip(rates[:burn_in].tolist(), weights[:burn_in].tolist(), strict=True):
        spread = (1.0 - rate) ** 2 * spread + rate * rate * weight
    count = points.size
    variance, cross, decay, gain = np.empty(count), np.empty(count), np.empty(count), np.empty(count)
    sum_variance = sum_cross = 0.0
    factor, travelled, sample = 1.0, 0.0, 0
    stops = points.tolist()
    for index, (rate, weight) in enumerate(zip(rates[burn_in:].tolist(), weights[burn_in:].tolist(), strict=True)):
        keep = 1.0 - rate
        spread = keep * keep * spread + rate * rate * weight
        sum_variance += 2.0 * keep * sum_cross + spread
        sum_cross = keep * sum_cross + spread
        factor *= keep
        travelled += factor
        if index == stops[sample]:
            variance[sample], cross[sample], decay[sample], gain[sample] = sum_variance, sum_cross, factor, travelled
            factor, travelled, sample = 1.0, 0.0, sample + 1
    covariance = np.empty((count, count))
    ahead = np.zeros(count)
    for i in range(count - 1, -1, -1):
        covariance[i, i:] = covariance[i:, i] = variance[i] + cross[i] * ahead[i:]
        # H_{i−1,j} for the next turn: η and φ of the stretch that ends at sample i.
        ahead[i:] = gain[i] + decay[i] * ahead[i:]
    return covariance
