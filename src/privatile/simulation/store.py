"""An experiment's store: which design it belongs to, and the summary of every finished cell.

A cell is written in one transaction when it is finished, so a killed run loses at most the cells in flight, and the
next run with the same design continues from there.
"""

import json
import sqlite3
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from privatile.errors import StoreError
from privatile.server.sqlite_files import connect, table_names
from privatile.simulation.engine import Summary
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
