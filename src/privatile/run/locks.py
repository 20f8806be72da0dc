"""Which process holds a folder, and which writes a file: a run that goes on is told from one that was killed.

One process per folder: a file that holds its process number and is locked while it runs.

Which process writes a run's file: a reader can tell a run that continues from one whose process was killed.

The process number is in the file while the run continues and is removed at its end: a finished file names no process.
"""

import contextlib
import hashlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from privatile.errors import InputError, StoreError
from privatile.estimator.spec import RunSpec
from privatile.run.files import unwritable
from privatile.run.run_file import RunStore
from privatile.run.tables import WRITER, folder_facts, is_held, try_lock

LOOKS = 10
"""Attempts, 20 ms apart, before a lock counts as held: `status` and dashboards hold one for an instant, to look."""


@contextlib.contextmanager
def lock_folder(path: Path, holder: str = "coordinator") -> Iterator[None]:
    """Hold a folder for one coordinator, or another `holder`: a second one is refused while the first is alive."""
    handle = _locked(path, holder)
    try:
        try:
            os.ftruncate(handle, 0)
            os.write(handle, f"{os.getpid()}\n".encode())
        except OSError as error:
            raise unwritable(path, error) from None
        yield
        path.unlink(missing_ok=True)
    finally:
        os.close(handle)


def _locked(path: Path, holder: str) -> int:
    """The open, locked file. One that the holder before has removed in the meantime locks nothing: then another."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not _lock(handle):
                raise InputError(
                    f"a {holder} is already running for this folder (process {path.read_text().strip() or '?'})."
                )
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), path.stat()):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _lock(handle: int) -> bool:
    for _ in range(LOOKS):
        if try_lock(handle):
            return True
        time.sleep(0.02)
    return False


def this_machine() -> str:
    """A digest of the machine's name: a process number is valid on one machine only, and the name is not for others.

    >>> len(this_machine())
    16
    """
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:16]


def claim(store: RunStore) -> None:
    """Record that this process continues the run."""
    store.execute(
        [
            (WRITER, ()),
            ("DELETE FROM writer", ()),
            ("INSERT INTO writer VALUES (?, ?)", (this_machine(), os.getpid())),
        ]
    )


def begin_or_continue(path: Path, run: str, spec: RunSpec) -> RunStore:
    """The file of a study's run, made where there is none and written by this process; another study's is refused."""
    store = RunStore.open(path, durable=True) if path.exists() else RunStore.create(path, run, spec, durable=True)
    if store.run != run or store.spec.digest != spec.digest:
        store.close()
        raise StoreError(
            f"{path} holds another run than the study's: the study was edited after the run began, or the file is "
            "that of another study. Undo the edit, or move the file away and begin again."
        )
    if store.finished is None:
        claim(store)
    return store


def writer_lives(rows: list[tuple[Any, ...]]) -> bool | None:
    """Whether the process in the writer table is alive; None where this machine cannot tell.

    >>> writer_lives([(this_machine(), os.getpid())]), writer_lives([("elsewhere", 1)]), writer_lives([])
    (True, None, None)
    """
    if not rows or rows[0][0] != this_machine() or os.name != "posix":  # elsewhere signal 0 would do more than ask
        return None
    try:
        os.kill(int(rows[0][1]), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True  # another user's process; or a number that no process has, which cannot be judged
    return True


def run_lives(store: RunStore) -> bool | None:
    """Whether a process continues a run: by its folder's lock, else by its file; None where it cannot be known.

    One rule for `status`, `check` and dashboard.
    """
    facts = folder_facts(Path(store.path).parent)
    if facts is not None:
        # Another user's folder, or a system without such locks: the file may know.
        with contextlib.suppress(OSError, ImportError):
            return is_held(facts.process_file)
    return writer_lives(store.query("SELECT machine, process FROM writer"))
