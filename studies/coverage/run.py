"""Score the cells of cells.toml and fill docs/intervals.md again: python -m studies.coverage.run [--runs N]
[--device cuda].

A cell that results.csv holds already, with as many runs, is not run again; --page only fills the page. To check the
study without touching it: --results another.csv, which fills no page.
"""

import argparse
from pathlib import Path

from studies.coverage.calibrate import TABLE, Calibration
from studies.coverage.coverage import read_cells, run_cells, scored
from studies.coverage.extras import Extra
from studies.coverage.page import calibrations, draw, extras, filled, tables, verdict
from studies.coverage.rows import read_rows
from studies.coverage.scores import Score, on_gpu, on_processor

from privatile.simulation.auto_simulation import BLOCK

HERE = Path(__file__).parent
DOCS = HERE.parent.parent / "docs"


def show(score: Score) -> None:
    """One line per cell."""
    print(
        f"{score.name:62s} coverage {score.coverage:.4f} error {score.error:.3f} width {score.width:.3f} "
        f"bias {score.bias:+.2f} warned {score.warned:.4f}",
        flush=True,
    )


def main() -> None:
    """Run what is missing, then fill the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--part", default="0/1", help="I/N: every N-th cell from the I-th on; fills no page")
    parser.add_argument("--results", type=Path, default=HERE / "results.csv")
    parser.add_argument("--page", action="store_true", help="run nothing, fill the page")
    chosen = parser.parse_args()
    cells = read_cells(HERE / "cells.toml")
    first, step = (int(text) for text in chosen.part.split("/"))
    if not chosen.page:
        size, simulated = (chosen.runs, on_gpu) if chosen.device == "cuda" else (BLOCK, on_processor)
        run_cells(cells[first::step], chosen.runs, chosen.results, show=show, block_size=size, simulated=simulated)
    if step == 1 and chosen.results == HERE / "results.csv":
        known = scored(chosen.results)
        scores = [known[cell.name] for cell in cells if cell.name in known]
        page = DOCS / "intervals.md"
        parts = {
            "verdict": verdict(scores),
            "tables": tables(scores),
            "calibration": calibrations(read_rows(TABLE, Calibration)),
            "extras": extras(read_rows(HERE / "extras.csv", Extra)),
        }
        page.write_text(filled(page.read_text(encoding="utf-8"), parts), encoding="utf-8")
        draw(scores, DOCS / "intervals.svg")


if __name__ == "__main__":
    main()
