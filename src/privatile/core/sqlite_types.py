"""Whether an SQLite file from outside holds what its tables declare.

SQLite stores any value in any column: a declared type is a wish. A file that somebody has edited may hold a text where
every reader expects a number, and tables that look like ours. Both are looked at before a file is used.
"""

import sqlite3
from collections.abc import Collection
from contextlib import closing
from functools import lru_cache

TYPES = {"INTEGER": ("integer",), "REAL": ("real", "integer"), "TEXT": ("text",), "BLOB": ("blob",)}


def wrong_column(connection: sqlite3.Connection, but: Collection[str] = ()) -> str | None:
    """The first column, as table.column, that holds a value of another type than it declares; None where none does.

    `but` names columns that may hold anything. Every row is looked at, and no value leaves SQLite.

    >>> connection = sqlite3.connect(":memory:")
    >>> _ = connection.execute("CREATE TABLE answers (round INTEGER NOT NULL, note TEXT)")
    >>> _ = connection.execute("INSERT INTO answers VALUES (1, NULL)")
    >>> wrong_column(connection)
    >>> _ = connection.execute("INSERT INTO answers VALUES ('one', NULL)")
    >>> wrong_column(connection)
    'answers.round'
    """
    for table in [name for kind, name, _, _ in _catalogue(connection) if kind == "table"]:
        wrong = {}
        for _, column, declared, required, _, key in connection.execute(f"PRAGMA table_info({_quoted(table)})"):
            if declared in TYPES and f"{table}.{column}" not in but:
                allowed = TYPES[declared] if required or key else (*TYPES[declared], "null")
                kinds = ", ".join(f"'{kind}'" for kind in allowed)
                wrong[column] = f"typeof({_quoted(column)}) NOT IN ({kinds})"
        # All columns in one pass; which of them it is matters only where one is wrong.
        if wrong and _holds(connection, table, " OR ".join(wrong.values())):
            # On damaged pages the second look may see something else.
            return next(
                (f"{table}.{column}" for column, rule in wrong.items() if _holds(connection, table, rule)), table
            )
    return None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _holds(connection: sqlite3.Connection, table: str, rule: str) -> bool:
    return connection.execute(f"SELECT 1 FROM {_quoted(table)} WHERE {rule} LIMIT 1").fetchone() is not None


Entry = tuple[str, str, str, str | None]
"""A row of an SQLite file's catalogue: type, name, the table it belongs to, how it was declared."""


def is_as_declared(connection: sqlite3.Connection, required: str, optional: str = "") -> bool:
    """Whether a database holds what the script `required` makes, perhaps what `optional` makes, and nothing else.

    A table, an index, a view or a trigger of somebody else's would do as it likes with what is read and written. No
    name is left out: SQLite itself keeps names that begin with sqlite_ for its own, and an editor of the file may use
    them all the same.

    >>> connection = sqlite3.connect(":memory:")
    >>> _ = connection.execute("CREATE TABLE answers (round INTEGER PRIMARY KEY)")
    >>> is_as_declared(connection, "CREATE TABLE answers (round INTEGER PRIMARY KEY);")
    True
    >>> _ = connection.execute("CREATE VIEW counts AS SELECT 1")
    >>> is_as_declared(connection, "CREATE TABLE answers (round INTEGER PRIMARY KEY);")
    False
    """
    found = _catalogue(connection)
    own, may = _made_by(required), _made_by(required + optional)
    return len(set(found)) == len(found) and own <= set(found) <= may


def _catalogue(connection: sqlite3.Connection) -> list[Entry]:
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()


@lru_cache(maxsize=8)
def _made_by(script: str) -> frozenset[Entry]:
    with closing(sqlite3.connect(":memory:")) as own:
        own.executescript(script)
        return frozenset(_catalogue(own))


def lenient_text(content: bytes) -> str:
    """Texts as UTF-8 with a mark where they are not: for connections to files whose texts are compared afterwards."""
    return content.decode("utf-8", "replace")
