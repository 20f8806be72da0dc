"""What can be asked of a run from outside (stop, abort, end, readmit), and backups while it goes on.

What can be asked of a run from outside: stop, abort, end an open one, readmit a client.

A copy of a federation's folder, or of a site's, that is whole while they are in use.

SQLite's own backup copies a database as it stands at one moment, without stopping those who write; small files are
written in one piece by everybody, so a plain copy of them is whole. Keys are left out unless they are asked for: kept
together with a ledger they tell a thief more. The files that show how far a ledger had come (`client.ledger.marks`)
are never in a backup, and on a new machine there are none. So the copy of a ledger says that it is one, and answers
nobody until the restore is declared.
"""

import hashlib
import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from privatile import __version__
from privatile.client.ledger.integrity import MARK_COPY
from privatile.client.ledger.ledger import Ledger
from privatile.core.private_files import default_person_key, key_folder
from privatile.core.text import counted, printable
from privatile.errors import InputError, StoreError
from privatile.federation.coordinator.service import Control
from privatile.federation.operations.serve import open_run
from privatile.federation.setup.folder import Directory, open_folder
from privatile.run.files import unwritable, write_json
from privatile.run.run_file import RunStore, connect
from privatile.run.tables import running_process


def stop_coordinator(directory: Directory) -> str:
    """Ask the running coordinator to stop; the round that is being asked is asked again at the next start."""
    process = running_process(directory.pid_file)
    if process is None:
        raise InputError("no coordinator is running for this folder.")
    os.kill(process, signal.SIGTERM)
    return f"process {process} was asked to stop."


def abort_run(directory: Directory) -> str:
    """End a run for good, through the running coordinator or, when none runs, in the file."""
    if running_process(directory.pid_file) is not None:
        Control(directory.path / "control").request("abort")
        return "the coordinator was asked to abort; the clients will hear of it."
    run = open_run(directory)
    with run.store:
        run.journal.note("aborted", "the run was aborted while no coordinator ran; what was answered stays spent")
    return "the run is marked as aborted. The clients hear of it from the next `privatile serve`."


def close_run(directory: Directory) -> str:
    """End an open run after the round in hand: the coordinator does it, the next one where none runs."""
    if not directory.study().is_open:
        raise InputError("only an open study is ended by command; this one ends after its rounds, or with `abort`.")
    Control(directory.path / "control").request("close")
    if running_process(directory.pid_file) is not None:
        return "the coordinator was asked to end the run; the clients will hear of it."
    return "no coordinator runs: the next `privatile serve` counts what has come, ends the run and tells the clients."


def readmit(directory: Directory, client: str) -> str:
    """Let a quarantined client's answers count again."""
    if client not in directory.study().clients:
        raise InputError(f"the study has no client {client!r}.")
    if running_process(directory.pid_file) is not None:
        Control(directory.path / "control").request("readmit", client)
        return f"the coordinator was asked to readmit {client}."
    run = open_run(directory)
    with run.store:
        run.journal.readmit(client)
        run.journal.note("readmitted", "the organizer has decided that its answers count again", client)
    return f"{client} is readmitted."


MANIFEST = "backup.json"
"""What is in a backup: when it was made, of what, and the SHA-256 of every file."""


@dataclass(frozen=True)
class Backup:
    """A backup that was made."""

    path: Path
    files: tuple[str, ...]
    state: str
    """How far the run or the ledger had come, in words."""
    keys: bool

    def to_text(self) -> str:
        """A few lines for people."""
        keys = "with its keys: keep it apart from other backups" if self.keys else "without keys: those lie elsewhere"
        return "\n".join([f"{self.path}: {len(self.files)} files, {self.state}, {keys}.", *self.files])


