"""One coordinator, peer or survey per folder: a file that holds its process number and is locked while it runs."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from privatile.errors import InputError
from privatile.federation.setup.files import unwritable


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
            if not _try_lock(handle):
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


def running_process(path: Path) -> int | None:
    """The number of the process that holds a folder: a coordinator, a peer or a survey; None where none is alive."""
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        return None if _try_lock(handle) else int(path.read_text().strip() or 0) or None
    except ValueError:
        return None
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    import fcntl  # not on every platform; a federation's coordinator needs one that has it

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
