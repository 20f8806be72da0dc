"""`privatile paper` as its user sees it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from privatile.cli import main


@pytest.mark.slow
def test_a_figure_is_written_where_it_was_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = CliRunner().invoke(main, ["paper", "figure2", "--out", str(tmp_path / "new" / "folder"), "--quiet"])
    assert result.exit_code == 0, result.output
    assert "figure2.svg" in result.output
    assert (tmp_path / "new" / "folder" / "figure2.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["salary"], "give it with --data"),
        (["figure1", "--data", "missing.csv"], "cannot be read"),
        (["table9"], "'table9' is not one of"),
        (["table1", "--protocol", "mine"], "'mine' is not one of"),
        (["table1", "--replications", "1"], "not in the range"),
    ],
)
def test_what_is_missing_is_named(arguments: list[str], text: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["paper", *arguments, "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert text in result.output


def test_a_folder_that_cannot_be_made_stops_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = CliRunner().invoke(main, ["paper", "table1", "--out", str(tmp_path / "file" / "sub")])
    assert result.exit_code == 2
    assert "cannot be made" in result.output


def test_a_store_of_other_replications_is_refused(tmp_path: Path) -> None:
    from privatile.paper.tables import paper_experiment
    from privatile.simulation.runner import ExperimentStore

    ExperimentStore.open_for(tmp_path / "table1-independent.db", paper_experiment("table1", replications=7)).close()
    result = CliRunner().invoke(main, ["paper", "table1", "--replications", "8", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "belongs to another design" in result.output
