"""Opening SQLite files that are read while they are written: permissions, durability, errors in words."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from privatile.core.sqlite_types import lenient_text
from privatile.errors import StoreError


def table_names(path: str | Path) -> set[str] | None:
    """What an SQLite file holds, tables above all; it is only read. None where it is no database."""
    try:
        with closing(connect(path, read_only=True)) as look:
            return {name for (name,) in look.execute("SELECT name FROM sqlite_master")}
    except (sqlite3.DatabaseError, StoreError):
        return None


def connect(
    path: str | Path, *, durable: bool = False, read_only: bool = False, timeout: float = 5.0, mode: int = 0o600
) -> sqlite3.Connection:
    """Open an SQLite file that is read while it is written; a new one gets the permissions `mode`."""
    try:
        if read_only:
            reader = sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True, timeout=timeout)
            reader.text_factory = lenient_text
            return reader
        if str(path) != ":memory:":
            # The permissions are set before SQLite opens the file.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, mode))
        connection = sqlite3.connect(path, timeout=timeout)
        connection.text_factory = lenient_text
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        connection.execute("PRAGMA secure_delete=ON")  # what a finished run no longer says is gone from its file
    except (sqlite3.OperationalError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        can, may = ("read", "read") if read_only else ("written", "write")
        raise StoreError(
            f"{path} cannot be {can} ({why}). Check that its folder exists and that you may {may} there."
        ) from None
    return connection
