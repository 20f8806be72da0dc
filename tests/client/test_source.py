"""Columns in memory and behind a database: the same values whatever library holds them."""

import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from privatile.client.sources.databases import open_source
from privatile.client.sources.numbers import numbers
from privatile.client.sources.source import Source
from privatile.client.sources.tables import FETCH
from privatile.errors import DataError, InputError

SECRET = 47114711


def values_of(source: Source) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for batch in source.batches():
        codes = np.zeros(len(batch.values), int) if batch.codes is None else batch.codes
        for value, code in zip(batch.values.tolist(), codes.tolist(), strict=True):
            found.setdefault(source.clients[code], []).append(value)
    return found


COLUMNS = {
    "numpy": np.array([1.0, np.nan, 3.0]),
    "masked": np.ma.MaskedArray(np.array([1, SECRET, 3]), mask=[False, True, False]),
    "list": [1, None, 3.0],
    "decimals": [Decimal(1), None, Decimal("3.0")],
    "objects": np.array([1, None, 3], dtype=object),
    "pandas": pd.Series([1.0, None, 3.0]),
    "pandas nullable": pd.Series([1, None, 3], dtype="Int64"),
    "pandas arrow": pd.Series([1, None, 3], dtype="int64[pyarrow]"),
    "polars": pl.Series([1.0, None, 3.0]),
    "polars integers": pl.Series([1, None, 3]),
    "polars decimals": pl.Series([Decimal(1), None, Decimal(3)]),
    "pyarrow": pa.array([1, None, 3]),
    "pyarrow chunks": pa.chunked_array([[1.0, None], [3.0]]),
    "pyarrow decimals": pa.array([Decimal(1), None, Decimal(3)]),
}


@pytest.mark.parametrize("name", sorted(COLUMNS))
def test_columns_of_every_library(name: str) -> None:
    assert str(values_of(open_source(COLUMNS[name]))) == str({"all": [1.0, float("nan"), 3.0]})
    assert str(values_of(open_source({"north": COLUMNS[name]}))) == str({"north": [1.0, float("nan"), 3.0]})


class Waiting:
    """A query of a library that is not installed here; it looks like a table."""

    columns = ("wage",)

    def compute(self) -> None:
        raise AssertionError("nobody asked for this")


@pytest.mark.parametrize("query", [pl.LazyFrame({"wage": [1, SECRET]}), Waiting()])
def test_a_query_that_has_not_run_is_refused_and_says_how_to_fix_it(query: object) -> None:
    with pytest.raises(InputError, match=r"has not run yet.*\.collect\(\)") as caught:
        open_source(query, value="wage")
    assert str(SECRET) not in str(caught.value)


def test_a_column_may_be_named_like_a_method() -> None:
    table = pd.DataFrame({"collect": [1.0, 2.0]})
    assert values_of(open_source(table, value="collect")) == {"all": [1.0, 2.0]}


FIELDS: dict[str, list[Any]] = {"wage": [1, 2, 3], "region": ["n", "s", "n"], "who": ["a", "b", "a"]}
TABLES = {
    "pandas": pd.DataFrame(FIELDS),
    "pandas categories": pd.DataFrame(FIELDS).astype({"region": "category"}),
    "polars": pl.DataFrame(FIELDS),
    "pyarrow": pa.table(FIELDS),
    "numpy": np.array(
        list(zip(*FIELDS.values(), strict=True)), dtype=[("wage", "i8"), ("region", "U2"), ("who", "U2")]
    ),
}


@pytest.mark.parametrize("name", sorted(TABLES))
def test_tables_of_every_library(name: str) -> None:
    source = open_source(TABLES[name], value="wage", client="region", person="who")
    assert [batch.people for batch in source.batches()] == [[b"a", b"b", b"a"]]
    assert values_of(open_source(TABLES[name], value="wage", client="region")) == {"n": [1.0, 3.0], "s": [2.0]}
    assert values_of(open_source(TABLES[name], value="wage")) == {"all": [1.0, 2.0, 3.0]}
    with pytest.raises(DataError, match=r"no column 'pay'\. The columns are: 'wage', 'region', 'who'"):
        open_source(TABLES[name], value="pay")
    with pytest.raises(DataError, match="must hold numbers"):
        values_of(open_source(TABLES[name], value="region"))
    with pytest.raises(InputError, match="which column"):
        open_source(TABLES[name])


@pytest.mark.parametrize(
    "column",
    [
        np.array([str(SECRET)]),
        np.array([True]),
        np.array([SECRET], dtype="M8[s]"),
        np.array([complex(SECRET)]),
        [str(SECRET)],
        [True, False],
        [object()],
        pd.Series([str(SECRET)]),
        pd.Series([True, None]),
        pl.Series([str(SECRET)]),
        pl.Series([True]),
        pa.array([str(SECRET)]),
        np.full((2, 2), SECRET),
        str(SECRET).encode(),
        SECRET,
    ],
    ids=lambda column: type(column).__name__,
)
def test_columns_of_something_else_are_refused_without_a_value(column: object) -> None:
    with pytest.raises(DataError) as caught:
        values_of(open_source({"north": column}))
    assert "4711" not in str(caught.value)
    assert caught.value.__context__ is None


