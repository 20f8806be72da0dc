"""Where records come from, on the command line: CSV files as people write them, databases, and their passwords."""

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner

import privatile
from privatile.cli import main
from privatile.errors import InputError
from privatile.federation.site.service import ClientService
from tests.cli.test_estimate import here
from tests.federation.kit import Federation, make_study

PASSWORD = "hunter2-correct-horse"
SQL = "SELECT region, who, score FROM people ORDER BY rowid"
ASK = ("--value", "score", "--client", "region", "--epsilon", 2, "--range", 0, 100, "--rounds", 20)
ADDRESS = "sqlite:///file:{}?mode=ro&uri=true&token=" + PASSWORD
"""An address that works and holds a secret: SQLite ignores what it does not know."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The same people as a German CSV file, a tab-separated one, a plain one and a database."""
    rng = np.random.default_rng(9)
    rows = [("north" if k % 3 else "south", f"p{k}", round(value, 2)) for k, value in enumerate(rng.normal(50, 9, 900))]
    for name, line in (
        ("plain.csv", "{},{},{}\n"),
        ("tabs.tsv", "{}\t{}\t{}\n"),
        ("german.csv", "{};{};{}\n"),
    ):
        text = "".join(line.format(*row) for row in rows)
        text = text.replace(".", ",") if name == "german.csv" else text
        (tmp_path / name).write_text(line.format("region", "who", "score") + text)
    with sqlite3.connect(tmp_path / "people.db") as connection:
        connection.execute("CREATE TABLE people (region TEXT, who TEXT, score REAL)")
        connection.executemany("INSERT INTO people VALUES (?, ?, ?)", rows)
    connection.close()
    (tmp_path / "address").write_text(ADDRESS.format(tmp_path / "people.db") + "\n")
    return tmp_path


def test_files_as_people_write_them_are_the_same_records(home: Path) -> None:
    """One run, shown again from every other form of the same people: the ledger knows them, and no one is asked."""
    first = here(home, "estimate", "plain.csv", *ASK, "--save", "run.db", "--json")
    assert first.returncode == 0, first.stderr
    assert "is read with" not in first.stderr
    for name, words in (
        ("tabs.tsv", "is read with tabs between columns, decimal points."),
        ("german.csv", "is read with semicolons between columns, decimal commas."),
        ("people.db", ""),
    ):
        sql = ("--sql", SQL) if name == "people.db" else ()
        again = here(home, "estimate", name, *ASK, *sql, "--save", "run.db", "--json")
        assert again.returncode == 0, again.stderr
        assert "shown again, no one is asked" in again.stderr
        assert words in again.stderr
        assert json.loads(again.stdout) == json.loads(first.stdout)
    groups = here(
        home, "estimate", "german.csv", *ASK[:2], *ASK[4:], "--by", "region", "--dry-run", "--ledger", "new.db"
    )
    assert "decimal commas" in groups.stderr, groups.stderr
    # Negative control: the same people in another order are refused, since nothing shows that they are the same.
    refused = here(home, "estimate", "people.db", *ASK, "--sql", SQL + " DESC")
    assert refused.returncode == 2
    assert "--new-people" in refused.stderr


REFUSED: list[tuple[tuple[object, ...], str]] = [
    (("german.csv", "--decimal", "dot"), "decimal must be point or comma"),
    (("german.csv", "--delimiter", "comma"), "no column 'score'"),
    (("german.csv", "--decimal", "point"), "written otherwise than the rest.*--decimal comma reads it"),
    (("people.db",), "is a SQLite database. Say which rows are meant: --sql"),
    (("people.db", "--sql", SQL, "--decimal", "comma"), "decimal are for CSV files"),
    (("plain.csv", "--sql", SQL), "no SQLite and no DuckDB file.*--database-url-file FILE"),
    ((), "DATA is missing: name a file"),
    (("--database-url-file", "address"), "needs a query: --sql"),
    (("--database-url-file", "gone", "--sql", SQL), "gone cannot be used: no such file"),
    (("--database-url-env", "NOT_THERE", "--sql", SQL), "'NOT_THERE' of the environment is empty"),
    (("plain.csv", "--database-url-file", "address", "--sql", SQL), "records come from one place"),
    (("--database-url-file", "address", "--database-url-env", "X", "--sql", SQL), "exclude each other"),
    ((f"postgresql://me:{PASSWORD}@host/pay", "--sql", SQL), "the address of a database.*--database-url-file FILE"),
    (("options.toml",), "goes on the command line"),
    (("deep/options.toml",), "address goes into a file"),
    (("deep/one.toml",), "address goes into a file"),
    ((f"postgresql:/me:{PASSWORD}@host/pay.toml",), "the address of a database"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "told"), REFUSED)
