"""A run's file: its specification, and of every round what was asked and the counts. Nothing in it is private.

What was asked is data, like the counts: another machine would not compute a question to the last bit. The state is not
stored: it follows from questions and counts, so a file can always be checked against its own numbers. The round that is
open now is written before anybody is asked: a run that continues elsewhere asks the same question.

Opening SQLite files that are read while they are written: permissions, durability, errors in words.
"""

import json
import math
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from privatile import __version__
from privatile.core.messages import LARGEST_LENGTH
from privatile.core.sqlite_types import lenient_text
from privatile.core.text import moment
from privatile.errors import InputError, StoreError
from privatile.estimator.open_ended import REASONS, Reason
from privatile.estimator.plan import Ask
from privatile.estimator.spec import RunSpec
from privatile.run.tables import ENDING, FORMAT, OWN, check_file, missing_run, named, program


def table_names(path: str | Path) -> set[str] | None:
    """What an SQLite file holds, tables above all; it is only read. None where it is no database."""
    try:
        with closing(connect(path, read_only=True)) as look:
            return {name for (name,) in look.execute("SELECT name FROM sqlite_master")}
    except (sqlite3.DatabaseError, StoreError):
        return None


def connect(
    path: str | Path, *, durable: bool = False, read_only: bool = False, timeout: float = 5.0, mode: int = 0o600
) -> sqlite3.Connection:
    """Open an SQLite file that is read while it is written; a new one gets the permissions `mode`."""
    try:
        if read_only:
            reader = sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True, timeout=timeout)
            reader.text_factory = lenient_text
            return reader
        if str(path) != ":memory:":
            # The permissions are set before SQLite opens the file.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, mode))
        connection = sqlite3.connect(path, timeout=timeout)
        connection.text_factory = lenient_text
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        connection.execute("PRAGMA secure_delete=ON")  # what a finished run no longer says is gone from its file
    except (sqlite3.OperationalError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        can, may = ("read", "read") if read_only else ("written", "write")
        raise StoreError(
            f"{path} cannot be {can} ({why}). Check that its folder exists and that you may {may} there."
        ) from None
    return connection


MAX_STAGE = 40
"""Characters of a stage's name, which errors show."""

Statement = tuple[str, tuple[Any, ...]]
"""One SQL statement and its values."""


class StoredRound(NamedTuple):
    """One round of one level: what was asked, and the counts (None: no answer)."""

    level_index: int
    round: int
    ask: Ask
    ones: tuple[int | None, ...] = ()
    unspent: tuple[int, ...] = ()
    """Places of the clients whose ledgers show that no coin was drawn in the rounds missed before this answer."""
    at: float = 0.0


def _written(level_index: int, number: int, ask: Ask) -> tuple[Any, ...]:
    """The columns of `ASKED`."""
    lengths = json.dumps(ask.lengths)
    return (level_index, number, ask.stage, ask.query, ask.sent, lengths, ask.step, int(ask.averaged))


def _read(row: tuple[Any, ...]) -> tuple[int, int, Ask]:
    """What `_written` wrote; a ValueError or TypeError where it is something else."""
    level_index, number, stage, query, sent, lengths, step, averaged = row
    records = tuple(json.loads(lengths))
    if not all(type(count) is int and 0 <= count <= LARGEST_LENGTH for count in records):
        raise ValueError("lengths are whole numbers")
    if not all(math.isfinite(real) for real in (query, sent, step)):
        raise ValueError("queries and steps are finite")
    if len(stage) > MAX_STAGE or not stage.isprintable():
        raise ValueError("a stage is a word")
    return level_index, number, Ask(float(query), records, float(step), bool(averaged), str(stage), float(sent))


def _read_counts(text: str, asked: tuple[int, ...]) -> tuple[int | None, ...]:
    """The counts of a round, one for each client that was asked; a ValueError where they are something else."""
    counts = tuple(json.loads(text))
    if len(counts) != len(asked):
        raise ValueError("every client has a count")
    if not all(n is None or (type(n) is int and 0 <= n <= most) for n, most in zip(counts, asked, strict=True)):
        raise ValueError("counts are whole numbers")
    return counts


def _read_unspent(text: str, clients: int) -> tuple[int, ...]:
    """Places of clients, in order; a ValueError where it is something else."""
    places = tuple(json.loads(text))
    if not all(type(place) is int and 0 <= place < clients for place in places) or sorted(set(places)) != list(places):
        raise ValueError("these are places of clients, in order")
    return places


def opening(rounds: Sequence[StoredRound]) -> list[Statement]:
    """What writes the round that is asked next, for every level that is not over."""
    statement = "INSERT INTO open_round VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    return [("DELETE FROM open_round", ()), *((statement, _written(*entry[:3])) for entry in rounds)]


class RunStore:
    """A run in SQLite: rounds are only appended, and it is safe to read while it is written."""

    def __init__(self, connection: sqlite3.Connection, path: str, *, writes: bool = True) -> None:
        self._connection = connection
        self._writes = writes
        self.path = path
        try:
            row = connection.execute("SELECT version, program, id, spec, digest, created FROM run").fetchone()
        except sqlite3.DatabaseError:
            raise StoreError(f"{path} is damaged and cannot be read. Restore it from a backup.") from None
        self.version: str = row[0]
        """The version of privatile that began the run."""
        self.program: str = row[1]
        """The digest of its sources."""
        self.run: str = row[2]
        self.created: float = row[5]
        self._last: float | None = None
        try:
            self.spec = RunSpec.from_json(row[3])
        except (InputError, ValueError, TypeError, KeyError) as error:
            raise self.unreadable(f"its specification cannot be read: {error}") from None
        if self.spec.digest != row[4]:
            raise StoreError(f"{path} was altered: its specification does not match its digest.")

    @property
    def date(self) -> str | None:
        """When the run began, as results tell it."""
        return moment(self.created)

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
                for statement in OWN:
                    connection.execute(statement)
                connection.execute(
                    "INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?, NULL)",
                    (FORMAT, __version__, program(), run, spec.to_json(), spec.digest, time.time()),
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
            check_file(look, path)
        return cls(connect(path, durable=durable, read_only=read_only), str(path), writes=not read_only)

    @classmethod
    @contextmanager
    def frozen(cls, path: str | Path) -> Iterator[Self]:
        """A file of somebody else's as it is at one moment: checked, and read to the end, in one transaction.

        So a digest, signatures and a replay are over the same rows, whatever is done to the file meanwhile.
        """
        if not Path(path).is_file():
            raise missing_run(path)
        with closing(connect(path, read_only=True)) as connection:
            connection.execute("BEGIN")
            check_file(connection, path)
            try:
                intact = connection.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",)
            except sqlite3.DatabaseError:
                intact = False
            if not intact:
                # Rows out of order, which one statement finds and another does not.
                raise StoreError(f"{path} is damaged and cannot be read. Restore it from a backup.")
            yield cls(connection, str(path), writes=False)

    @staticmethod
    def is_blank(path: str | Path) -> bool:
        """Whether the run was killed before anything was written: a database without a table."""
        return table_names(path) == set()

    def append(self, rounds: Sequence[StoredRound], also: Sequence[Statement] = ()) -> float:
        """Write one round of every level, and what the caller keeps with it, in one transaction; gives its time.

        A clock that was set back gives no time before that of the last round, or of the beginning: rounds follow each
        other.
        """
        if self._last is None:
            ((last,),) = self.query("SELECT max(at) FROM rounds")
            self._last = self.created if last is None else max(self.created, last)
        now = max(time.time(), self._last)
        rows = [(*_written(*entry[:3]), json.dumps(entry.ones), json.dumps(entry.unspent), now) for entry in rounds]
        self.execute([*also, *(("INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row) for row in rows)])
        self._last = now
        return now

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read the file as it is at one moment, whatever is written meanwhile."""
        if self._connection.in_transaction:  # of a moment already (`frozen`)
            yield
            return
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.rollback()

    def open_round(self) -> list[StoredRound]:
        """What was written to be asked next, one entry per level that is not over."""
        rows = self.query("SELECT level, round, stage, query, sent, lengths, step, averaged FROM open_round")
        try:
            return [StoredRound(*_read(row)) for row in rows]
        except (ValueError, TypeError, RecursionError):
            raise self._damaged() from None

    @property
    def writes(self) -> bool:
        """Whether rounds may be added."""
        return self._writes

    def _damaged(self) -> StoreError:
        return self.unreadable("it cannot be read to its end.")

    def unreadable(self, why: str) -> StoreError:
        """The error for a file whose content this program does not accept: damaged only where this program wrote it."""
        if self.program == program():
            return StoreError(
                f"{self.path} does not replay: {why} It was altered or is damaged. Restore it from a backup."
            )
        return StoreError(
            f"{self.path} does not replay here: {why} It was written by {named(self.version, self.program)}, and this "
            f"is {named(__version__, program())}. Read it with the version that wrote it."
        )

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
        except sqlite3.DatabaseError as error:
            if "no such table" in str(error):
                return []
            raise StoreError(f"{self.path} could not be read ({error}).") from None

    def rounds(self, level_index: int = 0, after: int = 0) -> Iterator[StoredRound]:
        """The rounds of one level, in order, from round `after` + 1 on."""
        try:
            cursor = self._connection.execute(
                "SELECT level, round, stage, query, sent, lengths, step, averaged, ones, unspent, at FROM rounds "
                "WHERE level = ? AND round > ? ORDER BY round",
                (level_index, after),
            )
            for row in cursor:
                asked = _read(row[:8])
                clients = len(self.spec.clients)
                if len(asked[2].lengths) != clients:
                    raise ValueError("every client was asked")
                counts = _read_counts(row[8], asked[2].lengths)
                yield StoredRound(*asked, counts, _read_unspent(row[9], clients), row[10])
        except (sqlite3.DatabaseError, ValueError, TypeError, RecursionError):
            raise self._damaged() from None

    def all_rounds(self) -> Iterator[StoredRound]:
        """The rounds of all levels, level by level."""
        for level_index in range(len(self.spec.levels)):
            yield from self.rounds(level_index)

    @property
    def finished(self) -> float | None:
        """When the run was over, by what the file has now: another process may have ended it."""
        at: float | None = self.query("SELECT finished FROM run")[0][0]
        return at

    @property
    def why_ended(self) -> Reason | None:
        """Why an open-ended run is over; none while it goes on, and for all other runs."""
        rows = self.query("SELECT why FROM ending")
        if not rows:
            return None
        if len(rows) > 1 or rows[0][0] not in REASONS:
            raise self._damaged()
        why: Reason = rows[0][0]
        date = self.spec.end.seconds if self.spec.end is not None else None
        if why == "date" and date is not None and self.finished is not None and self.finished < date:
            # Whoever may stop when the result suits them has no interval for a fixed end.
            raise self.unreadable("it ended by its date before that date had come.")
        return why

    def finish(
        self, why: Reason | None = None, rounds: Sequence[StoredRound] = (), also: Sequence[Statement] = ()
    ) -> None:
        """Mark the run as complete; `why` is given for an open-ended one.

        Rounds that are not written yet, and what the caller keeps with them, go into the same transaction (`append`).
        """
        ending: list[Statement] = [] if why is None else [(ENDING, ()), ("INSERT INTO ending VALUES (?)", (why,))]
        # The open round, the writer (server.writer) and the ledger's link belong to a run that continues.
        self.append(
            rounds,
            [
                *also,
                *ending,
                ("UPDATE run SET finished = ?", (time.time(),)),
                ("DELETE FROM open_round", ()),
                ("DROP TABLE IF EXISTS writer", ()),
                ("DROP TABLE IF EXISTS ledger", ()),
            ],
        )

    def close(self) -> None:
        """Close the file. A finished run is complete in its one file, which people copy: its log is folded in.

        Where somebody has the file open, the log stays beside it, empty.
        """
        with suppress(sqlite3.Error, StoreError):
            if self._writes and self.finished is not None:
                self._connection.execute("PRAGMA busy_timeout = 1000")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._connection.execute("PRAGMA busy_timeout = 0")
                self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
