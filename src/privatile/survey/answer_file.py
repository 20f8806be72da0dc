"""What a program's device remembers: one answer per survey and per code, on the disk before it is sent.

The browser's page keeps the same in IndexedDB. Whoever restores an older copy of this file makes the device forget.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, Self

from privatile.errors import StoreError

Outcome = Literal["counted", "late"]

TABLES = """
CREATE TABLE IF NOT EXISTS answers (
  survey TEXT PRIMARY KEY, code TEXT NOT NULL UNIQUE, address TEXT NOT NULL, round INTEGER NOT NULL,
  query TEXT NOT NULL, threshold TEXT NOT NULL, answer INTEGER NOT NULL, outcome TEXT
) STRICT;
CREATE TABLE IF NOT EXISTS asked (code TEXT PRIMARY KEY) STRICT;
"""

FIELDS = "survey, code, address, round, query, threshold, answer, outcome"


class StoredAnswer(NamedTuple):
    """The one bit of a survey. The value that it came from is stored nowhere."""

    survey: str
    code: str
    address: str
    round: int
    query: str
    threshold: str
    answer: bool
    outcome: Outcome | None = None
    """None until the survey has said what became of it."""


class AnswerFile:
    """An SQLite file; its writers wait for each other."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Use `open`."""
        self._file = connection

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open the file of a device, or make it."""
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            # Resolved: ":memory:" would be a device without a memory.
            connection = sqlite3.connect(Path(path).resolve(), timeout=60.0, isolation_level=None)
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(TABLES)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(
                f"{path}: the file of answers cannot be used ({error}). Without it nothing is answered: a device that "
                "cannot remember its answer might give a second one. Give a path that can be written."
            ) from None
        return cls(connection)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Until the end nobody else writes; then everything is on the disk, or nothing where an error came."""
        self._file.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")

    def find(self, survey: str, code: str) -> StoredAnswer | None:
        """The answer that was drawn for this survey or with this code."""
        return self._first("survey = ? OR code = ?", survey, code)

    def of_address(self, address: str) -> StoredAnswer | None:
        """Some answer that was drawn for a survey at this address."""
        return self._first("address = ?", address)

    def _first(self, condition: str, *values: str) -> StoredAnswer | None:
        row = self._file.execute(f"SELECT {FIELDS} FROM answers WHERE {condition}", values).fetchone()
        return None if row is None else StoredAnswer._make(row)._replace(answer=bool(row[6]))

    def add(self, answer: StoredAnswer) -> None:
        """Store a new answer; there can be one per survey and per code only."""
        self._file.execute(f"INSERT INTO answers ({FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", answer)

    def settle(self, survey: str, outcome: Outcome) -> None:
        """Store what became of an answer."""
        self._file.execute("UPDATE answers SET outcome = ? WHERE survey = ?", (outcome, survey))

    def has_asked(self, code: str) -> bool:
        """Whether this device itself has fetched a question with the code."""
        return self._file.execute("SELECT 1 FROM asked WHERE code = ?", (code,)).fetchone() is not None

    def remember_asking(self, code: str) -> None:
        """Store that it has."""
        self._file.execute("INSERT OR IGNORE INTO asked VALUES (?)", (code,))
