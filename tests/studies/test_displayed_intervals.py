"""Simulations score what results show: the same answers give the same interval."""

import math
import os
from dataclasses import replace

import numpy as np
import pytest
from studies.coverage.dropout import silent_runs
from studies.coverage.heaped import Rounded

from privatile.core.kinds import IntervalName
from privatile.estimator.plan import begin, step
from privatile.estimator.tuned import memory_of
from privatile.inference.inference import variance_share
from privatile.inference.trajectory import Trajectory
from privatile.result.result import QuantileResult
from privatile.result.summary import summarize
from privatile.simulation.default_design import AutoCell, AutoRuns, displayed_intervals, settings_of
from privatile.simulation.populations import Normal, Population


def one_run(cell: AutoCell, seed: int, interval: IntervalName) -> tuple[AutoRuns, QuantileResult]:
    """A run by the estimator, as a simulation would hold it and with its result."""
    rng = np.random.default_rng(seed)
    plan, rates = cell.plan, np.array(cell.truth_rates)
    state, trajectory = begin(plan), Trajectory()
    rows = []
    while (ask := plan.ask(state)) is not None:
        ranks = np.array([population.cdf(ask.query) for population in cell.populations])
        counts = rng.binomial(ask.lengths, (1 - rates) / 2 + rates * (1 - ranks)).tolist()
        state = step(state, ask, counts, plan)
        trajectory.record(ask, state, plan)
        rows.append((ask.query, ask.averaged, state.query))
    _, drifts, noise = trajectory.answers
    queries, averaged, after = (np.array([column]) for column in zip(*rows, strict=True))
    share, tuning = np.array([variance_share(state, plan)]), memory_of(state).tuning
    asked = np.ones_like(queries)
    runs = AutoRuns(cell.level, queries, drifts[None], noise[None], averaged, asked, after, share, tuning)
    return runs, summarize(replace(settings_of(cell), interval=interval), plan, state, trajectory, run="r")


@pytest.mark.parametrize("interval", ["default", "smooth", "self-normalized", "paper"])
@pytest.mark.parametrize(
    ("population", "smooth"), [(Normal(40.0, 12.0), True), (Rounded(Normal(40.0, 12.0), 5.0), False)]
)
def test_a_simulation_scores_what_a_result_shows(population: Population, smooth: bool, interval: IntervalName) -> None:
    cell = AutoCell((population,) * 2, (0.5,) * 2, (20_000,) * 2, low=0.0, high=120.0)
    runs, result = one_run(cell, 3, interval)
    assert bool(runs.fit.holds[0]) == smooth
    simulated = displayed_intervals(cell, runs, interval=interval)[0]
    shown = (result.estimate, *result.confidence_interval)
    assert [column[0] for column in simulated] == pytest.approx(shown, rel=1e-9)
    if interval == "default":
        alone = displayed_intervals(cell, runs, interval="smooth")[0]
        assert (simulated.half_width[0] > 1.5 * alone.half_width[0]) != smooth


@pytest.mark.slow
def test_silent_clients_widen_the_interval_and_it_still_covers() -> None:
    cell = AutoCell((Normal(),) * 4, (0.5,) * 4, (4000,) * 4)
    runs = 40 if os.environ.get("PRIVATILE_LONG") else 16
    quiet, silent = (silent_runs(cell, runs, 7, share=share, burst=4.0) for share in (1e-9, 0.2))
    assert silent[:, 0].mean() >= 0.95 - 4 * math.sqrt(0.05 * 0.95 / runs)
    # A fifth of the answers is missing, and no other noise comes in: √(1/0.8) = 1.12. Repeated answers gave 1.5.
    assert 1.04 < np.median(silent[:, 1]) / np.median(quiet[:, 1]) < 1.3
    assert quiet[:, 1].mean() < 1.3
