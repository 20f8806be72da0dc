"""A run's file: its specification and every round's counts. Nothing in it is private.

The state is not stored: it is a pure function of the counts, so a file can always be checked against its own numbers.
"""

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from privatile.errors import InputError, StoreError
from privatile.estimator.spec import RunSpec

FORMAT = 1
SCHEMA = """
CREATE TABLE run (format INTEGER NOT NULL, id TEXT NOT NULL, spec TEXT NOT NULL, digest TEXT NOT NULL,
                  created REAL NOT NULL, finished REAL);
CREATE TABLE rounds (level INTEGER NOT NULL, round INTEGER NOT NULL, query REAL NOT NULL, sent REAL NOT NULL,
                     step REAL NOT NULL, averaged INTEGER NOT NULL, lengths TEXT NOT NULL, ones TEXT NOT NULL,
                     after REAL NOT NULL, mean REAL, normalizer REAL, at REAL NOT NULL,
                     PRIMARY KEY (level, round)) WITHOUT ROWID;
"""


Statement = tuple[str, tuple[Any, ...]]
"""One SQL statement and its values."""


class StoredRound(NamedTuple):
    """One round of one level: what was asked, the counts (None: no answer), and the estimate after it."""

    level_index: int
    round: int
    query: float
    sent: float
    """The query as it was sent, in units: another machine's `exp` may differ in the last bit."""
    step: float
    averaged: bool
    lengths: tuple[int, ...]
    ones: tuple[int | None, ...]
    after: float
    """The query after the step, on the working scale."""
    mean: float | None
    """The running mean, on the working scale."""
    normalizer: float | None
    """V of Algorithm 2."""
    at: float = 0.0


class ClientTotals(NamedTuple):
    """One client's part of a run so far, over all levels."""

    asked: int
    """Records that the rounds asked for."""
    answered: int
    """Records that answered."""
    silent: int
    """Rounds without an answer, counted per level."""


