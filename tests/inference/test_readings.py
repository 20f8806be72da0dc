"""Two readings of one run, and which of them stands first."""

from __future__ import annotations

import math

import numpy as np
import pytest
from studies.any_shape.laws import Steps

from privatile.estimator.plan import RoundState, begin, step
from privatile.estimator.settings import ReportSettings
from privatile.inference.inference import Inference
from privatile.inference.reading import Reading, any_shape_of
from privatile.inference.reading import read as read_run
from privatile.inference.trajectory import Trajectory
from privatile.simulation.default_design import AutoCell, simulate
from privatile.simulation.populations import Normal, Population
from tests.estimator.test_straddle_plan import HEAPED, plan_of, run_of


def read(law: Population, seed: int, silent: float = 0.0, values: str = "any") -> Reading:
    plan = plan_of()
    final, record = run_of(plan, law, seed, silent)
    state: RoundState = begin(plan)
    trajectory = Trajectory()
    for ask, ones in record:
        state = step(state, ask, ones, plan)
        trajectory.record(ask, state, plan)
    assert (trajectory.clients is None) == (not silent)
    return read_run(ReportSettings("x", (0.5,), value_kind=values), plan, final, trajectory)


def ends(reading: Inference | None) -> tuple[float, float]:
    assert reading is not None
    return reading.interval(0.95)


@pytest.mark.parametrize("silent", [0.0, 0.2])
def test_both_readings_hold_a_smooth_quantile_and_the_declaration_chooses(silent: float) -> None:
    for seed in (1, 2):
        both, declared = (read(Normal(1.0), seed, silent, values) for values in ("any", "continuous"))
        assert both.shown is both.any_shape
        assert both.smooth is not None
        if not both.contradiction:
            assert declared.shown is declared.smooth
        low, high = both.shown.interval(0.95)
        assert low <= 1.0 <= high
        assert low <= both.shown.center <= high
        # Four standard errors: a probability of 6e-5 each.
        assert abs(both.smooth.center - 1.0) < 4.0 * both.smooth.error_scale
        narrow, wide = both.shown.interval(0.8), both.shown.interval(0.99)
        assert wide[0] <= low <= narrow[0]
        assert narrow[1] <= high <= wide[1]


def test_interval_and_test_agree_for_both_readings() -> None:
    both = read(Normal(1.0), 4)
    for reading in (both.any_shape, both.smooth):
        assert reading is not None
        for level in (0.9, 0.95):
            low, high = reading.interval(level)
            step_in = 1e-6 * (high - low)
            assert reading.test(low - step_in)[1] < 1.0 - level < reading.test(low + step_in)[1] + 1e-9
            assert reading.test(high + step_in)[1] < 1.0 - level


def test_a_declaration_that_the_answers_contradict_does_not_choose() -> None:
    """Three values only: the curve is no estimate, and in most runs the answers show it."""
    found = [read(HEAPED, seed, values="continuous") for seed in range(4)]
    assert sum(bool(both.contradiction) for both in found) >= 2
    assert all(ends(both.any_shape)[0] <= 1.0 <= ends(both.any_shape)[1] for both in found)
    assert all(both.contradiction or math.isfinite(ends(both.shown)[1] - ends(both.shown)[0]) for both in found)


def test_skew_sums_take_the_exact_tests() -> None:
    """Where F jumps to exactly 0.99 and there is hardly any noise, the normal law errs in .043 of runs, not .025."""
    cell = AutoCell((Steps((0.0, 1.0), (0.99, 0.01)),), (math.tanh(5.0),), (500,), 0.99, low=-2.0, high=3.0)
    runs = simulate(cell, cell.straddle_plan, 240, np.random.default_rng(7))
    assert cell.straddle_plan.exact
    assert float((runs.ends(0.95)[0] >= 0.0).mean()) <= 0.025
    assert not any_shape_of(plan_of((500,)), runs.runs[0]).exact
