"""The study of the default design: python -m studies.any_shape.run smooth hard … [--runs N] [--data FILE]

Tables: smooth, coverage, hard, federated, columns, regions, file. Every cell is one row of results/TABLE.csv; a cell
that the file holds already, with as many runs, is not run again. The last three need the salary table (`--data`).
`--close N`: cells whose coverage lies below .98 are run again, N times, with another seed: the row then holds
these runs alone. `--part I/N` runs every N-th cell, from the I-th on, for several processes on one machine.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from studies.any_shape.cells import TABLES, StudyCell, cells_of
from studies.any_shape.measure import Measured, line, measure
from studies.coverage.rows import read_rows, write_rows

from privatile.errors import require

HERE = Path(__file__).parent
RESULTS = HERE / "results"
SEED = 20_261_116
CLOSE = 0.98
"""Coverage below which a cell is worth more runs."""


def file_of(table: str, folder: Path = RESULTS) -> Path:
    """Where a table's rows are."""
    return folder / f"{table}.csv"


def read_table(table: str, folder: Path = RESULTS) -> dict[str, Measured]:
    """The rows of a table by name; a later row of a cell replaces the earlier one."""
    return {row.name: row for row in read_rows(file_of(table, folder), Measured)}


def keep(study: StudyCell, runs: int, seed: int, folder: Path, xp: Any, block: int) -> Measured:
    """Measure a cell and append its row."""
    begun = time.time()
    found = measure(study, runs, seed, xp, block)
    write_rows([found], file_of(study.table, folder), append=True)
    print(line(found), f"{time.time() - begun:.1f} s", flush=True)
    return found


def tidy(table: str, folder: Path) -> None:
    """One row per cell, in the order of the cells."""
    rows = read_table(table, folder)
    write_rows(list(rows.values()), file_of(table, folder))


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+", choices=list(TABLES))
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--close", type=int, default=0)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--data", type=Path, default=HERE.parents[2] / "shared" / "data" / "gov_census_2018.csv.gz")
    parser.add_argument("--only", default="", help="parts of names, separated by commas")
    parser.add_argument("--block", type=int, default=1000)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--results", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    xp: Any = require("cupy", "gpu") if chosen.device == "cuda" else np
    first, every = (int(each) for each in chosen.part.split("/"))
    wanted = chosen.only.split(",")
    for study in cells_of(chosen.tables, chosen.data)[first::every]:
        if not any(each in study.name for each in wanted):
            continue
        have = read_table(study.table, chosen.results).get(study.name)
        if have is None or have.runs < chosen.runs:
            have = keep(study, chosen.runs, chosen.seed, chosen.results, xp, chosen.block)
        if have.coverage < CLOSE and have.runs < chosen.close:
            keep(study, chosen.close, chosen.seed + 1, chosen.results, xp, chosen.block)
    if every == 1:
        for table in {study.table for study in cells_of(chosen.tables, chosen.data)}:
            tidy(table, chosen.results)


if __name__ == "__main__":
    main()
