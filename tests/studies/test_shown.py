"""The laboratory's displayed intervals are those of results: same answers in, same ends out."""

import math

import numpy as np
import pytest
from studies.coverage.displayed_intervals import holds, self_normalized, shown
from studies.coverage.dropout import silent_runs
from studies.coverage.rounded import Rounded

from privatile.core.mechanism import RandomizedResponse
from privatile.core.scale import Identity
from privatile.estimator.auto import AutoPlan, memory_of
from privatile.estimator.clients import Client
from privatile.estimator.settings import ReportSettings
from privatile.estimator.step import begin, step
from privatile.inference.choice import read
from privatile.inference.inference import Trajectory
from privatile.simulation.auto_simulation import AutoCell, AutoRuns, fit_runs
from privatile.simulation.populations import Normal, Population

SETTINGS = ReportSettings("value", (0.5,))
SELF_NORMALIZED = ReportSettings("value", (0.5,), interval="self-normalized")


def one_run(cell: AutoCell, seed: int) -> tuple[AutoRuns, tuple[float, float], tuple[float, float]]:
    """A run by the estimator: as the laboratory would hold it, with what the result shows of it at 95%."""
    rng = np.random.default_rng(seed)
    rows = zip(cell.truth_rates, cell.shares, cell.records, strict=True)
    clients = tuple(Client(f"c{k}", RandomizedResponse(r), p, cell.level, n) for k, (r, p, n) in enumerate(rows))
    plan = AutoPlan(clients, Identity(cell.low, cell.high))
    state, trajectory = begin(plan), Trajectory()
    queries, averaged, after = [], [], []
    while (ask := plan.ask(state)) is not None:
        above = [
            (1 - r) / 2 + r * (1 - p.cdf(ask.query)) for r, p in zip(cell.truth_rates, cell.populations, strict=True)
        ]
        counts = rng.binomial(ask.lengths, above).tolist()
        state = step(state, ask, counts, plan)
        trajectory.record(ask, state, plan)
        queries.append(ask.query)
        averaged.append(ask.averaged)
        after.append(state.query)
    _, drifts, noise = trajectory.answers
    tuning = memory_of(state).tuning
    share = np.array([1.0])  # one truth rate and ranks near one half: next to nothing is known beforehand
    asked, came, spread, window = np.array([queries]), drifts[None], noise[None], np.array([averaged])
    fit = fit_runs(cell, asked, came, spread, window, share, tuning)
    runs = AutoRuns(asked, came, spread, window, np.zeros_like(asked), np.array([after]), share, tuning, fit)
    return (
        runs,
        read(SETTINGS, plan, state, trajectory)[0].interval(0.95),
        read(SELF_NORMALIZED, plan, state, trajectory)[0].interval(0.95),
    )


@pytest.mark.parametrize(
    ("population", "smooth"), [(Normal(40.0, 12.0), True), (Rounded(Normal(40.0, 12.0), 5.0), False)]
)
def test_the_laboratory_shows_what_a_result_shows(population: Population, smooth: bool) -> None:
    cell = AutoCell((population,) * 2, (0.5,) * 2, (20_000,) * 2, low=0.0, high=120.0)
    runs, expected, _ = one_run(cell, 3)
    assert bool(holds(runs)[0]) == smooth
    interval = shown(cell, runs)[0]
    # The real run knows the clients' ranks a little, which the one here does not: within 1% of the width.
    slack = 0.01 * (expected[1] - expected[0])
    assert (interval.low[0], interval.high[0]) == pytest.approx(expected, abs=slack)
    alone = runs.reach()[0]
    assert (interval.half_width[0] > 1.5 * alone) != smooth


def test_the_self_normalised_interval_of_the_laboratory_is_the_results_own() -> None:
    cell = AutoCell((Normal(40.0, 12.0),) * 2, (0.5,) * 2, (20_000,) * 2, low=0.0, high=120.0)
    runs, _, expected = one_run(cell, 4)
    interval = self_normalized(runs)
    assert (interval.low[0], interval.high[0]) == pytest.approx(expected, abs=0.01 * (expected[1] - expected[0]))


def test_silent_clients_widen_the_interval_and_it_goes_on_covering() -> None:
    cell = AutoCell((Normal(),) * 4, (0.5,) * 4, (4000,) * 4)
    runs = 60
    quiet, silent = (silent_runs(cell, runs, 7, share=share, burst=4.0) for share in (1e-9, 0.2))
    assert silent[:, 0].mean() >= 0.95 - 4 * math.sqrt(0.05 * 0.95 / runs)
    assert silent[:, 1].mean() > 1.3 * quiet[:, 1].mean()  # the noise repeated is in the width
    assert quiet[:, 1].mean() < 1.3
