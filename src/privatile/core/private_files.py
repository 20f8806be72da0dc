"""Folders of ledgers and secrets, and files that only their owner can read: made whole, never over another file."""

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def user_folder(variable: str, usual: str) -> Path:
    """The folder of privatile that an XDG variable names, or the usual one below the user's home.

    A relative path is ignored, as the XDG rules say: every working folder would have a ledger of its own.
    """
    named = Path(os.environ.get(variable) or "")
    return (named if named.is_absolute() else Path.home() / usual) / "privatile"


def state_folder() -> Path:
    """The folder of ledgers and unfinished runs: $XDG_STATE_HOME/privatile, or its usual place."""
    return user_folder("XDG_STATE_HOME", ".local/state")


def ledger_path() -> Path:
    """The ledger of this user."""
    return state_folder() / "ledger.db"


def config_folder() -> Path:
    """The user's configuration folder for privatile."""
    return user_folder("XDG_CONFIG_HOME", ".config")


def key_folder() -> Path:
    """Where the keys of ledgers lie unless another folder is named."""
    return config_folder() / "keys"


def default_person_key() -> Path:
    """Where the key that hashes people lies unless another file is named."""
    return config_folder() / "person.key"


def create_private(path: Path, fill: Callable[[Path], object]) -> None:
    """Make a file of mode 0600 at `path`, on the disk before this returns; FileExistsError where there is one.

    `fill` writes the content into a draft. The folder is made where it is missing, and the one that it lies in, with
    mode 0700.
    """
    for folder in (path.parent.parent, path.parent):  # the mode is the last folder's only
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{secrets.token_hex(8)}.draft")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        fill(draft)
        _flush(draft)
        # A link fails where a file has appeared meanwhile; a rename would replace it.
        os.link(draft, path)
        _flush(path.parent)
    finally:
        draft.unlink(missing_ok=True)  # another process may have removed it (`remove_drafts`)


def remove_drafts(path: Path) -> None:
    """Remove other names of this file that `create_private` left where it was killed."""
    own = path.stat()
    if own.st_nlink > 1:
        for draft in path.parent.glob(".*.draft"):
            with suppress(OSError):
                if draft.lstat().st_ino == own.st_ino and draft.lstat().st_dev == own.st_dev:
                    draft.unlink()


def _flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
