"""The committed study of silent clients is held to its limits."""

import pytest
from studies.any_shape.limits import COVERAGE_IN_SILENCE, promised_in_silence, silence_shortfalls
from studies.any_shape.silence import FAMILIES, RESULTS, WAYS, Row
from studies.coverage.rows import read_rows

ROWS = read_rows(RESULTS, Row)


def test_every_way_of_silence_was_run() -> None:
    found = {row.key for row in ROWS}
    for family in FAMILIES:
        for values in ("any", "continuous"):
            for way in WAYS:
                for missed in ("spent",) if way == "none" else ("spent", "asked later"):
                    assert (family, 4000.0, values, way, missed) in found


def test_silence_keeps_its_limits() -> None:
    assert silence_shortfalls(ROWS) == []
    # Nothing is promised where three tenths are missed and spent; it is measured all the same.
    outside = {(row.silence, row.missed) for row in ROWS if row.silence != "none" and not promised_in_silence(row)}
    assert outside == {("30% spells", "spent"), ("30% single", "spent")}


def test_coverage_over_all_cells_together() -> None:
    cells = [row for row in ROWS if row.silence != "none"]
    low, high = COVERAGE_IN_SILENCE
    assert low <= sum(row.runs * row.covers for row in cells) / sum(row.runs for row in cells) <= high


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"covers": 0.9}, "coverage"),
        ({"covers": 0.999}, "coverage"),
        ({"any_covers": 0.9}, "coverage, any-shape"),
        ({"bounded": 0.9}, "bounded"),
        ({"width": 1.6}, "width over that without silence"),
    ],
)
def test_a_number_beyond_its_limit_is_found(change: dict[str, float], what: str) -> None:
    whole = next(row for row in ROWS if row.silence == "none")
    row = next(row for row in ROWS if row.setting == whole.setting and row.missed == "asked later")
    wrong = row._replace(**change)  # type: ignore[arg-type]
    assert [each.what for each in silence_shortfalls([whole, wrong])] == [what]
