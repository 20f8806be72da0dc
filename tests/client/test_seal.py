"""An editor of the ledger's file who does not have the key cannot change who may answer without being found."""

from __future__ import annotations

import ast
import json
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from privatile import client
from privatile.cli.ledger import ledger as ledger_command
from privatile.client.ledger import ledger as ledger_module
from privatile.client.ledger import people as lifetime_budgets
from privatile.client.ledger.integrity import PersonKey
from privatile.client.ledger.ledger import Ledger
from privatile.client.ledger.restore import mark_restored
from privatile.client.order.shuffle import shuffle
from privatile.client.randomizer import OperatingSystemCoins
from privatile.client.responder import Responder
from privatile.client.sources.databases import open_source
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Question
from privatile.errors import LedgerError

KEY = PersonKey(b"p" * 32)


def site(ledger: Ledger, run: str = "run", people: bool = False) -> Responder:
    data = np.array([(float(k), f"p{k}") for k in range(40)], dtype=[("x", float), ("who", "U9")])
    source = open_source(data, value="x", person="who" if people else None)
    column = shuffle(source, ledger, person_key=KEY if people else None)["all"]
    return Responder(run, column, RandomizedResponse.from_epsilon(1.0), ledger, OperatingSystemCoins())


def ask(number: int, length: int = 5, run: str = "run") -> Question:
    return Question(run=run, round=number, level=0.5, query=10.0, length=length)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of people with two runs, a reservation, charges, an index of people, and one file for all of it."""
    where = tmp_path_factory.mktemp("made") / "ledger.db"
    with pytest.MonkeyPatch.context() as patch, Ledger.open(where) as ledger:
        patch.setattr(lifetime_budgets, "FOLD", 8)
        one, two = site(ledger, people=True), site(ledger, "two", people=True)
        one.reserve(20)
        for number in range(1, 4):
            one.answer(ask(number))
        two.answer(ask(1, 4, "two"))
        two.mark_spent(2, through_round=3)
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with Ledger.open(where, read_only=True) as ledger:
        for table in ("people", "charges"):
            assert ledger.execute(f"SELECT count(*) FROM {table}").fetchone() != (0,)
    return where


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    """A copy of it, with the same key."""
    return Path(shutil.copy(made, tmp_path / "ledger.db"))


def edit(path: Path, sql: str) -> None:
    with sqlite3.connect(path) as direct:
        assert direct.execute(sql).rowcount > 0
    direct.close()


EDITS = {
    "the cursor is set back": "UPDATE datasets SET cursor = 0",
    "a data set is made larger": "UPDATE datasets SET records = 80",
    "a reservation is taken back": "UPDATE runs SET next = 0 WHERE run = 'run'",
    "a reservation is removed": "UPDATE runs SET next = 0, reserved = 0 WHERE run = 'run'",
    "a run may spend again": "UPDATE runs SET spend_again = 1",
    "what was lost is forgotten": "UPDATE runs SET lost_through = 0 WHERE run = 'two'",
    "a charge is removed": "DELETE FROM charges",
    "a charge is made smaller": "UPDATE charges SET epsilon = 0.1",
    "another column becomes known": "UPDATE splits SET column = 'y'",
    "another person key is allowed": "DELETE FROM meta WHERE key = 'person key'",
    "the seal is removed": "DELETE FROM meta WHERE key = 'seal'",
    "the last answer is removed": "DELETE FROM answers WHERE sequence = (SELECT max(sequence) FROM answers)",
    "the last answer is altered": "UPDATE answers SET start = start - 1 WHERE sequence = 5",
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edited_ledger_neither_verifies_nor_answers(path: Path, what: str) -> None:
    """Before, all but the last one verified, and records answered twice."""
    Ledger.open(path).close()
    edit(path, EDITS[what])
    with pytest.raises(LedgerError, match="was altered"):
        Ledger.open(path)
    done = CliRunner().invoke(ledger_command, ["verify", str(path), "--json"])
    told = json.loads(done.output)
    assert (done.exit_code, told["verifies"], told["entries"]) == (1, False, None)
    assert "was altered" in told["reason"]


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE people SET epsilon = epsilon / 2",
        "DELETE FROM people WHERE person = (SELECT min(person) FROM people)",
        "UPDATE answers SET ones = 0, length = 1 WHERE sequence = 2",
        "DELETE FROM answers WHERE sequence = 2",
    ],
)
def test_what_is_too_much_to_read_at_every_start_is_found_by_verify(
    path: Path, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(path, sql)
    with pytest.raises(LedgerError, match="was altered"), Ledger.open(path) as ledger:
        site(ledger, "three", people=True)  # the control: a ledger of this size is read through
    monkeypatch.setattr(ledger_module, "LARGEST_LINKED", 0)
    with Ledger.open(path) as ledger, pytest.raises(LedgerError, match="was altered"):
        ledger.verify()


def test_a_trigger_made_while_a_process_answers_is_found_before_the_next_answer(tmp_path: Path) -> None:
    """Before, it removed each charge as it was written, and everybody answered the second run as well."""
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        one, two = (site(ledger, run, people=True) for run in ("one", "two"))
        one.answer(ask(1, 1, "one"))
        with sqlite3.connect(path) as direct:
            direct.execute("CREATE TRIGGER free AFTER INSERT ON charges BEGIN DELETE FROM charges; END")
        direct.close()
        with pytest.raises(LedgerError, match="is damaged"):
            one.answer(ask(2, 30, "one"))
        with pytest.raises(LedgerError, match="is damaged"):
            two.answer(ask(1, 39, "two"))


def test_an_answer_that_was_altered_is_not_given_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "LARGEST_LINKED", 0)  # as in a ledger too large to be read through
    edit(path, "UPDATE answers SET ones = (ones + 1) % 6 WHERE sequence = 2")
    with Ledger.open(path) as ledger, pytest.raises(LedgerError, match="altered at entry 2"):
        site(ledger, people=True).answer(ask(2))


def test_a_ledger_that_was_not_edited_verifies_and_who_has_the_key_can_edit_it(path: Path) -> None:
    """Negative controls of all the tests above."""
    done = CliRunner().invoke(ledger_command, ["verify", str(path)])
    assert (done.exit_code, done.output.split(":")[0]) == (0, f"{path} verifies")
    with Ledger.open(path) as ledger, ledger.transaction():
        ledger.update("datasets", "cursor = 0", (), "1", ())
    assert CliRunner().invoke(ledger_command, ["verify", str(path)]).exit_code == 0
    missing = CliRunner().invoke(ledger_command, ["verify", f"{path}.none"]).exception
    assert isinstance(missing, LedgerError)  # a usage error: the command line turns it into exit code 2


def test_the_state_of_an_older_copy_cannot_be_put_into_a_newer_ledger(path: Path, tmp_path: Path) -> None:
    """All rows of an older copy but the answers: the seal belongs to the last entry."""
    shutil.copy(path, tmp_path / "old.db")
    with Ledger.open(path) as ledger:
        site(ledger, people=True).answer(ask(4))
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with sqlite3.connect(path) as direct:
        direct.execute("PRAGMA foreign_keys = OFF")
        direct.execute("ATTACH ? AS old", (str(tmp_path / "old.db"),))
        for table in ("meta", "datasets", "splits", "runs", "charges", "people"):
            direct.execute(f"DELETE FROM main.{table}")
            direct.execute(f"INSERT INTO main.{table} SELECT * FROM old.{table}")
    direct.close()
    with pytest.raises(LedgerError, match="was altered"):
        Ledger.open(path)


# -- what a coordinator sees ---------------------------------------------------------------------------------------


def test_a_runs_position_does_not_tell_what_other_runs_were_given(tmp_path: Path) -> None:
    """The number on the wire counts the run's own entries; before, it counted those of every study."""
    ledger = Ledger.in_memory()
    one, two = site(ledger), site(ledger, "two")
    seen = [one.answer(ask(1)).position.sequence]
    for number in range(1, 6):
        two.answer(ask(number, 1, "two"))
    seen.append(one.answer(ask(2)).position.sequence)
    assert seen == [1, 2] == [1, one.account.position.sequence]
    assert ledger.position.sequence == 7


