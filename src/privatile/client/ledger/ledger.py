"""The ledger: who has answered, kept in one SQLite file that is durable before any answer leaves.

meta      fingerprints of this ledger's key and of the person key; the seal; whether it was restored or is a copy;
              the last limit that was given (`max_epsilon`); which data sets hold people of no other one (`new people`)
    datasets  a client's column, or a weight class of it (then `holder` is the client), known by a keyed digest of its
              content: records, cursor, lost in a restore
    splits    the whole columns that data sets are parts of, by keyed digest, and how they are split (`datasets`)
    runs      a run at a client: threshold and ε, where it began, the span it has reserved, how much it has asked
    answers   every answer: question, span of the order, count; each row carries the head of a hash chain
    people    keyed hash of a person -> ε spent for life
    charges   what people have spent since they were last folded into that index (`lifetime_budgets`)

The cursor counts positions of a fixed random order (`shuffle`). Position p is record p mod n: a run walks forward
from the cursor, and only a run that may spend again walks past n. Nothing in the file is a record's value.

The key (order, digests, chain, seal) lies apart, in a file of its own (`key_files`). The chain covers the answers, the
seal all other rows that decide who may answer (`seal`).

The file is made at the first commit: opening a ledger and reading from it writes nothing.

The ledger as a file: its tables, how it is opened, and what is said when it cannot be trusted.

Answers that were given, as the ledger holds them: whoever asks again gets the same.
"""

import hashlib
import json
import logging
import os
import re
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

from privatile.client.ledger.integrity import FINGERPRINT_BYTES, LedgerKey, Mark, PersonKey, Seal, derive
from privatile.client.ledger.people import LifetimeBudgets
from privatile.core.file_systems import journal_for
from privatile.core.messages import HEAD_BYTES, Answer, Position, Question
from privatile.core.private_files import create_private, key_folder, remove_drafts
from privatile.core.sqlite_types import is_as_declared, lenient_text
from privatile.core.text import printable
from privatile.errors import LedgerBusy, LedgerError

APPLICATION = 0x5072764C  # "PrvL"
VERSION = 6

ORDER = 1
"""Which order of records the ledger's cursors count in (`order.tags`): kept in `meta`, and no other one is used."""

READ_BY = "d3633e0a"
"""The commit whose program reads ledgers of the version before."""

BUSY_SECONDS = 2.0
"""How long to wait for another process: a commit takes about a millisecond, so two seconds mean a stuck holder."""

LARGEST_CHECKED = 1 << 26
"""Files up to this size (64 MiB, about 250,000 answers) are read through at opening (0.4 s), larger ones when used."""

DECIDING = ("meta", "datasets", "splits", "runs", "charges")
"""The small tables that decide who may answer: their pages and indices are compared in files of any size."""

SCHEMA = f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
CREATE TABLE meta (
    key TEXT PRIMARY KEY, value ANY NOT NULL CHECK (typeof(value) = CASE key WHEN 'max_epsilon' THEN 'real'
        WHEN 'order' THEN 'integer' WHEN 'folded' THEN 'integer' WHEN 'indexed' THEN 'integer' ELSE 'blob' END))
    STRICT, WITHOUT ROWID;
CREATE TABLE datasets (
    id INTEGER PRIMARY KEY, client TEXT NOT NULL, holder TEXT NOT NULL, column TEXT NOT NULL, digest BLOB NOT NULL,
    content BLOB NOT NULL, person TEXT, records INTEGER NOT NULL CHECK (records > 0),
    cursor INTEGER NOT NULL CHECK (cursor >= 0),
    lost INTEGER NOT NULL DEFAULT 0, UNIQUE (client, column, digest)) STRICT;
CREATE TABLE splits (
    source BLOB NOT NULL, split BLOB NOT NULL, column TEXT NOT NULL,
    dataset INTEGER NOT NULL REFERENCES datasets (id),
    PRIMARY KEY (source, split, column, dataset)) STRICT, WITHOUT ROWID;
