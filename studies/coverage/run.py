"""Score the cells of cells.toml and write docs/intervals.md anew: python studies/coverage/run.py [--runs N].

A cell that the results file holds already is not run again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from privatile.study.coverage import read_cells, run_study
from privatile.study.tuned import Score

HERE = Path(__file__).parent


def show(score: Score) -> None:
    """One line a cell."""
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
    parser.add_argument("--results", type=Path, default=HERE / "results.csv")
    chosen = parser.parse_args()
    first, step = (int(text) for text in chosen.part.split("/"))
    run_study(read_cells(HERE / "cells.toml"), chosen.runs, chosen.results, shown=show, part=(first, step))


if __name__ == "__main__":
    main()