def back_up(folder: Path, to: Path, *, keys: bool = False) -> Backup:
    """Copy a federation's folder, or a site's, into the new folder `to`; safe while they are in use."""
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise InputError(f"{to} is not empty. Choose a new folder: no backup is overwritten.")
    organizer, site = (folder / "study.toml").is_file(), (folder / "ledger.db").is_file()
    if not organizer and not site:
        raise InputError(
            f"{folder} is neither a federation's folder (study.toml) nor a site's (ledger.db). A site's folder is the "
            "one named with --site, else ~/.local/state/privatile."
        )
    try:
        to.mkdir(parents=True, exist_ok=True, mode=0o700)
        to.chmod(0o700)
        with TemporaryDirectory(prefix="unfinished-", dir=to, ignore_cleanup_errors=True) as name:
            draft = Path(name)  # what fails halfway leaves nothing that is in the way of the next try
            copied = list(_copy_organizer(folder, draft, keys) if organizer else _copy_site(folder, draft, keys))
            state = _rounds(draft) if organizer else _entries(draft)
            digests = {name: _digest(draft / name) for name in sorted(copied)}
            made = {"version": __version__, "made": time.time(), "of": str(folder.absolute()), "state": state}
            write_json(draft / MANIFEST, {**made, "files": digests})
            for path in sorted(draft.iterdir(), key=lambda path: path.name == MANIFEST):  # the list comes last
                path.rename(to / path.name)
    except OSError as error:
        raise unwritable(to, error) from None
    return Backup(to, tuple(sorted(copied)), state, keys)


def _digest(path: Path) -> str:
    """SHA-256 of a file of any size, read piece by piece."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy_organizer(folder: Path, to: Path, keys: bool) -> Iterator[str]:
    directory = open_folder(folder)
    names = directory.backup_files()
    names += [f"keys/{path.name}" for path in directory.secrets] if keys else []
    for name in names:
        if (folder / name).is_file():
            yield _copy(folder / name, to, name)
    if directory.store_file.is_file():
        yield copy_database(directory.store_file, to / "run.db", change=directory.backup_change)


def _copy_site(folder: Path, to: Path, keys: bool) -> Iterator[str]:
    yield copy_database(folder / "ledger.db", to / "ledger.db", change=MARK_COPY)
    for path in sorted([*folder.glob("policy.toml"), *folder.glob("*.enrolment.json")]):
        yield _copy(path, to, path.name)
    if not keys:
        return
    for path in sorted(folder.glob("*.key")):
        yield _copy(path, to, path.name)
    with Ledger.open(to / "ledger.db", read_only=True) as ledger:
        fingerprint = (ledger.meta("key") or b"").hex()
    for path in (*sorted(key_folder().glob(f"ledger-{fingerprint}*.key")), default_person_key()):
        if path.is_file():
            yield _copy(path, to, f"config/{path.relative_to(default_person_key().parent)}")


def _copy(path: Path, to: Path, name: str) -> str:
    target = to / name
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    shutil.copyfile(path, target)
    target.chmod(0o600)
    return name


def copy_database(path: Path, to: Path, *, change: str = "") -> str:
    """Copy an SQLite file as it stands at one moment, while others write it; `change` the copy, and check it.

    It gets its name when it is whole: no copy without the change is ever there under that name.
    """
    draft = to.with_name(f"{to.name}.unfinished")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        with closing(connect(path, read_only=True)) as source, closing(sqlite3.connect(draft)) as target:
            source.backup(target)
            target.execute("PRAGMA journal_mode=DELETE")  # one file, complete in itself
            target.executescript(change)
            (verdict,) = target.execute("PRAGMA quick_check").fetchone()
    except sqlite3.Error as error:
        raise StoreError(f"{path} could not be copied to {to} ({error}). Look at the disk, and try again.") from None
    if verdict != "ok":
        raise StoreError(f"{path} is damaged: the copy {to} does not hold together ({printable(verdict):.80}).")
    draft.rename(to)
    return to.name


def _rounds(to: Path) -> str:
    if not (to / "run.db").is_file():
        return "the run has not begun"
    with RunStore.open(to / "run.db", read_only=True) as store:
        (last,) = store.query("SELECT max(round) FROM rounds")[0]
    return f"{counted(last or 0, 'round')} done"


def _entries(to: Path) -> str:
    with Ledger.open(to / "ledger.db", read_only=True) as ledger:
        return f"{counted(ledger.position.sequence, 'entry', 'entries')} in the ledger"