CREATE INDEX splits_of ON splits (dataset);
CREATE TABLE runs (
    run TEXT NOT NULL, client TEXT NOT NULL, dataset INTEGER NOT NULL REFERENCES datasets (id),
    epsilon REAL NOT NULL, first INTEGER NOT NULL, spend_again INTEGER NOT NULL,
    lost_through INTEGER NOT NULL DEFAULT 0, next INTEGER NOT NULL DEFAULT 0,
    reserved INTEGER NOT NULL DEFAULT 0 CHECK (reserved >= next), answers INTEGER NOT NULL DEFAULT 0,
    asked INTEGER NOT NULL DEFAULT 0, unproven INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (run, client)) STRICT, WITHOUT ROWID;
CREATE INDEX runs_of ON runs (dataset);
CREATE TABLE answers (
    sequence INTEGER PRIMARY KEY, run TEXT NOT NULL, client TEXT NOT NULL, number INTEGER NOT NULL,
    round INTEGER, level REAL, query REAL, step REAL, start INTEGER NOT NULL,
    stop INTEGER NOT NULL CHECK (stop > start),
    length INTEGER NOT NULL CHECK (length BETWEEN 1 AND stop - start),
    ones INTEGER CHECK (ones BETWEEN 0 AND length), head BLOB NOT NULL,
    FOREIGN KEY (run, client) REFERENCES runs (run, client), UNIQUE (run, client, round, level)) STRICT;
CREATE TABLE people (person INTEGER PRIMARY KEY, epsilon REAL NOT NULL) STRICT;
CREATE TABLE charges (id INTEGER PRIMARY KEY, epsilon REAL NOT NULL, people BLOB NOT NULL) STRICT;
"""


CAUSES = (
    ("readonly|read-only", "cannot be written", "Every answer is recorded before it leaves: make the file writable."),
    ("full", "cannot grow: the disk is full", "Nothing was answered. Free some space and start again."),
    ("unable to open", "cannot be opened", "Check that its folder exists and that you may write there."),
    (
        "malformed|not a database",
        "is damaged or is not a ledger",
        "Restore it from a backup, then mark as spent what was answered since. Never start from an empty one.",
    ),
)
"""What SQLite says, what that means, and how to fix it."""


def explain(path: Path | None, error: sqlite3.Error) -> LedgerError:
    """What SQLite said, and how to fix it. SQLite's own texts never hold a bound value."""
    name = str(path) if path else "in memory"
    text = str(error).lower()
    if re.search("locked|busy", text):
        return LedgerBusy(
            f"the ledger {name} is in use by another process. Wait for that run to end, or stop it, then try again."
        )
    for said, why, fix in CAUSES:
        if re.search(said, text):
            return LedgerError(f"the ledger {name} {why}. {fix}")
    return LedgerError(f"the ledger {name} failed ({type(error).__name__}). Restore it from a backup if this repeats.")


