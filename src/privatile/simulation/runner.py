"""Run an experiment: its store, its cells one after the other or spread over workers, its rows.

An experiment's store: which design it belongs to, and the summary of every finished cell.

A cell is written in one transaction when it is finished, so a killed run loses at most the cells in flight, and the
next run with the same design continues from there.

An experiment's results: tidy rows to CSV or Parquet, and a table for a terminal.

Run an experiment: cells not yet in the store, one after the other or spread over workers, each kept when finished.

The numbers are the same wherever a cell runs: its streams are named by seed and cell alone.
"""

import csv
import json
import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from privatile.errors import InputError, StoreError, require
from privatile.result.tables import WIDTH, fixed_columns, folded
from privatile.run.run_file import connect, table_names
from privatile.simulation.cells import Cell
from privatile.simulation.cuda import Device
from privatile.simulation.default_design import DefaultCell, summarize_default
from privatile.simulation.engine import Summary, run_cell, run_cells, summarize
from privatile.simulation.experiment import Entry, Experiment

FORMAT = 1
BUSY_SECONDS = 30.0
"""How long to wait for another process that writes."""
FACTS = ("title", "digest", "protocol", "replications", "seed", "confidence_level")
"""What a store takes from its experiment."""
SCHEMA = """
CREATE TABLE experiment (format INTEGER NOT NULL, title TEXT NOT NULL, digest TEXT NOT NULL, protocol TEXT NOT NULL,
                         replications INTEGER NOT NULL, seed INTEGER NOT NULL, confidence_level REAL NOT NULL,
                         cells INTEGER NOT NULL, created REAL NOT NULL);
CREATE TABLE result (place INTEGER PRIMARY KEY, labels TEXT NOT NULL, summary TEXT NOT NULL, seconds REAL NOT NULL,
                     at REAL NOT NULL);
"""


def _no_store(path: str) -> StoreError:
    return StoreError(f"{path} is not the store of an experiment. Give another file for --store.")


