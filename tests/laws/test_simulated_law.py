"""The l1 and sup normalisers: against a known limit, against the definition, against no coarsening."""

from __future__ import annotations

import math
import os
from typing import Literal

import numpy as np
import pytest

from privatile.core.arrays import Floats
from privatile.laws.critical import clock_increments, critical_value, statistic_law
from privatile.laws.simulated import SimulatedLaw, draw_paths, path_grid, simulated_law

Simulated = Literal["l1", "sup"]
BOTH: tuple[Simulated, ...] = ("l1", "sup")


def odd_weights(rounds: int) -> Floats:
    rng = np.random.default_rng(rounds)
    return np.where(rng.random(rounds) < 0.1, 8.0, 0.5) * rng.lognormal(0.0, 0.5, rounds)


@pytest.mark.slow
def test_sup_of_a_long_constant_schedule_is_kolmogorovs() -> None:
    """max|bridge| has Kolmogorov's law and is independent of B(1): P(|S| > v) = E[2Φ̄(v·K)]."""
    stats = pytest.importorskip("scipy.stats")
    v = critical_value(np.ones(1_000_000), normalizer="sup")
    size = np.linspace(1e-3, 4.0, 40_001)
    tails = 2.0 * stats.norm.sf(v.value * size)
    exact = float(np.trapezoid(tails * stats.kstwobign.pdf(size), size))
    slope = (
        exact - float(np.trapezoid(2.0 * stats.norm.sf(1.01 * v.value * size) * stats.kstwobign.pdf(size), size))
    ) / (0.01 * v.value)
    assert v.method == "simulated"
    # Four standard errors, and 0.1% for the grid.
    assert abs(exact - 0.05) < slope * (4.0 * v.standard_error + 0.001 * v.value)


def simulated_statistics(weights: Floats, normalizer: Simulated, replications: int, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    increments = clock_increments(weights=weights)
    path = np.cumsum(rng.standard_normal((replications, weights.size)) * np.sqrt(increments), axis=1)
    end = path[:, -1].copy()
    path -= np.arange(1, weights.size + 1) / weights.size * end[:, None]
    size = np.abs(path)
    radius: Floats = size @ increments if normalizer == "l1" else size.max(axis=1)
    statistic: Floats = np.abs(end) / radius
    return statistic


@pytest.mark.statistical
@pytest.mark.parametrize("normalizer", BOTH)
@pytest.mark.parametrize("rounds", [6, 80])
def test_simulation_of_the_definition(normalizer: Simulated, rounds: int) -> None:
    weights = odd_weights(rounds)
    replications = 200_000
    statistics = simulated_statistics(weights, normalizer, replications, seed=21)
    law = simulated_law(clock_increments(weights=weights), normalizer)
    for level in (0.5, 0.95):
        v = law.quantile(level)
        # Two independent errors: that of this share, and that of the tail behind v.
        error = math.hypot(
            math.sqrt(level * (1.0 - level) / replications), float(law._tails(v).std()) / math.sqrt(law.radius.size)
        )
        assert abs(float(np.mean(statistics <= v)) - level) < 4.0 * error


@pytest.mark.statistical
@pytest.mark.parametrize("schedule", ["constant", "odd", "warm-up"])
def test_blocks_agree_with_every_round(schedule: str) -> None:
    weights = {
        "constant": np.ones(2_000),
        "odd": odd_weights(2_000),
        "warm-up": np.concatenate([np.ones(100), np.full(1_900, 0.05)]),
    }[schedule]
    increments = clock_increments(weights=weights)
    count = 20_000 if os.environ.get("PRIVATILE_LONG") else 8_000
    every = draw_paths(path_grid(increments, 10**9), count, np.random.default_rng(31))
    assert path_grid(increments).clock.size < 700
    for normalizer in BOTH:
        full = SimulatedLaw(getattr(every, normalizer), every.mean, math.sqrt(every.variance))
        v = critical_value(weights=weights, normalizer=normalizer)
        error = math.hypot(full.quantile_standard_error(0.95), v.standard_error)
        assert abs(v.value - full.quantile(0.95)) < 4.0 * error


@pytest.mark.statistical
def test_looking_only_at_block_ends_would_be_seen() -> None:
    """Negative control: without what is unseen inside blocks the sup is too small by far more than the error."""
    increments = np.full(100_000, 1e-5)
    grid = path_grid(increments)
    blind = draw_paths(grid._replace(unseen=np.zeros(grid.clock.size)), 20_000, np.random.default_rng(32))
    wrong = SimulatedLaw(blind.sup, blind.mean, math.sqrt(blind.variance))
    right = simulated_law(increments, "sup")
    error = math.hypot(wrong.quantile_standard_error(0.95), right.quantile_standard_error(0.95))
    assert wrong.quantile(0.95) - right.quantile(0.95) > 8.0 * error


@pytest.mark.statistical
def test_the_stated_error_is_the_spread_over_seeds() -> None:
    grid = path_grid(np.full(40, 1 / 40))
    laws = []
    for seed in range(40):
        drawn = draw_paths(grid, 4_096, np.random.default_rng(seed))
        laws.append(SimulatedLaw(drawn.l1, drawn.mean, math.sqrt(drawn.variance)))
    spread = float(np.std([law.quantile(0.95) for law in laws], ddof=1))
    stated = float(np.mean([law.quantile_standard_error(0.95) for law in laws]))
    # A standard deviation from 40 values has a relative error of 1/√78.
    assert abs(spread / stated - 1.0) < 4.0 / math.sqrt(78.0)


@pytest.mark.parametrize("normalizer", BOTH)
def test_values_are_reproducible_and_invert(normalizer: Simulated) -> None:
    v = critical_value(np.ones(50), 0.9, normalizer)
    assert v == critical_value(np.ones(50), 0.9, normalizer)
    assert 0.0 < v.standard_error < 0.01 * v.value
    assert statistic_law(lengths=np.ones(50), normalizer=normalizer).tail(v.value) == pytest.approx(0.1, rel=1e-8)
    assert statistic_law(lengths=np.ones(50), normalizer=normalizer).tail(0.0) == 1.0
    assert statistic_law(lengths=np.ones(50), normalizer=normalizer).tail(math.inf) == 0.0


@pytest.mark.parametrize("normalizer", BOTH)
def test_endpoint_variance(normalizer: Simulated) -> None:
    plain = critical_value(np.ones(30), normalizer=normalizer)
    lowered = critical_value(np.ones(30), normalizer=normalizer, endpoint_variance=0.25)
    # For constant lengths the endpoint is independent of the path: μ = 0 and v scales with √κ, path by path.
    assert lowered.value == pytest.approx(0.5 * plain.value, rel=1e-6)
