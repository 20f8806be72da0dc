"""The questions between which the quantile lies: at a look that was chosen while looking their bound is wider."""

import math
from dataclasses import replace

import numpy as np
import pytest
from studies.any_shape.cells import HARD, RATE, make_cell

from privatile.core.arrays import Floats
from privatile.estimator.settings import ReportSettings
from privatile.inference.any_shape import Bracket
from privatile.inference.curve import fit_run
from privatile.inference.reading import asked_share, read
from privatile.simulation.default_design import AutoCell, simulate

ROUNDS = 200


def bracket(queries: Floats, residuals: Floats, center: float = 0.0, reach: float = 0.5) -> Bracket:
    return Bracket(queries, residuals[:, None], np.ones((len(queries), 1)), np.ones(1), center, reach)


@pytest.mark.parametrize("share", [0.05, 0.3, 1.0])
def test_the_ends_for_every_look_lie_outside_those_for_a_planned_end(share: float) -> None:
    queries, strictly = np.linspace(-2.0, 2.0, ROUNDS), 0
    for seed in range(10):
        noise = np.random.default_rng(seed).normal(size=ROUNDS)
        stretches = bracket(queries, noise - 1.5 * queries)
        low, high = stretches.ends(0.95)
        lower, higher = stretches.ends_at_every_look(0.95, share)
        assert lower <= low < 0.0 < high <= higher
        # Both end at one of few questions; on one side or the other they differ nearly always.
        strictly += lower < low or high < higher
    assert strictly >= 8


def test_whoever_looks_often_is_fooled_by_the_ends_for_a_planned_end_and_not_by_the_others() -> None:
    """Half of the values are −1, the others 1, and every question lies between: a lower end above −1 is a miss."""
    rng, runs = np.random.default_rng(9), 80
    missed = np.zeros((runs, 2), dtype=bool)
    for run in range(runs):
        queries, residuals = rng.uniform(0.0, 0.1, ROUNDS), rng.normal(size=ROUNDS)
        for asked in range(10, ROUNDS + 1, 10):
            stretches = bracket(queries[:asked], residuals[:asked], center=0.2, reach=5.0)
            both = stretches.ends(0.95), stretches.ends_at_every_look(0.95, asked / ROUNDS)
            missed[run] |= [low > -1.0 for low, _ in both]
    at_the_end, at_every_look = missed.mean(axis=0).tolist()
    doubt = 2.0 * math.sqrt(0.05 * 0.95 / runs)
    assert at_every_look <= 0.05
    assert at_the_end > 0.05 + doubt


@pytest.mark.parametrize("trusted", [True, False])
def test_the_any_shape_interval_of_a_look_holds_the_ends_for_every_look(trusted: bool) -> None:
    """It would hold those for a planned end too, which are narrower: they must not be all that it holds."""
    law, level, (low, high) = HARD["two values"]
    cell = AutoCell((law,), (RATE,), (20_000,), level, low=low, high=high, rounds=60)
    if trusted:
        cell = replace(make_cell("normal", 1, 0.5, 0.5, 3000.0), rounds=60)
    narrower = 0
    settings = ReportSettings("x", (cell.level,), value_kind="continuous", until_width=1.0)
    runs = simulate(cell, cell.plan, 1, np.random.default_rng(5))
    for rounds in range(30, 61, 10):
        state, trajectory = runs.state(0, rounds)
        if state.averages.rounds < 10:
            continue
        seen, curve = (
            read(settings, cell.plan, state, trajectory),
            fit_run(state, trajectory, cell.plan, guess=runs.runs[0].slope),
        )
        shown = seen.anytime if seen.anytime is not None and seen.anytime.is_any_shape else seen.beside_anytime
        assert shown is not None
        assert (seen.beside_anytime is None) == (curve.fit.suspect or curve.fit.slope_clipped)
        share = asked_share(cell.plan, state)
        outer, planned = curve.anytime_bracket(share).interval(0.95), curve.bracket.interval(0.95)
        found = shown.interval(0.95)
        assert found[0] <= outer[0] <= planned[0] <= planned[1] <= outer[1] <= found[1]
        narrower += outer[0] < planned[0] or planned[1] < outer[1]
    assert narrower