def test_a_ledger_that_lost_only_another_studys_answers_is_found_too(tmp_path: Path) -> None:
    """The head covers every entry before it, so the check is as strong as with one number for all."""
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        site(ledger).answer(ask(1))
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(path, tmp_path / "backup.db")
    with Ledger.open(path) as ledger:
        site(ledger, "two").answer(ask(1, run="two"))
        seen = site(ledger).answer(ask(2)).position
    with Ledger.open(tmp_path / "backup.db", restored=True) as restored:
        one = site(restored)
        with pytest.raises(LedgerError, match="has 1 entries of run 'run', but 2 were seen"):
            one.account.confirm(seen)
        one.answer(ask(2))
        with pytest.raises(LedgerError, match="another past"):
            one.account.confirm(seen)


def test_marking_a_restore_is_sealed(path: Path) -> None:
    with Ledger.open(path) as ledger:
        mark_restored(ledger)
    edit(path, "UPDATE datasets SET lost = 0")
    with pytest.raises(LedgerError, match="was altered"):
        Ledger.open(path)


CHANGES = re.compile(
    r"\b(?:INSERT(?: OR \w+)? INTO|REPLACE INTO|UPDATE(?: OR \w+)?|DELETE FROM) (?:meta|datasets|splits|runs|charges)\b"
)
OUTSIDE = {
    "INSERT INTO meta (key, value) VALUES ('key', ?), ('order', ?)",  # a new file, before its first seal
    "INSERT OR REPLACE INTO meta (key, value) VALUES ('seal', ?)",
    "INSERT OR REPLACE INTO meta (key, value) VALUES ('{COPY}', x'01')",
    "DELETE FROM meta WHERE key = ?",  # what says that this is a copy
}
"""Rows that no seal covers."""


