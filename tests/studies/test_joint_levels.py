"""Why several levels have no fit in common: the committed numbers, and that they come out again."""

import math

import numpy as np
import pytest
from studies.any_shape.cells import SMOOTH
from studies.any_shape.joint_levels import LEVELS, PARAMETERS, RATE, RESULTS, SIZES, Joint, band
from studies.coverage.rows import read_rows

ROWS = read_rows(RESULTS, Joint)
WORTH_IT = 0.85
"""Width of the joint band over that of separate levels up to which one fit would be built."""


def test_every_law_and_size_is_there_with_its_date() -> None:
    assert {(row.law, row.records, row.parameters) for row in ROWS} == {
        (law, n, count) for law in SMOOTH for n in SIZES for count in PARAMETERS
    }
    assert all(row.date and row.command and row.draws >= 20_000 for row in ROWS)


@pytest.mark.parametrize("parameters", PARAMETERS)
def test_a_band_that_is_narrow_enough_does_not_cover(parameters: int) -> None:
    """With every number of parameters: too wide to be worth it, or quantiles of some law are missed far too often."""
    rows = [row for row in ROWS if row.parameters == parameters]
    narrow = [row for row in rows if row.width <= WORTH_IT]
    assert len(narrow) == (0 if parameters == max(PARAMETERS) else len(rows))
    assert min(row.covers for row in rows) <= (0.5 if narrow else 0.9)


def test_a_row_comes_out_again() -> None:
    law, row = (
        SMOOTH["normal"],
        next(row for row in ROWS if (row.law, row.records, row.parameters) == ("normal", 20_000, 6)),
    )
    truth = np.array([float(law.quantile(level)) for level in LEVELS])
    density = np.array([float(law.density(np.array(value))) for value in truth])
    errors = 3.0 / (2.0 * RATE * math.sqrt(row.records)) / density
    width, covers = band(truth, errors, row.parameters, np.random.default_rng(1))
    assert width == pytest.approx(row.width, rel=0.02)
    assert covers == pytest.approx(row.covers, abs=0.01)
