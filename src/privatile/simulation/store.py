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

from privatile.errors import InputError, StoreError
from privatile.server.run_file import connect, table_names
from privatile.simulation.engine import Summary
from privatile.simulation.experiment import Entry, Experiment

FORMAT = 2
"""Format 1 did not hold the confidence level; such a file can still be read, and learns it from its design."""
OLDER_LEVEL = 0.95
"""What a design has when it says nothing, and so what an older file is taken for."""
BUSY_SECONDS = 30.0
"""How long to wait for another process that writes."""
FACTS = "title, digest, protocol, replications, seed, cells, created, confidence_level"
# The table is called study since the first version: the name is part of the file format.
SCHEMA = """
CREATE TABLE study (format INTEGER NOT NULL, title TEXT NOT NULL, digest TEXT NOT NULL, protocol TEXT NOT NULL,
                    replications INTEGER NOT NULL, seed INTEGER NOT NULL, cells INTEGER NOT NULL,
                    created REAL NOT NULL, confidence_level REAL);
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
            version = connection.execute("SELECT format FROM study").fetchone()[0]
            facts = FACTS if version != 1 else FACTS.replace("confidence_level", "NULL")
            row = connection.execute(f"SELECT {facts} FROM study").fetchone()
        except (sqlite3.DatabaseError, TypeError):
            version, row = None, None
        if row is None or version not in (1, FORMAT):
            connection.close()
            raise _no_store(path)
        self.title, self.digest, self.protocol, self.replications, self.seed, self.cells, self.created = row[:7]
        self.confidence_level: float | None = row[7]
        """Of every cell's interval; none: an older file does not say."""

    @classmethod
    def open_for(cls, path: str | Path, experiment: Experiment) -> Self:
        """The store of this experiment, made when there is none; the store of another design is refused."""
        name = str(path)
        if Path(path).is_file() and (found := table_names(path)) != set() and "study" not in (found or ()):
            raise _no_store(name)  # another program's file is left as it is
        try:
            connection = connect(path, durable=True, timeout=BUSY_SECONDS, mode=0o666)
            connection.isolation_level = None
            connection.execute("BEGIN IMMEDIATE")
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if not tables:
                for statement in SCHEMA.split(";"):
                    connection.execute(statement)
                names = ("title", "digest", "protocol", "replications", "seed")
                facts = (*(getattr(experiment, name) for name in names), len(experiment.entries), time.time())
                values = (FORMAT, *facts, experiment.confidence_level)
                connection.execute("INSERT INTO study VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
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
        if store.confidence_level is None:
            store._learn(experiment.confidence_level)
        return store

    def _learn(self, confidence_level: float) -> None:
        """Bring an older file up to date: its design, which the digest has confirmed, knows the level."""
        self._connection.execute("BEGIN IMMEDIATE")
        if self._connection.execute("SELECT format FROM study").fetchone()[0] == 1:  # no one else has done it meanwhile
            self._connection.execute("ALTER TABLE study ADD COLUMN confidence_level REAL")
            self._connection.execute("UPDATE study SET format = ?, confidence_level = ?", (FORMAT, confidence_level))
        self._connection.execute("COMMIT")
        self.confidence_level = confidence_level

    @classmethod
    def open_existing(cls, path: str | Path) -> Self:
        """A store to be read."""
        if not Path(path).is_file():
            raise StoreError(f"there is no store {path}. `privatile simulate run DESIGN --store {path}` makes one.")
        return cls(connect(path, read_only=True, timeout=BUSY_SECONDS), str(path))

    def level(self, stated: float | None = None) -> float:
        """The confidence level of the intervals. An older file does not hold it: then as stated, else 0.95."""
        if self.confidence_level is None:
            return OLDER_LEVEL if stated is None else stated
        if stated not in (None, self.confidence_level):
            raise InputError(
                f"the intervals of {self.path} are for confidence level {self.confidence_level:g}, not {stated:g}. "
                "Leave out --confidence-level; for another level run the design again with it."
            )
        return self.confidence_level

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
