"""The kept level of the any-shape interval at the worst distributions."""

import math

import numpy as np
from studies.any_shape.worst import LEVELS, RATES, RESULTS, SIDE, Worst
from studies.coverage.rows import read_rows

ROWS = read_rows(RESULTS, Worst)


def too_often(rows: list[Worst]) -> list[str]:
    """Cases whose side errs more often than allowed by three standard errors, and all together by two."""
    spread = SIDE * (1.0 - SIDE)
    wrong = [
        f"{row.case} {row.level:g} {row.truth_rate:g}"
        for row in rows
        if row.error > SIDE + 3.0 * math.sqrt(spread / row.runs)
    ]
    runs = np.array([row.runs for row in rows])
    together = float(np.average([row.error for row in rows], weights=runs))
    return wrong + (["together"] if together > SIDE + 2.0 * math.sqrt(spread / runs.sum()) else [])


def test_no_case_is_missing() -> None:
    assert len(ROWS) == 3 * len(LEVELS) * len(RATES)
    assert min(row.runs for row in ROWS) >= 5000


def test_no_side_errs_more_often_than_allowed() -> None:
    assert too_often(ROWS) == []
    # The control: a third more errors would be found.
    assert "together" in too_often([row._replace(error=row.error * 4.0 / 3.0) for row in ROWS])


def test_intervals_are_bounded_even_there() -> None:
    assert min(row.bounded for row in ROWS) >= 0.97
