"""Columns and tables in memory, streams of them, and the rows of a database's query."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from privatile.client.sources.source import Batch, Columns, Source
from privatile.errors import DataError, InputError, PrivatileError

FETCH = 10_000
"""Rows fetched at once: a few megabytes of Python objects."""

PIECE = 1 << 17
"""Rows of a stream that become one batch."""


class MappingSource(Source):
    """Client name -> column."""

    def __init__(self, data: Mapping[str, object], column: str) -> None:
        super().__init__(Columns(column))
        self.client, self.keys, self.clients = "client", ("client",), []  # named by the mapping
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


Piece = Callable[[str], Any]
"""Gives a column of some rows by its name."""


class PieceSource(Source):
    """Rows that come piece by piece, each of which gives its columns by name: tables, streams, databases."""

    def __init__(self, columns: Columns, pieces: Iterable[Piece], how_read: str = "") -> None:
        super().__init__(columns)
        self._pieces, self._how_read = pieces, how_read

    @property
    def how_read(self) -> str:
        """Whether the rows may come in another order next time."""
        return self._how_read

    def batches(self) -> Iterator[Batch]:
        """One batch per piece."""
        for piece in self._pieces:
            person, weight = (None if name is None else piece(name) for name in (self.person, self.weight))
            yield self.batch(piece(self.column), person, weight, keys=[piece(name) for name in self.keys])


def table_source(table: Any, columns: Columns) -> Source:
    """A table in memory: pandas, polars, pyarrow, or a numpy structured array."""
    columns.check(table_columns(table) or [])
    return PieceSource(columns, [table.__getitem__])


def table_columns(data: Any) -> list[str] | None:
    """The names of a table's columns; None for what is no table."""
    if isinstance(data, np.ndarray):
        return list(data.dtype.names) if data.dtype.names else None
    names = getattr(data, "column_names", None)
    names = getattr(data, "columns", None) if names is None else names
    return None if names is None else [str(name) for name in names]


def stream_source(stream: Any, columns: Columns, query: str = "") -> Source:
    """A stream of Arrow: a relation of duckdb, a reader of record batches, anything with `__arrow_c_stream__`.

    It is read once, piece by piece. What made it may give its rows in another order next time; the digest then differs.
    """
    reader = safely(_record_batches, stream)
    columns.check(list(reader.schema.names))

    def pieces() -> Iterator[Piece]:
        while (rows := safely(next, reader, None)) is not None:
            for start in range(0, len(rows), PIECE):
                yield rows.slice(start, PIECE).column

    return PieceSource(columns, pieces(), order_remark(query) if query else "")


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


def database_source(connection: Any, query: str, columns: Columns) -> Source:
    """Any database with a DB-API connection: the rows of a query, in the order in which it gives them.

    The order must be the same every time (ORDER BY a key): a run that is resumed compares a digest, and refuses where
    rows came in another order. Drivers that fetch everything at once hold it in memory; name a server-side cursor's
    connection where that matters.
    """
    if not hasattr(connection, "cursor"):
        raise InputError(f"a query needs a DB-API connection; got {type(connection).__name__}, which has no cursor().")

    def pieces() -> Iterator[Piece]:
        cursor = safely(connection.cursor)
        try:
            safely(cursor.execute, query)
            available = [str(entry[0]) for entry in cursor.description or ()]
            if not available:
                raise DataError("the query returns no rows by its nature. Give a SELECT.")
            columns.check(available)
            while rows := safely(cursor.fetchmany, FETCH):
                if any(len(row) != len(available) for row in rows):
                    raise DataError(
                        f"the query names {len(available)} columns, but the database gave a row with more or fewer. "
                        "Check the query and the database's driver."
                    )
                # Of two columns of one name the first one is meant.
                yield dict(zip(reversed(available), reversed(list(zip(*rows, strict=True))), strict=True)).__getitem__
        finally:
            safely(cursor.close)

    return PieceSource(columns, pieces(), order_remark(query))


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
