"""The study of values declared continuous: python -m studies.coverage.run [--runs N].

Scores the cells of cells.toml into results.csv, or with --cells low_information those of low_information.toml into
low_information.csv. A cell that the file holds already, with as many runs, is not run again. To check the study without
touching it: --results another.csv. `python -m studies.any_shape.page` writes the pages.
"""

import argparse
from pathlib import Path

from studies.coverage.coverage import read_cells, run_cells
from studies.coverage.scores import Score

HERE = Path(__file__).parent
RESULTS = {"cells": HERE / "results.csv", "low_information": HERE / "low_information.csv"}


def show(score: Score) -> None:
    """One line per cell."""
    print(
        f"{score.name:62s} coverage {score.coverage:.4f} error {score.error:.3f} width {score.width:.3f} "
        f"bias {score.bias:+.2f} warned {score.warned:.4f}",
        flush=True,
    )


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--part", default="0/1", help="I/N: every N-th cell from the I-th on")
    parser.add_argument("--cells", choices=list(RESULTS), default="cells")
    parser.add_argument("--results", type=Path)
    chosen = parser.parse_args()
    cells = read_cells(HERE / f"{chosen.cells}.toml")
    first, step = (int(text) for text in chosen.part.split("/"))
    path = chosen.results or RESULTS[chosen.cells]
    run_cells(cells[first::step], chosen.runs, path, show=show)


if __name__ == "__main__":
    main()
