"""Any database with a DB-API connection: the rows of a query, in the order in which it gives them.

The order must be the same every time (ORDER BY a key): a run that is resumed compares a digest, and refuses where
rows came in another order. Drivers that fetch everything at once hold it in memory; name a server-side cursor's
connection where that matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from privatile.client.sources.source import ONLY_CLIENT, Batch, ClientNames, number, person_bytes, unknown_column
from privatile.errors import DataError, InputError

FETCH = 10_000
"""Rows fetched at once: a few megabytes of Python objects."""


class DatabaseSource:
    """A query over a DB-API connection."""

    def __init__(
        self, connection: Any, query: str, value: str, client: str | None = None, person: str | None = None
    ) -> None:
        if not hasattr(connection, "cursor"):
            raise InputError(
                f"a query needs a DB-API connection; got {type(connection).__name__}, which has no cursor()."
            )
        self.column = value
        self.person = person
        self.clients: list[str] = []
        self._connection, self._query, self._client, self._person = connection, query, client, person

    def batches(self) -> Iterator[Batch]:
        """All rows of the query."""
        cursor = _safely(self._connection.cursor)
        try:
            _safely(cursor.execute, self._query)
            available = [str(entry[0]) for entry in cursor.description or ()]
            if not available:
                raise DataError("the query returns no rows by its nature. Give a SELECT.")
            places = {name: available.index(name) for name in reversed(available)}
            for name in (self.column, self._client, self._person):
                if name is not None and name not in places:
                    raise unknown_column(name, available)
            if self._client is None:
                self.clients.append(ONLY_CLIENT)
            names = ClientNames(self.clients)
            while rows := _safely(cursor.fetchmany, FETCH):
                value = places[self.column]
                yield Batch(
                    np.array([number(self.column, row[value]) for row in rows], dtype=np.float64),
                    self._codes(names, rows, places),
                    None if self._person is None else person_bytes([row[places[self._person]] for row in rows]),
                )
        finally:
            cursor.close()

    def _codes(self, names: ClientNames, rows: list[Any], places: dict[str, int]) -> np.ndarray[Any, Any] | None:
        if self._client is None:
            return None
        place = places[self._client]
        return np.array([names.code(row[place]) for row in rows], dtype=np.uint16)


def _safely(call: Any, *arguments: object) -> Any:
    """Call the driver; its own texts may quote rows, so only the kind of failure is passed on."""
    kind: str
    try:
        return call(*arguments)
    except Exception as error:
        kind = type(error).__name__
    raise DataError(
        f"the database refused or broke off ({kind}). Its own words are withheld, since they may quote records; run "
        "the query by hand to see them."
    )
