"""What the reader of a run's file learns from the folder it lies in: whose it is, and whether a process holds it.

A federation's folder has a study.toml; one organization's, without a coordinator, a peer.json besides. Whoever runs it
keeps a file with its process number locked (`federation.run.lock`). Everywhere else the run's file names its process.
"""

import json
import os
import tomllib
from pathlib import Path

STUDY_FILE = "study.toml"
PEER_FILE = "peer.json"
"""Marks the folder of one organization in a federation without a coordinator."""

COORDINATOR_PROCESS, PEER_PROCESS = "coordinator.pid", "peer.pid"
"""Locked by whoever runs a folder."""

OWN_FOLDER = "Give your organization's folder, the one that `privatile peer enroll` made."


def process_file(folder: Path) -> Path | None:
    """The file that the process of a federation's folder keeps locked; None for any other folder."""
    if (folder / PEER_FILE).is_file():
        return folder / PEER_PROCESS
    return folder / COORDINATOR_PROCESS if (folder / STUDY_FILE).is_file() else None


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
    """The number of the process that holds a folder: a coordinator, a peer or a survey; None where none is alive."""
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


def seen_by(path: Path) -> str | None:
    """The organization in whose folder a run's file lies, without a coordinator: each has a file of the same run."""
    try:
        return str(json.loads((path.parent / PEER_FILE).read_text(encoding="utf-8"))["client"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def is_for_all_peers(folder: Path) -> bool:
    """Whether a folder holds a study without a coordinator, and is no organization's: no run will be there."""
    try:
        study = tomllib.loads((folder / STUDY_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return "tolerate" in study and not (folder / PEER_FILE).is_file()


def begins(folder: Path) -> str:
    """The command that begins the run of a federation's folder, an organizer's or a peer's."""
    return f"privatile {'peer run' if (folder / PEER_FILE).is_file() else 'serve'} {folder}"


def for_all_peers(folder: Path) -> str:
    """What to say where somebody looks for a run in such a folder."""
    return f"{folder}: this study has no coordinator, so no run will be in its own folder. {OWN_FOLDER}"
