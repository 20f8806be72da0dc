"""The committed study of silent clients is held to its limits."""

from __future__ import annotations

import math

import pytest
from studies.any_shape.silence import FAMILIES, RESULTS, WAYS, Row
from studies.coverage.rows import read_rows

FOUND = {(row.family, row.values, row.silence, row.missed): row for row in read_rows(RESULTS, Row)}
WIDEST = {"10% spells": 1.10, "30% spells": 1.25, "10% single": 1.10, "30% single": 1.25}
"""Of the width without silence."""

WORSE = {("any", "30% spells", "spent"): 1.32, ("any", "30% single", "spent"): 1.32}
"""Where the questions lie either side of the quantile, a client that misses more of one side pays for it: 1.27."""


@pytest.mark.parametrize("values", ["any", "continuous"])
@pytest.mark.parametrize("family", FAMILIES)
def test_silence_costs_little_width_and_no_coverage(family: str, values: str) -> None:
    whole = FOUND[family, values, "none", "spent"]
    cells = [row for key, row in FOUND.items() if key[:2] == (family, values)]
    assert {row.silence for row in cells} == set(WAYS)
    for row in cells:
        if row.silence != "none":
            limit = WORSE.get((values, row.silence, row.missed), WIDEST[row.silence])
            chance = 3.0 * math.hypot(row.width_error / row.width, whole.width_error / whole.width)
            assert row.width / whole.width <= limit * (1.0 + chance), row
        error = math.sqrt(0.05 * 0.95 / row.runs)
        assert 0.94 - 3.0 * error <= row.covers <= 0.97 + 3.0 * error, row
        assert row.any_covers >= 0.95 - 2.0 * error, row
        assert row.bounded >= 0.97 - 3.0 * math.sqrt(0.03 * 0.97 / row.runs), row


def test_coverage_over_all_cells_together() -> None:
    cells = [row for row in FOUND.values() if row.silence != "none"]
    runs = sum(row.runs for row in cells)
    assert 0.94 <= sum(row.runs * row.covers for row in cells) / runs <= 0.97
