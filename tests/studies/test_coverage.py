import csv
import math
import statistics
from pathlib import Path

import numpy as np
import pytest
from studies.any_shape.limits import continuous_shortfalls
from studies.coverage.coverage import FAMILIES, NEW, make_cell, read_cells, run_cells, scored
from studies.coverage.page import draw, filled, table
from studies.coverage.scores import score
from studies.coverage.stopping import stopping

from privatile.estimator.tuned import supported
from privatile.planning.widths import inflation
from privatile.simulation.default_design import simulate
from privatile.simulation.populations import Dithered, LogOf


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cell_has_the_information_asked_for(family: str) -> None:
    cell = make_cell("t", family=family, clients=10, truth_rate="unequal", level=0.8, information=2000, sizes="unequal")
    assert cell.information == pytest.approx(2000, rel=0.01)
    assert len(set(cell.records)) == 10


def test_a_dithered_column_is_the_mean_of_its_windows() -> None:
    values = np.array([1000.0, 1000.0, 3000.0, 9000.0])
    law = LogOf(Dithered(values, 500.0))
    points = np.array([760.0, 1000.0, 1100.0, 2900.0, 3300.0, 9200.0])
    expected = [np.clip((x - values) / 500.0 + 0.5, 0, 1).mean() for x in points]
    assert law.cdf(np.log(points)) == pytest.approx(expected, abs=1e-12)
    slope = (law.cdf(np.log(1000.0) + 1e-6) - law.cdf(np.log(1000.0) - 1e-6)) / 2e-6
    assert float(law.density(np.log(1000.0))) == pytest.approx(float(slope), rel=1e-4)


def test_a_study_continues_where_it_stopped(tmp_path: Path) -> None:
    cells = [make_cell("t", family="normal", clients=1, truth_rate=0.9, level=q, information=2600) for q in (0.4, 0.6)]
    path = tmp_path / "results.csv"
    first = run_cells(cells[::2], 30, path)
    assert list(scored(path)) == [cells[0].name]
    both = run_cells(cells, 30, path)
    assert both[0].coverage == pytest.approx(first[0].coverage)
    assert len(scored(path)) == 2
    page = filled("a <!-- tables --> old <!-- /tables --> b", {"tables": table(both)})
    assert "old" not in page
    assert page.count("\n|---") == 1
    draw(both, tmp_path / "intervals.svg")
    assert "cells, by information" in (tmp_path / "intervals.svg").read_text(encoding="utf-8")


@pytest.mark.slow
def test_stopping_by_width_leaves_records_unasked() -> None:
    cell = make_cell("t", family="normal", clients=2, truth_rate=0.9, level=0.5, information=8000)
    runs = simulate(cell, cell.plan, 30, np.random.default_rng(2))
    wide = stopping(runs, half_width=12 * cell.bound, every=10)
    assert wide.stopped == 1.0
    assert wide.asked < 0.6
    never = stopping(runs, half_width=1e-9, every=10)
    assert never.stopped == 0.0
    assert never.asked == pytest.approx(1.0)


def test_the_design_on_disk_is_read() -> None:
    cells = read_cells(Path(__file__).parents[2] / "studies" / "coverage" / "cells.toml")
    assert len({cell.name for cell in cells}) == len(cells) > 50
    assert score(cells[0], 20, seed=1).runs == 20