class ExperimentStore:
    """Results in SQLite; safe to read while it is written."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection = connection
        self.path = path
        try:
            version, *facts, self.cells, self.created = connection.execute("SELECT * FROM experiment").fetchone()
            self.title, self.digest, self.protocol, self.replications, self.seed, self.confidence_level = facts
        except (sqlite3.DatabaseError, TypeError, ValueError):
            version = None
        if version != FORMAT:
            connection.close()
            raise _no_store(path)

    @classmethod
    def open_for(cls, path: str | Path, experiment: Experiment) -> Self:
        """The store of this experiment, made when there is none; the store of another design is refused."""
        name = str(path)
        if Path(path).is_file() and (found := table_names(path)) != set() and "experiment" not in (found or ()):
            raise _no_store(name)  # another program's file is left as it is
        try:
            connection = connect(path, durable=True, timeout=BUSY_SECONDS, mode=0o666)
            connection.isolation_level = None
            connection.execute("BEGIN IMMEDIATE")
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if not tables:
                for statement in SCHEMA.split(";"):
                    connection.execute(statement)
                facts = (getattr(experiment, fact) for fact in FACTS)
                values = (FORMAT, *facts, len(experiment.entries), time.time())
                connection.execute("INSERT INTO experiment VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"the store {name} cannot be written: {error}. Give a file in a folder you may write to."
            ) from None
        store = cls(connection, name)
        if store.digest != experiment.digest:
            store.close()
            raise StoreError(
                f"the store {name} belongs to another design ({store.title!r}, {store.replications} replications, seed "
                f"{store.seed}, {store.protocol} protocol). Give another file, or the design it was made with."
            )
        return store

    @classmethod
    def open_existing(cls, path: str | Path) -> Self:
        """A store to be read."""
        if not Path(path).is_file():
            raise StoreError(f"there is no store {path}. `privatile simulate run DESIGN --store {path}` makes one.")
        return cls(connect(path, read_only=True, timeout=BUSY_SECONDS), str(path))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def finished(self) -> frozenset[int]:
        """Places of the cells that are done."""
        return frozenset(row[0] for row in self._connection.execute("SELECT place FROM result"))

    def add(self, place: int, entry: Entry, summary: Summary, seconds: float) -> None:
        """Keep a finished cell, durably."""
        row = (place, json.dumps(dict(entry.labels)), json.dumps(asdict(summary)), seconds, time.time())
        try:
            self._connection.execute("INSERT OR IGNORE INTO result VALUES (?, ?, ?, ?, ?)", row)
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"the store {self.path} can no longer be written: {error}. Finished cells are kept."
            ) from None

    def rows(self) -> list[dict[str, Any]]:
        """Finished cells in the order of the design: labels, then the summary, then seconds, one flat row each."""
        query = "SELECT labels, summary, seconds FROM result ORDER BY place"
        try:
            return [
                {**json.loads(labels), **json.loads(summary), "seconds": seconds}
                for labels, summary, seconds in self._connection.execute(query)
            ]
        except (sqlite3.DatabaseError, ValueError, TypeError):
            raise StoreError(
                f"the store {self.path} is damaged. Restore it from a backup, or run the design into a new file."
            ) from None


MARK_AT = 3.0
"""Monte Carlo standard errors beyond which a cell is marked: 1 honest cell in 370."""


def check_output(path: str | Path) -> Path:
    """A path for rows, by its suffix; asked before hours of work are lost over it."""
    file = Path(path)
    if file.suffix not in (".csv", ".parquet"):
        raise InputError(f"the output must end in .csv or .parquet; got {file.name!r}.")
    return file


def write_rows(rows: Sequence[dict[str, Any]], path: str | Path) -> None:
    """Write flat rows, one per cell; the suffix decides: .csv or .parquet."""
    file = check_output(path)
    if not rows:
        raise InputError("there is no finished cell to write yet.")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".parquet":
            import pyarrow.parquet  # type: ignore[import-untyped]  # slow to load, and CSV does without it

            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), file)
            return
        with file.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}. Choose a folder you may write to.") from None


def plain(value: float, form: str) -> str:
    """A number in a format; a dash where there is none.

    >>> plain(0.9471, ".3f"), plain(float("nan"), ".3f")
    ('0.947', '–')
    """
    return "–" if value != value else f"{value:{form}}"


def rounded(value: float, digits: int = 4) -> str:
    """A number with so many digits, all of them before the point; a dash where there is none.

    >>> rounded(143_724.04), rounded(1_028.69), rounded(0.0123456), rounded(191.3, 2), rounded(0.0), rounded(math.nan)
    ('143,724', '1,029', '0.01235', '191', '0', '–')
    """
    if not (math.isfinite(value) and value):
        return plain(value, ",.0f")
    return f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def table_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The cells of an experiment as text, no line wider than a terminal.

    What all cells have in common stands above the table, columns that no cell has are left out, and columns that do not
    fit follow below, beside the same labels.

    >>> cell = {"level": "0.5", "records": "2000", "coverage": 0.96, "coverage_error": 0.004, "mae": 1028.7,
    ...         "mae_error": 19.3, "bias": -34.1, "width": 4884.4, "rmse": 1.0, "bound": math.nan}
    >>> for line in table_lines([cell, cell | {"level": "0.9"}]):
    ...     print(line)
    records 2000
    <BLANKLINE>
    level       coverage         MAE   bias  width
    0.5    0.960 ± 0.004  1,029 ± 19  -34.1  4,884
    0.9    0.960 ± 0.004  1,029 ± 19  -34.1  4,884
    """
    if not rows:
        return ["No cell is finished yet."]
    labels = [name for name in rows[0] if isinstance(rows[0][name], str)]
    common = {name for name in labels if len({row[name] for row in rows}) == 1}
    beside = [[name, *(row[name] for row in rows)] for name in labels if name not in common]
    columns = [column for column in map(list, _columns(rows)) if set(column[1:]) != {"–"}]
    lines = folded(", ".join(f"{name} {rows[0][name]}" for name in labels if name in common), WIDTH)
    while columns:
        block = [*beside, columns.pop(0)]
        while columns and len(_ruler([*block, columns[0]])) <= WIDTH:
            block.append(columns.pop(0))
        lines += ["", *fixed_columns(list(zip(*block, strict=True)))]
    return lines if common else lines[2:]


def _ruler(block: Sequence[Sequence[str]]) -> str:
    return "  ".join("x" * max(map(len, column)) for column in block)


def coverage_text(coverage: float, error: float) -> str:
    """A simulated coverage with its Monte Carlo error; where every run covered, or none, that error says nothing.

    >>> coverage_text(0.957, 0.0041), coverage_text(1.0, 0.0)
    ('0.957 ± 0.004', '1.000')
    """
    shown = plain(coverage, ".3f")
    return shown if error == 0.0 else f"{shown} ± {plain(error, '.3f')}"


