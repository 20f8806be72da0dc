"""All tables that a run's file may hold, whoever keeps them: a file with anything else in it is not read.

A view or a trigger of somebody else's could show one reader these rounds and the next reader others. So the whole
catalogue of a file is compared with this list before anything in it is believed.
"""

import sqlite3
from pathlib import Path

from privatile import __version__
from privatile.core.extensions import of_file
from privatile.core.sqlite_types import is_as_declared, wrong_column
from privatile.core.words import printable
from privatile.errors import StoreError
from privatile.server.folder import folder_facts, no_run_in
from privatile.server.program import named, program

FORMAT = 3

ASKED = """level INTEGER NOT NULL, round INTEGER NOT NULL, stage TEXT NOT NULL, query REAL NOT NULL,
           sent REAL NOT NULL, lengths TEXT NOT NULL, step REAL NOT NULL, averaged INTEGER NOT NULL"""

OWN = (
    """CREATE TABLE run (format INTEGER NOT NULL, version TEXT NOT NULL, program TEXT NOT NULL, id TEXT NOT NULL,
                  spec TEXT NOT NULL, digest TEXT NOT NULL, created REAL NOT NULL, finished REAL)""",
    f"CREATE TABLE rounds ({ASKED}, ones TEXT NOT NULL, unspent TEXT NOT NULL, at REAL NOT NULL,"
    " PRIMARY KEY (level, round)) WITHOUT ROWID",
    f"CREATE TABLE open_round ({ASKED}, PRIMARY KEY (level)) WITHOUT ROWID",
)
"""Every file has these."""

WRITER = "CREATE TABLE IF NOT EXISTS writer (machine TEXT NOT NULL, process INTEGER NOT NULL)"
"""The process that continues the run (`server.writer`)."""

LEDGER = "CREATE TABLE IF NOT EXISTS ledger (key BLOB NOT NULL, sequence INTEGER NOT NULL, head BLOB NOT NULL)"
"""The last link of the ledger that answers a run in one process, until the run is over."""

ENDING = "CREATE TABLE IF NOT EXISTS ending (why TEXT NOT NULL)"
"""Why an open-ended run is over (`estimator.ending`)."""

FEDERATION = (
    "CREATE TABLE IF NOT EXISTS federation (study TEXT NOT NULL, digest TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS evidence (round INTEGER NOT NULL, client TEXT NOT NULL, sequence INTEGER NOT NULL,"
    " hash TEXT NOT NULL, signer TEXT NOT NULL, signature TEXT NOT NULL, PRIMARY KEY (round, client)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS links (client TEXT PRIMARY KEY, sequence INTEGER NOT NULL, hash TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS late_links (client TEXT PRIMARY KEY, sequence INTEGER, hash TEXT,"
    " since INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS events (at REAL NOT NULL, kind TEXT NOT NULL, client TEXT, round INTEGER,"
    " text TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS heard (client TEXT PRIMARY KEY, at REAL NOT NULL)",
    "CREATE TABLE IF NOT EXISTS awaited (round INTEGER NOT NULL, since REAL NOT NULL, clients TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS quarantined (client TEXT PRIMARY KEY, reason TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS uncounted (round INTEGER NOT NULL, client TEXT NOT NULL, outcome TEXT NOT NULL,"
    " reason TEXT NOT NULL, at REAL NOT NULL, times INTEGER NOT NULL, PRIMARY KEY (round, client, outcome))"
    " WITHOUT ROWID",
)
"""What a federation keeps beside the counts (`federation.coordinator.journal`)."""

REQUIRED = "".join(f"{statement};\n" for statement in OWN)
OPTIONAL = "".join(f"{statement};\n" for statement in (WRITER, LEDGER, ENDING, *FEDERATION))


def check_file(look: sqlite3.Connection, path: str | Path) -> None:
    """Refuse a file that holds no run, a run of another format, or anything but a run."""
    try:
        (kind,) = look.execute("SELECT type FROM sqlite_master WHERE name = 'run'").fetchone() or ("",)
        if kind != "table":  # the query of a view need not end
            raise no_run(path)
        head = look.execute("SELECT * FROM run")
        row = head.fetchone()
        columns = [column[0] for column in head.description]
    except (sqlite3.DatabaseError, UnicodeDecodeError):  # names of columns are decoded, too
        raise no_run(path) from None
    if row is None or "format" not in columns:
        raise no_run(path)
    facts = dict(zip(columns, row, strict=True))
    if facts["format"] != FORMAT:
        writer = named(facts["version"], facts.get("program")) if "version" in facts else "an earlier privatile"
        raise StoreError(
            f"{path} holds a run of another format, {facts['format']!r:.20}: {writer} wrote it, and this is "
            f"{named(__version__, program())}, which reads format {FORMAT}. Read it with the version that wrote it."
        )
    try:
        extension = of_file(look.execute)
        added = "" if extension is None else "".join(f"{statement};\n" for statement in extension.tables)
        if not is_as_declared(look, REQUIRED, OPTIONAL + added):
            raise StoreError(
                f"{path} was altered or is damaged: it holds tables, views, indices or triggers that privatile does "
                "not make, or lacks its own. Restore it from a backup, or ask for the file as it was."
            )
        wrong = wrong_column(look)
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        raise no_run(path) from None
    if wrong is not None:
        raise StoreError(
            f"{path} was altered or is damaged: {printable(wrong):.80} holds a value of another kind. Restore it "
            "from a backup."
        )


def missing_run(path: str | Path) -> StoreError:
    """The error for a file that does not exist."""
    if Path(path).is_dir():
        return StoreError(f"{path} is a folder, not a run file. Give the path of a file.")
    folder = Path(path).parent
    if why := no_run_in(folder):
        return StoreError(why)
    if (facts := folder_facts(folder)) is not None:
        return StoreError(f"the run of {folder} has not begun. `{facts.begins}` begins it.")
    return StoreError(f"there is no run file {path}. `privatile estimate … --save {path}` makes one.")


def no_run(path: str | Path) -> StoreError:
    """The error for a file that holds something else."""
    return StoreError(
        f"{path} is not a run file, or a damaged one. Give a file that --save made, or restore it from a backup."
    )
