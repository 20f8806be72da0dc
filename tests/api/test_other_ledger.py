"""A run goes on with its own ledger or not at all; a new ledger is announced; a saved run tells nothing of others."""

from __future__ import annotations

import logging
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import privatile
from privatile.cli import main
from privatile.errors import LedgerError
from privatile.run.run_file import RunStore

DATA = {"north": np.random.default_rng(1).normal(50, 10, 600), "south": np.random.default_rng(2).normal(55, 10, 600)}

QUICK: dict[str, Any] = {"epsilon": 1, "range": (0, 100), "design": "rounds", "rounds": 4}


class BrokenOffError(Exception):
    """The process is killed here."""


def run(folder: Path, ledger: str, stop: int | None = None, **options: Any) -> Any:
    """The same estimate; killed after round `stop`."""

    def progress(done: int, planned: int) -> None:
        if done == stop:
            raise BrokenOffError

    return privatile.estimate(
        DATA, epsilon=1, range=(0, 100), design="rounds", rounds=10, progress=progress,
        ledger=folder / ledger, save=folder / "run.db", **options,
    )  # fmt: skip


def answers(path: Path) -> int:
    with sqlite3.connect(path) as database:
        (count,) = database.execute("SELECT count(*) FROM answers").fetchone()
    database.close()
    return int(count)


def older_copy(folder: Path) -> None:
    """After three rounds a copy of the ledger; the run goes on to six rounds; then the copy is the ledger."""
    with pytest.raises(BrokenOffError):
        run(folder, "ledger.db", stop=3)
    with sqlite3.connect(folder / "ledger.db") as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    shutil.copy(folder / "ledger.db", folder / "copy.db")
    with pytest.raises(BrokenOffError):
        run(folder, "ledger.db", stop=6)


def test_a_run_is_not_resumed_with_another_ledger(tmp_path: Path) -> None:
    """Before, all records answered a second time, and the result said once each."""
    with pytest.raises(BrokenOffError):
        run(tmp_path, "ledger.db", stop=3)
    for options in ({}, {"spend_again": True}):
        with pytest.raises(LedgerError, match=r"does not hold what .*run\.db says was asked: 6 of 6 questions are mis"):
            run(tmp_path, "other.db", **options)
    assert not (tmp_path / "other.db").exists()
    assert run(tmp_path, "ledger.db").records == 1200  # with its own ledger it goes on
    assert answers(tmp_path / "ledger.db") == 20


def test_a_run_that_was_about_to_ask_is_not_resumed_with_another_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the first counts are written: the ledger may hold them, and no other one does."""

    def killed(*arguments: object) -> None:
        raise BrokenOffError

    with monkeypatch.context() as patch:
        patch.setattr("privatile.run.coordinator.Coordinator.accept", killed)
        with pytest.raises(BrokenOffError):
            run(tmp_path, "ledger.db")
    assert answers(tmp_path / "ledger.db") == 2
    with pytest.raises(LedgerError, match="it knows nothing of the run at client 'north'"):
        run(tmp_path, "other.db")
    assert run(tmp_path, "ledger.db").records == 1200


def test_a_run_is_not_resumed_with_an_older_copy_of_its_ledger(tmp_path: Path) -> None:
    older_copy(tmp_path)
    with pytest.raises(LedgerError, match=r"6 of 12 questions are missing, the first in round 4 .*without its -wal"):
        run(tmp_path, "copy.db")
    assert answers(tmp_path / "copy.db") == 6
    assert run(tmp_path, "ledger.db").records == 1200


def test_a_run_is_not_given_up_for_a_new_one_with_an_older_ledger(tmp_path: Path) -> None:
    """`--new-run` would release, and ask again, what the older ledger does not know to be asked."""

    def begin(ledger: str, stop: int | None = None, **options: Any) -> Any:
        def progress(done: int, planned: int) -> None:
            if done == stop:
                raise BrokenOffError

        return privatile.estimate(
            DATA, epsilon=1, range=(0, 100), design="rounds", rounds=10, progress=progress,
            ledger=tmp_path / ledger, **options,
        )  # fmt: skip

    with pytest.raises(BrokenOffError):
        begin("ledger.db", stop=3)
    with pytest.raises(LedgerError, match="6 of 6 questions are missing"):
        begin("other.db", new_run=True)


def test_another_question_in_the_ledger_is_not_the_one_that_was_asked(tmp_path: Path) -> None:
    """As many answers as the file has rounds are not enough: they must be the same questions."""
    older_copy(tmp_path)
    with sqlite3.connect(tmp_path / "run.db") as database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(rounds)")]
        assert "sent" in columns
        database.execute("UPDATE rounds SET sent = sent + 1e-9 WHERE round = 2")
    database.close()
    with pytest.raises(LedgerError, match="the first in round 2"):
        run(tmp_path, "ledger.db")


# -- a new ledger ------------------------------------------------------------------------------------------------


def test_a_new_ledger_is_announced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="privatile.client"):
        privatile.estimate(DATA, **QUICK, ledger=tmp_path / "ledger.db")
        assert caplog.text.count("a new ledger was made") == 1
        caplog.clear()
        privatile.estimate(DATA, **QUICK, ledger=tmp_path / "leger.db")
    assert "a new ledger was made" in caplog.text


def test_the_command_announces_a_new_ledger(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "x.csv").write_text("x\n" + "".join(f"{k}\n" for k in range(400)))
    command = ["estimate", str(tmp_path / "x.csv"), "--value", "x", "--epsilon", "1", "--range", "0", "400"]
    command += ["--design", "rounds", "--rounds", "4", "--ledger"]
    for times, extra in ((1, []), (0, ["--spend-again"])):
        caplog.clear()
        done = CliRunner().invoke(main, [*command, str(tmp_path / "ledger.db"), *extra])
        assert done.exit_code == 0, done.output
        assert caplog.text.count("a new ledger was made") == times


# -- what a saved run tells --------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["population", "file"])
def test_a_saved_run_does_not_tell_how_many_had_answered_elsewhere(tmp_path: Path, target: str) -> None:
    """700 of 1,000 have answered another run; the file held both numbers before."""
    values = np.random.default_rng(5).normal(50, 10, 1000)
    book = tmp_path / "ledger.db"
    first = privatile.estimate(
        values, epsilon=1, range=(0, 100), design="rounds", rounds=7, ledger=book, save=tmp_path / "one.db"
    )
    assert first.records == 1000
    with sqlite3.connect(tmp_path / "one.db") as database:
        (spec,) = database.execute("SELECT spec FROM run").fetchone()
    database.close()
    assert '"file_records":1000' in spec  # all of it was asked: nothing is told
    data = np.array([(value, f"p{k}") for k, value in enumerate(values)], dtype=[("x", float), ("who", "U9")])
    book = tmp_path / "people.db"
    options: dict[str, Any] = {"value": "x", "person": "who", "ledger": book, "person_key": tmp_path / "person.key"}
    privatile.estimate(data[:700], **QUICK, save=tmp_path / "part.db", **options)
    second = privatile.estimate(data, **QUICK, save=tmp_path / "two.db", target=target, **options)
    assert second.records == 300
    with RunStore.open(tmp_path / "two.db", read_only=True) as store:
        assert [client.file_records for client in store.spec.clients] == [-1]
        told = store.spec.to_json()
    for text in told, second.to_json(), second.to_html():
        assert not re.search(r"\b(1,?000 (records|people)|700 (records|people))\b", text)
    assert not re.search(r"\b(1000|700)\b", told)
