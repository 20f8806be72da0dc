"""Files that only their owner may read, made whole or not at all: the ledger, and the person key."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path


def create_private(path: Path, fill: Callable[[Path], object]) -> None:
    """Make a file of mode 0600 at `path`, on the disk before this returns; FileExistsError where there is one.

    `fill` writes the content into a draft. The folder is made where it is missing, with mode 0700.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{secrets.token_hex(8)}.draft")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        fill(draft)
        _flush(draft)
        # A link fails where a file has appeared meanwhile; a rename would replace it.
        os.link(draft, path)
        _flush(path.parent)
    finally:
        draft.unlink()


def _flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