def test_refusals(home: Path, words: tuple[object, ...], told: str) -> None:
    (home / "options.toml").write_text(f'database_url_file = "{PASSWORD}"\nsql = "SELECT 1"\n')
    (home / "deep").mkdir()
    (home / "deep" / "options.toml").write_text(f'data = "mysql://me:{PASSWORD}@host/pay"\nsql = "SELECT 1"\n')
    (home / "deep" / "one.toml").write_text(f'data = "postgresql:/me:{PASSWORD}@host/pay"\n')  # one slash
    done = here(home, "estimate", *words, *ASK)
    assert done.returncode == 2, done.stderr
    assert re.search(told, done.stderr.replace("\n", " ")), done.stderr
    assert PASSWORD not in done.stdout + done.stderr


def leaks(folder: Path, *texts: str) -> list[str]:
    """Where the password stands, outside the file that is its place."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "address"]
    found = [str(path) for path in files if PASSWORD.encode() in path.read_bytes()]
    return found + [text for text in texts if PASSWORD in text]


def test_a_password_is_written_nowhere(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Output, logs, run file, ledger, keys, page and every other file, after a run by address and one that fails."""
    pytest.importorskip("sqlalchemy", reason="THE DATABASE'S ADDRESS IS NOT TESTED: the extra databases is missing")
    caplog.set_level(1)
    monkeypatch.setenv("PEOPLE", (home / "address").read_text())
    by_file = ("--database-url-file", "address", "--sql")
    done = here(home, "estimate", *by_file, SQL, *ASK, "--person", "who", "--save", "run.db", "--explain")
    assert done.returncode == 0, done.stderr
    (home / "options.toml").write_text(f'sql = "{SQL}"\nvalue = "score"\nrange = [0, 100]\nepsilon = 1\n')
    dry = here(home, "estimate", "options.toml", "--database-url-env", "PEOPLE", "--dry-run", "--ledger", "new.db")
    assert dry.returncode == 0, dry.stderr
    page = here(home, "report", "run.db", "-o", "page.html")
    assert page.returncode == 0, page.stderr
    broken = here(home, "estimate", *by_file, "SELECT nothing FROM people", *ASK)
    assert broken.returncode == 2
    assert "the database refused or broke off" in broken.stderr
    told = [text for one in (done, dry, page, broken) for text in (one.stdout, one.stderr)]
    assert {path.name for path in home.rglob("*.db")} >= {"run.db", "ledger.db"}
    assert leaks(home, caplog.text, *told) == []
    (home / "log").write_text(f"connecting to {PASSWORD}")
    assert leaks(home, f"failed: {PASSWORD}") == [str(home / "log"), f"failed: {PASSWORD}"]  # negative control


