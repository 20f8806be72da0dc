"""Which process writes a run's file: a reader can tell a run that continues from one whose process was killed.

The process number is in the file while the run continues and is removed at its end: a finished file names no process.
"""

import contextlib
import hashlib
import os
import socket
from pathlib import Path
from typing import Any

from privatile.errors import StoreError
from privatile.estimator.spec import RunSpec
from privatile.server.folder import folder_facts, is_held
from privatile.server.run_file import RunStore
from privatile.server.run_tables import WRITER


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

    One rule for `status`, `check`, `watch` and dashboard.
    """
    facts = folder_facts(Path(store.path).parent)
    if facts is not None:
        # Another user's folder, or a system without such locks: the file may know.
        with contextlib.suppress(OSError, ImportError):
            return is_held(facts.process_file)
    return writer_lives(store.query("SELECT machine, process FROM writer"))
