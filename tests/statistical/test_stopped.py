"""A run that was looked at and stopped by what it showed: both of its intervals hold, the one for an end does not.

Whoever may stop at any look can wait for one at which the interval misses. So what is counted is whether it ever does.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from studies.any_shape.cells import HARD, RATE, make_cell
from studies.any_shape.stopped import RESULTS, Stopped, cells, ever_missed
from studies.coverage.rows import read_rows

from privatile.simulation.default_design import AutoCell

pytestmark = pytest.mark.statistical

RUNS = 40
ALLOWED = 0.05 + 2.0 * math.sqrt(0.05 * 0.95 / RUNS)


@pytest.mark.parametrize("values", ["any", "continuous"])
def test_both_intervals_hold_at_every_stop_and_the_one_for_a_planned_end_does_not(values: str) -> None:
    cell, rng = replace(make_cell("normal", 1, 0.5, 0.5, 3000.0), rounds=60), np.random.default_rng([17, len(values)])
    any_shape, smooth, fixed = np.mean([ever_missed(cell, values, rng, 3) for _ in range(RUNS)], axis=0).tolist()
    assert any_shape <= ALLOWED
    assert smooth <= ALLOWED
    assert fixed > ALLOWED  # the control: Fieller's interval at a chosen stop


@pytest.mark.parametrize("values", ["any", "continuous"])
def test_where_most_values_are_shared_the_any_shape_interval_holds_at_every_stop(values: str) -> None:
    law, level, (low, high) = HARD["two values"]
    cell = AutoCell((law,), (RATE,), (20_000,), level, low=low, high=high, rounds=40)
    rng = np.random.default_rng([18, len(values)])
    any_shape, _, fixed = np.mean([ever_missed(cell, values, rng, 4) for _ in range(RUNS // 2)], axis=0).tolist()
    allowed = 0.05 + 2.0 * math.sqrt(0.05 * 0.95 / (RUNS // 2))
    assert any_shape <= allowed
    assert fixed > allowed  # the control


def test_the_committed_runs_hold_at_every_stop() -> None:
    rows = read_rows(RESULTS, Stopped)
    assert {row.cell for row in rows} <= {name for name, _ in cells()}
    assert {(row.cell.split(":")[0], row.values) for row in rows} >= {("smooth", "any"), ("smooth", "continuous")}
    for row in rows:
        allowed = 0.05 + 2.0 * math.sqrt(0.05 * 0.95 / row.runs)
        assert row.any_shape <= allowed, row
        if row.cell.startswith("smooth"):
            assert row.smooth <= allowed, row
            assert row.fixed > allowed, row
