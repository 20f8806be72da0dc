"""Databases by a file or an address, relations and streams: the records of a file, and no word of a password."""

import hashlib
import logging
import sqlite3
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from privatile.client.ledger.integrity import PersonKey
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import shuffle
from privatile.client.sources import databases
from privatile.client.sources.databases import DatabaseUrl, open_source
from privatile.client.sources.source import Source
from privatile.client.sources.tables import FETCH, PIECE
from privatile.errors import DataError, InputError, MissingExtra

ROWS = [(float(k % 700) if k % 9 else None, "north" if k % 3 else "south", k, 1.0 + k % 2) for k in range(3_000)]
SQL = "SELECT * FROM pay ORDER BY who"
PASSWORD = "hunter2-correct-horse"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("databases")
    lines = [f"{'' if wage is None else wage},{region},{who},{weight}\n" for wage, region, who, weight in ROWS]
    (folder / "pay.csv").write_text("wage,region,who,weight\n" + "".join(lines))
    create = "CREATE TABLE pay (wage DOUBLE, region VARCHAR, who BIGINT, weight DOUBLE)"
    with sqlite3.connect(folder / "pay.data") as connection:  # by its first bytes, not by its name
        connection.execute(create)
        connection.executemany("INSERT INTO pay VALUES (?, ?, ?, ?)", ROWS[::-1])
    connection.close()
    with duckdb.connect(str(folder / "pay.duckdb")) as duck:
        duck.execute(f"{create}; COPY pay FROM '{folder / 'pay.csv'}' (HEADER)")
    return folder


def sources(folder: Path) -> Iterator[tuple[str, Any, str | None]]:
    yield "sqlite file", folder / "pay.data", SQL
    yield "duckdb file", str(folder / "pay.duckdb"), SQL
    yield "address", DatabaseUrl(f"sqlite:///{folder / 'pay.data'}"), SQL
    relation = duckdb.connect().sql(f"FROM '{folder / 'pay.csv'}'")
    yield "stream", pa.RecordBatchReader.from_stream(relation.to_arrow_table()), None
    yield "relation", relation, None


def columns_of(source: Source) -> dict[str, Any]:
    ledger = Ledger.in_memory(master=bytes(32))
    return {
        name: (column.content.digest, column.records, column.missing)
        for name, column in shuffle(source, ledger).items()
    }


def rows_of(source: Source) -> str:
    """Everything that a source gives, as one digest: values, holders by name, people and weights."""
    seen = hashlib.sha256()
    for batch in source.batches():
        names = [] if batch.codes is None else [source.clients[int(code)] for code in batch.codes]
        weights = [] if batch.weights is None else batch.weights.tolist()
        for row in zip(batch.values.tolist(), names, batch.people or [], weights, strict=True):
            seen.update(repr(row).encode())
    return seen.hexdigest()


def test_every_kind_gives_the_records_of_the_file(folder: Path) -> None:
    """Same values, clients, people, weights and order; so the ledger knows them for the same records."""
    pytest.importorskip("sqlalchemy", reason="THE DATABASE'S ADDRESS IS NOT TESTED: the extra databases is missing")
    names: dict[str, Any] = {"value": "wage", "client": "region"}
    everything = {**names, "person": "who", "weight": "weight"}
    file = columns_of(open_source(folder / "pay.csv", **names))
    rows = rows_of(open_source(folder / "pay.csv", **everything))
    for (kind, data, sql), (_, again, _) in zip(sources(folder), sources(folder), strict=True):
        assert columns_of(open_source(data, sql=sql, **names)) == file, kind
        assert rows_of(open_source(again, sql=sql, **everything)) == rows, kind
    # Negative control: another order is another column.
    back = open_source(folder / "pay.data", sql="SELECT * FROM pay ORDER BY who DESC", **names)
    assert columns_of(back) != file


def test_people_are_the_same_people(folder: Path) -> None:
    def people(data: object, sql: str | None) -> int:
        ledger, key = Ledger.in_memory(master=bytes(32)), PersonKey(bytes(32))
        source = open_source(data, sql=sql, value="wage", person="who")
        return shuffle(source, ledger, person_key=key)["all"].records

    twice = "SELECT wage, who / 2 AS who FROM pay ORDER BY 2"
    assert people(folder / "pay.data", SQL) == people(folder / "pay.csv", None) == len(ROWS)
    assert people(folder / "pay.data", twice) == len(ROWS) // 2


