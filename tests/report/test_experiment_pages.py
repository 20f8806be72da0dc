"""Pages of Monte Carlo experiments and of the paper's tables."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from privatile.cli import main
from privatile.paper.reproduce import paper_page
from privatile.paper.tables import compare, paper_experiment
from privatile.report.experiment import verdict
from privatile.simulation.runner import FORMAT, SCHEMA

TITLE = "</script><script>alert(1)</script> & sizes"


def made_store(
    path: Path,
    title: str = TITLE,
    coverage: float = 0.949,
    rows: int = 2,
    level: float = 0.95,
    bound: float = 0.11,
) -> Path:
    """A store as a finished experiment leaves it, without the hours."""
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA)
    facts = (title, "ab" * 32, level, 2 * rows)
    connection.execute(f"INSERT INTO experiment VALUES ({FORMAT}, ?, ?, 'independent', 1000, 1, ?, ?, 1.8e9)", facts)
    place = 0
    for method in ("C1", "<b>C5</b>"):
        for records in [200, 1000, 5000][:rows]:
            labels = {"population": "N", "level": "0.5", "truth_rate": "0.5", "method": method, "records": str(records)}
            summary = {
                "replications": 1000, "truth": 0.0, "critical_value": 6.7, "coverage": coverage,
                "coverage_error": 0.007, "coverage_beside": float("nan"), "mae": 0.1 / records**0.5, "mae_error": 0.001,
                "bias": 0.0, "bias_error": 0.0, "rmse": 0.12 / records**0.5, "width": 0.3, "width_error": 0.0,
                "bound": bound / records**0.5, "updates": 10,
            }  # fmt: skip
            connection.execute(
                "INSERT INTO result VALUES (?, ?, ?, 1.0, 0.0)", (place, json.dumps(labels), json.dumps(summary))
            )
            place += 1
    connection.commit()
    connection.close()
    return path


def page_of(store: Path, *figure: Path) -> str:
    """What `privatile report` writes about a store."""
    target = store.with_suffix(".html")
    figures = [word for each in figure for word in ("--figure", str(each))]
    done = CliRunner().invoke(main, ["report", str(store), *figures, "-o", str(target)])
    assert done.exit_code == 0, done.output
    return target.read_text(encoding="utf-8")


def test_an_experiment_gets_a_page(tmp_path: Path) -> None:
    page = page_of(made_store(tmp_path / "experiment.db"))
    assert "<script>alert" not in page
    assert "<b>C5</b>" not in page
    assert page.count('class="panel"') == 2  # one setting: coverage and error
    facts = json.loads(re.search(r'id="facts">(.*?)</script>', page, re.S)[1])  # type: ignore[index]
    assert (facts["title"], len(facts["rows"]), facts["rows"][0]["coverage_beside"]) == (TITLE, 4, None)
    assert "No cell is finished yet" in page_of(made_store(tmp_path / "begun.db", rows=0))


@pytest.mark.parametrize("rows", [1, 3])
def test_a_column_of_values_has_no_least_error(tmp_path: Path, rows: int) -> None:
    """A population from a file has no density: the page and the figure leave out what is not known."""
    store = made_store(tmp_path / "experiment.db", rows=rows, bound=float("nan"))
    page = page_of(store, tmp_path / "figure.svg")
    assert not re.search(r"\bnan\b", page, re.I)
    assert "least that any method can reach" not in page
    assert "error / bound" not in (tmp_path / "figure.svg").read_text(encoding="utf-8")


def test_one_cell_has_one_coverage(tmp_path: Path) -> None:
    store = made_store(tmp_path / "experiment.db", rows=1)
    for cells, words in ((2, "median coverage of 95"), (1, ">coverage of 95")):
        with closing(sqlite3.connect(store)) as connection, connection:
            connection.execute("DELETE FROM result WHERE rowid >= ?", (cells,))
        page = page_of(store)
        assert words in page
        assert bool(re.search(r"cover the truth [\d.]+% to", page)) == (cells > 1)


def test_cells_are_marked_by_their_monte_carlo_error(tmp_path: Path) -> None:
    """Each against its own level: coverage 0.9 is right for 90% intervals, and too low for 95% ones."""
    row = {"coverage": 0.949, "replications": 1000}
    assert verdict(row, 0.95) == ""
    assert verdict({**row, "coverage": 0.92}, 0.95) == "too low"
    assert verdict({**row, "coverage": 1.0}, 0.95) == "too high"
    assert verdict({**row, "coverage": 0.92, "replications": 100}, 0.95) == ""
    for level, low in ((0.9, 0), (0.95, 4)):
        page = page_of(made_store(tmp_path / f"{level}.db", coverage=0.9, level=level))
        assert page.count('class="worry">too low') == low
        assert f"median coverage of {level:.0%} intervals" in page
    assert "90% intervals" in CliRunner().invoke(main, ["simulate", "show", str(tmp_path / "0.9.db")]).output


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 3])
def test_an_experiment_is_drawn_for_print(tmp_path: Path, rows: int) -> None:
    """Every method and what all cells share is said; one size lists settings, several are an axis; no date inside."""
    store = made_store(tmp_path / "experiment.db", rows=rows)
    heads = {"svg": b"<?xml", "pdf": b"%PDF-", "png": b"\x89PNG"}
    for suffix, head in heads.items():
        drawn = []
        for name in ("a", "b"):
            done = CliRunner().invoke(main, ["report", str(store), "--figure", str(tmp_path / f"{name}.{suffix}")])
            assert done.exit_code == 0, done.output
            drawn.append((tmp_path / f"{name}.{suffix}").read_bytes())
        assert drawn[0].startswith(head)
        assert drawn[0] == drawn[1]
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    for said in ("coverage", "error / bound", "C1", "&lt;b&gt;C5&lt;/b&gt;", "level 0.5", "where it should be"):
        assert said in text, said
    assert ("5,000" in text) == (rows == 3)
    assert not (tmp_path / "experiment.html").exists()


def test_the_papers_tables_are_drawn_with_differences_marked(tmp_path: Path) -> None:
    from privatile.paper.reproduce import differences_figure
    from privatile.report.pages import VERMILION

    count = len(paper_experiment("table1", "independent", 1000).entries)
    for shift in (0.0, 0.2):
        folder = paper_folder(tmp_path / f"paper-{shift}", shift)
        figure = differences_figure(folder)
        for axis in figure.axes:
            marked = [line for line in axis.lines if line.get_color() == VERMILION]
            assert [len(line.get_xdata()) for line in marked] == [count if shift else 0]  # type: ignore[arg-type]
        done = CliRunner().invoke(main, ["report", str(folder), "--figure", str(tmp_path / "paper.svg")])
        assert done.exit_code == 0, done.output
    assert "Table 1" in (tmp_path / "paper.svg").read_text(encoding="utf-8")


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    empty = made_store(tmp_path / "empty.db", rows=0)
    for figure, word in (("a.gif", "must end in"), ("a.svg", "no finished cell")):
        done = CliRunner().invoke(main, ["report", str(empty), "--figure", str(tmp_path / figure)])
        assert done.exit_code == 2
        assert word in done.output


def paper_folder(folder: Path, shift: float) -> Path:
    """The paper's first table as `privatile paper` leaves it, every number the printed one but for a shift."""
    folder.mkdir()
    experiment = paper_experiment("table1", "independent", 1000)
    connection = sqlite3.connect(folder / "table1-independent.db")
    connection.executescript(SCHEMA)
    facts = (experiment.title, experiment.digest, len(experiment.entries))
    connection.execute(f"INSERT INTO experiment VALUES ({FORMAT}, ?, ?, 'independent', 1000, 1, 0.95, ?, 1.8e9)", facts)
    for place, entry in enumerate(experiment.entries):
        labels = dict(entry.labels)
        summary = {
            "replications": 1000, "truth": 0.0, "critical_value": 6.7, "coverage": 0.5, "coverage_error": 0.007,
            "coverage_beside": float("nan"), "mae": 1.0, "mae_error": 0.0001, "bias": 0.0, "bias_error": 0.0,
            "rmse": 1.0, "width": 0.3, "width_error": 0.0, "bound": 1.0, "updates": 1,
        }  # fmt: skip
        (cell,) = compare("table1", [{**labels, **summary, "seconds": 0.0}])
        summary |= {"coverage": cell.theirs.coverage - shift, "mae": cell.theirs.mae + shift}
        row = (place, json.dumps(labels), json.dumps(summary))
        connection.execute("INSERT INTO result VALUES (?, ?, ?, 1.0, 0.0)", row)
    connection.commit()
    connection.close()
    return folder


@pytest.mark.parametrize(("shift", "agree"), [(0.0, True), (0.2, False)])
def test_the_papers_tables_beside_the_printed_ones(tmp_path: Path, shift: float, agree: bool) -> None:
    """Fed with the printed values every cell agrees; fed with others, each is marked."""
    folder = paper_folder(tmp_path / "paper", shift)
    page = paper_page(folder)
    count = len(paper_experiment("table1", "independent", 1000).entries)
    assert f">{count if agree else 0} of {count}<" in page
    assert page.count('class="differs"') == (0 if agree else 2 * count)
    assert len(page.encode()) < 500_000
    done = CliRunner().invoke(main, ["report", str(folder), "-o", str(tmp_path / "paper.html")])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("make", ["empty folder", "text"])
def test_other_files_and_folders_are_refused(tmp_path: Path, make: str) -> None:
    source = tmp_path / "it"
    if make == "text":
        source.write_text("x" * 5000)
    else:
        source.mkdir()
    done = CliRunner().invoke(main, ["report", str(source)])
    assert done.exit_code == 2
    assert "Traceback" not in done.output