class RunStore:
    """A run in SQLite: rounds are only appended, and it is safe to read while it is written."""

    def __init__(self, connection: sqlite3.Connection, path: str, *, writes: bool = True) -> None:
        self._connection = connection
        self._writes = writes
        self.path = path
        try:
            row = connection.execute("SELECT id, spec, digest, created, finished FROM run").fetchone()
        except sqlite3.DatabaseError:
            raise self._damaged() from None
        self.run: str = row[0]
        self.created: float = row[3]
        self.finished: float | None = row[4]
        try:
            self.spec = RunSpec.from_json(row[1])
        except (InputError, ValueError, TypeError, KeyError) as error:
            raise StoreError(f"{path} holds a run that this version cannot read: {error}") from None
        if self.spec.digest != row[2]:
            raise StoreError(f"{path} was altered: its specification does not match its digest.")

    @classmethod
    def create(cls, path: str | Path, run: str, spec: RunSpec, *, durable: bool = False) -> Self:
        """Make a file. `durable` waits for the disk at every round; without it a power cut may lose the last rounds."""
        if str(path) != ":memory:" and Path(path).exists():
            raise StoreError(f"{path} exists already. Name another file, or remove it.")
        connection = connect(path, durable=durable)
        try:
            with connection:
                # One transaction: killed in between, the file is blank or holds the run.
                connection.execute("BEGIN IMMEDIATE")
                for statement in SCHEMA.split(";")[:-1]:
                    connection.execute(statement)
                connection.execute(
                    "INSERT INTO run VALUES (?, ?, ?, ?, ?, NULL)",
                    (FORMAT, run, spec.to_json(), spec.digest, time.time()),
                )
        except sqlite3.Error as error:
            raise StoreError(f"{path} cannot be written ({error}).") from None
        return cls(connection, str(path))

    @classmethod
    def open(cls, path: str | Path, *, durable: bool = False, read_only: bool = False) -> Self:
        """Open an existing file, to continue the run or to read it."""
        if not Path(path).is_file():
            raise missing_run(path)
        # Check before writing: another program's database must stay as it is.
        with closing(connect(path, read_only=True)) as look:
            try:
                row = look.execute("SELECT format FROM run").fetchone()
            except sqlite3.DatabaseError:
                raise no_run(path) from None
        if row is None:
            raise no_run(path)
        if row[0] != FORMAT:
            raise StoreError(
                f"{path} holds a run of another format; this version reads format {FORMAT}. Use the privatile that "
                "wrote it, or restore the file from a backup where it is damaged."
            )
        return cls(connect(path, durable=durable, read_only=read_only), str(path), writes=not read_only)

    def to_bytes(self) -> bytes:
        """A copy of the whole file, which outlives it."""
        copy = bytearray(self._connection.serialize())
        copy[18:20] = b"\x01\x01"  # not in write-ahead mode, which a database in memory does not have
        return bytes(copy)

    @classmethod
    def from_bytes(cls, copy: bytes) -> Self:
        """Read a copy that `to_bytes` made."""
        connection = sqlite3.connect(":memory:")
        connection.deserialize(copy)
        return cls(connection, ":memory:", writes=False)

    @staticmethod
    def is_blank(path: str | Path) -> bool:
        """Whether the run was killed before anything was written: a database without a table."""
        return table_names(path) == set()

    def append(self, rounds: list[StoredRound], also: Sequence[Statement] = ()) -> None:
        """Write one round of every level, and what the caller keeps with it, in one transaction."""
        now = time.time()
        rows = [
            (*entry[:5], int(entry.averaged), json.dumps(entry.lengths), json.dumps(entry.ones), *entry[8:11], now)
            for entry in rounds
        ]
        self.execute(
            [*also, *(("INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row) for row in rows)]
        )

    def _damaged(self) -> StoreError:
        return StoreError(f"{self.path} is damaged and cannot be read to its end. Restore it from a backup.")

    def _unwritable(self, error: sqlite3.Error) -> StoreError:
        return StoreError(
            f"{self.path} could not be written ({error}). Nothing is lost: free the disk and give the same command "
            "again."
        )

    def execute(self, statements: Sequence[Statement]) -> None:
        """Carry out statements in one transaction; a caller may keep tables of its own in the file."""
        try:
            with self._connection:
                for statement, values in statements:
                    self._connection.execute(statement, values)
        except sqlite3.Error as error:
            raise self._unwritable(error) from None

    def query(self, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Rows of a caller's own tables; none where the table does not exist."""
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return []
            raise StoreError(f"{self.path} could not be read ({error}).") from None

    def rounds(self, level_index: int = 0, after: int = 0) -> Iterator[StoredRound]:
        """The rounds of one level, in order, from round `after` + 1 on."""
        try:
            cursor = self._connection.execute(
                "SELECT level, round, query, sent, step, averaged, lengths, ones, after, mean, normalizer, at"
                " FROM rounds WHERE level = ? AND round > ? ORDER BY round",
                (level_index, after),
            )
            for row in cursor:
                lengths, ones = tuple(json.loads(row[6])), tuple(json.loads(row[7]))
                yield StoredRound._make((*row[:5], bool(row[5]), lengths, ones, *row[8:]))
        except (sqlite3.DatabaseError, ValueError, TypeError):
            raise self._damaged() from None

    def all_rounds(self) -> Iterator[StoredRound]:
        """The rounds of all levels, level by level."""
        for level_index in range(len(self.spec.levels)):
            yield from self.rounds(level_index)

    def client_totals(self) -> dict[str, ClientTotals]:
        """What every client was asked and has answered so far."""
        names = [client.name for client in self.spec.clients]
        asked, answered, silent = ([0] * len(names) for _ in range(3))
        for stored in self.all_rounds():
            for k, (length, ones) in enumerate(zip(stored.lengths, stored.ones, strict=True)):
                asked[k] += length
                answered[k] += length if ones is not None else 0
                silent[k] += ones is None
        return {name: ClientTotals(*row) for name, *row in zip(names, asked, answered, silent, strict=True)}

    def finish(self) -> None:
        """Mark the run as complete."""
        self.finished = time.time()
        # The writer table (server.writer) belongs to a run that continues.
        self.execute([("UPDATE run SET finished = ?", (self.finished,)), ("DROP TABLE IF EXISTS writer", ())])

    def close(self) -> None:
        """Close the file. A finished run becomes a single file: its log is folded in, unless somebody is reading."""
        if self.finished is not None and self._writes:
            with suppress(sqlite3.Error):
                self._connection.execute("PRAGMA busy_timeout = 0")
                self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def table_names(path: str | Path) -> set[str] | None:
    """What an SQLite file holds, tables above all; it is only read. None where it is no database."""
    try:
        with closing(connect(path, read_only=True)) as look:
            return {name for (name,) in look.execute("SELECT name FROM sqlite_master")}
    except (sqlite3.DatabaseError, StoreError):
        return None


def missing_run(path: str | Path) -> StoreError:
    """The error for a file that does not exist."""
    if Path(path).is_dir():
        return StoreError(f"{path} is a folder, not a run file. Give the path of a file.")
    return StoreError(f"there is no run file {path}. `privatile estimate … --save {path}` makes one.")


def no_run(path: str | Path) -> StoreError:
    """The error for a file that holds something else."""
    return StoreError(
        f"{path} is not a run file, or a damaged one. Give a file that --save made, or restore it from a backup."
    )


def connect(
    path: str | Path, *, durable: bool = False, read_only: bool = False, timeout: float = 5.0, mode: int = 0o600
) -> sqlite3.Connection:
    """Open an SQLite file that is read while it is written; a new one gets the permissions `mode`."""
    try:
        if read_only:
            return sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True, timeout=timeout)
        if str(path) != ":memory:":
            # The permissions are set before SQLite opens the file.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, mode))
        connection = sqlite3.connect(path, timeout=timeout)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
    except (sqlite3.OperationalError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        can, may = ("read", "read") if read_only else ("written", "write")
        raise StoreError(
            f"{path} cannot be {can} ({why}). Check that its folder exists and that you may {may} there."
        ) from None
    return connection
