"""What a source of records is: batches of rows in a fixed order, and the names of those who hold them.

Every source gives the same three things: the names of the clients (public), values as doubles with NaN for missing,
and, where a person column is named, the text by which each record's person is known. No error here contains a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.errors import DataError

ONLY_CLIENT = "all"
"""The name of the one client where no client column is named."""


class Batch(NamedTuple):
    """Rows of a source. `codes` index the source's clients; None means that there is one client."""

    values: Floats
    codes: NDArray[np.integer[Any]] | None = None
    people: Sequence[bytes] | None = None

    def piece(self, start: int, stop: int) -> Batch:
        """The rows from `start` up to `stop`."""
        return Batch(
            self.values[start:stop],
            None if self.codes is None else self.codes[start:stop],
            None if self.people is None else self.people[start:stop],
        )


class Source(Protocol):
    """A column with its clients, read once from beginning to end, always in the same order."""

    column: str
    person: str | None
    """The name of the person column."""
    clients: list[str]
    """Complete once `batches` has ended; grows while it runs."""

    def batches(self) -> Iterator[Batch]:
        """All rows."""
        ...


class TableColumns:
    """The named columns of a table: values, and where they are named who holds a record and whose it is."""

    def __init__(self, value: str, client: str | None = None, person: str | None = None) -> None:
        self.column = value
        self.client = client
        self.person = person
        self.clients: list[str] = []
        self.wanted = [name for name in (value, client, person) if name is not None]

    def check(self, available: Sequence[str]) -> None:
        """Refuse a column that is not there."""
        for name in self.wanted:
            if name not in available:
                raise unknown_column(name, available)


def unknown_column(name: str, available: Sequence[str]) -> DataError:
    """The error for a column that is not there; names of columns are public, values are not."""
    shown = ", ".join(repr(column) for column in available[:50]) + (", …" if len(available) > 50 else "")
    return DataError(f"there is no column {name!r}. The columns are: {shown}.")
