"""No name writes onto a terminal: columns, weights, groups, people and files whose names are escapes of a terminal."""

import csv
import logging
import re
import sqlite3
from contextlib import chdir, closing
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner

import privatile
from privatile.api.groups import prepare_groups
from privatile.cli import main
from privatile.cli.printing import echo, echo_json
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import shuffle
from privatile.client.randomizer import OperatingSystemCoins
from privatile.client.responder import Responder
from privatile.client.sources.databases import open_source
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Question
from privatile.federation.monitoring import _Lines, facts
from privatile.planning.options import Options
from tests.federation.kit import REPOSITORY

ESCAPE = "\x1b]0,owned\x07\x1b[31m\x9b2J\u202e"
"""Sets the window's title, turns the text red, clears the screen (in one character), writes from right to left."""

PAY, SITE, WEIGHT, WHO, GROUP = (f"{name}{ESCAPE}" for name in ("pay", "site", "weight", "who", "group"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with (tmp_path / f"data{ESCAPE}.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, delimiter=";")
        rows.writerow([PAY, SITE, WEIGHT, WHO, GROUP])
        for k, value in enumerate(np.random.default_rng(1).normal(50, 9, 3000)):
            rows.writerow([f"{value:.2f}", "ns"[k % 2], 1 + k % 3, f"p{k}", "ab"[k % 4 > 0]])
    return tmp_path


def harmful(shown: bytes) -> set[str]:
    """What of the bytes on the terminal is no text."""
    return {letter for letter in shown.decode() if not (letter.isprintable() or letter == "\n")}


def test_no_command_writes_the_escapes_of_a_name(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    env = {"XDG_STATE_HOME": str(home / "state"), "XDG_CONFIG_HOME": str(home / "config")}
    data = f"data{ESCAPE}.csv"
    ask = ("estimate", data, "--value", PAY, "--range", 0, 100, "--epsilon", 2)
    run, groups, book = f"run{ESCAPE}.db", f"groups{ESCAPE}", f"book{ESCAPE}.db"
    commands: dict[tuple[object, ...], tuple[int, str]] = {
        (*ask, "--client", SITE, "--save", run): (0, "of pay�]0,owned�"),
        (*ask, "--by", GROUP, "--ledger", book, "--save", groups): (0, "by group�]0,owned�"),
        ("ledger", "show"): (0, "pay�]0,owned�"),
        ("ledger", "show", book): (0, "book�]0,owned�"),
        ("ledger", "show", "--json"): (0, "\\u001b]0,owned"),
        ("ledger", "verify", book): (0, "book�]0,owned�"),
        (*ask, "--weight", WEIGHT, "--ledger", f"2{book}", "--dry-run"): (0, "Dry run"),
        (*ask, "--weight", WEIGHT): (2, "have answered"),
        (*ask, "--person", WHO): (2, "answered before"),
        (*ask, "--only", f"{GROUP}=x{ESCAPE}"): (2, "which no record has"),
        (*ask, "--by", SITE, "--weight", SITE): (2, "site"),
        (*ask, "--design", ESCAPE): (2, "design must be one of"),
        (*ask, "--rounds", ESCAPE): (2, "--rounds must be a whole number"),
        (*ask, f"--{ESCAPE}"): (2, "No such option"),
        (f"estimate{ESCAPE}",): (2, "No such command"),
        ("estimate", data, "--value", f"no{ESCAPE}", "--range", 0, 1, "--epsilon", 1): (2, "there is no column"),
        ("estimate", f"none{ESCAPE}.csv", "--value", "x", "--range", 0, 1, "--epsilon", 1): (2, "none�]0,owned�"),
        ("report", run): (0, "run�]0,owned�"),
        ("report", run, "--json"): (0, "\\u001b]0,owned"),
        ("report", run, "-o", f"page{ESCAPE}.html"): (0, "page�]0,owned�"),
        ("report", groups): (0, "groups�]0,owned�"),
        ("report", f"none{ESCAPE}.db"): (2, "none�]0,owned�"),
        ("compare", groups): (0, "pay�]0,owned�"),
        ("status", run): (0, "pay�]0,owned�"),
        ("plan", f"none{ESCAPE}.toml"): (2, ""),
        ("ledger", "show", f"none{ESCAPE}.db"): (2, "none�]0,owned�"),
    }
    for words, (code, text) in commands.items():
        with chdir(home):
            done = CliRunner(env=env).invoke(main, [str(word) for word in words], color=True)
        assert done.exit_code == code, (words, done.output)
        assert text in done.stdout + done.stderr, words
        assert harmful(done.stdout_bytes + done.stderr_bytes) == set(), words
    assert any("a new ledger was made: book�" in message for message in caplog.messages)
    assert all(harmful(message.encode()) == set() for message in caplog.messages)


def test_a_ledger_of_others_writes_no_escapes_of_its_names(tmp_path: Path) -> None:
    """A client's name has none; whoever writes the file itself can put them there, and into the names of runs."""
    path = tmp_path / "l.db"
    with Ledger.open(path) as ledger:
        column = shuffle(open_source({"north": np.arange(9.0)}, value="x"), ledger)["north"]
        site = Responder("run", column, RandomizedResponse.from_epsilon(1.0), ledger, OperatingSystemCoins())
        site.answer(Question("run", 1, 0.5, 3.0, 9))
    with closing(sqlite3.connect(path)) as direct, direct:
        for table in ("datasets", "runs", "answers"):
            direct.execute(f"UPDATE {table} SET client = ?", (f"north{ESCAPE}\nforged  line",))
    done = CliRunner().invoke(main, ["ledger", "show", str(path)], color=True)
    assert harmful(done.stdout_bytes) == set()
    assert "north�]0,owned��[31m�2J��forged  line" in done.stdout
    assert "it does not verify" in done.stdout


def test_results_in_python_are_printed_without_escapes_too(tmp_path: Path) -> None:
    name = f"pay{ESCAPE}\n95% interval  1 … 2"
    rows = pa.table({name: np.random.default_rng(2).normal(50, 9, 900), "group": ["ab"[k % 2] for k in range(900)]})
    options = {"value": name, "epsilon": 4.0, "range": (0.0, 100.0)}
    result = privatile.estimate(rows, **options, simulate=True, rng=1)  # type: ignore[call-overload]
    made = prepare_groups(rows, Options(**options, by="group"), np.random.default_rng(1)).complete()  # type: ignore[arg-type]
    for text in (result.to_text(), made.to_text()):
        assert "pay�]0,owned�" in text
        assert harmful(text.encode()) == set()
        assert not any(line.startswith("95% interval  1 … 2") for line in text.splitlines())


def test_log_lines_of_services_are_one_line_without_escapes() -> None:
    record = logging.LogRecord("privatile", logging.INFO, "", 1, f"refused {ESCAPE}", (), None)
    record.__dict__.update(facts(client=f"north{ESCAPE}\nforged"))
    for as_json in (False, True):
        line = _Lines(as_json=as_json).format(record)
        assert line.isprintable()
        assert "owned" in line


def test_the_program_says_nothing_past_the_one_function(capsys: pytest.CaptureFixture[str]) -> None:
    files = [*(REPOSITORY / "src" / "privatile").rglob("*.py")]
    another = re.compile(r"\bclick\.s?echo\b|\bsys\.std(out|err)\.write\b")
    past = [file.name for file in files if another.search(file.read_text(encoding="utf-8"))]
    assert past == ["printing.py"]
    echo(f"one{ESCAPE}\ntwo\n", nl=False)
    echo_json({"name": ESCAPE})
    assert harmful(capsys.readouterr().out.encode()) == set()