def fresh(fingerprint: bytes) -> sqlite3.Connection:
    """A new ledger in memory, for the key with this fingerprint."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.executescript(SCHEMA)
    connection.execute("INSERT INTO meta (key, value) VALUES ('key', ?), ('order', ?)", (fingerprint, ORDER))
    return connection


def connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """Open an existing ledger file, or say why it cannot be used."""
    if path.stat().st_size == 0:
        raise LedgerError(
            f"the ledger {path} is empty: it was truncated, or is not a ledger. Restore it from a backup, or name a "
            "path where there is no file to begin a new ledger."
        )
    if not read_only:
        _refuse_second_name(path)
    if is_truncated(path):
        raise LedgerError(DAMAGED.format(path=path))
    connection: sqlite3.Connection | None = None
    try:
        address = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
        connection = sqlite3.connect(
            address, uri=True, isolation_level=None, timeout=BUSY_SECONDS, check_same_thread=False
        )
        connection.text_factory = lenient_text
        _check(connection, path)
        if not read_only:
            path.chmod(0o600)
            journal = journal_for(path)
            connection.execute(f"PRAGMA journal_mode = {journal}")
            # Without the log the folder, too, must be on the disk after a commit.
            connection.execute(f"PRAGMA synchronous = {'FULL' if journal == 'WAL' else 'EXTRA'}")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA secure_delete = ON")
            # Being refused now beats being refused after the data are read.
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        return connection
    except sqlite3.Error as error:
        problem = explain(path, error)
    except UnicodeDecodeError:
        problem = LedgerError(DAMAGED.format(path=path))
    except OSError as error:
        problem = LedgerError(f"the ledger {path} cannot be opened ({os.strerror(error.errno or 0)}).")
    except LedgerError as error:
        problem = error
    if connection is not None:
        connection.close()
    raise problem


def _refuse_second_name(path: Path) -> None:
    """Refuse a file with two names: SQLite's log lies beside one, and by the other name its answers are missing.

    A symbolic link is another path to the same name, and harmless.
    """
    remove_drafts(path)
    names = path.stat().st_nlink
    if names > 1:
        raise LedgerError(
            f"the ledger {path} has {names} names (hard links): answers written by one of them are missing by the "
            "others, and records could answer twice. Keep the name that has a -wal file beside it, or the one that "
            "was used, and remove the others (find them with `find / -samefile FILE`); a backup is a copy, not a link."
        )


DAMAGED = (
    "the ledger {path} is damaged. Restore it from a backup, then mark as spent what was answered since. Never start "
    "from an empty one."
)


def is_truncated(path: Path) -> bool:
    """Whether the file is shorter than its header says; SQLite itself may read what is missing as empty.

    Not checked while a write-ahead log exists, which may hold the rest.
    """
    log = path.with_name(path.name + "-wal")
    try:
        with path.open("rb") as stream:
            header = stream.read(100)
        if not header.startswith(b"SQLite format 3\x00") or (log.exists() and log.stat().st_size):
            return False
        page = int.from_bytes(header[16:18], "big")
        return path.stat().st_size < int.from_bytes(header[28:32], "big") * (65536 if page == 1 else page)
    except OSError:
        return False  # opening it will say why


def _check(connection: sqlite3.Connection, path: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise LedgerError(f"{path} is a database, but not a ledger. Give the path of a ledger file.")
    if 1 <= version < VERSION:
        raise LedgerError(
            f"the ledger {path} has version {version}, and this privatile reads version {VERSION}. Its records have "
            "answered: if you delete it, they answer again. Go on with the privatile that reads it (commit "
            f"{READ_BY}) or, for data that never answered, give a new ledger: --ledger NEW."
        )
    if version < 1 or (version == VERSION and not is_as_declared(connection, SCHEMA)):
        raise LedgerError(DAMAGED.format(path=path))
    order = connection.execute("SELECT value FROM meta WHERE key = 'order'").fetchone()
    if version > VERSION or order != (ORDER,):
        raise LedgerError(f"the ledger {path} was written by a newer privatile. Install that one.")
    is_small = path.stat().st_size <= LARGEST_CHECKED
    for table in (None,) if is_small else DECIDING:
        check_pages(connection, path, table)
    if connection.execute("SELECT 1 FROM datasets WHERE records < 1 OR cursor < 0 LIMIT 1").fetchone():
        raise LedgerError(DAMAGED.format(path=path))


def check_pages(connection: sqlite3.Connection, path: Path | None, table: str | None = None) -> None:
    """Refuse a file where a table, or anything, is not as SQLite writes it, every index as its table.

    What an index does not show is not found, though the table holds it: a data set would look new.
    """
    try:
        (outcome,) = connection.execute(f"PRAGMA integrity_check({table or 1})").fetchone()
    except sqlite3.Error as error:
        raise explain(path, error) from None
    if outcome != "ok":
        raise LedgerError(DAMAGED.format(path=path))


log = logging.getLogger("privatile.client")

LARGEST_LINKED = 100_000
"""Up to so many answers, the chain over all of them is checked at opening (0.6 s); over more of them by `verify`."""

ENTRY = "run, client, number, round, level, query, step, start, stop, length, ones"
"""The columns of an answer that the chain covers."""

ENCODER = json.JSONEncoder(separators=(",", ":"))


class Ledger:
    """The ledger of one site.

    >>> with Ledger.in_memory() as ledger:
    ...     ledger.position.sequence
    0
    """

    def __init__(
        self, connection: sqlite3.Connection, path: Path | None, *, key: LedgerKey | None, keys: Path, on_disk: bool
    ) -> None:
        """Use `open` or `in_memory`."""
        self._connection = connection
        self.path = path
        self._keys = keys
        self._on_disk = on_disk
        self.lifetime_budgets = LifetimeBudgets(self)
        self.rollbacks = 0
        """How many transactions were undone: what was read inside them is not true."""
        self.moves: Counter[object] = Counter()
        """How often runs of this process have asked, reserved or released, by the split whose records they were."""
        self.nameless: dict[object, tuple[Any, ...]] = {}
        """What `RecordLimit` has found in other splits than this one."""
        self.on_commit: list[Callable[[], None]] = []
        """What is called once the transaction is on the disk; not where it is undone."""
        self._depth = 0
        self._tip: Position | None = None
        """The last entry, known while a transaction lasts."""
        self._lock = threading.RLock()
        if key is not None:
            self.__dict__["secret"] = key

    # -- opening and closing -------------------------------------------------------------------------------------

    @classmethod
    def in_memory(cls, master: bytes | None = None) -> "Ledger":
        """A ledger that lives as long as this process: for simulation and tests, whose `master` key may be seeded."""
        key = LedgerKey.new(None) if master is None else LedgerKey(master)
        return cls(fresh(key.fingerprint), None, key=key, keys=Path(), on_disk=False)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        read_only: bool = False,
        keys: str | os.PathLike[str] | None = None,
        restored: bool = False,
    ) -> "Ledger":
        """The ledger at `path`; where there is none, one that will be made there at the first commit.

        `keys` is the folder of its key, which lies apart from it; the user's own unless given (`key_folder`). To read
        what was spent no key is needed; to answer, and to verify, it is. An older copy, and a backup's, is refused
        (`marks`) unless it is opened to be marked as `restored`.
        """
        where, folder = Path(path), Path(keys or key_folder())
        if not where.exists() and not where.is_symlink():
            if read_only or not create:
                raise LedgerError(f"there is no ledger at {where}. One is made when records first answer.")
            journal_for(where)  # refused now, rather than after the data are read
            key = LedgerKey.new(folder)
            return cls(fresh(key.fingerprint), where, key=key, keys=folder, on_disk=False)
        if not where.is_file():
            raise LedgerError(f"the ledger {where} is not a file. Give the path of a ledger file.")
        ledger = cls(connect(where, read_only=read_only), where, key=None, keys=folder, on_disk=True)
        if not read_only:
            try:
                with ledger.transaction():
                    # Refused now, rather than after the data are read, where key and rows do not belong together.
                    ledger.check_rows()
                    if not restored:
                        ledger.mark.check(ledger)
            except LedgerError:
                ledger.close()
                raise
        return ledger

    @classmethod
    def open_or_make(cls, path: str | os.PathLike[str], *, restored: bool = False) -> "Ledger":
        """The ledger at `path`, made now where there is none; of processes that begin together all share one."""
        ledger = cls.open(path, restored=restored)
        try:
            with ledger.transaction():  # makes the file, with its keys
                pass
        except LedgerError:
            if not Path(path).exists():
                raise
            ledger = cls.open(path, restored=restored)  # another process was faster
        return ledger

    @cached_property
    def secret(self) -> LedgerKey:
        """The key of this ledger, from its file; an error where that is missing or belongs to another ledger."""
        fingerprint = self.meta("key")
        if fingerprint is None or len(fingerprint) != FINGERPRINT_BYTES:
            raise LedgerError(f"the ledger {self.path} is damaged: it names no key. Restore it from a backup.")
        return LedgerKey.find(self._keys, fingerprint, self.path)

    @cached_property
    def seal(self) -> Seal:
        """What shows that no row was altered."""
        return Seal(self, self.secret.secret)

    @cached_property
    def mark(self) -> Mark:
        """How far this ledger had come, kept beside its key."""
        return Mark(self.secret.path)

    @cached_property
    def _chain_key(self) -> bytes:
        return derive(self.secret.secret, "chain")

    def close(self) -> None:
        """Let go of the file."""
        if "mark" in self.__dict__:
            self.mark.settle()
        self._connection.close()

    def __del__(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({str(self.path) if self.path else 'in memory'!r})"

    # -- reading and writing -------------------------------------------------------------------------------------

    def execute(self, sql: str, values: Iterable[Any] = ()) -> sqlite3.Cursor:
        """Run one statement; SQLite's failures become ledger errors."""
        return self._call(self._connection.execute, sql, tuple(values))

    def execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row."""
        self._call(self._connection.executemany, sql, rows)

    def _call(self, call: Callable[[str, Any], sqlite3.Cursor], sql: str, values: object) -> sqlite3.Cursor:
        try:
            return call(sql, values)
        except sqlite3.Error as error:
            problem = explain(self.path, error)
        raise problem

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, on the disk when it ends. Inner transactions join the outer one.

        The write lock is taken at the start, so what is read inside is still true at the commit, whoever else
        has the file open.
        """
        with self._lock:
            if self._depth == 0:
                self._tip = None  # another process may have added entries since
                self.execute("BEGIN IMMEDIATE")
                self.on_commit.clear()
            self._depth += 1
            try:
                if self._depth == 1:
                    self.seal.check(new=not self._on_disk)
                yield
                if self._depth == 1:
                    self.seal.write()
                    self.execute("COMMIT")
                    if self.path is not None and not self._on_disk:
                        # Until this succeeds nothing is released: a repeated question ends here again.
                        self._make_file()
                    if self._on_disk:
                        self.mark.advance(self.tip)
                    for call in self.on_commit:
                        call()
            except BaseException:
                if self._depth == 1:
                    self.rollbacks += 1
                    if "seal" in self.__dict__:
                        self.seal.forget()
                if self._depth == 1 and self._connection.in_transaction:
                    with suppress(sqlite3.Error):
                        self._connection.execute("ROLLBACK")
                raise
            finally:
                self._depth -= 1

    def _make_file(self) -> None:
        """Put the new ledger at its path."""
        if self.path is None:
            return
        # The key must be safe before there is a ledger that needs it.
        self.secret.save()
        try:
            create_private(self.path, self._copy_to)
            problem = None
        except (OSError, sqlite3.Error) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "SQLite failed"
            problem = f"cannot be made ({reason}). Nothing was answered. Give a path where you may write."
            if isinstance(error, FileExistsError) and self.path.exists():
                problem = "was made by another process just now. Start again."
        if problem:
            self.secret.take_back()
            raise LedgerError(f"the ledger {self.path} {problem}")
        self._connection.close()
        self._connection = connect(self.path, read_only=False)
        self._on_disk = True
        log.warning(
            "a new ledger was made: %s (its key: %s). It knows of no earlier answer: if these records have answered "
            "under another ledger, stop, and name that one.",
            *map(printable, (self.path, self.secret.path)),
        )

    def _copy_to(self, path: Path) -> None:
        with closing(sqlite3.connect(path)) as copy:
            self._connection.backup(copy)

    def meta(self, key: str) -> bytes | None:
        """One of the ledger's own facts; None where it is not there."""
        row = self.execute("SELECT value FROM meta WHERE key = ? AND typeof(value) = 'blob'", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    @property
    def max_epsilon(self) -> float | None:
        """The last limit that was given in this ledger; None where none was."""
        row = self.execute("SELECT value, typeof(value) FROM meta WHERE key = 'max_epsilon'").fetchone()
        if row is not None and row[1] not in ("real", "integer"):
            raise LedgerError(DAMAGED.format(path=self.path))
        return None if row is None else float(row[0])

    # -- rows that the seal covers: these methods are the only ones that change them ------------------------------

    def insert(self, table: str, /, *, if_absent: bool = False, **row: object) -> None:
        """Add a row that the seal covers; call inside a transaction.

        A row that is there is an error: passed over, people would not be charged. With `if_absent` it stays as it is.
        """
        marks = ", ".join("?" * len(row))
        nothing = " ON CONFLICT DO NOTHING" if if_absent else ""
        sql = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks}){nothing} RETURNING *"
        self.seal.add(table, self.execute(sql, row.values()))

    def update(self, table: str, change: str, values: Sequence[object], where: str, keys: Sequence[object]) -> int:
        """Change rows that the seal covers, and count them; call inside a transaction."""
        before = self.execute(f"SELECT * FROM {table} WHERE {where}", keys).fetchall()
        if before:
            self.seal.remove(table, before)
            self.seal.add(
                table, self.execute(f"UPDATE {table} SET {change} WHERE {where} RETURNING *", [*values, *keys])
            )
        return len(before)

    def delete(self, table: str, where: str = "1", *keys: object) -> None:
        """Remove rows that the seal covers; call inside a transaction."""
        self.seal.remove(table, self.execute(f"DELETE FROM {table} WHERE {where} RETURNING *", keys))

    def put(self, key: str, value: bytes | float) -> None:
        """Set one of the ledger's own facts; call inside a transaction."""
        self.delete("meta", "key = ?", key)
        self.insert("meta", key=key, value=value)

    # -- keys ----------------------------------------------------------------------------------------------------

    def key(self, purpose: Literal["order", "digest", "choice", "thinning"], *names: str) -> bytes:
        """A key: of a column's order, of digests, of the choice of a person's record, of who of a class takes part."""
        return derive(self.secret.secret, purpose, *names)

    def person_key(self, path: Path) -> PersonKey:
        """The person key in the file at `path`, made now where there is none: no one is known by a key that gets lost.

        Looked at before a missing file is made: a new key in its place would be in the way of the right one.
        """
        key = PersonKey.open(path)
        self.check_person_key(key)
        try:
            key.save()
        except LedgerError:
            if not path.exists():
                raise
            key = PersonKey.open(path)  # another process was faster
            self.check_person_key(key)
        return key

    def check_person_key(self, key: PersonKey) -> None:
        """Refuse a person key other than the one under which people are already known."""
        known = self.meta("person key")
        if known is not None and known != key.fingerprint:
            missing = key.path is not None and not key.path.exists()
            what = "is missing: it holds the key" if missing else "does not hold the key"
            raise LedgerError(
                f"the person-key file {key.path or 'in memory'} {what} by which the ledger {self.path} knows its "
                "people. With another key everybody would look new and answer again. Restore that file from your "
                "backup of the keys."
            )

    # -- the chain -----------------------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """The number of entries and the head of the chain over all of them."""
        row = self.execute("SELECT sequence, head FROM answers ORDER BY sequence DESC LIMIT 1").fetchone()
        return Position() if row is None else Position(*row)

    @property
    def tip(self) -> Position:
        """The same inside a transaction, which nobody else can change meanwhile."""
        if self._tip is None:
            self._tip = self.position
        return self._tip

    def append(
        self,
        run: str,
        client: str,
        number: int,
        question: Question | None,
        span: tuple[int, int],
        length: int,
        ones: int | None,
    ) -> Position:
        """Add entry `number` of a run and link it; without a question, records that count as spent.

        headₙ = BLAKE2b(headₙ₋₁ ‖ entry), keyed, so that a head tells nothing about counts. Call inside a transaction.
        """
        last = self.tip
        asked = (None,) * 4 if question is None else (question.round, question.level, question.query, question.step)
        entry = (run, client, number, *asked, *span, length, ones)
        self._tip = Position(last.sequence + 1, self._link(last.head, entry))
        self.execute(
            f"INSERT INTO answers (sequence, head, {ENTRY}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*self._tip, *entry),
        )
        return Position(number, self._tip.head)

    def answer(self, run: str, client: str, number: int, level: float) -> Answer | None:
        """What was answered in this round about this level; refused where its link in the chain is broken."""
        found = self._answers("run = ? AND client = ? AND round = ? AND level = ?", (run, client, number, level))
        for sequence, answer in found:
            self.check_links(sequence, sequence)
            return answer
        return None

    def answers(self, run: str, client: str) -> dict[int, tuple[Answer, ...]]:
        """Every round that this client has answered in this run, one answer per level, as they were asked."""
        found: dict[int, tuple[Answer, ...]] = {}
        for _, answer in self._answers("run = ? AND client = ? AND ones IS NOT NULL", (run, client)):
            number = answer.question.round
            found[number] = (*found.get(number, ()), answer)
        return found

    def _answers(self, where: str, values: tuple[object, ...]) -> Iterator[tuple[int, Answer]]:
        asked = "run, round, level, query, length, step"
        rows = self.execute(
            f"SELECT {asked}, client, ones, number, head, sequence FROM answers WHERE {where} ORDER BY sequence", values
        )
        for *question, client, ones, number, head, sequence in rows:
            yield sequence, Answer(Question(*question), client, ones, Position(number, head))

    def lost_through(self, run: str, client: str) -> int:
        """The last round of a run whose answers may be missing because this ledger was restored; 0 if it never was."""
        own = "SELECT coalesce(max(lost_through), 0) FROM runs WHERE run = ? AND client = ?"
        return int(self.execute(own, (run, client)).fetchone()[0])

    def _link(self, head: bytes, entry: tuple[object, ...]) -> bytes:
        text = ENCODER.encode(entry).encode()
        return hashlib.blake2b(head + text, key=self._chain_key, digest_size=HEAD_BYTES).digest()

    def check_links(self, first: int, last: int) -> None:
        """Refuse entries, from `first` to `last`, that are not linked each to the one before it."""
        row = self.execute("SELECT head FROM answers WHERE sequence = ?", (first - 1,)).fetchone()
        head, expected = Position().head if row is None else row[0], first
        rows = self.execute(
            f"SELECT sequence, head, {ENTRY} FROM answers WHERE sequence BETWEEN ? AND ? ORDER BY sequence",
            (first, last),
        )
        for sequence, stored, *entry in rows:
            head = self._link(head, tuple(entry))
            if sequence != expected or head != stored:
                break
            expected += 1
        if expected <= last:
            raise LedgerError(
                f"the ledger {self.path} was altered at entry {expected}: its chain is broken there. Restore it from a "
                "backup, then mark as spent what was answered since."
            )

    def check_tables(self) -> None:
        """Refuse tables that are not a ledger's own, and anything beside them: a trigger acts on what is written."""
        try:
            is_own = is_as_declared(self._connection, SCHEMA)
        except sqlite3.Error as error:
            raise explain(self.path, error) from None
        if not is_own:
            raise LedgerError(DAMAGED.format(path=self.path))

    def check_rows(self) -> None:
        """Refuse answers, or an index of people, that were altered: earlier ones decide what may be spent now.

        Call inside a transaction, after the seal was checked. What is too much to read at every opening is left to
        `verify`; how much there is, is sealed: nobody makes a ledger too large by adding to it.
        """
        if (last := self.tip.sequence) <= LARGEST_LINKED:
            check_pages(self._connection, self.path, "answers")
            self.check_links(1, last)
        self.lifetime_budgets.check_again()

    def verify(self) -> int:
        """Check everything: pages, chain, seal, what people have spent; the number of entries, or an error.

        An editor of the file who does not have the key cannot make it verify; one who has the key can. An older copy
        of the whole file verifies too: what shows its age is what others have seen (`Account.confirm`).
        """
        with self.reading():
            count = self.position.sequence
            check_pages(self._connection, self.path)
            self.check_links(1, count)
            Seal(self, self.secret.secret).check(new=not self._on_disk)
            self.lifetime_budgets.verify()
        return count

    @contextmanager
    def reading(self) -> Iterator[None]:
        """One state of the file for all that is read inside, whoever writes meanwhile."""
        with self._lock:
            if self._connection.in_transaction:
                yield
                return
            self._tip = None
            self.execute("BEGIN")
            try:
                yield
            finally:
                self._tip = None
                self._connection.execute("ROLLBACK")
