"""Small files: JSON that programs write, read as typed values, and text written in one piece.

Files that people write (TOML) are read with `core/decoding.py`, which reports all errors at once, each with its line.
"""

import contextlib
import json
import os
import stat
from pathlib import Path
from typing import TypeVar

import msgspec

from privatile.core.decoding import LARGEST_FILE, broken_rule, decode_json
from privatile.errors import InputError, StoreError

T = TypeVar("T")


def read_json(path: Path, kind: type[T], what: str) -> T:
    """Read a JSON file as `kind`; anything missing, unknown or out of range is refused. `what` names it in errors."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise InputError(f"{path}: has more than {LARGEST_FILE:,} bytes; it must be {what}.")
        return decode_json(content, msgspec.json.Decoder(kind))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; it must be {what}.") from None
    except InputError:
        raise
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: not {what}: {broken_rule(error, 'the file')}") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; give the file that is {what}.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read as {what}: {_reason(error)}.") from None
    except (ValueError, RecursionError):
        raise InputError(
            f"{path}: cannot be read as {what}: it is not JSON. It was edited or cut off, or is another file."
        ) from None


def write_json(path: Path, value: object) -> None:
    """Write a JSON file that `read_json` reads back as an equal value."""
    replace_file(path, json.dumps(msgspec.to_builtins(value), indent=2) + "\n")


def replace_file(path: Path, text: str) -> None:
    """Write a file in one piece: a reader sees the old text or the new one."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        with fresh.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> StoreError:
    """The error for a small file that could not be written: a full disk, most often."""
    return StoreError(
        f"{path} could not be written ({_reason(error)}). Nothing is lost: make room, or check who may write there, "
        "and give the same command again."
    )


def _reason(error: OSError) -> str:
    """What the operating system says."""
    return os.strerror(error.errno) if error.errno else type(error).__name__


def write_private(path: Path, content: bytes) -> None:
    """Create a file that only its owner can read; never overwrite one."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InputError(f"{path} exists already and holds secrets: move it away first.") from None
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def broken_mode(path: Path) -> list[str]:
    """What is wrong with a private file's permissions; empty when nothing is."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        return [f"{path}: a private key must be readable by its owner alone (chmod 600); its mode is {mode:04o}."]
    return []