@pytest.mark.network
def test_a_site_joins_with_a_query(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Data, ledger and limits are read before anything is connected to: here it ends there.

    The second and the third time the ledger takes the records for those of the first.
    """
    pytest.importorskip("sqlalchemy", reason="THE DATABASE'S ADDRESS IS NOT TESTED: the extra databases is missing")
    federation = Federation(home / "federation", make_study(1, value="score"))
    ready: list[int] = []

    async def end_at_once(service: ClientService) -> str:
        ready.append(service.core.responder._responder._column.records)
        return "finished"

    monkeypatch.setattr(ClientService, "run", end_at_once)
    caplog.set_level(1)
    join = ["join", str(federation.directory.invitation_file("site0")), "--site", str(federation.sites["site0"].path)]
    join += ["--value", "score", "--person", "who", "--yes", "--verbose"]
    told = []
    for words in (
        ("--database-url-file", str(home / "address"), "--sql", SQL),
        ("--source", str(home / "people.db"), "--sql", SQL),
        ("--source", str(home / "german.csv")),
    ):
        done = CliRunner().invoke(main, [*join, *words])
        assert done.exit_code == 0, done.output
        told.append(done.output)
    assert ready == [900] * 3
    assert "decimal commas" in told[2]
    assert "is read with" not in told[0] + told[1]
    assert leaks(home, caplog.text, *told) == []
    for more, error in (
        ([], "--source is missing"),
        (["--source", f"mysql://me:{PASSWORD}@host/pay"], "the address of a database"),
    ):
        refused = CliRunner().invoke(main, [*join, *more])
        assert refused.exit_code == 2
        assert error in refused.output
        assert PASSWORD not in refused.output


def test_the_values_asked_about_are_no_names(tmp_path: Path) -> None:
    """Names of clients are listed by errors and shown by results, so the value column cannot be the clients'."""
    rows = "".join(f"{41_000 + k},s\n" for k in range(60))
    (tmp_path / "pay.csv").write_text("pay,site\n" + rows, encoding="utf-8")
    asked: dict[str, Any] = {"value": "pay", "client": "pay", "ledger": tmp_path / "l.db"}
    chosen: tuple[dict[str, Any], ...] = ({"leave_out": "x"}, {"only": "x"}, {})
    for more in chosen:
        with pytest.raises(InputError, match="cannot name clients") as caught:
            privatile.estimate(tmp_path / "pay.csv", epsilon=1, range=(0, 9e4), **asked, **more)
        assert "410" not in str(caught.value)


def written_as(folder: Path, kind: str, last: float) -> tuple[object, dict[str, Any]]:
    """Sixty records and a copy of their values, the last one of which may differ; as a source of each kind."""
    values = [41_000.5 + 1000 * (k % 3) for k in range(60)]
    copy = [*values[:-1], last]
    rows = pd.DataFrame({"pay": values, "copy": copy, "site": ["north"] * 60})
    path = folder / f"pay.{kind.split()[-1]}"
    if kind == "german csv":
        path.write_text(rows.to_csv(sep=";", index=False).replace(".", ","), encoding="utf-8")
    elif kind == "csv":
        rows.assign(copy=[f" {entry}00" for entry in copy]).to_csv(path, index=False)
    elif kind == "parquet":
        rows.to_parquet(path)
    elif kind == "text parquet":
        rows.assign(copy=rows["copy"].map(str)).to_parquet(path)
    elif kind == "json":
        rows.to_json(path, orient="records")
    elif kind == "table":
        return rows, {}
    elif kind == "text table":
        return rows.assign(copy=rows["copy"].map("{:.3f}".format)), {}
    elif kind == "stream":
        return pa.RecordBatchReader.from_batches(
            (table := pa.Table.from_pandas(rows)).schema, table.to_batches(max_chunksize=7)
        ), {}
    else:
        with sqlite3.connect(path) as connection:
            rows.to_sql("t", connection, index=False, if_exists="replace")
        connection.close()
        return path, {"sql": "SELECT pay, copy, site FROM t ORDER BY rowid"}
    return path, {}


KINDS = ("csv", "german csv", "parquet", "text parquet", "json", "table", "text table", "stream", "db")


@pytest.mark.parametrize("option", [{"client": "copy"}, {"person": "copy"}, {"by": "copy"}, {"only": {"copy": "x"}}])
@pytest.mark.parametrize("kind", KINDS)
def test_the_values_under_another_name_are_no_names_either(tmp_path: Path, kind: str, option: dict[str, Any]) -> None:
    """Names are shown by errors and results; hashes of people are kept, and whoever has the key can test values."""

    def refused(last: float) -> str:
        data, more = written_as(tmp_path, kind, last)
        places: dict[str, Any] = {"ledger": tmp_path / "l.db", "person_key": tmp_path / "person.key"}
        try:
            privatile.estimate(data, value="pay", epsilon=1, range=(0, 9e4), **places, **more, **option)
        except InputError as error:
            return str(error)
        return ""

    said = refused(43_000.5)
    assert "column 'copy' holds the same as column 'pay', which is asked about" in said
    assert not any(f"{number}000" in said for number in (41, 42, 43))
    assert "person" in option or not (tmp_path / "l.db").exists()  # with people: made with the key that hashes them
    assert "holds the same" not in refused(42_000.5)  # the control: one record differs


@pytest.mark.parametrize("option", [{"client": "pay"}, {"person": "pay"}, {"by": "pay"}, {"only": {"pay": "x"}}])
def test_the_value_column_names_nobody(tmp_path: Path, option: dict[str, Any]) -> None:
    data, _ = written_as(tmp_path, "csv", 1.0)
    with pytest.raises(InputError, match=r"column 'pay' cannot (name clients|name people|form groups)") as caught:
        privatile.estimate(data, value="pay", epsilon=1, range=(0, 9e4), ledger=tmp_path / "l.db", **option)
    assert "000.5" not in str(caught.value)


def test_a_column_that_is_missing_throughout_is_no_copy(tmp_path: Path) -> None:
    (tmp_path / "pay.csv").write_text("pay,site\n" + ",north\n" * 9, encoding="utf-8")
    with pytest.raises(InputError, match="missing values only"):
        privatile.estimate(
            tmp_path / "pay.csv", value="pay", client="site", epsilon=1, range=(0, 9), ledger=tmp_path / "l.db"
        )
