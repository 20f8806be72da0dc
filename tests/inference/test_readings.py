"""Two readings of one run, and which of them stands first."""

from __future__ import annotations

import math

import numpy as np
import pytest
from studies.any_shape.laws import Steps

from privatile.estimator.plan import RoundState, begin, step
from privatile.inference.choice import Readings, known_end, readings
from privatile.inference.trajectory import Trajectory
from privatile.simulation.default_design import AutoCell, straddle
from privatile.simulation.populations import Normal, Population
from tests.estimator.test_straddle_plan import HEAPED, plan_of, run_of


def read(law: Population, seed: int, silent: float = 0.0) -> Readings:
    plan = plan_of()
    final, record = run_of(plan, law, seed, silent)
    state: RoundState = begin(plan)
    trajectory = Trajectory()
    for ask, ones in record:
        state = step(state, ask, ones, plan)
        trajectory.record(ask, state, plan)
    assert state.memory is not None
    assert (trajectory.clients is None) == (not silent)
    return readings(plan, final, trajectory.answers, clients=trajectory.clients)


@pytest.mark.parametrize("silent", [0.0, 0.2])
def test_both_readings_hold_a_smooth_quantile_and_the_declaration_chooses(silent: float) -> None:
    for seed in (1, 2):
        both = read(Normal(1.0), seed, silent)
        assert both.headline(continuous=False) is both.any_shape
        if not both.contradiction:
            assert both.headline(continuous=True) is both.smooth
        low, high = both.any_shape.interval(0.95)
        assert low <= 1.0 <= high
        assert low <= both.any_shape.center <= high
        # Four standard errors: a probability of 6e-5 each.
        assert abs(both.smooth.center - 1.0) < 4.0 * both.smooth.error_scale
        narrow, wide = both.any_shape.interval(0.8), both.any_shape.interval(0.99)
        assert wide[0] <= low <= narrow[0]
        assert narrow[1] <= high <= wide[1]


def test_interval_and_test_agree_for_both_readings() -> None:
    both = read(Normal(1.0), 4)
    for reading in (both.any_shape, both.smooth):
        for level in (0.9, 0.95):
            low, high = reading.interval(level)
            step_in = 1e-6 * (high - low)
            assert reading.test(low - step_in)[1] < 1.0 - level < reading.test(low + step_in)[1] + 1e-9
            assert reading.test(high + step_in)[1] < 1.0 - level


def test_a_declaration_that_the_answers_contradict_does_not_choose() -> None:
    """Three values only: the curve is no estimate, and in most runs the answers show it."""
    found = [read(HEAPED, seed) for seed in range(4)]
    shown = [both.headline(continuous=True).interval(0.95) for both in found]
    assert sum(bool(both.contradiction) for both in found) >= 2
    assert all(both.any_shape.interval(0.95)[0] <= 1.0 <= both.any_shape.interval(0.95)[1] for both in found)
    assert all(math.isfinite(high - low) or both.contradiction for (low, high), both in zip(shown, found, strict=True))


def test_skew_sums_take_the_exact_tests() -> None:
    """Where F jumps to exactly 0.99 and there is hardly any noise, the normal law errs in .043 of runs, not .025."""
    cell = AutoCell((Steps((0.0, 1.0), (0.99, 0.01)),), (math.tanh(5.0),), (500,), 0.99, low=-2.0, high=3.0)
    tests = straddle(cell, 400, np.random.default_rng(7)).state.window.tests
    shape = known_end(cell.straddle_plan, tests)
    assert shape.exact
    assert float((shape.every_end(0.95)[0] >= 0.0).mean()) <= 0.025
    assert not known_end(plan_of((500,)), tests).exact
