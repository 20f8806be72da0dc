"""The ledger as a file: its tables, how it is opened, and what is said when it cannot be trusted."""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from privatile.client.ledger.file_systems import journal_for
from privatile.client.ledger.key_files import remove_drafts
from privatile.core.sqlite_types import is_as_declared, lenient_text, wrong_column
from privatile.errors import LedgerBusy, LedgerError

APPLICATION = 0x5072764C  # "PrvL"
VERSION = 5
BEFORE = 4
"""The version without limits: the same tables, in which an older privatile would not look for one."""

BUSY_SECONDS = 2.0
"""How long to wait for another process: a commit takes about a millisecond, so two seconds mean a stuck holder."""

LARGEST_CHECKED = 1 << 26
"""Files up to this size (64 MiB, about 250,000 answers) are read through at opening (0.4 s), larger ones when used."""

DECIDING = ("meta", "datasets", "splits", "runs", "charges")
"""The small tables that decide who may answer: their pages and indices are compared in files of any size."""

SCHEMA = f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE datasets (
    id INTEGER PRIMARY KEY, client TEXT NOT NULL, holder TEXT NOT NULL, column TEXT NOT NULL, digest BLOB NOT NULL,
    content BLOB NOT NULL, person TEXT, records INTEGER NOT NULL CHECK (records > 0),
    cursor INTEGER NOT NULL CHECK (cursor >= 0),
    lost INTEGER NOT NULL DEFAULT 0, UNIQUE (client, column, digest));
CREATE TABLE splits (
    source BLOB NOT NULL, split BLOB NOT NULL, column TEXT NOT NULL,
    dataset INTEGER NOT NULL REFERENCES datasets (id),
    PRIMARY KEY (source, split, column, dataset)) WITHOUT ROWID;
CREATE INDEX splits_of ON splits (dataset);
CREATE TABLE runs (
    run TEXT NOT NULL, client TEXT NOT NULL, dataset INTEGER NOT NULL REFERENCES datasets (id),
    threshold TEXT NOT NULL, epsilon REAL NOT NULL, first INTEGER NOT NULL, spend_again INTEGER NOT NULL,
    lost_through INTEGER NOT NULL DEFAULT 0, next INTEGER, reserved INTEGER CHECK (reserved >= next),
    answers INTEGER NOT NULL DEFAULT 0, asked INTEGER NOT NULL DEFAULT 0, unproven INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (run, client)) WITHOUT ROWID;
CREATE INDEX runs_of ON runs (dataset);
CREATE TABLE answers (
    sequence INTEGER PRIMARY KEY, run TEXT NOT NULL, client TEXT NOT NULL, number INTEGER NOT NULL,
    round INTEGER, level REAL, question TEXT, start INTEGER NOT NULL, stop INTEGER NOT NULL CHECK (stop > start),
    length INTEGER NOT NULL CHECK (length BETWEEN 1 AND stop - start),
    ones INTEGER CHECK (ones BETWEEN 0 AND length), head BLOB NOT NULL,
    FOREIGN KEY (run, client) REFERENCES runs (run, client), UNIQUE (run, client, round, level));
CREATE TABLE people (person BLOB PRIMARY KEY, epsilon REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE charges (id INTEGER PRIMARY KEY, epsilon REAL NOT NULL, people BLOB NOT NULL);
"""


def explain(path: Path | None, error: sqlite3.Error) -> LedgerError:
    """What SQLite said, and how to fix it. SQLite's own texts never hold a bound value."""
    name = str(path) if path else "in memory"
    text = str(error).lower()
    if "locked" in text or "busy" in text:
        return LedgerBusy(
            f"the ledger {name} is in use by another process. Wait for that run to end, or stop it, then try again."
        )
    if "readonly" in text or "read-only" in text:
        why, fix = "cannot be written", "Every answer is recorded before it leaves: make the file writable."
    elif "full" in text:
        why, fix = "cannot grow: the disk is full", "Nothing was answered. Free some space and start again."
    elif "unable to open" in text:
        why, fix = "cannot be opened", "Check that its folder exists and that you may write there."
    elif isinstance(error, sqlite3.DatabaseError) and ("malformed" in text or "not a database" in text):
        why = "is damaged or is not a ledger"
        fix = "Restore it from a backup, then mark as spent what was answered since. Never start from an empty one."
    else:
        why, fix = f"failed ({type(error).__name__})", "Restore it from a backup if this repeats."
    return LedgerError(f"the ledger {name} {why}. {fix}")


def fresh(fingerprint: bytes) -> sqlite3.Connection:
    """A new ledger in memory, for the key with this fingerprint."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.executescript(SCHEMA)
    connection.execute("INSERT INTO meta (key, value) VALUES ('key', ?)", (fingerprint,))
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
            if connection.execute("PRAGMA user_version").fetchone() == (BEFORE,):
                connection.execute(f"PRAGMA user_version = {VERSION}")
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


def ledgers_beside(path: Path) -> list[str]:
    """The names of other ledgers in the same folder: a new one may be a slip of the pen for one of them."""
    names = []
    for other in sorted(path.parent.glob("*.db"))[:100]:
        with suppress(OSError), other.open("rb") as stream:
            if other != path and stream.read(72)[68:] == APPLICATION.to_bytes(4, "big"):
                names.append(other.name)
    return names


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
    if version > VERSION:
        raise LedgerError(
            f"the ledger {path} has version {version}, written by a newer privatile; this one knows version {VERSION}. "
            "Install the newer privatile."
        )
    if 1 <= version < BEFORE:
        raise LedgerError(
            f"the ledger {path} has version {version}, written by an older privatile, which kept its key in the same "
            f"file; this one needs version {VERSION}. Keep the file for its account of what was spent, and name "
            "another path for a new ledger, to be used for other people."
        )
    is_small = path.stat().st_size <= LARGEST_CHECKED
    if version < 1 or not is_as_declared(connection, SCHEMA):
        raise LedgerError(DAMAGED.format(path=path))
    for table in (None,) if is_small else DECIDING:
        check_pages(connection, path, table)
    if is_small and wrong_column(connection, ("meta.value",)):
        raise LedgerError(DAMAGED.format(path=path))
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
