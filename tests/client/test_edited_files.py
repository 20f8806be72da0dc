"""Attacks on the ledger's file by an editor without the key: SQLite's own corners, and rows that decide."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from privatile.client.ledger import ledger as ledger_file
from privatile.client.ledger import ledger as ledger_module
from privatile.client.ledger import people as lifetime_budgets
from privatile.client.ledger.integrity import PersonKey
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import shuffle
from privatile.client.randomizer import OperatingSystemCoins
from privatile.client.responder import Responder
from privatile.client.sources.databases import open_source
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Question
from privatile.errors import AlreadyAnswered, LedgerError


def site(ledger: Ledger, run: str = "run", **options: object) -> Responder:
    (column,) = shuffle(open_source(np.arange(100.0)), ledger).values()
    return Responder(run, column, RandomizedResponse.from_epsilon(1.0), ledger, OperatingSystemCoins(), **options)  # type: ignore[arg-type]


def ask(number: int, length: int = 10, run: str = "run") -> Question:
    return Question(run=run, round=number, level=0.5, query=50.0, length=length)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with five answers, in one file."""
    where = tmp_path / "ledger.db"
    with Ledger.open(where) as ledger:
        responder = site(ledger)
        for number in range(1, 6):
            responder.answer(ask(number))
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with Ledger.open(where) as ledger:  # the control: as it was made it opens, and verifies
        assert ledger.verify() == 5
    return where


def test_a_trigger_with_a_name_of_sqlites_own_is_found(path: Path) -> None:
    direct = sqlite3.connect(path, isolation_level=None)
    direct.execute("PRAGMA writable_schema = ON")
    sql = "CREATE TRIGGER sqlite_c AFTER UPDATE OF cursor ON datasets BEGIN UPDATE datasets SET cursor = 0; END"
    direct.execute("INSERT INTO sqlite_master VALUES ('trigger', 'sqlite_c', 'datasets', 0, ?)", (sql,))
    direct.close()
    for read_only in (True, False):
        with pytest.raises(LedgerError, match="is damaged"):
            Ledger.open(path, read_only=read_only)


def hide_in_index(path: Path, index: str, text: bytes) -> None:
    """Change one byte of an index, so that the row it stands for is not found by it; the table stays as it is."""
    direct = sqlite3.connect(path)
    (root,) = direct.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (index,)).fetchone()
    (size,) = direct.execute("PRAGMA page_size").fetchone()
    direct.close()
    raw = bytearray(path.read_bytes())
    raw[raw.index(text, (root - 1) * size, root * size) + 2] = ord("k")
    path.write_bytes(raw)


@pytest.mark.parametrize("largest", [1 << 26, 0])
def test_a_data_set_hidden_in_an_index_is_found(path: Path, largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, its records looked new and answered again; in a file of any size."""
    hide_in_index(path, "sqlite_autoindex_datasets_1", b"all")
    monkeypatch.setattr(ledger_file, "LARGEST_CHECKED", largest)
    with pytest.raises(LedgerError, match="is damaged"):
        Ledger.open(path)


def test_an_answer_hidden_in_an_index_is_found(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file made larger by empty pages is looked at all the same: the number of answers is sealed."""
    hide_in_index(path, "sqlite_autoindex_answers_1", b"run")
    monkeypatch.setattr(ledger_file, "LARGEST_CHECKED", 0)
    with pytest.raises(LedgerError, match="is damaged"):
        Ledger.open(path)
    monkeypatch.setattr(ledger_module, "LARGEST_LINKED", 0)
    with Ledger.open(path) as book, pytest.raises(LedgerError, match="is damaged"):
        book.verify()


def test_answers_hidden_while_a_run_is_admitted_are_found(path: Path) -> None:
    """Before, what they had spent did not count; put back afterwards, the ledger verified."""
    edit(path, "UPDATE answers SET run = 'x' WHERE sequence <= 2")
    with pytest.raises(LedgerError, match="altered at entry 1"):
        Ledger.open(path)


def edit(path: Path, sql: str) -> None:
    with sqlite3.connect(path) as direct:
        assert direct.execute(sql).rowcount > 0
    direct.close()


def test_people_removed_from_the_index_are_found_before_they_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifetime_budgets, "FOLD", 8)
    path = tmp_path / "ledger.db"
    data = np.array(
        [(float(k), 2.0 * k, f"p{k}") for k in range(40)], dtype=[("x", float), ("y", float), ("who", "U9")]
    )

    def run(ledger: Ledger, column: str) -> Responder:
        source = open_source(data, value=column, person="who")
        own = shuffle(source, ledger, person_key=PersonKey(b"p" * 32))["all"]
        return Responder(column, own, RandomizedResponse.from_epsilon(1.0), ledger, OperatingSystemCoins())

    with Ledger.open(path) as ledger:
        run(ledger, "x").answer(ask(1, 40, "x"))
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with Ledger.open(path) as ledger, pytest.raises(AlreadyAnswered):  # the control
        run(ledger, "y")
    edit(path, "DELETE FROM people")
    with Ledger.open(path) as ledger, pytest.raises(LedgerError, match="what its people have spent"):
        run(ledger, "y")
    # Nor does it help to make the index too large to be compared.
    monkeypatch.setattr(lifetime_budgets, "LARGEST_INDEX", 40)
    numbers = "WITH RECURSIVE n (k) AS (SELECT 1 UNION SELECT k + 1 FROM n WHERE k < 99)"
    edit(path, f"INSERT INTO people {numbers} SELECT random(), 1.0 FROM n")
    with Ledger.open(path) as ledger, pytest.raises(LedgerError, match="what its people have spent"):
        run(ledger, "y")


@pytest.mark.parametrize("sql", ["UPDATE runs SET next = 0", "UPDATE answers SET run = 'x' WHERE sequence = 1"])
def test_rows_edited_while_a_process_has_the_ledger_open_are_found(path: Path, sql: str) -> None:
    """Before, the process went on with the sum it had, and asked records again."""
    with Ledger.open(path) as ledger:
        responder = site(ledger)
        responder.reserve(100)
        responder.answer(ask(6))
        with Ledger.open(path) as other:  # the control: another process that keeps the rules
            site(other).answer(ask(7))
        responder.answer(ask(8))
        edit(path, sql)
        with pytest.raises(LedgerError, match="was altered"):
            responder.answer(ask(9))