def _columns(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Each column with its title; a store of an earlier version lacks some."""
    return [
        ["coverage", *(coverage_text(row["coverage"], row["coverage_error"]) for row in rows)],
        ["MAE", *(f"{rounded(row['mae'])} ± {rounded(row['mae_error'], 2)}" for row in rows)],
        ["bias", *(rounded(row["bias"], 3) for row in rows)],
        ["width", *(rounded(row["width"]) for row in rows)],
        ["error / bound", *(plain(row["rmse"] / row["bound"], ".3f") for row in rows)],
        ["bounded", *(plain(row.get("bounded", math.nan), ".3f") for row in rows)],
        ["other covers", *(plain(row.get("other_coverage", math.nan), ".3f") for row in rows)],
        ["other width", *(rounded(row.get("other_width", math.nan)) for row in rows)],
        ["values left", *(plain(row.get("values_left", math.nan), ".0f") for row in rows)],
    ]


Progress = Callable[[int, int], None]
"""(updates done so far, updates of the whole experiment)."""


MAX_UPDATES = 10**12
"""A launch's work: some seconds on a large GPU."""
MAX_LANES = 1 << 22
"""A launch's replications: 200 MB of generators, starts and results."""


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def evaluate(
    place: int, cell: Cell | DefaultCell, replications: int, seed: int, threads: int = 1
) -> tuple[int, Summary, float]:
    """The place of a cell, its summary and the seconds it took."""
    begun = time.perf_counter()
    if isinstance(cell, DefaultCell):
        summary = summarize_default(cell, cell.run(replications, seed, threads))
    else:
        summary = summarize(cell, run_cell(cell, replications, seed, threads=threads))
    return place, summary, time.perf_counter() - begun


def run_experiment(
    experiment: Experiment,
    store: ExperimentStore,
    *,
    workers: str = "threads",
    address: str | None = None,
    threads: int | None = None,
    device: Device | None = None,
    progress: Progress = lambda done, total: None,
) -> int:
    """Run what is missing; returns how many cells were run.

    workers: "threads" (this machine), "dask", or the name of any registered joblib backend. device: a GPU, which then
    takes the place of the workers. Interrupted at any moment, the store holds every finished cell.
    """
    done = store.finished()
    missing = [(place, entry) for place, entry in enumerate(experiment.entries) if place not in done]
    repeats, seed, total = experiment.replications, experiment.seed, experiment.updates
    so_far = repeats * sum(experiment.entries[place].cell.updates for place in done)
    progress(so_far, total)

    def keep(place: int, summary: Summary, seconds: float) -> None:
        nonlocal so_far
        store.add(place, experiment.entries[place], summary, seconds)
        so_far += summary.updates
        progress(so_far, total)

    if device is not None:
        if workers != "threads":
            raise InputError(f"a GPU takes the place of workers: leave out --device cuda or --workers {workers}.")
        compiled = [(place, entry.cell) for place, entry in missing if isinstance(entry.cell, Cell)]
        for group in _groups(compiled, repeats):
            begun = time.perf_counter()
            outcomes = run_cells([cell for _, cell in group], repeats, seed, device.launch)
            each = (time.perf_counter() - begun) / len(group)
            for (place, cell), outcome in zip(group, outcomes, strict=True):
                keep(place, summarize(cell, outcome), each)
    if workers == "threads":
        for place, entry in missing:
            # The kernels have fixed schedules; the default design runs on the processor.
            if device is None or not isinstance(entry.cell, Cell):
                keep(*evaluate(place, entry.cell, repeats, seed, threads or cores()))
    elif missing:
        # The largest cells first: no worker is left alone with one at the end.
        missing.sort(key=lambda item: -item[1].cell.updates)
        with _backend(workers, address, threads) as joblib:
            jobs = (joblib.delayed(evaluate)(place, entry.cell, repeats, seed) for place, entry in missing)
            for found in joblib.Parallel(n_jobs=threads or -1, return_as="generator_unordered")(jobs):
                keep(*found)
    return len(missing)


def _groups(missing: Sequence[tuple[int, Cell]], replications: int) -> Iterator[list[tuple[int, Cell]]]:
    """Cells to launch together: many, so that the GPU is full; not all, so that an interruption loses seconds."""
    group: list[tuple[int, Cell]] = []
    updates = lanes = 0
    for item in missing:
        more = replications * item[1].updates
        if group and (updates + more > MAX_UPDATES or lanes + replications > MAX_LANES):
            yield group
            group, updates, lanes = [], 0, 0
        group.append(item)
        updates, lanes = updates + more, lanes + replications
    if group:
        yield group


@contextmanager
def _backend(name: str, address: str | None, threads: int | None) -> Iterator[Any]:
    """joblib with the named backend active; for dask also a client, of the cluster at `address` or a local one."""
    joblib = require("joblib", "dask")
    if name == "dask":
        distributed = require("distributed", "dask")
        if address is not None:
            try:
                client = distributed.Client(address)
            except (OSError, ValueError):
                raise InputError(
                    f"no Dask scheduler answers at {address!r}. --scheduler takes its address, as in "
                    "tcp://127.0.0.1:8786; without it a local cluster is started."
                ) from None
        else:
            # Its own page on any free port: another study may run on this machine.
            client = distributed.Client(
                n_workers=threads or cores(), threads_per_worker=1, dashboard_address="127.0.0.1:0"
            )
        with client, joblib.parallel_config(backend="dask"):
            yield joblib
        return
    if address is not None:
        raise InputError(f"--scheduler goes with --workers dask; the workers are {name!r}.")
    try:
        configuration = joblib.parallel_config(backend=name)
    except ValueError:
        raise InputError(
            f"workers must be threads, dask or a registered joblib backend (loky, …); got {name!r}."
        ) from None
    with configuration:
        yield joblib
