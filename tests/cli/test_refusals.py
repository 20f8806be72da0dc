"""Every command with input that cannot be used: exit code 2, a message that says how to fix it, nothing written."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from privatile.cli import main
from privatile.cli.federation import by_client
from privatile.errors import InputError
from tests.cli.test_estimate import privatile

SECRET = "47114711.25"

TINY = """
title = "tiny"
clients = 2
replications = 4
seed = 3
populations.same = "normal"
methods.one = { lengths = 1 }
[[grid]]
population = ["same"]
level = [0.5]
truth_rate = [0.5]
method = ["one"]
records = [500]
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good and bad files: data, a finished run, and what became of copies of it."""
    folder = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(4)
    rows = [f"{'n' if i % 2 else 's'},p{i},{value:.2f}\n" for i, value in enumerate(rng.normal(50, 9, 400))]
    (folder / "data.csv").write_text("region,who,pay\n" + "".join(rows))
    (folder / "nothing.csv").write_text("")
    (folder / "text.csv").write_text(f"region,who,pay\nn,a,{SECRET}\nn,b,{SECRET}oops\n")
    (folder / "latin.csv").write_bytes("région,pay\nn\xe9,5\n".encode("latin-1"))
    (folder / "junk.db").write_bytes(bytes(5000))
    (folder / "tiny.toml").write_text(TINY)
    (folder / "folder").mkdir()
    done = privatile(folder, "estimate", "data.csv", *DATA, "--save", "run.db")
    assert done.returncode == 0, done.stderr
    for name, statement in (
        ("format.db", "UPDATE run SET format = 9"),
        ("counts.db", "UPDATE rounds SET ones = '[9999]' WHERE round = 5"),
        ("gap.db", "DELETE FROM rounds WHERE round = 5"),
        ("blank.db", "DELETE FROM run"),
    ):
        shutil.copy(folder / "run.db", folder / name)
        change(folder / name, statement)
    change(folder / "other.db", "CREATE TABLE t (x)")
    content = bytearray((folder / "run.db").read_bytes())
    (folder / "cut.db").write_bytes(content[:9000])
    content[4200:] = bytes(byte ^ 0x5A for byte in content[4200:])
    (folder / "torn.db").write_bytes(content)
    return folder


def change(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of all that, as the working folder."""
    shutil.copytree(made, tmp_path / "here", ignore=shutil.ignore_patterns("state"))
    monkeypatch.chdir(tmp_path / "here")
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


