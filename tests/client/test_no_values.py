"""A recognisable value is planted everywhere; nothing that is written, printed, logged or raised contains it.

The client side runs in a process of its own, with its temporary folder, home and working directory under watch. Every
file it leaves, everything it opened for writing (caught by an audit hook, with the name), its output and its logs are
searched for the value in every spelling, text or binary.
"""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

pytestmark = pytest.mark.process

SECRET = 47114711.25
SPELLINGS = [b"4711471", struct.pack("<d", SECRET)[2:], struct.pack(">d", SECRET)[:6], b"lovelace"]

SCRIPT = r"""
import json, logging, os, sys, traceback
logging.basicConfig(level=1, filename="all.log")
trace = open("trace.txt", "w")
def hook(event, arguments):
    if event in ("open", "tempfile.mkdtemp", "tempfile.mkstemp", "os.rename", "os.link", "os.mkdir"):
        print(event, [repr(each) for each in arguments], file=trace)
sys.addaudithook(hook)
from pathlib import Path
from privatile.client.ledger.account import SpendingRules
from privatile.client.randomizer import OperatingSystemCoins
from privatile.client.ledger.ledger import Ledger
from privatile.client.responder import Responder
from privatile.client.order.shuffle import shuffle
from privatile.client.sources.databases import open_source
from privatile.client.ledger.datasets import statement
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Question
path, missing, person = Path(sys.argv[1]), sys.argv[2], sys.argv[3] or None
def show(*things):
    print(*things)
    logging.info("%s", things)
try:
    ledger = Ledger.open("ledger.db")
    key = ledger.person_key(Path("person.key")) if person else None
    source = open_source(path, value="wage", client="region", person=person)
    columns = shuffle(source, ledger, person_key=key, missing=missing, memory_rows=10)
    for name, column in columns.items():
        site = Responder("run", column, RandomizedResponse.from_epsilon(1.0), ledger, OperatingSystemCoins(),
                         missing=missing, dither=5.0)
        show(source, column, site, site.available())
        for number in range(1, 9):
            answer = site.answer(Question(run="run", round=number, level=0.5, query=number * 10.5, length=2))
            show(answer, answer.to_json())
    show(statement(ledger), ledger.verify())
    for question in (Question("run", 1, 0.5, 3.0, 2), Question("run", 99, 0.5, 3.0, 10**9)):
        try:
            site.answer(question)
        except Exception:
            logging.exception("refused")
            traceback.print_exc()
    Responder("run", shuffle(open_source(path, value="wage"), ledger)["all"], RandomizedResponse(0.5), ledger,
              OperatingSystemCoins())
    shuffle(open_source(path, value="region"), ledger)
except Exception:
    logging.exception("failed")
    traceback.print_exc()
    sys.excepthook(*sys.exc_info())
"""


def run(folder: Path, data: Path, missing: str = "noise", person: str = "") -> subprocess.CompletedProcess[bytes]:
    inside = folder / "inside"
    (inside / "tmp").mkdir(parents=True)
    places = {name: str(inside / "tmp") for name in ("TMPDIR", "HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME")}
    source = str(Path(__file__).parents[2] / "src")
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", SCRIPT, str(data), missing, person]
    return subprocess.run(
        command, cwd=inside, env=os.environ | places | {"PYTHONPATH": path}, capture_output=True, check=False
    )


def found_in(folder: Path, told: subprocess.CompletedProcess[bytes]) -> list[str]:
    texts = {"stdout": told.stdout, "stderr": told.stderr}
    for path in (folder / "inside").rglob("*"):
        texts[str(path)] = path.read_bytes() if path.is_file() else b""
    return [
        f"{spelling!r} in {name}"
        for name, text in texts.items()
        for spelling in SPELLINGS
        if spelling in text or spelling in name.encode()
    ]


ROWS = [(SECRET if k % 3 else float(k), "north" if k % 2 else "south", f"lovelace{k}") for k in range(60)]


