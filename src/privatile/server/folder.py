"""What the reader of a run's file learns from the folder it lies in: whose it is, and whether a process holds it.

A federation's folder has a study.toml; that of one organization may belong to an extension. Whoever runs it keeps a
file with its process number locked (`federation.run.lock`). Everywhere else the run's file names its process.
"""

import os
from pathlib import Path
from typing import NamedTuple

from privatile.core.extensions import STUDY_FILE, of_organization, of_path

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
