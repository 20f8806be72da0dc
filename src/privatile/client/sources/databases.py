"""Databases by the name of a file or by an address: opened to be read, row by row.

An address holds a password. It comes from the environment or from a file, and no text of this program shows it: errors
give the kind of a failure only, warnings of the database library and its drivers are not shown, and its own log is kept
from writing statements and rows.
"""

import logging
import os
import sqlite3
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from privatile.client.sources.files import connect
from privatile.client.sources.tables import FETCH, safely
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