def write(path: Path, kind: str) -> None:
    if kind == "parquet":
        with duckdb.connect() as connection:
            connection.execute("CREATE TABLE t (wage DOUBLE, region VARCHAR, who VARCHAR)")
            connection.executemany("INSERT INTO t VALUES (?, ?, ?)", ROWS)
            connection.execute(f"COPY t TO '{path}' (FORMAT parquet)")
    elif kind == "csv":
        path.write_text("wage,region,who\n" + "".join(f"{a!r},{b},{c}\n" for a, b, c in ROWS))
    else:
        path.write_text("".join(json.dumps({"wage": a, "region": b, "who": c}) + "\n" for a, b, c in ROWS))


@pytest.mark.parametrize("kind", ["csv", "parquet", "ndjson"])
@pytest.mark.parametrize("person", ["", "who"])
def test_good_files_leave_no_value(tmp_path: Path, kind: str, person: str) -> None:
    data = tmp_path / f"data.{kind}"
    write(data, kind)
    told = run(tmp_path, data, person=person)
    assert b"ones=" in told.stdout
    assert b"Equivocation" in told.stderr
    assert b"AlreadyAnswered" in told.stderr
    assert (tmp_path / "inside" / "ledger.db").exists()
    assert list((tmp_path / "inside" / "tmp").iterdir()) == []
    opened = f"open [\"'{tmp_path / 'inside' / 'tmp'}"
    assert opened in (tmp_path / "inside" / "trace.txt").read_text()  # it did spill
    assert found_in(tmp_path, told) == []


BAD = {
    "word.csv": "wage,region,who\n1,a,x\n{v}oops,b,y\n",
    "wide.csv": "wage,region,who\n1,a,x\n{v},b,y,z\n",
    "narrow.csv": "wage,region,who\n1,a,x\n{v}\n",
    "quote.csv": 'wage,region,who\n1,a,x\n"{v},b,y\n',
    "headless.csv": "{v},a,x\n{v},b,y\n",
    "late.csv": "wage,region,who\n" + "1,a,x\n" * 30_000 + "{v}oops,b,y\n",
    "lone.csv": "wage,region,who\n{v},a,x\n",
    "gap.csv": "wage,region,who\n{v},,x\n{v},b,y\n",
    "cut.ndjson": '{{"wage": 1, "region": "a", "who": "x"}}\n{{"wage": {v}',
    "mixed.ndjson": '{{"wage": 1, "region": "a", "who": "x"}}\n{{"wage": "{v}", "region": "a", "who": "x"}}\n',
    "late.ndjson": '{{"wage": 1, "region": "a", "who": "x"}}\n' * 30_000 + '{{"wage": "{v}", "region": "a"}}\n',
    "torn.parquet": "PAR1{v}PAR1",
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_bad_files_leave_no_value_and_no_file_but_the_person_key(tmp_path: Path, name: str) -> None:
    data = tmp_path / name
    data.write_text(BAD[name].format(v=SECRET))
    told = run(tmp_path, data, person="who")
    assert b"DataError" in told.stderr
    assert found_in(tmp_path, told) == []
    assert sorted(path.name for path in (tmp_path / "inside").iterdir()) == [
        "all.log",
        "person.key",
        "tmp",
        "trace.txt",
    ]


def test_a_refused_missing_value_leaves_no_trace(tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    data.write_text(f"wage,region,who\n{SECRET},a,x\nNA,a,y\n{SECRET},a,z\n")
    told = run(tmp_path, data, missing="fail")
    assert b"missing='fail' refuses" in told.stderr
    assert found_in(tmp_path, told) == []


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    """Negative control: a log with the value, a file with its bytes, and a name with it are all found."""
    data = tmp_path / "data.csv"
    write(data, "csv")
    told = run(tmp_path, data)
    assert found_in(tmp_path, told) == []
    (tmp_path / "inside" / "leak.log").write_text(f"bad value {SECRET}")
    (tmp_path / "inside" / "leak.bin").write_bytes(struct.pack("<d", SECRET))
    (tmp_path / "inside" / f"{SECRET}.tmp").write_text("")
    assert len(found_in(tmp_path, told)) == 3
