"""The interval of values declared continuous in simulation: one cell again, and mistakes that must be noticed."""

import math
import os
from dataclasses import replace

import numpy as np
import pytest
from studies.coverage.coverage import make_cell
from studies.coverage.stopping import stopping

from privatile.core.mechanism import RandomizedResponse
from privatile.core.scale import Identity
from privatile.estimator.clients import Client
from privatile.estimator.plan import begin, step
from privatile.estimator.tuned import AutoPlan
from privatile.inference.curve import fit_run
from privatile.inference.inference import variance_share
from privatile.inference.trajectory import Trajectory
from privatile.laws.ratio import fieller_reach
from privatile.simulation.default_design import AutoCell, SimulatedRuns, displayed_intervals, simulate

pytestmark = pytest.mark.statistical
RUNS = 600


def error_of(share: float, runs: int = RUNS) -> float:
    """Four Monte Carlo standard errors of a share."""
    return 4 * math.sqrt(share * (1 - share) / runs)


@pytest.fixture(scope="module")
def cell() -> AutoCell:
    return make_cell("test", family="hete-l", clients=10, truth_rate=0.5, level=0.8, information=1000)


@pytest.fixture(scope="module")
def runs(cell: AutoCell) -> SimulatedRuns:
    return simulate(cell, cell.plan, RUNS, np.random.default_rng(11))


def test_coverage_error_and_width_at_the_edge_of_the_supported_region(cell: AutoCell, runs: SimulatedRuns) -> None:
    levels = (0.90, 0.95, 0.99)
    shown = displayed_intervals(runs, levels)
    for level, intervals in zip(levels, shown, strict=True):
        assert float(intervals.covers(cell.truth).mean()) == pytest.approx(level, abs=error_of(level) + 0.01)
    off = np.abs(shown[1].center - cell.truth)
    # The mean of |normal| draws is known within 0.756/√runs of itself.
    error = float(off.mean()) / (math.sqrt(2 / math.pi) * cell.bound)
    assert error <= 1.12 + 4 * 0.756 / math.sqrt(RUNS)
    assert float(shown[1].half_width.mean()) / (1.959964 * cell.bound) <= 1.20


def test_a_forgotten_debiasing_is_noticed() -> None:
    """Reports taken at face value are r times too close to one half: every residual is r·y + (1 − r)(τ − ½)."""
    rate = 0.9  # nearer to the truth than most: even this little shows
    cell = make_cell("test", family="hete-l", clients=10, truth_rate=rate, level=0.8, information=2500)
    runs = simulate(cell, cell.plan, RUNS // 3, np.random.default_rng(14))
    wrong = rate * runs.residuals + (1 - rate) * (cell.level - 0.5)
    wrongly = replace(runs, residuals=wrong, noise=runs.noise * rate**2)
    covered = float(displayed_intervals(wrongly, readings=wrongly.readings("smooth"))[0].covers(cell.truth).mean())
    assert covered < 0.5


def test_noise_that_counts_dropped_records_is_noticed(cell: AutoCell, runs: SimulatedRuns) -> None:
    """The first half of the rounds is dropped, but s² is computed as if its records had been averaged too."""
    rounds = runs.queries.shape[1]
    kept = np.arange(rounds) >= rounds // 2
    honest = np.where(kept, runs.noise, np.inf)
    fits = replace(runs, noise=honest, averaged=runs.averaged & kept).readings()
    center, error, _, slope_error = np.array([one.fit[:4] for one in fits if one.fit is not None]).T
    covered = {}
    for name, share in (("honest", 1.0), ("counted", 0.5)):
        reach = math.sqrt(share) * error * fieller_reach(1.96, slope_error)
        covered[name] = float((np.abs(center - cell.truth) <= reach).mean())
    assert covered["honest"] == pytest.approx(0.95, abs=error_of(0.95) + 0.02)
    assert covered["counted"] < 0.95 - 2 * error_of(0.95)


def test_the_normal_value_at_few_relaxations_is_noticed(cell: AutoCell) -> None:
    """Polyak mean ± 1.96·s/f̂ with f̂ regressed on 20 relaxations of the path alone: too narrow, as it must be."""
    few = replace(cell, relaxations=20.0)
    found = simulate(few, few.plan, RUNS, np.random.default_rng(15))
    left = np.array([variance_share(found.state(run)[0], found.plan) for run in range(RUNS)])
    weights = np.where(found.averaged, 1.0, 0.0)
    mean = (weights * found.queries).sum(axis=1) / weights.sum(axis=1)
    drift = (weights * found.residuals).sum(axis=1) / weights.sum(axis=1)
    x = weights * (found.queries - mean[:, None])
    slope = -(x * (found.residuals - drift[:, None])).sum(axis=1) / (x * x).sum(axis=1)
    noise = np.sqrt((weights * found.noise).sum(axis=1) * left) / weights.sum(axis=1)
    covered = float((np.abs(mean - cell.truth) <= 1.96 * noise / np.maximum(slope, 1e-9)).mean())
    assert covered < 0.95 - error_of(0.95)


def test_the_sequence_misses_rarely_and_the_fixed_interval_often(cell: AutoCell) -> None:
    count = 400 if os.environ.get("PRIVATILE_LONG") else 120
    runs = simulate(cell, cell.plan, count, np.random.default_rng(19))
    every = runs.queries.shape[1] // 12
    found = stopping(runs, half_width=4 * cell.bound, every=every)
    assert found.ever_missed <= 0.05 + error_of(0.05, count)


def test_the_file_itself_is_covered_by_an_interval_of_half_the_width() -> None:
    """One fixed file per run, every record asked once, r = 0.9: the file's own median, not the population's."""
    rng = np.random.default_rng(18)
    n, rate, runs = 4000, 0.9, 80 if os.environ.get("PRIVATILE_LONG") else 50
    plan = AutoPlan((Client("a", RandomizedResponse(rate), 1.0, 0.5, n),), Identity(-10.0, 10.0))
    covered = {"file": 0, "population": 0}
    ratios = []
    for _ in range(runs):
        data = rng.standard_normal(n)
        truth, used = float(np.median(data)), 0
        state, trajectory = begin(plan), Trajectory()
        while (ask := plan.ask(state)) is not None:
            length = ask.lengths[0]
            truths = data[used : used + length] > ask.query
            used += length
            state = step(state, ask, [int((truths ^ (rng.random(length) >= (1 + rate) / 2)).sum())], plan)
            trajectory.record(ask, state, plan)
        widths = {}
        for name in covered:
            low, high = fit_run(state, trajectory, plan, file=name == "file").inference.interval(0.95)
            covered[name] += low <= truth <= high
            widths[name] = high - low
        ratios.append(widths["file"] / widths["population"])
    assert covered["file"] / runs == pytest.approx(0.95, abs=error_of(0.95, runs))
    assert covered["population"] / runs > 0.97  # it is about more people than the file holds
    assert 0.45 < float(np.mean(ratios)) < 0.7
