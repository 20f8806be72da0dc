import math
from statistics import NormalDist

import numpy as np
import pytest

from privatile.core.mechanism import RandomizedResponse
from privatile.estimator.schedule import Power, lengths_by_rounds
from privatile.simulation.populations import Mixture, Normal
from privatile.simulation.theory import efficiency_bound

NORMAL = NormalDist()


def test_bound_is_the_variance_of_theorem_3_1_over_n() -> None:
    """√t_T(Q_T − Q*) has the variance ν·Σp_k²(r_k⁻² − (2F_k − 1)²) / (4(Σp_k f_k)²); ν = 1 with equal rounds."""
    weights, rates, ranks, densities = np.array([[0.3, 0.7], [0.4, 0.9], [0.2, 0.6], [0.3, 0.25]])
    variance = np.sum(weights**2 * (rates**-2 - (2 * ranks - 1) ** 2)) / (4 * np.sum(weights * densities) ** 2)
    bound = efficiency_bound(weights.tolist(), rates.tolist(), ranks.tolist(), densities.tolist(), [5000, 5000])
    assert bound == pytest.approx(math.sqrt(variance / 5000))


def shifted(rate: float, rank: float) -> float:
    """F̃ = r·F + (1 − r)/2: the law of data that are ±∞ with probability (1 − r)/2 each (Theorem 2.1)."""
    return rate * rank + (1 - rate) / 2


def test_theorem_2_1_the_private_problem_is_a_shifted_non_private_one() -> None:
    """Reports of randomized response have exactly the law of truthful reports about shifted data, and its root."""
    for rate in (0.1, 0.5, 0.9):
        mechanism = RandomizedResponse(rate)
        for rank in np.linspace(0, 1, 11).tolist():
            assert mechanism.debias(1 - shifted(rate, rank), 1) == pytest.approx(1 - rank, abs=1e-12)
            # The r⁻¹-weighted check-loss gradient of the shifted problem is that of the private update's mean.
            for level in (0.1, 0.5, 0.8):
                gradient = (shifted(rate, rank) - shifted(rate, level)) / rate
                assert gradient == pytest.approx(rank - level, abs=1e-12)


def test_theorem_2_1_by_sampling() -> None:
    """A coin below 2N − 2⁶⁴ keeps the value, N the mechanism's threshold; else it is ±∞ by a fair coin."""
    rng = np.random.default_rng(5)
    n, rate, q = 200_000, 0.6, 0.3
    coins = rng.integers(0, 2**64, n, dtype=np.uint64, endpoint=False)
    kept = coins < np.uint64(2 * RandomizedResponse(rate).threshold - 2**64)
    above = np.where(kept, rng.normal(size=n) > q, rng.random(n) < 0.5)
    expected = 1 - shifted(rate, NORMAL.cdf(q))
    error = math.sqrt(expected * (1 - expected) / n)
    assert abs(np.mean(above) - expected) < 4 * error
    assert abs(np.mean(above) - (1 - NORMAL.cdf(q))) > 4 * error  # negative control: not the raw law


def test_theorem_3_2_partial_sums_are_brownian_on_the_clock_of_the_weights() -> None:
    """Cov(𝒬_T(r_m), 𝒬_T(r_l)) ∝ min(r_m, r_l), in cohort mode with lengths that grow."""
    rng = np.random.default_rng(8)
    rounds, replications, rate = 600, 4000, 0.7
    lengths = lengths_by_rounds(Power(0.6), rounds) * 20
    clock = np.cumsum(1 / lengths) / np.sum(1 / lengths)
    steps = 12.0 / (np.arange(rounds) ** 0.51 + rounds**0.51 / 4)
    q, total = np.zeros(replications), np.zeros(replications)
    checkpoints = [int(np.searchsorted(clock, s)) for s in (0.25, 0.5, 0.75)] + [rounds - 1]
    sums = []
    for m in range(rounds):
        above = 0.5 * np.vectorize(math.erfc)(q / math.sqrt(2))
        mean = rng.binomial(lengths[m], (1 - rate) / 2 + rate * above) / lengths[m]
        q = q + steps[m] * ((mean - (1 - rate) / 2) / rate - 0.5)
        total = total + q
        if m in checkpoints:
            sums.append(total.copy())
    covariance = np.cov(np.array(sums))
    scale = covariance[-1, -1]
    for i, a in enumerate(checkpoints):
        for j, b in enumerate(checkpoints):
            expected = min(clock[a], clock[b])
            # MC error of a covariance plus the finite relaxation (about one memory length of the AR(1))
            error = math.sqrt((expected**2 + clock[a] * clock[b]) / replications)
            memory = 1.0 / (0.4 * steps[-1] * rounds)
            assert abs(covariance[i, j] / scale - expected) < 4 * error + memory
    # Negative control: the clock of the rounds (m/T) does not fit these lengths.
    a = checkpoints[1]
    assert abs(covariance[1, 1] / scale - (a + 1) / rounds) > 0.05


def test_the_quantile_of_a_mixture_moves_with_the_weights() -> None:
    laws = (Normal(0.0), Normal(2.0))
    assert Mixture(laws, (0.5, 0.5)).quantile(0.5) == pytest.approx(1.0, abs=1e-12)
    q = Mixture(laws, (0.9, 0.1)).quantile(0.5)
    assert 0.9 * laws[0].cdf(q) + 0.1 * laws[1].cdf(q) == pytest.approx(0.5, abs=1e-12)
