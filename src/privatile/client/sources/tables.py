"""Columns and tables in memory, streams of them, and the rows of a database's query."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from privatile.client.sources.source import Batch, Source
from privatile.errors import DataError, InputError, PrivatileError

FETCH = 10_000
"""Rows fetched at once: a few megabytes of Python objects."""

PIECE = 1 << 17
"""Rows of a stream that become one batch."""


class MappingSource(Source):
    """Client name -> column."""

    def __init__(self, data: Mapping[str, object], column: str = "value") -> None:
        super().__init__(column, "client" if column != "client" else "clients")  # named by the mapping
        self._data = data
        for name in data:
            self.code((name,))
        if len(self.clients) != len(data):
            raise DataError("two clients have the same name once written as text.")

    def batches(self) -> Iterator[Batch]:
        """One batch per client."""
        for name, values in self._data.items():
            batch = self.batch(values)
            yield batch._replace(codes=np.full(len(batch.values), self.code((name,)), dtype=np.uint16))


class TableSource(Source):
    """A table in memory: pandas, polars, pyarrow, or a numpy structured array."""

    def __init__(
        self,
        table: Any,
        value: str,
        client: str | None = None,
        person: str | None = None,
        weight: str | None = None,
        groups: Sequence[str] = (),
    ) -> None:
        super().__init__(value, client, person, weight, groups)
        self._table = table
        self.check(table_columns(table) or [])

    def batches(self) -> Iterator[Batch]:
        """One batch: the table is in memory already."""
        columns = (self.column, self.person, self.weight)
        keys = [self._table[name] for name in self.keys]
        yield self.batch(*(None if name is None else self._table[name] for name in columns), keys=keys)


def table_columns(data: Any) -> list[str] | None:
    """The names of a table's columns; None for what is no table."""
    if isinstance(data, np.ndarray):
        return list(data.dtype.names) if data.dtype.names else None
    names = getattr(data, "column_names", None)
    names = getattr(data, "columns", None) if names is None else names
    return None if names is None else [str(name) for name in names]


class StreamSource(Source):
    """A stream of Arrow: a relation of duckdb, a reader of record batches, anything with `__arrow_c_stream__`.

    It is read once, piece by piece. What made it may give its rows in another order next time; the digest then differs.
    """

    def __init__(
        self,
        stream: Any,
        value: str,
        client: str | None = None,
        person: str | None = None,
        weight: str | None = None,
        groups: Sequence[str] = (),
        *,
        query: str = "",
    ) -> None:
        super().__init__(value, client, person, weight, groups)
        self._query = query
        self._reader = safely(_record_batches, stream)
        self.check(list(self._reader.schema.names))

    @property
    def how_read(self) -> str:
        """Whether the rows may come in another order next time."""
        return order_remark(self._query) if self._query else ""

    def batches(self) -> Iterator[Batch]:
        """One batch for each of the stream, which is divided where it is large."""
        names = (self.column, self.person, self.weight)
        while (piece := safely(next, self._reader, None)) is not None:
            for start in range(0, len(piece), PIECE):
                rows = piece.slice(start, PIECE)
                keys = [rows.column(name) for name in self.keys]
                yield self.batch(*(None if name is None else rows.column(name) for name in names), keys=keys)


def is_stream(data: object) -> bool:
    """Whether data is a stream of Arrow and no table or column in memory, all of which are arrays as well."""
    return hasattr(type(data), "__arrow_c_stream__") and not hasattr(type(data), "__array__")


def _record_batches(stream: Any) -> Any:
    import pyarrow  # type: ignore[import-untyped]

    return pyarrow.RecordBatchReader.from_stream(stream)


def order_remark(query: str) -> str:
    """What to know about a query without an order."""
    if re.search(r"\border\s+by\b", query, re.IGNORECASE):
        return ""
    return (
        "The query has no ORDER BY: the database may give its rows in another order next time, and a run that was "
        "interrupted could then not go on. Order it by a key."
    )


class DatabaseSource(Source):
    """Any database with a DB-API connection: the rows of a query, in the order in which it gives them.

    The order must be the same every time (ORDER BY a key): a run that is resumed compares a digest, and refuses where
    rows came in another order. Drivers that fetch everything at once hold it in memory; name a server-side cursor's
    connection where that matters.
    """

    def __init__(
        self,
        connection: Any,
        query: str,
        value: str,
        client: str | None = None,
        person: str | None = None,
        weight: str | None = None,
        groups: Sequence[str] = (),
    ) -> None:
        if not hasattr(connection, "cursor"):
            raise InputError(
                f"a query needs a DB-API connection; got {type(connection).__name__}, which has no cursor()."
            )
        super().__init__(value, client, person, weight, groups)
        self._connection, self._query = connection, query

    @property
    def how_read(self) -> str:
        """Whether the rows may come in another order next time."""
        return order_remark(self._query)

    def batches(self) -> Iterator[Batch]:
        """All rows of the query."""
        cursor = safely(self._connection.cursor)
        try:
            safely(cursor.execute, self._query)
            available = [str(entry[0]) for entry in cursor.description or ()]
            if not available:
                raise DataError("the query returns no rows by its nature. Give a SELECT.")
            self.check(available)
            places = [
                None if name is None else available.index(name) for name in (self.column, self.person, self.weight)
            ]
            key_places = [available.index(name) for name in self.keys]
            while rows := safely(cursor.fetchmany, FETCH):
                if any(len(row) != len(available) for row in rows):
                    raise DataError(
                        f"the query names {len(available)} columns, but the database gave a row with more or fewer. "
                        "Check the query and the database's driver."
                    )
                columns = list(zip(*rows, strict=True))
                keys = [columns[place] for place in key_places]
                yield self.batch(*(None if place is None else columns[place] for place in places), keys=keys)
        finally:
            safely(cursor.close)


def safely(call: Any, *arguments: object) -> Any:
    """Call the driver; its own texts may quote rows, so only the kind of failure is passed on."""
    kind: str
    try:
        return call(*arguments)
    except PrivatileError:
        raise  # said by this program
    except Exception as error:
        kind = type(error).__name__
    raise DataError(
        f"the database refused or broke off ({kind}). Its own words are withheld, since they may quote records; run "
        "the query by hand to see them."
    )
