"""The command itself on the salary table: enough runs, some of one region, and they cover."""

import math

from studies.any_shape.cells import LEVELS
from studies.any_shape.command import OPTIONS, Commanded
from studies.any_shape.run import RESULTS
from studies.coverage.rows import read_rows

ROWS = read_rows(RESULTS / "command.csv", Commanded)


def test_a_hundred_runs_of_the_command_cover() -> None:
    assert len(ROWS) >= 100
    assert all(row.date for row in ROWS)
    assert all(row.covers == (row.low <= row.truth <= row.high) for row in ROWS)
    for rows in (ROWS, [row for row in ROWS if row.region], [row for row in ROWS if not row.region]):
        covered = sum(row.covers for row in rows) / len(rows)
        assert covered >= 0.95 - 2.0 * math.sqrt(0.95 * 0.05 / len(rows))


def test_every_column_and_level_was_asked_of_all_regions_and_of_one() -> None:
    settings = {(column, level) for column in OPTIONS for level in LEVELS}
    for one_region in (False, True):
        assert {(row.column, row.level) for row in ROWS if bool(row.region) == one_region} == settings
    assert len({row.region for row in ROWS if row.region}) >= 8
