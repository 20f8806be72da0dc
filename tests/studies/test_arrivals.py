"""The study of open-ended runs on disk: no cell is missing, limits are kept; and its parts do what they say."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from studies.arrivals.limits import ARRIVALS_RUNS, FEWEST_LIED, FEWEST_RUNS, KNOWN, shortfalls
from studies.arrivals.moves import CELLS, Moved
from studies.arrivals.moves import RESULTS as MOVES
from studies.arrivals.parts import Part, finished, make, parts_of
from studies.arrivals.people import PROCESSES, RATES, liars_in, rounds_of
from studies.arrivals.run import RESULTS, SEED, TABLES, Row, cell_of, one_run, row_of
from studies.arrivals.simulate import WEIGHTS, Cell, mixture, simulate, true_quantile
from studies.coverage.rows import read_rows

ROOT = Path(__file__).parents[2]
SHOWN = {
    "Poisson": "poisson, 180,000 people, τ = 0.5",
    "bursts after mails to everybody": "bursts, 180,000 people, τ = 0.5",
    "day and night": "day and night, 180,000 people, τ = 0.5",
    "Poisson, level 0.8, 420,000 people": "poisson, 420,000 people, τ = 0.8",
    "strata that come apart": "apart, 180,000 people, τ = 0.5",
}
"""Rows of the page's table."""


def test_no_cell_is_missing_and_every_number_keeps_its_limit_or_is_named() -> None:
    rows = read_rows(RESULTS, Row)
    assert {row.cell for row in rows} == {cell.name for table in TABLES.values() for cell in table}
    promised = {cell.name for cell in TABLES["arrivals"]}
    for row in rows:
        least = FEWEST_LIED if row.liars_bound else ARRIVALS_RUNS if row.cell in promised else FEWEST_RUNS
        assert row.runs >= least, row.cell
        assert f"--runs {row.runs} " in f"{row.command} ", row.cell  # all of what the command asks for
    found = {(short.cell, short.what) for short in shortfalls(rows)}
    assert found <= KNOWN, found - KNOWN
    assert found  # strata that come apart are the control
    still = {(short.cell, short.what) for short in shortfalls(rows, errors=0.0)}
    assert still >= KNOWN, KNOWN - still  # what keeps its limit by now goes out
    assert all(row.date >= "2026-11-16" and "studies.arrivals.run" in row.command for row in rows)


def test_the_page_has_the_numbers_of_the_file() -> None:
    page = (ROOT / "docs" / "tasks" / "open-ended.md").read_text(encoding="utf-8")
    rows = {row.cell: row for row in read_rows(RESULTS, Row)}
    lines = {line.split("|")[1].strip(): line.split("|")[2:6] for line in page.splitlines() if line.count("|") == 6}
    for label, cell in SHOWN.items():
        row, (missed, width, covered, error) = rows[cell], lines[label]
        assert missed.strip().removesuffix(" runs") == f"{row.ever_missed * row.runs:.0f} of {row.runs:,}"
        for text, number in ((width, row.ratio), (covered, row.smooth_coverage), (error, row.error)):
            places = len(text.strip().partition(".")[2])
            assert float(text) == pytest.approx(number, abs=0.51 * 10.0**-places)


def test_a_number_beyond_its_limit_is_found() -> None:
    row = read_rows(RESULTS, Row)[0]
    assert not row.liars_bound
    changes: tuple[tuple[dict[str, Any], str], ...] = (
        ({"ever_missed": 0.08}, "ever missed"),
        ({"smooth_coverage": 0.9}, "misses at the fixed end"),
        ({"smooth_coverage": 0.97}, "covers too often at the fixed end"),
        ({"width": 9.0}, "width"),
        ({"error": 1.4}, "error"),
        ({"alarms": 0.1}, "false alarms"),
        ({"liars_bound": 0.01, "rank": 0.05}, "rank"),
    )
    for changed, what in changes:
        assert what in {short.what for short in shortfalls([row._replace(runs=10_000, **changed)])}