def test_large_results_come_in_pieces() -> None:
    """A batch of a stream is divided, and a query is fetched piece by piece: memory does not grow with the rows."""
    table = pa.table({"x": pa.array(np.arange(3.0 * PIECE))})
    whole = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    sizes = [len(batch.values) for batch in open_source(whole, value="x").batches()]
    assert sizes == [PIECE] * 3
    pytest.importorskip("sqlalchemy")
    rows = "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t WHERE x < 25000) SELECT x FROM t ORDER BY x"
    address = DatabaseUrl("sqlite://")
    sizes = [len(batch.values) for batch in open_source(address, sql=rows, value="x").batches()]
    assert sizes == [FETCH, FETCH, 25_000 - 2 * FETCH]
    cursor = address.cursor()
    cursor.execute(rows)
    assert cursor._result.context.execution_options["stream_results"]  # a server's own cursor, where there is one
    cursor.close()


def test_sorting_writes_no_file(folder: Path) -> None:
    assert databases.connect_sqlite(folder / "pay.data").execute("PRAGMA temp_store").fetchone() == (2,)
    settings = "SELECT value FROM duckdb_settings() WHERE name IN ('temp_directory', 'autoload_known_extensions')"
    rows = databases.duckdb_relation(folder / "pay.duckdb", settings + " ORDER BY name").fetchall()
    assert [str(value).lower() for (value,) in rows] == ["false", ""]


def test_a_query_without_an_order_is_remarked_upon(folder: Path) -> None:
    for name in ("pay.data", "pay.duckdb"):
        assert "no ORDER BY" in open_source(folder / name, sql="SELECT * FROM pay", value="wage").how_read
        assert open_source(folder / name, sql=SQL, value="wage").how_read == ""


REFUSED: list[tuple[str, str | None, str]] = [
    ("pay.data", None, "is a SQLite database. Say which rows are meant: sql="),
    ("pay.duckdb", None, "is a DuckDB database"),
    ("pay.csv", SQL, "no SQLite and no DuckDB file"),
    ("gone.db", SQL, "does not exist"),
    ("pay.data", "SELECT wag FROM pay", r"refused or broke off \(OperationalError\)"),
    ("pay.data", "SELECT who FROM pay", "no column 'wage'. The columns are: 'who'"),
    ("pay.data", "DELETE FROM pay", "refused or broke off"),  # opened to be read
    ("pay.duckdb", "DELETE FROM pay", "refused or broke off|Give a SELECT"),
    ("pay.duckdb", "SELECT wag FROM pay", "refused or broke off"),
    ("pay.duckdb", "SELECT who FROM pay", "no column 'wage'"),
    ("pay.duckdb", "SELECT region AS wage FROM pay", "must hold numbers; it holds str.*CAST"),
    ("pay.data", "SELECT region AS wage FROM pay", "must hold numbers; it holds str.*CAST"),
    ("pay.duckdb", "SELECT DATE '2024-01-01' AS wage FROM pay", "holds date.*days since a fixed day"),
]


@pytest.mark.parametrize(("name", "sql", "words"), REFUSED)
def test_what_cannot_be_read(folder: Path, name: str, sql: str | None, words: str) -> None:
    with pytest.raises((DataError, InputError), match=words) as caught:
        list(open_source(folder / name, sql=sql, value="wage").batches())
    assert "north" not in str(caught.value)
    assert len(list(open_source(folder / "pay.data", sql=SQL, value="wage").batches())) == 1


def test_streams_are_named_columns_and_not_simulated(folder: Path) -> None:
    import privatile

    with pytest.raises(DataError, match="no column 'salary'"):
        open_source(duckdb.sql("SELECT 1 AS wage"), value="salary")
    with pytest.raises(InputError, match="which column"):
        open_source(duckdb.sql("SELECT 1 AS wage"))
    with pytest.raises(InputError, match="a simulation is for made-up data in memory"):
        privatile.estimate(duckdb.sql("SELECT 1 AS wage"), value="wage", epsilon=1, range=(0, 9), simulate=True, rng=1)