DATA = ("--value", "pay", "--epsilon", "1", "--range", "0", "100")
ASK = ("estimate", "data.csv", *DATA)
ONE_VALUE = ("--value", "pay", "--q", "0.5", "--epsilon", "1")
FEDERATION = ("federation", "init", "new", "--add-client", "a", "--add-client", "b", "--records", "500", *ONE_VALUE)
SURVEY = ("survey", "init", "new", "--title", "Pay", "--codes", "100", "--address", "https://a.example", *ONE_VALUE)
RUNS = ["gone.db", "folder", "junk.db", "data.csv", "cut.db", "torn.db", "format.db", "blank.db", "other.db"]
REFUSED: list[tuple[tuple[object, ...], str]] = [
    (("estimate", "gone.csv", *DATA), "does not exist. Give the path"),
    (("estimate", "folder", *DATA), "is not a file"),
    (("estimate", "nothing.csv", *DATA), "is empty"),
    (("estimate", "text.csv", *DATA), "record 2 after the header"),
    (("estimate", "latin.csv", *DATA), "not in UTF-8"),
    (("estimate", "gone.toml"), "gone.toml cannot be read: no such file"),
    ((*ASK, "--until-width", -1), "positive width"),
    ((*ASK, "--until-width", "nan"), "positive width"),
    ((*ASK, "--value-kind", "halves"), "--value-kind must be any, continuous, whole or step=NUMBER"),
    ((*ASK, "--value-kind", "step=0"), "--value-kind must be any, continuous, whole or step=NUMBER"),
    ((*ASK, "--design", "straddle", "--interval", "paper"), "need a design that follows the quantile"),
    ((*ASK, "--design", "paper-c1", "--interval", "smooth"), "needs cohort mode"),
    ((*ASK, "--design", "rounds", "--mode", "local", "--until-width", 5), "needs cohort mode"),
    ((*ASK, "--max-epsilon", "nan"), "Leave it out"),
    ((*ASK, "--range", 0, "inf"), "two finite numbers"),
    ((*ASK, "--range", 80, 0), r"range must rise, low < high; got 80 0\. Give the low end first: --range 0 80\."),
    ((*FEDERATION, "--range", 80, 0), r"range: must rise, low < high; got 80 0\. .* --range 0 80\."),
    ((*SURVEY, "--range", 80, 0), r"--range must rise, low < high; got 80 0\. .* --range 0 80\."),
    ((*ASK, "--q", "nan"), r"inside \(0, 1\)"),
    ((*ASK, "--q", "0.1,0.5"), "one by one"),
    ((*ASK, "--q", "0,5"), "point before decimals"),
    ((*ASK, "--dashboard-at", "nowhere"), "HOST:PORT"),
    ((*ASK, "--dashboard-at", "127.0.0.1:99999"), "HOST:PORT"),
    ((*ASK, "--dashboard", "--dashboard-tls", "no.crt", "no.key"), "no.crt is none"),
    ((*ASK, "--ledger", "junk.db"), "is not a ledger"),
    ((*ASK, "--ledger", "folder"), "is not a file"),
    ((*ASK, "--save", "gone/run.db"), "Check that its folder exists"),
    *(((*ASK, "--save", name), "run file|another format|replay") for name in RUNS[1:]),
    *((("report", name, "-o", "page.html"), "run file|another format|without a run.db") for name in RUNS),
    *((("status", name), "run file|another format") for name in RUNS),
    *((("compare", "run.db", name, "--disjoint"), "run file|another format") for name in RUNS),
    *((("report", name, "-o", "page.html"), "does not replay.*Restore") for name in ("counts.db", "gap.db")),
    *((("compare", name, "run.db", "--disjoint"), "does not replay.*Restore") for name in ("counts.db", "gap.db")),
    (("report", "run.db", "-o", "gone/page.html"), "gone/page.html cannot be used: no such file"),
    (("report", "run.db", "-o", "page.txt"), "must end in .html"),
    (("report", "run.db", "--figure", "picture.xyz"), "must end in .svg"),
    (("watch", "run.db", "--once", "--json"), "privatile report RUN --json"),
    (("federation", "status", "folder"), "status is gone. Use `privatile status FOLDER`"),
    (("survey", "status", "folder"), "status is gone. Use `privatile status FOLDER`"),
    (("compare", "run.db", "run.db"), "--disjoint"),
    (("compare", "run.db", "run.db", "--disjoint"), "with itself"),
    (("compare", "run.db", "run.db", "--disjoint", "--q", 0.3), "no level 0.3"),
    (("ledger", "show"), "One is made when"),
    (("ledger", "show", "--ledger", "run.db"), "not a ledger"),
    (("ledger", "show", "run.db"), "not a ledger"),
    (("ledger", "show", "run.db", "--ledger", "run.db"), "both name the ledger"),
    (("ledger", "release", "run-1", "--ledger", "junk.db"), "not a ledger"),
    (("plan",), "two of three"),
    (("plan", "--epsilon", 1), "--width W"),
    (("plan", "--epsilon", 1, "--width", "wide"), "half of it"),
    (("plan", "--epsilon", 1, "--width", "±2"), "give --spread, --population or --like for a width in units"),
    (("dashboard", "run.db", "--at", "foo"), "--at takes HOST:PORT"),
    (("dashboard", "run.db", "--tls", "no.crt", "no.key"), "--tls takes"),
    (("plan", "--epsilon", 1, "--width", 0), "width must be a positive number"),
    (("plan", "--epsilon", 1, "--width", 2, "--spread", 9, "--density", 1), "give one of them"),
    (("plan", "--epsilon", 1, "--width", 2, "--spread", 0), "spread must be a positive number"),
    (("plan", "--epsilon", 1, "--width", 2, "--population", "normal:mean=5,sigma=2"), "mean=…, median=…, sd=…"),
    (("plan", "--epsilon", 1, "--width", 2, "--population", "lognormal:median=-5"), "median=…, sigma=…"),
    (("plan", "--epsilon", 1, "--width", 2, "--like", "none.db"), "none.db"),
    (("plan", "--records", 1000, "--epsilon", "nan"), "epsilon must lie in"),
    (("plan", "--records", 1000, "--epsilon", 1, "--q", 1), r"inside \(0, 1\)"),
    (("plan", "--records", 1000, "--epsilon", 1, "--population", "normal", "--runs", 0), "--runs"),
    (("plan", "--records", 1000, "--epsilon", 1, "--population", "banana"), "takes one of"),
    (("plan", "--add-client", "a=1000,1", "--add-client", "a=1000,1"), "more than once"),
    (("plan", "--add-client", "a=1000,1,nan"), "NAME=RECORDS,EPSILON"),
    (("simulate", "run", "gone.toml", "--store", "s.db"), "gone.toml"),
    (("simulate", "run", "tiny.toml", "--store", "run.db"), "not the store of an experiment"),
    (("simulate", "run", "tiny.toml", "--store", "gone/s.db"), "cannot be written"),
    (("simulate", "run", "tiny.toml", "--store", "s.db", "--out", "rows.txt"), "must end in .csv"),
    (("simulate", "show", "run.db"), "not the store of an experiment"),
    (("simulate", "show", "gone.db"), "there is no store"),
    (("paper", "salary", "--data", "gone.csv"), "gone.csv cannot be read"),
    (("completion", "tcsh"), "is not one of"),
    (("verify", "data.csv"), "release record"),
    (("release", "gone"), "nothing to release"),
    (("serve", "gone"), "there is no study file"),
    (("serve", "gone", "--ops-port", 99999), "--ops-port"),
    (("enroll", "gone.json"), "no such file"),
    (("join", "data.csv", "--source", "data.csv", "--value", "pay"), "invitation"),
    (("federation", "init", "new", "--add-client", "n", "--range", 0, 1, "--records", 300), "epsilon: is missing"),
    *(
        (
            ("federation", "init", "new", "--add-client", "n", "--epsilon", 1, "--range", 0, 1, "--records", records),
            "records: must be a whole number",
        )
        for records in ("nan", "inf", "300.5")
    ),
    (("audit", "--epsilon", 1, "--off", 0), "--off is a share"),
    (("audit", "--epsilon", 1, "--command", "no-such-program-here"), "starts no program"),
    (("audit", "--epsilon", 1, "--command", "'"), "starts no program"),
    (("audit", "--epsilon", 1, "--off", 0.00001), "Choose a larger --off"),
    (("nonsense",), "No such command"),
]


