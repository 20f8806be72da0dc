import math

import pytest
from studies.coverage.calibrate import RELAXATIONS, RUNS, TABLE, Calibration, calibrate
from studies.coverage.rows import read_rows

from privatile.errors import InputError


def test_entries_of_the_table_are_re_derived() -> None:
    """Other draws, fewer of them: each entry within four of the two standard errors."""
    runs = 8000
    for row in read_rows(TABLE, Calibration):
        if row.confidence_level != 0.95 or row.relaxations not in (19, 50):
            continue
        again = calibrate(row.relaxations, row.confidence_level, runs=runs, seed=99)
        assert again.plain_value == pytest.approx(
            row.plain_value, abs=4 * math.hypot(again.plain_error, row.plain_error)
        )
        error = 4 * math.sqrt(0.05 * 0.95 * (1 / runs + 1 / RUNS))
        assert again.curve_coverage == pytest.approx(row.curve_coverage, abs=error)


def test_the_plain_value_falls_towards_the_normal_one_and_never_reaches_it() -> None:
    values = [row.plain_value for row in read_rows(TABLE, Calibration) if row.confidence_level == 0.95]
    assert len(values) == len(RELAXATIONS)
    assert values == sorted(values, reverse=True)
    assert values[1] == pytest.approx(2.6, abs=0.15)  # N = 19
    assert values[4] == pytest.approx(2.17, abs=0.06)  # N = 50
    assert values[-1] > 1.96


def test_the_curve_needs_no_table() -> None:
    """Nominal from 27 relaxations on (the default has 30, and probes); a little below at 12."""
    for row in read_rows(TABLE, Calibration):
        error = 4 * math.sqrt(row.confidence_level * (1 - row.confidence_level) / RUNS)
        short = 0.012 if row.relaxations < 27 else 0.001
        assert -short - error <= row.curve_coverage - row.confidence_level <= error


def test_more_relaxations_than_rounds_are_refused() -> None:
    with pytest.raises(InputError, match="between 0 and the rounds"):
        calibrate(300.0)
