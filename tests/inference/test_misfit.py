"""Distributions with steps and gaps: found from the answers, and given an interval that does not need a curve."""

import math
import os
from dataclasses import dataclass

import numpy as np
import pytest

from privatile.api.estimate import estimate
from privatile.inference.any_shape import Bracket
from privatile.inference.curve import MAX_MISFIT, fit_run
from privatile.simulation.default_design import AutoCell, SimulatedRuns, displayed_intervals, simulate
from privatile.simulation.populations import Normal, Population


@dataclass(frozen=True)
class Stepped:
    """N(43.3, 15) in whole numbers: F jumps at each of them, and stands still between."""

    def cdf(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(Normal(43.3, 15.0).cdf(np.floor(values) + 1.0))


@dataclass(frozen=True)
class Humps:
    """½N(30, 4) + ½N(70, 4): F stands still at ½."""

    def cdf(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(0.5 * Normal(30.0, 4.0).cdf(values) + 0.5 * Normal(70.0, 4.0).cdf(values))


def run(population: object, records: int, epsilon: float, runs: int) -> SimulatedRuns:
    assert hasattr(population, "cdf")
    many: tuple[Population, ...] = (population,)  # type: ignore[assignment]
    cell = AutoCell(many, (math.tanh(epsilon / 2),), (records,), low=0.0, high=120.0)
    return simulate(cell, cell.plan, runs, np.random.default_rng(11))


def test_smooth_runs_seldom_raise_a_false_alarm() -> None:
    fits = [reading.fit for reading in run(Normal(43.3, 15.0), 30_000, 1.0, 240).readings() if reading.fit is not None]
    # At most 2% in the long run; four standard errors of 240 runs on top.
    assert float(np.mean([not fit.smooth for fit in fits])) <= 0.02 + 4 * math.sqrt(0.02 * 0.98 / 240)
    assert 4.0 < float(np.mean([fit.misfit for fit in fits])) < 8.0  # χ² with some six degrees of freedom


@pytest.mark.parametrize(
    ("population", "records", "truth", "found"), [(Stepped(), 200_000, 43.0, 0.8), (Humps(), 20_000, 50.0, 0.75)]
)
def test_steps_and_gaps_are_found_and_bracketed(population: object, records: int, truth: float, found: float) -> None:
    runs = run(population, records, 2.0, 200)
    readings = runs.readings("smooth")
    seen = [
        fit.suspect or fit.slope_clipped or fit.slope_error > 0.35
        for fit in (reading.fit for reading in readings)
        if fit is not None
    ]
    assert float(np.mean(seen)) > found
    covered = displayed_intervals(runs, readings=readings)[0].covers(truth)
    assert float(covered.mean()) < 0.85  # the curve's interval alone: what the bracket is for
    brackets = []
    for k, learned in enumerate(runs.runs):
        state, trajectory = runs.state(k)
        brackets.append(fit_run(state, trajectory, runs.plan, guess=learned.slope).bracket.interval(0.95))
    low, high = np.array(brackets).T
    assert float(((low <= truth) & (truth <= high)).mean()) >= 0.95 - 4 * math.sqrt(0.05 * 0.95 / 200)


def test_a_bracket_narrows_where_the_answers_are_clear() -> None:
    queries = np.linspace(0.0, 10.0, 101)
    residuals = np.where(queries < 5.0, 0.3, -0.3)
    low, high = Bracket(queries, residuals[:, None], np.full((101, 1), 1e4), np.ones(1), 5.0, 2.0).ends(0.95)
    assert 3.0 <= low < 5.0 < high <= 7.0
    assert Bracket(queries, 0.0 * residuals[:, None], np.full((101, 1), 1e4), np.ones(1), 5.0, 2.0).ends(0.95) == (
        -math.inf,
        math.inf,
    )


def test_whole_numbers_declared_continuous_are_found_out_and_covered() -> None:
    ages = {"all": np.floor(np.clip(np.random.default_rng(1).normal(43.3, 15, 200_000), 0, 99))}
    result = estimate(ages, q=0.5, epsilon=2, range=(0, 120), value_kind="continuous", simulate=True, rng=1)
    assert "declaration" in {caveat.code for caveat in result.caveats}
    assert "the answers do not follow a smooth curve" in result.contradiction
    assert result.method == "any-shape"
    assert result.other is None
    assert result.confidence_interval.low <= 43.0 <= result.confidence_interval.high
    shown = {row.key: row.value for row in result.rows()}
    assert shown["misfit"] > MAX_MISFIT
    dithered = estimate(
        ages, q=0.5, epsilon=2, range=(0, 120), value_kind="continuous", dither=1.0, simulate=True, rng=1
    )
    assert dithered.method == "smooth"
    assert not dithered.contradiction


@pytest.mark.slow
def test_whole_years_are_covered_and_the_grid_leaves_a_few() -> None:
    """Few enough records that their steps drown in the noise: no diagnostic is needed to be honest."""
    smooth = 0
    for seed in range(6 if os.environ.get("PRIVATILE_LONG") else 4):
        ages = {"all": np.rint(np.random.default_rng(seed).normal(40.2, 12.0, 40_000))}
        got = estimate(ages, q=0.5, epsilon=1.1, range=(0, 120), value_kind="whole", simulate=True, rng=seed)
        assert got.confidence_interval.low <= 40.0 <= got.confidence_interval.high
        assert got.grid_values is not None
        assert 40.0 in got.grid_values
        assert len(got.grid_values) <= 5
        # The same questions, undeclared: a declared grid leaves the smooth interval out.
        other = estimate(ages, q=0.5, epsilon=1.1, range=(0, 120), simulate=True, rng=seed).other
        smooth += other is not None and not other.interval.low <= 40.0 <= other.interval.high
    assert smooth >= 1  # the control: the curve's interval misses