@pytest.mark.parametrize(("arguments", "text"), REFUSED, ids=lambda part: " ".join(map(str, part))[:70])
def test_what_cannot_be_used_is_refused(here: Path, arguments: tuple[object, ...], text: str) -> None:
    before = everything(here)
    done = run(*arguments)
    assert done.exit_code == 2, (done.output, done.exception)
    assert isinstance(done.exception, SystemExit)
    assert re.search(text, done.stderr), done.stderr
    assert "Traceback" not in done.output
    assert SECRET[:6] not in done.output
    assert everything(here) == before


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Content and mode of all files; a reader of a run that was never closed may leave SQLite's own beside it."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
        if not path.name.endswith(("-shm", "-wal"))
    }


@pytest.mark.slow
def test_a_finished_run_is_one_file_and_stays_one_when_it_is_read(here: Path) -> None:
    for arguments in (("status", "run.db"), ("report", "run.db"), ("compare", "run.db", "run.db")):
        run(*arguments)
        assert sorted(path.name for path in Path().glob("run.db*")) == ["run.db"]


def test_a_damaged_store_and_a_scheduler_that_is_not_there(here: Path) -> None:
    assert run("simulate", "run", "tiny.toml", "--store", "s.db", "--quiet").exit_code == 0
    change(Path("s.db"), "UPDATE result SET summary = '{'")
    for arguments in (("simulate", "show", "s.db"), ("report", "s.db", "-o", "page.html")):
        done = run(*arguments)
        assert done.exit_code == 2
        assert "s.db is damaged. Restore" in done.stderr
    pytest.importorskip("distributed")
    done = run("simulate", "run", "tiny.toml", "--store", "new.db", "--workers", "dask", "--scheduler", "nowhere")
    assert done.exit_code == 2
    assert "no Dask scheduler answers at 'nowhere'" in done.stderr