def changing_statements(source: str) -> set[str]:
    """The texts of a program that change a table whose rows the seal covers."""
    nodes = list(ast.walk(ast.parse(source)))
    joined = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in joined for part in node.values}
    texts = {ast.unparse(node)[2:-1] for node in joined}
    texts |= {str(node.value) for node in nodes if isinstance(node, ast.Constant) and id(node) not in parts}
    return {text for text in texts if CHANGES.search(text)}


def test_rows_that_the_seal_covers_are_changed_in_one_place_only() -> None:
    """By Ledger.insert, update and delete, which keep the seal: a row changed otherwise would look altered."""
    sources = [path.read_text(encoding="utf-8") for path in Path(client.__file__).parent.rglob("*.py")]
    assert set().union(*map(changing_statements, sources)) <= OUTSIDE
    control = 'self.execute(f"UPDATE runs SET asked = {asked}"); self.execute("DELETE FROM charges")'
    assert len(changing_statements(control)) == 2


def test_a_change_that_passes_the_seal_by_is_found(path: Path) -> None:
    with Ledger.open(path) as ledger, ledger.transaction():
        ledger.execute("UPDATE runs SET asked = 0")
    with pytest.raises(LedgerError, match="was altered"):
        Ledger.open(path)


def test_a_charge_that_is_there_is_an_error_and_is_not_passed_over() -> None:
    """Passed over in silence, people would answer and not be charged. Only what may be entered twice is left alone."""
    with Ledger.in_memory() as ledger:
        charge: dict[str, Any] = {"id": 1, "epsilon": 1.0, "people": bytes(8)}
        with ledger.transaction():
            ledger.insert("charges", **charge)
        with pytest.raises(LedgerError), ledger.transaction():
            ledger.insert("charges", **charge)
        with ledger.transaction():
            ledger.insert("charges", if_absent=True, **charge)
        assert ledger.execute("SELECT count(*) FROM charges").fetchone() == (1,)
