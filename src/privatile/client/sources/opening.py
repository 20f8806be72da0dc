"""From whatever holds the data to its source."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from privatile.client.sources.databases import (
    address_refused,
    connect_sqlite,
    database_kind,
    duckdb_relation,
)
from privatile.client.sources.files import FileSource, missing_file
from privatile.client.sources.source import ONLY_CLIENT, UNNAMED, Source
from privatile.client.sources.tables import (
    DatabaseSource,
    MappingSource,
    StreamSource,
    TableSource,
    is_stream,
    table_columns,
)
from privatile.client.sources.text_format import TextFormat
from privatile.core.words import is_address
from privatile.errors import InputError


def open_source(
    data: object,
    *,
    value: str | None = None,
    client: str | None = None,
    person: str | None = None,
    sql: str | None = None,
    weight: str | None = None,
    groups: Sequence[str] = (),
    text_format: TextFormat | None = None,
) -> Source:
    """The source for whatever holds the data.

    `data` is a path (CSV, Parquet, JSON, also gzip), a mapping of client name to column, a table or a column in
    memory, a relation of duckdb or another stream of Arrow; or, together with `sql`, a DB-API connection, a
    `DatabaseUrl` or the path of an SQLite or DuckDB file. `groups` are further columns that divide the records.
    `text_format` is for CSV files.
    """
    columns = _Columns(value, client, person, weight, groups)
    if isinstance(data, str | os.PathLike):
        if is_address(os.fspath(data)):
            raise address_refused()
        path = Path(data)
        if sql is not None:
            return _of_database_file(path, sql, columns, text_format)
        if (kind := database_kind(path)) is not None:
            raise InputError(f"{path} is a {kind} database. Say which rows are meant: sql='SELECT … ORDER BY …'.")
        return FileSource(path, *columns.named(), text_format)
    _refuse_format(text_format, type(data).__name__)
    if sql is not None:
        return DatabaseSource(data, sql, *columns.named())
    # Asked of the type: a table may have a column of that name.
    if hasattr(type(data), "collect") or hasattr(type(data), "compute"):
        raise InputError(
            f"a {type(data).__name__} is a query that has not run yet, and might give its rows in another order next "
            "time. Run it (.collect() or .compute()) and give the table, or give the path of the file it reads."
        )
    if is_stream(data):
        return StreamSource(data, *columns.named())
    if table_columns(data) is not None:
        return TableSource(data, *columns.named())
    if client is not None or person is not None or weight is not None or groups:
        raise InputError(
            "client, person, weight and groups name columns of a table or a file; this data has no named columns."
        )
    if isinstance(data, Mapping):
        return MappingSource(data, value or UNNAMED)
    return MappingSource({ONLY_CLIENT: data}, value or UNNAMED)


class _Columns(NamedTuple):
    """The names of the columns that are wanted, as sources take them."""

    value: str | None
    client: str | None
    person: str | None
    weight: str | None
    groups: Sequence[str]

    def named(self) -> tuple[str, str | None, str | None, str | None, Sequence[str]]:
        """The same; a file or a table needs the name of the values' column."""
        if self.value is None:
            raise InputError("which column? Name it with value=COLUMN.")
        return self.value, self.client, self.person, self.weight, self.groups


def _of_database_file(path: Path, sql: str, columns: _Columns, text_format: TextFormat | None) -> Source:
    if not path.is_file():
        raise missing_file(path, "is not a file" if path.exists() else "does not exist")
    kind = database_kind(path)
    if kind is None:
        raise InputError(
            f"{path} is no SQLite and no DuckDB file, which a query needs. Leave out sql for a CSV, Parquet or JSON "
            "file. Other databases have an address (--database-url-file FILE; in Python an open connection)."
        )
    _refuse_format(text_format, f"{kind} database")
    if kind == "SQLite":
        return DatabaseSource(connect_sqlite(path), sql, *columns.named())
    return StreamSource(duckdb_relation(path, sql), *columns.named(), query=sql)


def _refuse_format(text_format: TextFormat | None, what: str) -> None:
    if text_format is not None and text_format.given:
        raise InputError(
            f"{' and '.join(text_format.given)} are for CSV files, whose numbers are texts; a {what} is none."
        )
