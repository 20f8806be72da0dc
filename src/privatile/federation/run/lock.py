"""One process per folder: a file that holds its process number and is locked while it runs."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from privatile.errors import InputError
from privatile.federation.setup.files import unwritable
from privatile.server.folder import try_lock

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