@pytest.mark.parametrize("process", PROCESSES)
def test_everybody_comes_once_and_rounds_know_numbers_only(process: str) -> None:
    rng = np.random.default_rng(1)
    rounds = rounds_of(process, 20_000, rng)
    assert rounds.sum() == pytest.approx(20_000, rel=0.5)
    assert rounds.sum(axis=1).min() >= 1
    if process == "poisson":
        assert rounds.sum(axis=0) / rounds.sum() == pytest.approx(RATES, abs=0.02)
    number = round(0.01 * rounds.sum())
    for who in ("first", "last", "smallest, first", "smallest, last"):
        lying = liars_in(rounds, who, 0.01)
        assert (lying <= rounds).all()
        assert lying.sum() == min(number, rounds[:, 2].sum() if who.startswith("smallest") else number)
    assert liars_in(rounds, "first", 0.01)[-1].sum() == liars_in(rounds, "last", 0.01)[0].sum() == 0


@pytest.mark.statistical
def test_the_file_was_made_with_the_designs_of_today() -> None:
    """The first run of a cell comes out again, with and without a known number of people."""
    rows = {row.cell: row for row in read_rows(RESULTS, Row)}
    for name in ("poisson, 20,000 people, τ = 0.5", "bursts, 180,000 people, τ = 0.5"):
        found = one_run(cell_of(name), SEED, 0)
        assert found.width == pytest.approx(rows[name].first_width, rel=1e-4)
        assert found.known_width == pytest.approx(rows[name].first_known_width, rel=1e-4)


@pytest.mark.statistical
def test_one_run_of_the_study() -> None:
    """Through the program itself; liars who come first are overcome, and move the rank by no more than is printed."""
    assert mixture(true_quantile(0.5)) == pytest.approx(0.5)
    assert math.fsum(WEIGHTS) == pytest.approx(1.0)
    honest, lied = Cell("poisson", 20_000), Cell("poisson", 20_000, 0.5, "first", 0.02)
    found = simulate(honest, (1, 2), known=True)
    assert found.bounded
    assert not found.ever_missed
    assert 1.0 < found.width / found.known_width < 4.0
    moved = simulate(lied, (1, 2))
    assert abs(moved.rank) < moved.liars_bound + 4.0 * 0.25 / math.sqrt(moved.information)
    row = row_of(lied, [moved, moved], "python -m studies.arrivals.run")
    assert row.lost == 0.0


def test_the_change_alarm_on_disk() -> None:
    rows = {row.cell: row for row in read_rows(MOVES, Moved)}
    assert rows.keys() == CELLS.keys()
    for name, row in rows.items():
        still = CELLS[name][1] == 0.0
        assert row.alarms <= 0.05 + 2.0 * math.sqrt(0.05 * 0.95 / row.runs) if still else True
    assert rows["normal, moved by 0.4"].alarms == 1.0  # the control: a move is found
    assert rows["normal, moved by 0.2"].alarms > 0.8


def drawn(part: Part) -> list[list[float]]:
    """Runs whose number is their seed."""
    return [[float(np.random.default_rng((part.seed, run)).random())] for run in range(part.first, part.last)]


def test_a_study_in_parts_is_the_study_in_one_go(tmp_path: Path) -> None:
    whole, halves = parts_of("ab", 10, 10, 1), parts_of("ab", 10, 3, 1)
    assert make(whole, drawn, tmp_path / "one", 1, math.inf)
    assert not make(halves, drawn, tmp_path / "two", 1, 0.0)  # time is up before the first
    assert finished(halves, tmp_path / "two") == {"a": [], "b": []}
    assert make(halves[:3], drawn, tmp_path / "two", 1, math.inf)
    some = finished(halves, tmp_path / "two")
    assert [len(runs) for runs in some.values()] == [6, 3]  # fair to both cells

    def never(part: Part) -> list[list[float]]:
        assert part not in halves[:3]
        return drawn(part)

    assert make(halves, never, tmp_path / "two", 1, math.inf)
    assert finished(halves, tmp_path / "two") == finished(whole, tmp_path / "one")
    assert finished(parts_of("ab", 10, 3, 2), tmp_path / "two") == {"a": [], "b": []}  # another seed