@pytest.mark.process
def test_whoever_stops_reading_is_no_error_and_a_full_disk_is_one_line(here: Path) -> None:
    command = [sys.executable, "-m", "privatile", "plan", "--records", "5000", "--epsilon", "1"]
    reading, writing = os.pipe()
    os.close(reading)
    gone = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (gone.returncode, gone.stderr) == (1, "")
    with Path("/dev/full").open("w") as full:
        lost = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert lost.returncode == 1
    assert "could not be written: no space left on device" in lost.stderr
    assert lost.stderr.count("\n") == 1


FOUR = """
import sys
from privatile.cli import main
for arguments in (sys.argv[1:], ("status", "run.db"), ("doctor",), ("estimate", "--help")):
    assert not main(arguments, standalone_mode=False)
    print("privatile-test-next", flush=True)
"""


@pytest.mark.process
@pytest.mark.parametrize(
    "locale",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "latin-1"},
        {"PYTHONIOENCODING": "ascii"},
    ][:: 1 if os.environ.get("PRIVATILE_LONG") else 2],
)
def test_any_locale_will_do(here: Path, locale: dict[str, str]) -> None:
    table = Path("data.csv").read_text().replace("\nn,", "\ndœuvre,")
    Path("names.csv").write_text(table, encoding="utf-8")
    # Four commands in one process, each of which says something that not every locale can write.
    command = [sys.executable, "-c", FOUR, "estimate", "names.csv", *DATA, "--client", "region", "--dry-run", "--json"]
    done = subprocess.run(command, env={**os.environ, **locale}, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    first, *others = done.stdout.split(b"privatile-test-next")
    assert len(others) == 4
    # What is for programs is exact all the same.
    assert "dœuvre" in {client["name"] for client in json.loads(first)["clients"]}


@pytest.mark.process
def test_colours_and_narrow_terminals_are_respected(here: Path) -> None:
    assert "\x1b" not in privatile(Path(), "status", "run.db", "--follow", COLUMNS="40", NO_COLOR="1").stdout
    helped = privatile(Path(), "ledger", "show", "--help", COLUMNS="40")
    assert max(len(line) for line in helped.stdout.splitlines()) <= 52  # click goes no narrower than 50 columns


LIGHT = """
import sys
from privatile.cli import main
from privatile.cli.federation import by_client
from privatile.errors import InputError
try:
    main(sys.argv[1:])
except SystemExit:
    pass
heavy = {"numpy", "duckdb", "rich", "scipy", "numba", "matplotlib", "nats", "starlette", "sqlite3", "asyncio"}
print(sorted(heavy & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.process
@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("estimate", "--help"), ("ledger", "--help"), ()])
def test_help_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIGHT, *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout or arguments == ()
    assert done.stderr.splitlines()[-1] == "[]"
    # Negative control: a command that computes does import.
    if arguments == ("--help",):
        computes = [sys.executable, "-c", LIGHT, "plan", "--records", "5000", "--epsilon", "1"]
        worked = subprocess.run(computes, capture_output=True, text=True, check=False, timeout=60)
        assert "numpy" in worked.stderr


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("1", "north=0.5", "north=2"), "names client 'north' more than once"),
        (("1", "2"), "was given 2 times"),
        (("east=1",), "'east', which is not a client"),
        (("north=much",), "takes a number; got 'much'"),
        (("0.1, 0.5",), "no commas"),  # given one by one they would be refused, too
        (("0,5",), "point before decimals"),
    ],
)
def test_a_federations_numbers_are_given_once(given: tuple[str, ...], text: str) -> None:
    with pytest.raises(InputError, match=text):
        by_client("epsilon", given, ("north", "south"))
