"""The salary table through the command itself, as a new user runs it: the README's options and nothing else.

python -m studies.any_shape.command [--together 99] [--by-region 72] [--data FILE]

Run after run takes the next of nine settings: salary, age and hours worked at the levels .25, .5 and .9; first with the
regions as clients, then one region per run (`--only economic_region=NAME`), the next region in every run. Every run
draws as many records as the table has, with replacement, into a file of its own, has a ledger of its own, and is one
process. What the command shows is held against the quantile of the column, or of the column in that region.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.csv  # type: ignore[import-untyped]
from studies.any_shape.cells import LEVELS
from studies.any_shape.run import RESULTS
from studies.coverage.rows import read_rows, write_rows

HERE = Path(__file__).parent
OPTIONS = {
    "salary": ("--range", "1000", "1000000", "--scale", "log"),
    "age": ("--range", "0", "120"),
    "hours_worked": ("--range", "0", "100"),
}
FEWEST = 1000
"""Records of a region that is asked by itself; the one below has 153."""
SEED = 20_261_116
BY_REGION = 10_000
"""Seed of the first run with one region."""


class Commanded(NamedTuple):
    """One run of the command."""

    column: str
    level: float
    truth: float
    low: float
    high: float
    covers: int
    region: str = ""
    """The region that was asked; empty: all of them, as clients."""
    date: str = ""


def one_run(table: Any, column: str, level: float, region: str, seed: int) -> "Commanded":
    """Draw a file, run the command on it, and read what it printed."""
    values = table[column].to_numpy()
    if region:
        values = values[table["economic_region"].to_numpy(zero_copy_only=False) == region]
    truth = float(np.quantile(values, level, method="inverted_cdf"))
    rows = np.random.default_rng([SEED, seed]).integers(0, table.num_rows, table.num_rows)
    chosen = ["--only", f"economic_region={region}"] if region else ["--client", "economic_region"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "people.csv"
        pyarrow.csv.write_csv(table.select(["economic_region", column]).take(rows), file)
        home = {"HOME": folder, "XDG_STATE_HOME": folder, "XDG_DATA_HOME": folder, "XDG_CONFIG_HOME": folder}
        command = [sys.executable, "-m", "privatile", "estimate", str(file), "--value", column, *chosen]
        command += ["--q", f"{level:g}", "--epsilon", "1", *OPTIONS[column], "--json"]
        home = {**os.environ, **home}
        done = subprocess.run(command, env=home, cwd=folder, capture_output=True, text=True, check=True)
    (result,) = json.loads(done.stdout)["results"]
    shown = result["confidence_interval"]
    low, high = float(shown["low"]), float(shown["high"])
    covers = int(low <= truth <= high)
    return Commanded(column, level, truth, low, high, covers, region, time.strftime("%Y-%m-%d"))


def main() -> None:
    """Run what is missing, one row per run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--together", type=int, default=99)
    parser.add_argument("--by-region", type=int, default=72)
    parser.add_argument("--data", type=Path, default=HERE.parents[2] / "shared" / "data" / "gov_census_2018.csv.gz")
    parser.add_argument("--results", type=Path, default=RESULTS / "command.csv")
    chosen = parser.parse_args()
    table = pyarrow.csv.read_csv(chosen.data)
    sizes = {each["values"]: each["counts"] for each in table["economic_region"].value_counts().to_pylist()}
    regions = sorted(name for name, size in sizes.items() if size >= FEWEST)
    settings = list(itertools.product(OPTIONS, LEVELS))
    done = [bool(row.region) for row in read_rows(chosen.results, Commanded)]
    for run in range(done.count(False), chosen.together):
        kept(one_run(table, *settings[run % len(settings)], "", run), chosen.results)
    for run in range(done.count(True), chosen.by_region):
        # Nine settings and eight regions: all pairs come once in 72 runs.
        setting, region = settings[run % len(settings)], regions[run % len(regions)]
        kept(one_run(table, *setting, region, BY_REGION + run), chosen.results)


def kept(found: "Commanded", path: Path) -> None:
    """Append a row and print it."""
    write_rows([found], path, append=True)
    print(*found, flush=True)


if __name__ == "__main__":
    main()