def test_integers_too_large_for_a_double_are_infinite() -> None:
    assert numbers("x", [10**400, -(10**400), 2**53]).tolist() == [np.inf, -np.inf, 2.0**53]


def test_names_of_clients() -> None:
    assert list(values_of(open_source({"a": [1.0], " b ": [2.0]}))) == ["a", "b"]
    for names in (["", "x"], ["x" * 201], ["line\nbreak"], [None], [float("nan")]):
        with pytest.raises(DataError, match="client"):
            open_source({name: [1.0] for name in names})
    with pytest.raises(DataError, match="same name"):
        open_source({1: [1.0], "1": [2.0]})


def test_values_of_a_mapping_may_have_any_name() -> None:
    source = open_source({"north": [1.0, 2.0]}, value="client")
    assert (len(list(source.batches())), source.clients, source.column) == (1, ["north"], "client")


def test_arrays_have_no_columns_to_name() -> None:
    with pytest.raises(InputError, match="no named columns"):
        open_source(np.arange(3.0), client="region")


# -- databases ---------------------------------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(tmp_path / "d.db")
    connection.execute("CREATE TABLE pay (id INTEGER, wage, region TEXT)")
    rows = [(k, None if k == 1 else k / 2, "n" if k % 2 else "s") for k in range(2 * FETCH + 5)]
    connection.executemany("INSERT INTO pay VALUES (?, ?, ?)", rows)
    return connection


def test_a_query(database: sqlite3.Connection) -> None:
    sql = "SELECT * FROM pay ORDER BY id"
    found = values_of(open_source(database, sql=sql, value="wage", client="region"))
    assert sorted(found) == ["n", "s"]
    assert found["s"][:3] == [0.0, 1.0, 2.0]
    assert np.isnan(found["n"][0])
    assert sum(map(len, found.values())) == 2 * FETCH + 5
    source = open_source(database, sql=sql, value="wage", person="id")
    assert next(batch.people[:2] for batch in source.batches() if batch.people) == [b"0", b"1"]


def test_a_query_over_duckdb() -> None:
    with duckdb.connect() as connection:
        source = open_source(connection, sql="SELECT range::DECIMAL(9,1) AS x FROM range(3)", value="x")
        assert values_of(source) == {"all": [0.0, 1.0, 2.0]}


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (f"SELECT nothing_{SECRET} FROM pay", "database refused or broke off"),
        ("SELECT id AS pay FROM pay", "no column 'wage'. The columns are: 'pay'"),
        (f"SELECT 'x{SECRET}' AS wage FROM pay", "must hold numbers; it holds str"),
        ("UPDATE pay SET wage = 1", "Give a SELECT"),
    ],
)
def test_queries_that_fail(database: sqlite3.Connection, sql: str, words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        values_of(open_source(database, sql=sql, value="wage"))
    assert str(SECRET) not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_driver_that_quotes_rows(database: sqlite3.Connection) -> None:
    """Failures in mid-read: SQLite's function errors would carry whatever the function says."""

    def fails(value: object) -> None:
        raise ValueError(f"cannot use {SECRET}")

    database.create_function("fails", 1, fails)
    with pytest.raises(DataError, match="broke off") as caught:
        values_of(open_source(database, sql="SELECT fails(wage) AS wage FROM pay", value="wage"))
    assert str(SECRET) not in str(caught.value)


def test_not_a_connection() -> None:
    with pytest.raises(InputError, match="DB-API connection; got dict"):
        open_source({}, sql="SELECT 1", value="x")


def test_rows_of_unequal_lengths_are_refused_without_their_values() -> None:
    class Cursor:
        description = (("wage",), ("region",))

        def execute(self, query: str) -> None: ...

        def fetchmany(self, count: int) -> list[tuple[object, ...]]:
            return [(1.0, "north"), (float(SECRET),)]

        def close(self) -> None: ...

    class Connection:
        cursor = Cursor

    with pytest.raises(DataError, match="names 2 columns") as caught:
        values_of(open_source(Connection(), sql="SELECT wage, region FROM pay", value="wage"))
    assert str(SECRET) not in str(caught.value)


NFC, NFD = "K\u00f6ln", "Ko\u0308ln"


def test_one_client_in_two_unicode_forms_is_one_client(tmp_path: Path) -> None:
    rows = [(NFC, 1.0), (NFD, 2.0), (f" {NFD} ", 3.0), ("Bonn", 4.0)]
    path = tmp_path / "towns.csv"
    path.write_text("town,wage\n" + "".join(f"{town},{wage}\n" for town, wage in rows), encoding="utf-8")
    table = pd.DataFrame(rows, columns=["town", "wage"])
    for data in (path, table, pa.Table.from_pandas(table)):
        assert values_of(open_source(data, value="wage", client="town")) == {NFC: [1.0, 2.0, 3.0], "Bonn": [4.0]}
    with pytest.raises(DataError, match="two clients have the same name"):
        open_source({NFC: [1.0], NFD: [2.0]})
    # Case is kept: these are two clients.
    assert len(values_of(open_source(pd.DataFrame({"t": ["a", "A"], "w": [1, 2]}), value="w", client="t"))) == 2
