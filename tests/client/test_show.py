"""`privatile ledger`: what it shows adds up, in text and in JSON, and nothing is called altered that is only in use."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from privatile.cli import main
from privatile.cli.ledger import ledger as ledger_command
from privatile.client.ledger import ledger as ledger_file
from privatile.client.ledger.account import SpendingRules
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import shuffle
from privatile.client.randomizer import OperatingSystemCoins
from privatile.client.responder import Responder
from privatile.client.sources.databases import open_source
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Question


def test_infinity_is_null(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l.db") as ledger:
        column = shuffle(open_source(np.arange(9.0)), ledger)["all"]
        site = Responder("run", column, RandomizedResponse.not_private(), ledger, OperatingSystemCoins())
        site.answer(Question(run="run", round=1, level=0.5, query=3.0, length=9))
    shown = CliRunner().invoke(ledger_command, ["show", "--json", "--ledger", str(tmp_path / "l.db")])
    assert shown.exit_code == 0

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    said = json.loads(shown.output, parse_constant=refuse)
    assert said["datasets"][0]["epsilon"] is None
    assert said["datasets"][0]["reports"] == 9


def told(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, ["ledger", *map(str, words)])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A data set of nine records, of which two were asked and three reserved; then another of the same column."""
    path = tmp_path / "l.db"
    with Ledger.open(path) as ledger:
        for run, size in (("first", 9), ("second", 5)):
            column = shuffle(open_source(np.arange(float(size))), ledger)["all"]
            rules = SpendingRules(new_people=True)
            fair = RandomizedResponse.from_epsilon(1.0)
            site = Responder(run, column, fair, ledger, OperatingSystemCoins(), rules=rules)
            site.reserve(5)
            site.answer(Question(run=run, round=1, level=0.5, query=3.0, length=2 if run == "first" else 5))
    return path


def test_what_is_shown_adds_up_and_tells_data_sets_of_one_name_apart(book: Path) -> None:
    code, shown, _ = told("show", "--json", "--ledger", book)
    one, two = json.loads(shown)["datasets"]
    assert code == 0
    assert [one[key] for key in ("number", "records", "reports", "reserved", "unasked", "first_run")] == [
        *(1, 9, 2, 3, 4, "first")
    ]
    assert [two[key] for key in ("number", "records", "reports", "reserved", "unasked", "first_run")] == [
        *(2, 5, 5, 0, 0, "second")
    ]
    lines = told("show", "--ledger", book)[1].splitlines()
    assert "reserved" in lines[1]
    assert lines[2].split() == ["1", "all", "value", "9", "2", "3", "4", "1", "first", "yes", "1"]


EDIT = "UPDATE runs SET epsilon = 0.001"
"""What was spent is made smaller, by somebody who does not have the key."""


def test_an_edited_ledger_is_not_believed(book: Path) -> None:
    code, shown, _ = told("show", book)
    assert (code, shown.splitlines()[0]) == (0, f"{book}: 2 entries; checked: it verifies with its key")
    with closing(sqlite3.connect(book)) as direct, direct:
        direct.execute(EDIT)
    code, shown, _ = told("show", book)
    assert code == 1
    assert "it does not verify, so do not rely on these numbers: the ledger" in shown.splitlines()[0]
    assert "was altered" in shown.splitlines()[0]
    assert shown.splitlines()[2].split()[-1] == "0.001"  # what it says is shown all the same
    code, shown, _ = told("show", book, "--json")
    facts = json.loads(shown)
    assert (code, facts["verifies"]) == (1, False)
    assert "was altered" in facts["checked"]


def test_without_its_key_a_ledger_is_shown_as_not_checked(
    book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
    with closing(sqlite3.connect(book)) as direct, direct:
        direct.execute(EDIT)
    code, shown, _ = told("show", book)
    assert (code, shown.splitlines()[0]) == (0, f"{book}: 2 entries; not checked: the key is not here")
    facts = json.loads(told("show", book, "--json")[1])
    assert (facts["verifies"], facts["checked"]) == (None, "not checked: the key is not here")


def test_after_a_restore_what_was_spent_is_unknown_in_words(book: Path) -> None:
    said = told("restored", "--ledger", book)[1]
    assert said.startswith("client 'all', column 'value': 4 records counted as spent from now on; 3 kept for the runs")
    assert " 0 records" not in said
    shown = told("show", "--ledger", book)[1]
    assert shown.count("unknown: restored") == 2
    assert "inf" not in shown


def test_a_ledger_in_use_is_not_called_altered(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told("verify", "--ledger", book)[0] == told("verify", book)[0] == 0
    assert told("verify", book, "--ledger", book)[0] == 2
    monkeypatch.setattr(ledger_file, "BUSY_SECONDS", 0.01)
    with closing(sqlite3.connect(book, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = DELETE")
        other.execute("BEGIN EXCLUSIVE")
        code, _, said = told("verify", book)
    assert code == 2
    assert "is in use by another process" in said
    assert "does not verify" not in said


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE meta SET value = 'a' || char(27) || '[2J' WHERE key = 'max_epsilon'",
        "UPDATE splits SET dataset = 77",
        "DELETE FROM splits WHERE dataset = 1",
    ],
)
def test_a_ledger_whose_own_facts_are_none_is_damaged(book: Path, edit: str) -> None:
    with Ledger.open(book) as ledger, ledger.transaction():
        ledger.put("max_epsilon", 2.0)
    with closing(sqlite3.connect(book)) as direct, direct:
        direct.execute("PRAGMA foreign_keys = OFF")
        direct.execute("PRAGMA ignore_check_constraints = ON")
        assert direct.execute(edit).rowcount
    for words in ((), ("--json",)):
        code, shown, said = told("show", book, *words)
        assert (code, shown) == (2, "")
        assert "is damaged" in said
