"""The salary table through the command itself, as a new user runs it: the README's options and nothing else.

python -m studies.any_shape.command --runs 99 [--data FILE]

Run after run takes the next of nine settings: salary, age and hours worked at the levels .25, .5 and .9, regions as
clients. Every run draws as many records as the table has, with replacement, into a file of its own, has a ledger of its
own, and is one process. What the command shows is held against the column's own quantile.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.csv  # type: ignore[import-untyped]
from studies.any_shape.cells import LEVELS
from studies.any_shape.run import RESULTS
from studies.coverage.rows import read_rows, write_rows

HERE = Path(__file__).parent
OPTIONS = {
    "salary": ("--range", "1000", "1000000", "--log"),
    "age": ("--range", "0", "120"),
    "hours_worked": ("--range", "0", "100"),
}
SEED = 20_261_116


class Commanded(NamedTuple):
    """One run of the command."""

    column: str
    level: float
    truth: float
    low: float
    high: float
    covers: int


def one_run(table: Any, column: str, level: float, seed: int) -> "Commanded":
    """Draw a file, run the command on it, and read what it printed."""
    values = np.sort(table[column].to_numpy())
    truth = float(np.quantile(values, level, method="inverted_cdf"))
    rows = np.random.default_rng([SEED, seed]).integers(0, table.num_rows, table.num_rows)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "people.csv"
        pyarrow.csv.write_csv(table.select(["economic_region", column]).take(rows), file)
        home = {"HOME": folder, "XDG_STATE_HOME": folder, "XDG_DATA_HOME": folder, "XDG_CONFIG_HOME": folder}
        command = [sys.executable, "-m", "privatile", "estimate", str(file), "--value", column]
        command += ["--client", "economic_region", "--q", f"{level:g}", "--epsilon", "1", *OPTIONS[column], "--json"]
        home = {**os.environ, **home}
        done = subprocess.run(command, env=home, cwd=folder, capture_output=True, text=True, check=True)
    (result,) = json.loads(done.stdout)["results"]
    shown = result["confidence_interval"]
    low, high = float(shown["low"]), float(shown["high"])
    return Commanded(column, level, truth, low, high, int(low <= truth <= high))


def main() -> None:
    """Run what is missing, one row per run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=99)
    parser.add_argument("--data", type=Path, default=HERE.parents[2] / "shared" / "data" / "gov_census_2018.csv.gz")
    parser.add_argument("--results", type=Path, default=RESULTS / "command.csv")
    chosen = parser.parse_args()
    table = pyarrow.csv.read_csv(chosen.data)
    settings = list(itertools.product(OPTIONS, LEVELS))
    for run in range(len(read_rows(chosen.results, Commanded)), chosen.runs):
        found = one_run(table, *settings[run % len(settings)], run)
        write_rows([found], chosen.results, append=True)
        print(*found, flush=True)


if __name__ == "__main__":
    main()