def test_the_study_on_disk_keeps_what_the_page_promises() -> None:
    """Values declared continuous; `studies.any_shape.limits` has the limits of single cells."""
    folder = Path(__file__).parents[2] / "studies" / "coverage"
    found = scored(folder / "results.csv")
    low = scored(folder / "low_information.csv")
    assert set(found) == {cell.name for cell in read_cells(folder / "cells.toml")}
    assert min(score.runs for score in found.values()) >= 20_000
    assert set(low) <= {cell.name for cell in read_cells(folder / "low_information.toml")}
    inside = [score for name, score in found.items() if not name.startswith(NEW)]
    assert all(0.94 <= score.coverage <= 0.96 for score in inside)
    assert 0.945 <= statistics.median(score.coverage for score in inside) <= 0.955
    assert max(score.error for score in inside) <= 1.12
    assert statistics.median(score.error for score in inside) <= 1.03 * 1.02
    assert max(score.width for score in inside) <= 1.20
    assert statistics.median(score.width for score in inside) <= 1.08 * 1.02
    assert sum(score.warned < 0.05 for score in inside) >= 0.95 * len(inside)
    assert continuous_shortfalls([*found.values(), *low.values()], NEW) == []


def test_starts_ranges_and_rounds_change_little() -> None:
    """Twenty spreads away, six decades, 200 rounds instead of 10,000: within the Monte Carlo error plus 2% (3%)."""
    found = scored(Path(__file__).parents[2] / "studies" / "coverage" / "results.csv")
    by_group = {
        group: {name.partition(": ")[2]: score for name, score in found.items() if name.startswith(group)}
        for group in ("near start", "far start", "six decades")
    }
    for group in ("far start", "six decades"):
        for name, near in by_group["near start"].items():
            far = by_group[group][name]
            # The mean of |normal| is known within 0.756/√runs of itself, a coverage within √(0.05·0.95/runs).
            noise = 3 * math.sqrt(2 / near.runs)
            assert far.error <= near.error * (1.02 + 0.756 * noise)
            assert abs(far.coverage - near.coverage) <= 0.02 + 0.22 * noise
    rounds = {name.rpartition("T=")[2]: score for name, score in found.items() if name.startswith("rounds")}
    assert rounds["200"].error <= 1.03 * rounds["10000"].error


def test_the_extras_on_disk_keep_what_the_page_promises() -> None:
    with (Path(__file__).parents[2] / "studies" / "coverage" / "extras.csv").open(
        newline="", encoding="utf-8"
    ) as stream:
        rows = {(row["kind"], row["setting"], row["name"]): float(row["value"]) for row in csv.DictReader(stream)}

    def column(kind: str, name: str) -> dict[str, float]:
        return {setting: value for (of, setting, what), value in rows.items() if (of, what) == (kind, name)}

    assert min(column("levels at once", "joint coverage").values()) >= 0.94
    assert min(column("until-width", "coverage").values()) >= 0.94
    assert max(column("until-width", "ever_missed").values()) <= 0.06
    assert all(0.94 <= value <= 0.96 for value in column("comparisons", "coverage").values())
    assert all(0.94 <= value <= 0.96 for value in column("self-normalized", "coverage").values())
    ours, wide = column("table 2", "auto error"), column("table 2", "auto half-width")
    assert len(ours) == 18
    for theirs in ("C5", "Log"):
        assert all(ours[setting] < error for setting, error in column("table 2", f"{theirs} error").items())
    for setting, width in column("table 2", "Log half-width").items():
        if "50000" in setting:
            assert wide[setting] <= width / 2
            assert column("table 2", "auto coverage")[setting] >= 0.935


@pytest.mark.slow
def test_a_plan_predicts_the_width_that_the_study_found() -> None:
    folder = Path(__file__).parents[2] / "studies" / "coverage"
    found = scored(folder / "results.csv")
    for cell in read_cells(folder / "cells.toml"):
        if not supported(cell.information):
            continue
        # In rank, as `plan` knows it, over the bound's own rank error: the same where the clients are alike.
        variance = sum(
            p * p * (r**-2 - (2 * cell.level - 1) ** 2) / (4 * n)
            for p, r, n in zip(cell.shares, cell.truth_rates, cell.records, strict=True)
        )
        density = cell.mixture.density(cell.truth)
        predicted = variance**0.5 / (cell.bound * density) * inflation(cell.information, cell.plan.rounds)
        assert predicted == pytest.approx(found[cell.name].width, rel=0.10), cell.name
