"""Databases by file or address, and from whatever holds the data to its source.

Databases by the name of a file or by an address: opened to be read, row by row.

An address holds a password. It comes from the environment or from a file, and no text of this program shows it: errors
give the kind of a failure only, warnings of the database library and its drivers are not shown, and its own log is kept
from writing statements and rows.

From whatever holds the data to its source.
"""

import logging
import os
import sqlite3
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from privatile.client.sources.csv import TextFormat
from privatile.client.sources.files import FileSource, connect, missing_file
from privatile.client.sources.source import ONLY_CLIENT, UNNAMED, Columns, Source
from privatile.client.sources.tables import (
    FETCH,
    MappingSource,
    database_source,
    is_stream,
    safely,
    stream_source,
    table_columns,
    table_source,
)
from privatile.core.text import is_address
from privatile.errors import InputError, MissingExtra, require

HOW_TO_ADDRESS = (
    "An address names the kind of database, who asks, and where: postgresql+psycopg://USER:PASSWORD@HOST/DATABASE, for "
    "example."
)

LONGEST_ADDRESS = 10_000


def address_refused() -> InputError:
    """The error for an address in the place of a file, which shows no part of it."""
    return InputError(
        "this is the address of a database, and no file; it is not shown. In Python give an open connection with sql. "
        "On the command line others could read its password: put it into a file that only you can read "
        "(--database-url-file FILE) or into the environment (--database-url-env NAME)."
    )


def database_kind(path: Path) -> str | None:
    """ "SQLite" or "DuckDB" by a file's first bytes, whatever its name; None for any other."""
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError:
        return None
    if head == b"SQLite format 3\0":
        return "SQLite"
    return "DuckDB" if head[8:12] == b"DUCK" else None


def connect_sqlite(path: Path) -> Any:
    """A connection that can only read, and sorts in memory: its temporary files would hold records."""
    connection = safely(lambda: sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True))
    safely(connection.execute, "PRAGMA temp_store = MEMORY")
    return connection


def duckdb_relation(path: Path, query: str) -> Any:
    """The rows of a query over a file of duckdb, which is opened to be read; they come when they are asked for."""
    connection = safely(lambda: connect(path))
    relation = safely(lambda: connection.sql(query))
    if relation is None:
        raise InputError("the query returns no rows by its nature. Give a SELECT.")
    return relation


class DatabaseUrl:
    """The address of a database, for SQLAlchemy. Its texts show no part of it.

    >>> DatabaseUrl("postgresql://me:secret@host/pay")
    <a database by its address>
    """

    def __init__(self, address: str) -> None:
        self._address = address

    def __repr__(self) -> str:
        return "<a database by its address>"

    @classmethod
    def from_environment(cls, name: str) -> "DatabaseUrl":
        """The address in a variable, which is then removed: no process that this one starts inherits it."""
        address = os.environ.pop(name, "").strip()
        if not address:
            raise InputError(f"the variable {name!r:.60} of the environment is empty or not there. {HOW_TO_ADDRESS}")
        return cls(address)

    @classmethod
    def from_file(cls, path: Path) -> "DatabaseUrl":
        """The address in the first line of a file."""
        try:
            with path.open(encoding="utf-8") as file:
                address = file.readline(LONGEST_ADDRESS).strip()
        except UnicodeError:
            address = ""
        if not address:
            raise InputError(f"the first line of {path} holds no address. {HOW_TO_ADDRESS}")
        return cls(address)

    def cursor(self) -> "_StreamedRows":
        """A cursor as DB-API has it, whose rows the server keeps until they are fetched."""
        sqlalchemy = require("sqlalchemy", "databases")
        for name in ("sqlalchemy.engine", "sqlalchemy.pool"):
            logging.getLogger(name).setLevel(logging.WARNING)  # more detailed, they write rows
        driver = ""
        try:
            options = {"poolclass": sqlalchemy.pool.NullPool, "hide_parameters": True}
            engine = _quietly(lambda: sqlalchemy.create_engine(self._address, **options))
        except ModuleNotFoundError as error:
            driver, problem = str(error.name), "driver"
        except sqlalchemy.exc.NoSuchModuleError:
            problem = "kind"
        except Exception:  # a library's text may quote the address
            problem = "form"
        else:
            return _StreamedRows(safely(_quietly, engine.connect))
        if problem == "driver":
            raise MissingExtra(
                f"this database needs {driver}, which is not installed. Install it: pip install {driver}."
            )
        what = "names a kind of database that SQLAlchemy does not know" if problem == "kind" else "cannot be understood"
        raise InputError(f"the database's address {what}; it is not shown. {HOW_TO_ADDRESS}")


def _quietly(call: Callable[[], Any]) -> Any:
    """Call the database library without its warnings, which may quote the address."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call()


class _StreamedRows:
    """The part of DB-API's cursor that a source needs, over a connection of SQLAlchemy."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection.execution_options(stream_results=True, max_row_buffer=FETCH, no_parameters=True)
        self._result: Any = None

    def execute(self, query: str) -> None:
        """Begin the query, as it is: no colon or percent sign of it means a parameter."""
        self._result = _quietly(lambda: self._connection.exec_driver_sql(query))

    @property
    def description(self) -> Sequence[tuple[str]]:
        """The names of its columns."""
        names = self._result.keys() if self._result.returns_rows else ()
        return [(name,) for name in names]

    def fetchmany(self, count: int) -> Sequence[Sequence[object]]:
        """The next rows."""
        rows: Sequence[Sequence[object]] = _quietly(lambda: self._result.fetchmany(count))
        return rows

    def close(self) -> None:
        """Leave the database; nothing is committed."""
        _quietly(self._connection.close)


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
    columns = Columns(value, client, person, weight, groups)
    if isinstance(data, str | os.PathLike):
        if is_address(os.fspath(data)):
            raise address_refused()
        path = Path(data)
        if sql is not None:
            return _of_database_file(path, sql, columns, text_format)
        if (kind := database_kind(path)) is not None:
            raise InputError(f"{path} is a {kind} database. Say which rows are meant: sql='SELECT … ORDER BY …'.")
        return FileSource(path, columns, text_format)
    _refuse_format(text_format, type(data).__name__)
    if sql is not None:
        return database_source(data, sql, columns)
    # Asked of the type: a table may have a column of that name.
    if hasattr(type(data), "collect") or hasattr(type(data), "compute"):
        raise InputError(
            f"a {type(data).__name__} is a query that has not run yet, and might give its rows in another order next "
            "time. Run it (.collect() or .compute()) and give the table, or give the path of the file it reads."
        )
    if is_stream(data):
        return stream_source(data, columns)
    if table_columns(data) is not None:
        return table_source(data, columns)
    if client is not None or person is not None or weight is not None or groups:
        raise InputError(
            "client, person, weight and groups name columns of a table or a file; this data has no named columns."
        )
    if isinstance(data, Mapping):
        return MappingSource(data, value or UNNAMED)
    return MappingSource({ONLY_CLIENT: data}, value or UNNAMED)


def _of_database_file(path: Path, sql: str, columns: Columns, text_format: TextFormat | None) -> Source:
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
        return database_source(connect_sqlite(path), sql, columns)
    return stream_source(duckdb_relation(path, sql), columns, sql)


def _refuse_format(text_format: TextFormat | None, what: str) -> None:
    if text_format is not None and text_format.given:
        raise InputError(
            f"{' and '.join(text_format.given)} are for CSV files, whose numbers are texts; a {what} is none."
        )
