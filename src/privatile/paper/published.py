"""What the paper has: the designs of its tables and the values it prints."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from privatile.errors import InputError
from privatile.simulation.experiment import Experiment, Protocol, read_experiment

TABLES = ("table1", "table2", "table3", "table4")


def designs_folder() -> Path:
    """Where the paper's designs are: in the installed package, or in the checkout."""
    here = Path(__file__).resolve()
    for folder in (here.parent / "designs", here.parents[3] / "studies" / "paper"):
        if folder.is_dir():
            return folder
    raise InputError("the paper's designs are missing from this installation: reinstall privatile.")


def paper_experiment(table: str, protocol: Protocol = "independent", replications: int | None = None) -> Experiment:
    """The design of a table, or `divide`, a comparison that no table of the paper has."""
    return read_experiment(designs_folder() / f"{table}.toml", protocol=protocol, replications=replications)


class Published(NamedTuple):
    """A printed pair."""

    coverage: float
    mae: float


def published_tables() -> dict[tuple[str, ...], Published]:
    """(table, scenario, size, level, truth rate, method) -> what is printed there."""
    names = ("scenario", "size", "tau", "truth_rate", "method")
    return {
        (f"table{row['table']}", *(row[name] for name in names)): Published(float(row["coverage"]), float(row["mae"]))
        for row in _rows("published_tables.csv")
    }


def published_salary() -> dict[tuple[str, str, str], tuple[float, float]]:
    """(level, truth rate, method) -> (estimate, interval length) as printed."""
    return {
        (row["tau"], row["truth_rate"], row["method"]): (float(row["estimate"]), float(row["interval_length"]))
        for row in _rows("published_salary.csv")
    }


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (designs_folder() / name).open(encoding="utf-8", newline="") as stream:
        yield from csv.DictReader(stream)
