"""The study of the default design on disk: no cell is missing, limits are kept, the pages say what the files say."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from studies.any_shape.cells import StudyCell, cells_of, make_cell
from studies.any_shape.laws import Arcsine, Exponential, Gumbel, Pareto, Steps, Triangle, WithAtom
from studies.any_shape.limits import (
    KNOWN,
    REAL,
    RUNS,
    any_shape_shortfalls,
    continuous_shortfalls,
    grid_shortfalls,
    silence_shortfalls,
    undeclared_shortfalls,
)
from studies.any_shape.measure import Measured, begins_at, ends_at, measure
from studies.any_shape.page import COUNTED, DOCS, continuous_scores, long_page, read_all, verdict
from studies.any_shape.run import read_table, tidy
from studies.any_shape.silence import RESULTS as SILENCE
from studies.any_shape.silence import Row
from studies.any_shape.whole_file import WholeFile
from studies.coverage.coverage import NEW
from studies.coverage.rows import read_rows, write_rows

from privatile.simulation.default_design import AutoCell
from privatile.simulation.populations import Empirical, LogNormal, Normal, Population

MADE_UP = ("smooth", "hard", "federated", "coverage")


@pytest.fixture(scope="module")
def found() -> dict[str, list[Measured]]:
    return read_all()


def test_no_cell_is_missing_and_all_have_their_runs(found: dict[str, list[Measured]]) -> None:
    cells = {(cell.table, cell.name) for cell in cells_of(MADE_UP, Path())}
    assert {(row.table, row.name) for table, rows in found.items() if table not in REAL for row in rows} == cells
    # The salary table is not part of the project: its cells are counted. Three columns at three levels, at two sizes
    # and by clients; of nine regions; and as the file itself.
    assert {table: len(found[table]) for table in REAL} == COUNTED == {"columns": 27, "regions": 81, "file": 9}
    assert [row.name for table, rows in found.items() for row in rows if row.runs < RUNS[table]] == []
    assert min(score.runs for score in continuous_scores()) >= 20_000


def test_an_end_of_the_range_that_is_a_value_closes_the_interval() -> None:
    zeros = WithAtom(LogNormal(), 0.0, 0.4)
    assert begins_at(zeros, 0.0)
    assert not begins_at(zeros, -1.0)  # nothing lies there
    assert not begins_at(Normal(), -1.0)  # values lie beyond
    assert ends_at(Steps((0.0, 1.0), (0.5, 0.5)), 1.0)
    assert not ends_at(Steps((0.0, 1.0), (0.5, 0.5)), 2.0)
    assert not ends_at(Normal(), 1.0)


def test_every_number_keeps_its_limit_or_is_named(found: dict[str, list[Measured]]) -> None:
    """Coverage has no exception. What falls short elsewhere is in `KNOWN`, and on the page."""
    rows = [row for table in found.values() for row in table]
    short = any_shape_shortfalls(rows) + grid_shortfalls(rows)
    short += undeclared_shortfalls([*found["smooth"], *found["unseen"]])
    short += continuous_shortfalls(continuous_scores(), NEW)
    short += silence_shortfalls(read_rows(SILENCE, Row))
    assert [each for each in short if each.what.startswith("coverage")] == []
    assert {(each.cell, each.what) for each in short} == KNOWN


def test_the_pages_say_what_the_files_say(found: dict[str, list[Measured]]) -> None:
    assert (DOCS / "intervals-tables.md").read_text(encoding="utf-8") == long_page(found, continuous_scores())
    assert verdict(found, continuous_scores()) in (DOCS / "intervals.md").read_text(encoding="utf-8")


def test_a_number_beyond_its_limit_is_found(found: dict[str, list[Measured]]) -> None:
    good = next(row for row in found["smooth"] if row.information > 5900)._replace(runs=20_000)
    assert any_shape_shortfalls([good]) == []
    for wrong, what in (
        (good._replace(coverage=0.945), "coverage"),
        (good._replace(bounded=0.98), "bounded"),
        (good._replace(width=3.5), "width"),
        (good._replace(set_coverage=0.945), "coverage of the set"),
    ):
        assert [each.what for each in any_shape_shortfalls([wrong])] == [what]
    assert any_shape_shortfalls([good._replace(coverage=0.948)]) == []  # within two standard errors of .95
    high = [good._replace(smooth_error=error) for error in (1.03, 1.07, 1.2)]
    assert {each.what.split()[0] for each in undeclared_shortfalls(high)} == {"error", "median"}
    assert undeclared_shortfalls(high[:2]) == []
    ages = next(row for row in found["columns"] if row.name.startswith("age") and row.records > 200_000)
    assert grid_shortfalls([ages._replace(one_or_two=0.8)]) != []
    score = continuous_scores()[0]._replace(runs=20_000)
    assert continuous_shortfalls([score._replace(coverage=0.92)], NEW) != []
    assert continuous_shortfalls([score._replace(coverage=0.98)], NEW) != []


@pytest.mark.parametrize("law", [Arcsine(), Exponential(), Gumbel(), Triangle(), Pareto(1.5)])
def test_the_laws_of_the_study_are_distributions(law: Population) -> None:
    levels = np.array([0.1, 0.3, 0.5, 0.8, 0.95])
    places = law.quantile(levels)
    assert law.cdf(places) == pytest.approx(levels, abs=1e-9)
    slope = (law.cdf(places + 1e-6) - law.cdf(places - 1e-6)) / 2e-6
    assert law.density(places) == pytest.approx(slope, rel=1e-4)


def test_a_cell_is_measured_the_same_again() -> None:
    cell = replace(make_cell("normal", 1, 0.9, 0.5, 600), rounds=40)
    study = StudyCell("smooth", "again", cell, has_density=True)
    first = measure(study, 30, seed=1, block=20)
    assert first == measure(study, 30, seed=1, block=20)
    assert first != measure(study, 30, seed=2, block=20)
    assert first.runs == 30
    assert first.coverage >= 0.9
    assert 2.0 < first.width < 8.0


def test_a_file_is_asked_once_and_nothing_else() -> None:
    """The file's records, each once: with truthful answers the counts of all rounds are the file's."""
    values = np.arange(100.0)
    cell = AutoCell((Empirical(values),), (1.0,), (100,), low=0.0, high=100.0)
    answers = WholeFile(cell, np.random.default_rng(1), runs=3)
    counts = [answers.counts(np.full(3, 49.5), np.full((3, 1), length)) for length in (10, 60, 30)]
    assert np.sum(counts, axis=0).tolist() == [[50]] * 3
    assert counts[0].tolist() != [[5]] * 3  # in a random order
    with pytest.raises(ValueError, match="cannot answer"):
        WholeFile(AutoCell((Empirical(values),), (1.0,), (90,)), np.random.default_rng(1), runs=1)


def test_a_later_row_replaces_an_earlier_one(tmp_path: Path, found: dict[str, list[Measured]]) -> None:
    row = found["hard"][0]
    write_rows([row, row._replace(runs=7)], tmp_path / "hard.csv")
    assert read_table("hard", tmp_path)[row.name].runs == 7
    write_rows([row._replace(name="no more")], tmp_path / "hard.csv", append=True)
    tidy("hard", [row.name], tmp_path)
    assert list(read_table("hard", tmp_path)) == [row.name]


def test_every_row_says_when_and_how_it_was_run(tmp_path: Path, found: dict[str, list[Measured]]) -> None:
    for table, rows in found.items():
        for row in rows:
            assert re.fullmatch(r"2026-\d\d-\d\d", row.date), (table, row.name)
            assert row.command.startswith("python -m studies.any_shape.run ")
    # A file from before has neither; it can be read, and a new row gives it the columns.
    row, path = found["hard"][0], tmp_path / "hard.csv"
    names, values = Measured._fields[:-2], [str(value) for value in row[:-2]]
    path.write_text(",".join(names) + "\n" + ",".join(values) + "\n", encoding="utf-8")
    assert read_table("hard", tmp_path)[row.name].date == ""
    write_rows([row._replace(name="new")], path, append=True)
    assert [one.date for one in read_table("hard", tmp_path).values()] == ["", row.date]
    assert path.read_text(encoding="utf-8").splitlines()[0].endswith(",date,command")


def test_a_median_of_one_information_is_held_by_itself(found: dict[str, list[Measured]]) -> None:
    few = [row._replace(smooth_error=1.07) for row in found["smooth"] if 5_900 < row.information < 6_100]
    many = [row._replace(smooth_error=1.03) for row in found["smooth"] if row.information > 59_000]
    assert [each.cell for each in undeclared_shortfalls([*few, *many])] == ["all cells with I = 6,000"]


def test_salaries_are_asked_with_the_options_of_the_readme(tmp_path: Path) -> None:
    data = tmp_path / "people.csv"
    data.write_text("economic_region,salary,age,hours_worked\nA,30000,40,40\nB,50000,50,35\n", encoding="utf-8")
    for study in cells_of(REAL, data):
        low, high = study.cell.low, study.cell.high
        if "salary" in study.name:
            assert study.log
            assert (math.exp(low), math.exp(high)) == pytest.approx((1000.0, 1e6))
        else:
            assert not study.log
            assert (low, high) == ((0.0, 120.0) if "age" in study.name else (0.0, 100.0))
