"""Files: the same column from every kind; what cannot be read is refused without a word of its content."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from privatile.client.sources.databases import open_source
from privatile.client.sources.files import FileSource
from privatile.client.sources.source import Source
from privatile.errors import DataError, InputError

SECRET = "47114711"
ROWS = [(1.5, "north", "ada"), (None, "south", "bob"), (float(SECRET), "north", "cid"), (float("-inf"), "south", "ada")]


def read(source: Source) -> tuple[list[float], list[str], list[bytes]]:
    values: list[float] = []
    clients: list[str] = []
    people: list[bytes] = []
    for batch in source.batches():
        values += batch.values.tolist()
        codes = np.zeros(len(batch.values), int) if batch.codes is None else batch.codes
        clients += [source.clients[int(code)] for code in codes]
        people += batch.people or []
    return values, clients, people


def csv_text(rows: list[tuple[Any, ...]] = ROWS, delimiter: str = ",", missing: str = "") -> str:
    lines = [delimiter.join(missing if entry is None else str(entry) for entry in row) for row in rows]
    return "\n".join([delimiter.join(("wage", "region", "who")), *lines]) + "\n"


def json_rows() -> list[dict[str, Any]]:
    # JSON has no infinities.
    return [{"wage": wage, "region": region, "who": who} for wage, region, who in ROWS[:3]]


@pytest.fixture(params=["csv", "tsv", "csv.gz", "semicolon.csv", "parquet", "json", "ndjson", "json.gz", "jsonl.gz"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    kind: str = request.param
    path = tmp_path / f"data.{kind}"
    if kind == "parquet":
        with duckdb.connect() as connection:
            connection.execute("CREATE TABLE t (wage DOUBLE, region VARCHAR, who VARCHAR)")
            connection.executemany("INSERT INTO t VALUES (?, ?, ?)", ROWS)
            connection.execute(f"COPY t TO '{path}' (FORMAT parquet)")
    else:
        delimiter = {"tsv": "\t", "semicolon.csv": ";"}.get(kind, ",")
        lines = "\n".join(json.dumps(row) for row in json_rows()) + "\n"
        text = csv_text(delimiter=delimiter)
        if "json" in kind:
            text = json.dumps(json_rows()) if kind.startswith("json.") or kind == "json" else lines
        data = text.encode()
        path.write_bytes(gzip.compress(data) if kind.endswith("gz") else data)
    return path


def test_every_kind_gives_the_same_column(file: Path) -> None:
    values, clients, people = read(open_source(file, value="wage", client="region", person="who"))
    rows = ROWS[:3] if "json" in file.name else ROWS
    assert str(values) == str([float("nan") if wage is None else wage for wage, _, _ in rows])
    assert clients == [region for _, region, _ in rows]
    assert people == [who.encode() for _, _, who in rows]


def test_without_clients_there_is_one(file: Path) -> None:
    source = open_source(str(file), value="wage")
    assert set(read(source)[1]) == {"all"}


def test_an_unknown_column_lists_the_names(file: Path) -> None:
    roles: tuple[dict[str, Any], ...] = ({}, {"client": "salary"}, {"person": "salary"})
    for role in roles:
        columns = {"value": "wage" if role else "salary", **role}
        with pytest.raises(DataError, match=r"no column 'salary'\. The columns are: 'wage', 'region', 'who'") as caught:
            open_source(file, **columns)
        assert SECRET not in str(caught.value)


def test_a_column_of_texts_is_refused(file: Path) -> None:
    with pytest.raises(DataError, match=r"'region'.* must hold numbers") as caught:
        read(open_source(file, value="region"))
    assert "north" not in str(caught.value)


@pytest.mark.slow
def test_half_a_file_is_refused_or_is_a_shorter_file(file: Path) -> None:
    """Cut anywhere: either an error without a value, or rows that were complete."""
    whole = file.read_bytes()
    complete = str(read(open_source(file, value="wage", client="region", person="who"))[0])
    for size in range(0, len(whole) - 1, max(1, len(whole) // 20)):
        file.write_bytes(whole[:size])
        told = "no error"
        try:
            values = read(open_source(file, value="wage", client="region", person="who"))[0]
            # A text cut inside its last field cannot be told from a complete one.
            intact = complete.startswith(str(values)[:-1]) or file.suffix in (".csv", ".tsv")
        except DataError as error:
            told, intact = str(error) + repr(error.__context__) + repr(error.__cause__), True
        assert intact
        assert SECRET[:6] not in told


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("bad.csv", f"wage,region\n1,a\nx{SECRET},b\n", "record 2 after the header holds something else"),
        ("wide.csv", f"wage,region\n1,a\n2,{SECRET},b\n3,c\n", r"line 3 cannot be read"),
        ("narrow.csv", f"wage,region\n1,a\n{SECRET}\n3,c\n", r"line 3 cannot be read"),
        ("quote.csv", f'wage,region\n1,a\n2,"b{SECRET}\n3,c\n', "cannot be read"),
        ("bytes.csv", b"wage,region\n1,a\n" + SECRET.encode() + b",\xff\xfe\n", "cannot be read"),
        ("headless.csv", f"{SECRET},a\n2,b\n", "not shown, since it could be a record"),
        ("fixed.csv", f"north {SECRET}\nsouth 2\n", "not shown, since it could be a record"),
        ("money.csv", f"EUR{SECRET},north\nEUR2,south\n", "not shown, since it could be a record"),
        ("cents.csv", "wage0812.5,a,Lovelace\n", "not shown, since it could be a record"),
        ("gap.csv", f"north,NA\nsouth,{SECRET}\n", "not shown, since it could be a record"),
        ("empty.csv", "", "is empty"),
        ("twice.csv", "wage,wage\n1,2\n", "2 columns named 'wage'"),
        ("cut.json", f'[{{"wage": 1}}, {{"wage": {SECRET}', "cannot be read"),
        ("bad.ndjson", f'{{"wage": 1}}\n{{"wage": {SECRET} zz\n', "cannot be read"),
        ("mixed.json", f'[{{"wage": 1}}, {{"wage": "{SECRET}"}}]', "must hold numbers; it holds JSON"),
        ("late.ndjson", '{"wage": 1}\n' * 30_000 + f'{{"wage": "x{SECRET}"}}\n', "cannot be read"),
        ("bool.json", '[{"wage": true}, {"wage": false}]', "must hold numbers; it holds BOOLEAN"),
        ("not.parquet", f"PAR1{SECRET}PAR1", "cannot be read"),
        ("half.csv.gz", gzip.compress(f"wage\n{SECRET}\n".encode() * 9)[:-9], "cannot be read"),
        ("fake.csv.gz", f"wage\n{SECRET}\n", "cannot be read"),
    ],
)
def test_bad_files_are_refused_in_silence(tmp_path: Path, name: str, text: str | bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(DataError, match=words) as caught:
        read(open_source(path, value="wage"))
    error = caught.value
    assert SECRET not in str(error)
    assert error.__cause__ is None
    assert error.__context__ is None  # what the reader said is gone, not merely hidden


def test_missing_marks_of_csv(tmp_path: Path) -> None:
    path = tmp_path / "gaps.csv"
    path.write_text('wage,region\nNA,NA\n,NA\n"",NA\nnull,NA\n n/a ,NA\nNaN,NA\n7,NA\n 8 ,NA\n-Infinity,NA\n1e3,NA\n')
    values, clients, _ = read(open_source(path, value="wage", client="region"))
    assert str(values) == str([float("nan")] * 6 + [7.0, 8.0, float("-inf"), 1000.0])
    assert set(clients) == {"NA"}  # Namibia is a client, not a gap


def test_line_ends_quotes_and_marks_of_order(tmp_path: Path) -> None:
    path = tmp_path / "windows.csv"
    path.write_bytes('\ufeffwage,"a ""b"", c"\r\n1,"x, y"\r\n"2","line\r\nbreak"\r\n'.encode())
    source = open_source(path, value="wage", client='a "b", c')
    with pytest.raises(DataError, match="printable text"):
        read(source)
    path.write_bytes('\ufeffwage,"a ""b"", c"\r\n1,"x, y"\r\n"2",z\r\n'.encode())
    assert read(open_source(path, value="wage", client='a "b", c'))[:2] == ([1.0, 2.0], ["x, y", "z"])


def test_hostile_names_stay_names(tmp_path: Path) -> None:
    path = tmp_path / "it's [1]*?; drop.csv"
    name = "\"; DROP TABLE x; --'"
    path.write_text('wage,"' + name.replace('"', '""') + "\"\n1,'; SELECT 1; --\n2,$path\n")
    assert read(open_source(path, value="wage", client=name))[1] == ["'; SELECT 1; --", "$path"]


@pytest.mark.parametrize(("kind", "numbers"), [("DOUBLE", "7.0, 8.5"), ("INTEGER", "7, 8"), ("DECIMAL(9,2)", "7, 8.5")])
def test_numbers_and_names_of_parquet(tmp_path: Path, kind: str, numbers: str) -> None:
    path = tmp_path / "t.parquet"
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT unnest([{numbers}]::{kind}[]) AS site, site AS who, site + 1 AS x)"
            f" TO '{path}' (FORMAT parquet)"
        )
    values, clients, people = read(open_source(path, value="x", client="site", person="who"))
    assert values[0] == 8.0
    if kind != "DECIMAL(9,2)":
        assert (clients[0], people[0]) == ("7", b"7")  # whole floats are the same name as integers


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("wage,region,who\n1,,a\n2,x,b\n", "client column is missing"),
        ('wage,region,who\n1," ",a\n2,x,b\n', "1 to 200 characters"),
        (f"wage,region,who\n1,{'x' * 201},a\n", "1 to 200 characters"),
        ("wage,region,who\n1,x,\n2,y,b\n", "person column is missing"),
    ],
)
def test_bad_names_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "names.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=words):
        read(open_source(path, value="wage", client="region", person="who"))


def test_values_as_clients_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "many.csv"
    path.write_text("wage,also\n" + "\n".join(f"{471100000 + k},{471100001 + k}" for k in range(10_001)) + "\n")
    with pytest.raises(DataError, match="more than 10000 different names") as caught:
        read(open_source(path, value="wage", client="also"))
    assert "4711" not in str(caught.value)


def test_paths_that_are_no_data(tmp_path: Path) -> None:
    (tmp_path / "notes.docx").write_text("")
    (tmp_path / "t.parquet.gz").write_text("")
    for path, words in [
        (tmp_path / "none.csv", "does not exist"),
        (tmp_path, "is not a file"),
        (tmp_path / "notes.docx", "must end in .csv"),
        (tmp_path / "t.parquet.gz", "must end in .csv"),
    ]:
        with pytest.raises(DataError, match=words):
            open_source(path, value="wage")
    with pytest.raises(InputError, match="which column"):
        open_source(tmp_path / "x.csv")


def test_rows_keep_the_order_of_the_file(tmp_path: Path) -> None:
    """Many row groups and threads; the digest and the order of the run depend on it."""
    path = tmp_path / "t.parquet"
    with duckdb.connect() as connection:
        sql = f"COPY (SELECT range AS x FROM range(300000)) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 4096)"
        connection.execute(sql)
    assert read(open_source(path, value="x"))[0] == list(range(300_000))


def test_the_reader_may_not_fetch_or_spill(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("wage\n1\n")
    source = open_source(path, value="wage")
    assert isinstance(source, FileSource)
    settings = "autoinstall_known_extensions", "autoload_known_extensions", "temp_directory"
    rows = source._connection.execute(
        "SELECT value FROM duckdb_settings() WHERE name IN (?, ?, ?) ORDER BY name", settings
    ).fetchall()
    assert [str(value).lower() for (value,) in rows] == ["false", "false", ""]


@pytest.mark.process
def test_reading_a_file_does_not_import_pandas(tmp_path: Path) -> None:
    """Not where numbers are missing either; and where pandas is there, it would be a third of the command's time."""
    (tmp_path / "data.csv").write_text("c,x\nnorth,1.5\nsouth,\nnorth,3\n")
    script = (
        "import sys; from privatile.client.sources.databases import open_source;"
        "source = open_source(sys.argv[1], value='x', client='c'); values = [b.values for b in source.batches()];"
        "assert [str(v) for v in values[0]] == ['1.5', 'nan', '3.0'], values;"
        "assert 'pyarrow' in sys.modules and 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path / "data.csv"], check=True)
