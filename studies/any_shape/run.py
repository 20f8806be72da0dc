"""The study of the default design: python -m studies.any_shape.run smooth hard … [--runs N] [--data FILE]

Tables: smooth, coverage, hard, federated, columns, regions, file. Every cell is one row of results/TABLE.csv; a cell
that the file holds already, with as many runs, is not run again. The last three need the salary table (`--data`).
`--close N`: cells whose coverage lies below .98 are run again, N times, with another seed: the row then holds
these runs alone. `--jobs N`: N processes share the blocks of all cells; `--part I/N` takes every N-th cell, from the
I-th on, for several machines.
"""

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from studies.any_shape.cells import TABLES, StudyCell, cells_of
from studies.any_shape.measure import BLOCK, Measured, blocks, joined, line, measure, run_block
from studies.coverage.rows import read_rows, write_rows

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


def keep(found: Measured, folder: Path, begun: float, seed: int, block: int = BLOCK) -> Measured:
    """Append a row, with its date and the command that makes it again."""
    table = "smooth" if found.table == "unseen" else found.table
    command = f"python -m studies.any_shape.run {table} --runs {found.runs} --seed {seed}"
    command += f" --block {block}" if block != BLOCK else ""
    found = found._replace(date=time.strftime("%Y-%m-%d"), command=command)
    write_rows([found], file_of(found.table, folder), append=True)
    print(line(found), f"{time.time() - begun:.1f} s", flush=True)
    return found


def run_all(studies: Sequence[StudyCell], runs: int, seed: int, block: int, jobs: int, folder: Path) -> None:
    """Several cells at once, their blocks shared among processes; a cell is kept when its last block is done."""
    begun = time.time()
    with ProcessPoolExecutor(jobs) as pool:
        tasks = {
            study.name: [pool.submit(run_block, study, k, size, seed) for k, size in blocks(study, runs, block)]
            for study in studies
        }
        for study in studies:
            parts = [task.result() for task in tasks.pop(study.name)]
            keep(joined(study, parts), folder, begun, seed, block=block)


def tidy(table: str, names: Sequence[str], folder: Path) -> None:
    """One row per cell, in the order of the cells; rows of cells that are no more are dropped."""
    rows = read_table(table, folder)
    write_rows([rows[name] for name in names if name in rows], file_of(table, folder))


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+", choices=list(TABLES))
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--close", type=int, default=0)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--data", type=Path, default=HERE.parents[2] / "shared" / "data" / "gov_census_2018.csv.gz")
    parser.add_argument("--only", default="", help="parts of names, separated by commas")
    parser.add_argument("--block", type=int, default=BLOCK)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    first, every = (int(each) for each in chosen.part.split("/"))
    wanted = chosen.only.split(",")
    studies = [
        study
        for study in cells_of(chosen.tables, chosen.data)[first::every]
        if any(each in study.name for each in wanted)
    ]
    rows = {table: read_table(table, chosen.results) for table in {study.table for study in studies}}
    missing = [s for s in studies if (row := rows[s.table].get(s.name)) is None or row.runs < chosen.runs]
    if chosen.jobs > 1:
        run_all(missing, chosen.runs, chosen.seed, chosen.block, chosen.jobs, chosen.results)
    else:
        for study in missing:
            begun = time.time()
            found = measure(study, chosen.runs, chosen.seed, chosen.block)
            keep(found, chosen.results, begun, chosen.seed, chosen.block)
    for study in studies:
        have = read_table(study.table, chosen.results)[study.name]
        if have.coverage < CLOSE and have.runs < chosen.close:
            begun = time.time()
            found = measure(study, chosen.close, chosen.seed + 1, chosen.block)
            keep(found, chosen.results, begun, chosen.seed + 1, chosen.block)
    if every == 1:
        every_cell = cells_of(chosen.tables, chosen.data)
        for table in {study.table for study in every_cell}:
            tidy(table, [study.name for study in every_cell if study.table == table], chosen.results)


if __name__ == "__main__":
    main()
