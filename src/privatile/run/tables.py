"""What a run's file may hold, which program wrote it, and what the folder it lies in says.

Which program wrote a file: its version, and a digest that tells two builds of one version apart.

What the reader of a run's file learns from the folder it lies in: whose it is, and whether a process holds it.

A federation's folder has a study.toml; that of one organization may belong to an extension. Whoever runs it keeps a
file with its process number locked (`federation.run.lock`). Everywhere else the run's file names its process.

All tables that a run's file may hold, whoever keeps them: a file with anything else in it is not read.

A view or a trigger of somebody else's could show one reader these rounds and the next reader others. So the whole
catalogue of a file is compared with this list before anything in it is believed.
"""

import functools
import hashlib
import os
import sqlite3
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from privatile import __version__
from privatile.core.extensions import STUDY_FILE, of_file, of_organization, of_path
from privatile.core.sqlite_types import is_as_declared, wrong_column
from privatile.core.text import READS_EARLIER_FORMATS, printable
from privatile.errors import StoreError


@functools.cache
def program() -> str:
    """A digest that identifies this program: the version alone does not tell two builds apart."""
    return hash_sources(Path(str(files("privatile"))))


def hash_sources(root: Path) -> str:
    """SHA-256 of the version and of all Python files below `root`, with their names."""
    digest = hashlib.sha256(__version__.encode())
    for source in sorted(root.rglob("*.py")):
        name = source.relative_to(root).as_posix()
        digest.update(name.encode() + b"\0" + source.read_text(encoding="utf-8").encode() + b"\0")
    return digest.hexdigest()


def named(version: object, build: object) -> str:
    """A program in words: its version, and the beginning of its build's digest.

    >>> named("0.1.0", "0123456789abcdef")
    'privatile 0.1.0 (build 0123456789ab)'
    """
    return f"privatile {str(version)[:40]} (build {str(build)[:12]})"


COORDINATOR_PROCESS = "coordinator.pid"
"""Locked by the coordinator of a folder."""


class FolderFacts(NamedTuple):
    """What is known of a federation's folder."""

    process_file: Path
    """Locked by the process that holds the folder."""
    holder: str
    """Whose process that is, in words."""
    begins: str
    """The command that begins the run, or continues it."""
    organization: str | None = None
    """Whose view the run's file is, where every organization has a file of the same run."""


def folder_facts(folder: Path) -> FolderFacts | None:
    """The facts of a federation's folder; None for any other folder."""
    if (extension := of_organization(folder)) is not None:
        return extension.facts(folder)
    if not (folder / STUDY_FILE).is_file():
        return None
    return FolderFacts(folder / COORDINATOR_PROCESS, "the coordinator", f"privatile serve {folder}")


def no_run_in(folder: Path) -> str:
    """Why no run will ever be in a folder that has a study; empty where one may be, or is."""
    if of_organization(folder) is not None:
        return ""
    extension = of_path(folder)
    return "" if extension is None else extension.refusal(folder)


def is_held(path: Path) -> bool:
    """Whether a process is alive that holds this file."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(handle, shared=True)
    finally:
        os.close(handle)


def running_process(path: Path) -> int | None:
    """The number of the process that holds a folder; None where none is alive."""
    try:
        return int(path.read_text().strip() or 0) or None if is_held(path) else None
    except (OSError, ValueError):
        return None


def try_lock(handle: int, *, shared: bool = False) -> bool:
    """Lock an open file. `shared` is for those who only look: they do not take one another for its holder."""
    import fcntl  # not on every platform; a federation's coordinator needs one that has it

    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


FORMAT = 4
"""4: the declaration about the values is called `value_kind` in the specification."""

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
            f"{named(__version__, program())}, which reads format {FORMAT}. Commit {READS_EARLIER_FORMATS} of "
            "privatile reads earlier formats."
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
