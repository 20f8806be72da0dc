"""`privatile simulate` as its user sees it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from privatile.cli import main
from tests.simulation.test_runner import DESIGN


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experiment")
    (folder / "design.toml").write_text(DESIGN)
    result = call("simulate", "run", folder / "design.toml", "--store", folder / "s.db", "--out", folder / "s.csv")
    assert result.exit_code == 0, result.output
    assert "Small: 12 cells finished" in result.output
    return folder / "s.db"


def test_results_come_as_tidy_rows(store: Path) -> None:
    with store.with_name("s.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 12
    assert [row["method"] for row in rows[:3]] == ["C1", "C5", "cohort"]
    assert all(0.5 < float(row["coverage"]) <= 1.0 and float(row["mae"]) > 0 for row in rows[:1])
    assert {"coverage_error", "mae_error", "truth", "critical_value", "bound", "updates"} <= set(rows[0])


def test_parquet_holds_the_same(store: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert call("simulate", "show", store, "--out", tmp_path / "s.parquet").exit_code == 0
    table = parquet.read_table(tmp_path / "s.parquet").to_pylist()
    with store.with_name("s.csv").open(newline="") as stream:
        assert [row["mae"] for row in table] == [float(row["mae"]) for row in csv.DictReader(stream)]


def test_a_second_run_does_nothing_again(store: Path) -> None:
    result = call("simulate", "run", store.with_name("design.toml"), "--store", store)
    assert result.exit_code == 0
    assert "12 of 12 cells are in" in result.output


def test_show_prints_every_cell(store: Path) -> None:
    result = call("simulate", "show", store)
    assert result.exit_code == 0
    assert "Small (12 of 12 cells, 140 replications, independent data, 95% intervals)" in result.output
    assert result.output.count("cohort") == 4 * result.output.count("population")
    assert max(map(len, result.output.splitlines())) <= 80
    assert "error / bound" in result.output


def test_errors_end_with_code_2_and_no_work(store: Path, tmp_path: Path) -> None:
    design = store.with_name("design.toml")
    bad = tmp_path / "bad.toml"
    bad.write_text(DESIGN.replace("0.5, 0.8", "0.5, 1.8"))
    cases = {
        "line 15, grid[1].level[2]": ("simulate", "run", bad, "--store", tmp_path / "new.db"),
        "belongs to another design": ("simulate", "run", design, "--store", store, "--replications", "7"),
        "cannot be written": ("simulate", "run", design, "--store", tmp_path / "no" / "s.db"),
        "must end in .csv or .parquet": ("simulate", "show", store, "--out", tmp_path / "s.xlsx"),
        "there is no store": ("simulate", "show", tmp_path / "none.db"),
    }
    for text, arguments in cases.items():
        result = call(*arguments)
        assert result.exit_code == 2, text
        assert text in result.output
    assert not (tmp_path / "new.db").exists()
