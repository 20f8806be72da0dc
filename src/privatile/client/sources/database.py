"""Any database with a DB-API connection: the rows of a query, in the order in which it gives them.

The order must be the same every time (ORDER BY a key): a run that is resumed compares a digest, and refuses where
rows came in another order. Drivers that fetch everything at once hold it in memory; name a server-side cursor's
connection where that matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from privatile.client.sources.source import Batch, Source
from privatile.errors import DataError, InputError

FETCH = 10_000
"""Rows fetched at once: a few megabytes of Python objects."""


class DatabaseSource(Source):
    """A query over a DB-API connection."""

    def __init__(
        self, connection: Any, query: str, value: str, client: str | None = None, person: str | None = None
    ) -> None:
        if not hasattr(connection, "cursor"):
            raise InputError(
                f"a query needs a DB-API connection; got {type(connection).__name__}, which has no cursor()."
            )
        super().__init__(value, client, person)
        self._connection, self._query = connection, query

    def batches(self) -> Iterator[Batch]:
        """All rows of the query."""
        cursor = _safely(self._connection.cursor)
        try:
            _safely(cursor.execute, self._query)
            available = [str(entry[0]) for entry in cursor.description or ()]
            if not available:
                raise DataError("the query returns no rows by its nature. Give a SELECT.")
            self.check(available)
            places = [
                None if name is None else available.index(name) for name in (self.column, self.client, self.person)
            ]
            while rows := _safely(cursor.fetchmany, FETCH):
                columns = list(zip(*rows, strict=True))
                yield self.batch(*(None if place is None else columns[place] for place in places))
        finally:
            cursor.close()


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
