"""The linear model of a run: the reference values, its definition by simulation, its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privatile.core.arrays import Floats
from privatile.errors import InputError
from privatile.laws.critical import critical_value
from privatile.laws.linear_model import (
    hat_weights,
    linear_law,
    partial_sum_covariance,
    sampled_rounds,
)


def step_table(rounds: int, target: float) -> tuple[Floats, int]:
    """γ_m = A/(m^0.51 + T^0.51/4) with `target` relaxations (slope 1) after a tenth of the rounds."""
    burn_in = rounds // 10
    table = 1.0 / (np.arange(rounds) ** 0.51 + rounds**0.51 / 4.0)
    return table * (target / table[burn_in:].sum()), burn_in


@pytest.mark.parametrize(
    ("target", "expected"),
    [(12, 9.67), (18, 8.66), (27, 7.99), (40, 7.56), (60, 7.26), (90, 7.06), (140, 6.91)],
)
def test_reference_values_at_300_rounds(target: float, expected: float) -> None:
    steps, burn_in = step_table(300, target)
    assert linear_law(steps, np.ones(300), 1.0, burn_in).quantile(0.95) == pytest.approx(expected, abs=0.006)


def test_reference_value_at_200_rounds() -> None:
    steps, burn_in = step_table(200, 60.0)
    assert steps[burn_in:].sum() == pytest.approx(60.0)
    # Only steps·slope matters, and the noise only up to scale.
    v = linear_law(steps / 8.0, np.full(200, 3.0), 8.0, burn_in).quantile(0.95)
    assert v == pytest.approx(7.22, abs=0.006)


def test_many_relaxations_tend_to_the_brownian_value() -> None:
    gaps = []
    for target in (50.0, 200.0, 800.0):
        steps, burn_in = step_table(40_000, target)
        gaps.append(linear_law(steps, np.ones(40_000), 1.0, burn_in).quantile(0.95) - 6.7473)
    assert gaps[0] > gaps[1] > gaps[2] > 0.0
    assert gaps[2] < 0.06


def simulated_statistics(steps: Floats, weights: Floats, burn_in: int, replications: int, seed: int) -> Floats:
    """|Q_T|/√V of the recursion itself, slope 1, round by round."""
    rng = np.random.default_rng(seed)
    q = np.zeros(replications)
    sums = np.zeros(replications)
    running = []
    for m, (step, weight) in enumerate(zip(steps, weights, strict=True)):
        q = q + step * (-q + math.sqrt(weight) * rng.standard_normal(replications))
        if m >= burn_in:
            sums = sums + q
            running.append(sums / (m - burn_in + 1))
    count = len(running)
    share = weights[burn_in:] / weights[burn_in:].sum()
    normalizer = sum(
        d * ((m + 1) / count) ** 2 * (mean - running[-1]) ** 2
        for m, (d, mean) in enumerate(zip(share, running, strict=True))
    )
    statistic: Floats = np.abs(running[-1]) / np.sqrt(normalizer)
    return statistic


@pytest.mark.statistical
@pytest.mark.parametrize("burn_in", [0, 7])
def test_simulation_of_the_recursion(burn_in: int) -> None:
    rng = np.random.default_rng(4)
    steps = rng.uniform(0.05, 1.2, 60)
    weights = rng.lognormal(0.0, 1.0, 60)
    replications = 100_000
    statistics = simulated_statistics(steps, weights, burn_in, replications, seed=burn_in)
    for level in (0.5, 0.95, 0.99):
        v = linear_law(steps, weights, 1.0, burn_in).quantile(level)
        error = math.sqrt(level * (1.0 - level) / replications)
        assert abs(float(np.mean(statistics <= v)) - level) < 4.0 * error


@pytest.mark.statistical
def test_the_brownian_value_is_too_small_for_few_relaxations() -> None:
    """Negative control, and the reason for the model: at 12 relaxations the limit's value under-covers."""
    steps, burn_in = step_table(100, 12.0)
    replications = 20_000
    statistics = simulated_statistics(steps, np.ones(100), burn_in, replications, seed=9)
    short = float(np.mean(statistics <= critical_value(np.ones(90)).value))
    assert short < 0.95 - 10.0 * math.sqrt(0.95 * 0.05 / replications)
    assert linear_law(steps, np.ones(100), 1.0, burn_in).tail(critical_value(np.ones(90)).value) == pytest.approx(
        1.0 - short, abs=4.0 * math.sqrt(0.95 * 0.05 / replications) * 1.5
    )


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 1.0], ids=["even", "log-normal"])
def test_sampling_a_long_window_changes_nothing_that_matters(noise: float, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.random.default_rng(6).lognormal(0.0, noise, 900)
    steps, burn_in = step_table(900, 60.0)
    sampled = linear_law(steps, weights, 1.0, burn_in).quantile(0.95)
    assert sampled_rounds(steps[burn_in:], weights[burn_in:]).size < 330
    monkeypatch.setattr("privatile.laws.linear_model.sampled_rounds", lambda rates, _: np.arange(rates.size))
    full = linear_law(steps, weights, 1.0, burn_in).quantile(0.95)
    assert sampled != full
    assert sampled == pytest.approx(full, abs=1e-4)


def test_the_covariance_by_its_definition() -> None:
    rng = np.random.default_rng(8)
    rates, weights, burn_in = rng.uniform(0.1, 1.5, 12), rng.uniform(0.5, 2.0, 12), 3
    response = np.zeros((12, 12))
    for m in range(12):
        response[m] = (1.0 - rates[m]) * response[m - 1] if m else 0.0
        response[m, m] = rates[m]
    sums = np.cumsum(response[burn_in:], axis=0)
    points = np.array([1, 2, 5, 8])
    expected = ((sums * weights) @ sums.T)[np.ix_(points, points)]
    np.testing.assert_allclose(partial_sum_covariance(rates, weights, burn_in, points), expected, rtol=1e-12)


def test_hat_weights_keep_straight_lines() -> None:
    increments = np.random.default_rng(2).uniform(size=30)
    points = np.array([3, 10, 11, 29])
    assert hat_weights(increments, points) @ (points + 1) == pytest.approx(increments @ np.arange(1, 31))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": [0.1, -0.1, 0.1, 0.1]}, "steps must be positive"),
        ({"noise_weights": [1, 1, math.nan, 1]}, "noise_weights must be positive"),
        ({"slope": 30.0}, "unstable"),
    ],
)
def test_wrong_input_is_refused(changes: dict[str, object], words: str) -> None:
    arguments: dict[str, object] = {"steps": [0.1] * 4, "noise_weights": [1.0] * 4, "slope": 1.0}
    with pytest.raises(InputError, match=words):
        linear_law(**(arguments | changes))  # type: ignore[arg-type]
