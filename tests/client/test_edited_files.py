"""Attacks on the ledger's file by an editor without the key: SQLite's own corners, and rows that decide."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from privatile.client.coins import OperatingSystemCoins
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import shuffle
from privatile.client.responder import Responder
from privatile.client.sources.opening import open_source
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Question
from privatile.errors import LedgerError


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