# -- passwords --------------------------------------------------------------------------------------------------------


ADDRESSES = {
    "no server": f"postgresql+nodriver://me:{PASSWORD}@127.0.0.1/pay",
    "no kind": f"nosuchkind://me:{PASSWORD}@127.0.0.1/pay",
    "no form": f"me:{PASSWORD}@127.0.0.1 pay",
    "no port": f"sqlite://me:{PASSWORD}@127.0.0.1:port/pay",
    "no file": f"sqlite:////nowhere/{PASSWORD}.db",
}


@pytest.mark.parametrize("name", sorted(ADDRESSES))
def test_no_error_shows_an_address(name: str, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("sqlalchemy")
    caplog.set_level(1)
    address = DatabaseUrl(ADDRESSES[name])
    with pytest.raises(InputError) as caught:
        list(open_source(address, sql=SQL, value="wage").batches())
    error: BaseException | None = caught.value
    while error is not None:
        assert PASSWORD not in f"{error!r} {error} {vars(error)}"
        error = error.__cause__ or error.__context__
    assert PASSWORD not in caplog.text + repr(address) + str(address) + f"{address}"


def test_no_warning_shows_an_address(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    address = f"sqlite:///{folder / 'pay.data'}?PASSW77=1"
    with pytest.warns(sqlalchemy.exc.SAWarning, match="PASSW77"):  # the control: the library does quote it
        sqlalchemy.create_engine(address)

    fetch = sqlalchemy.engine.CursorResult.fetchmany

    def loud(result: Any, count: int) -> Any:
        warnings.warn("PASSW77", stacklevel=1)
        return fetch(result, count)

    monkeypatch.setattr(sqlalchemy.engine.CursorResult, "fetchmany", loud)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        (batch,) = open_source(DatabaseUrl(address), sql=SQL, value="wage").batches()
    assert len(batch.values) == len(ROWS)
    assert not shown


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")

    def missing(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("no module", name="psycopg")

    monkeypatch.setattr(sqlalchemy, "create_engine", missing)
    with pytest.raises(MissingExtra, match="needs psycopg, which is not installed"):
        DatabaseUrl(f"postgresql+psycopg://me:{PASSWORD}@host/pay").cursor()


def test_rows_reach_no_log(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """SQLAlchemy's engine writes every row where its log is as detailed as can be."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    caplog.set_level(1)
    statement, secret = "SELECT 47114711 AS wage ORDER BY 1", "47114711"
    list(open_source(DatabaseUrl(f"sqlite:///{folder / 'pay.data'}"), sql=statement, value="wage").batches())
    assert secret not in caplog.text
    logging.getLogger("sqlalchemy.engine").setLevel(1)
    with sqlalchemy.create_engine(f"sqlite:///{folder / 'pay.data'}").connect() as control:
        control.exec_driver_sql(statement).fetchall()
    assert secret in caplog.text  # negative control


def test_an_address_is_no_path() -> None:
    for address in (f"postgresql://me:{PASSWORD}@host/pay", Path(f"postgresql://me:{PASSWORD}@host/pay")):
        with pytest.raises(InputError, match="the address of a database") as caught:
            open_source(address, value="wage", sql=SQL)
        assert PASSWORD not in str(caught.value)


def test_where_an_address_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAY", f" sqlite:///{PASSWORD} \n")
    assert DatabaseUrl.from_environment("PAY")._address == f"sqlite:///{PASSWORD}"
    with pytest.raises(InputError, match="'PAY' of the environment is empty or not there"):  # no child inherits it
        DatabaseUrl.from_environment("PAY")
    file = tmp_path / "address"
    file.write_text(f"sqlite:///{PASSWORD}\nmore\n")
    assert DatabaseUrl.from_file(file)._address == f"sqlite:///{PASSWORD}"
    for content in (b"\n", b"\xff\xfe\n"):
        file.write_bytes(content)
        with pytest.raises(InputError, match="holds no address"):
            DatabaseUrl.from_file(file)
