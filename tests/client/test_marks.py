"""An older copy of a ledger is found by the mark beside its key, whoever has not told that it was restored."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from privatile.api.estimate import estimate
from privatile.cli.ledger import ledger as ledger_command
from privatile.client.ledger import integrity
from privatile.client.ledger.ledger import Ledger
from privatile.errors import AlreadyAnswered, LedgerError
from privatile.run.coordinator import Coordinator
from tests.client.test_edited_files import ask, site
from tests.marks import forget_marks


def answered(path: Path, run: str, *rounds: int) -> None:
    with Ledger.open(path) as ledger:
        responder = site(ledger, run)
        for number in rounds:
            responder.answer(ask(number, run=run))
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A ledger of five entries, put back in the place of itself with eight."""
    path, backup = tmp_path / "ledger.db", tmp_path / "backup"
    answered(path, "one", 1, 2, 3, 4, 5)
    shutil.copy(path, backup)
    answered(path, "one", 6, 7, 8)
    answered(path, "one")  # the control: the newest one opens
    shutil.copy(backup, path)
    return path


def test_a_new_run_on_an_older_copy_of_the_ledger_is_refused_until_it_is_declared(older: Path) -> None:
    """Before, 50 records answered again."""
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"has 5 entries, and had 8 before: this is an older copy.*restored"):
            answered(older, "two", 1, 2, 3, 4, 5)
    assert CliRunner().invoke(ledger_command, ["restored", "--ledger", str(older)]).exit_code == 0
    with pytest.raises(AlreadyAnswered):
        answered(older, "two", 1)
    answered(older, "one")  # it may be opened again


def test_where_the_mark_is_older_too_nothing_finds_it(older: Path) -> None:
    """The control: state and keys from one backup."""
    forget_marks()
    answered(older, "two", 1, 2, 3, 4, 5)
    with Ledger.open(older, read_only=True) as ledger:
        assert ledger.position.sequence == 10  # five more than the copy had: nothing was refused


def test_one_of_two_copies_in_use_is_found(older: Path) -> None:
    forget_marks()
    copy = Path(shutil.copy(older, older.with_name("copy.db")))
    answered(older, "two", 1)
    with pytest.raises(LedgerError, match="had 6 before"):
        answered(copy, "three", 1)
    forget_marks()
    answered(copy, "three", 1)
    with pytest.raises(LedgerError, match="entry 6 is not the one that was seen before: two copies are in use"):
        answered(older, "two", 2)


def test_the_mark_is_never_ahead_of_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a ledger whose process was killed at a commit would look like an older copy of itself."""
    monkeypatch.setattr(integrity, "EVERY_SECONDS", 0.0)
    path, execute = tmp_path / "ledger.db", Ledger.execute
    answered(path, "one", 1, 2, 3)

    def failing(self: Ledger, sql: str, values: object = ()) -> object:
        if sql == "COMMIT":
            raise LedgerError("killed")
        return execute(self, sql, values)  # type: ignore[arg-type]

    with Ledger.open(path) as ledger:
        responder = site(ledger, "one")
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "execute", failing)
            with pytest.raises(LedgerError, match="killed"):
                responder.answer(ask(4, run="one"))
        marked = ledger.mark.read()
        assert marked is not None
        assert marked[0] == ledger.position.sequence == 3
    answered(path, "one", 4)
    with Ledger.open(path) as ledger:  # the control: after a commit it has moved
        marked = ledger.mark.read()
        assert marked is not None
        assert marked[0] == 4


def test_a_mark_that_cannot_be_written_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*names: object) -> None:
        raise PermissionError(13, "no")

    monkeypatch.setattr(Path, "replace", refuse)
    with caplog.at_level(logging.WARNING), Ledger.open(tmp_path / "ledger.db") as ledger:
        responder = site(ledger)
        for number in (1, 2, 3):
            responder.answer(ask(number))
            ledger.mark.settle()
    assert caplog.text.count("an older copy of the ledger is not found") == 1


def test_a_restored_state_folder_is_found_though_ledger_and_run_go_back_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of an unfinished run lies beside the ledger, so both are as old; before, 5 rounds were asked again."""
    state = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    data = np.random.default_rng(1).normal(50.0, 10.0, 400)
    accept = Coordinator.accept

    def killed(self: Coordinator, *arguments: object) -> None:
        accept(self, *arguments)  # type: ignore[arg-type]
        if self.done == 5:
            raise KeyboardInterrupt

    def run() -> None:
        estimate(data, epsilon=1.0, range=(0, 100), rounds=10, design="rounds", max_epsilon=1.0)

    with monkeypatch.context() as patch:
        patch.setattr(Coordinator, "accept", killed)
        with pytest.raises(KeyboardInterrupt):
            run()
    shutil.copytree(state, tmp_path / "backup")
    run()
    shutil.rmtree(state)
    shutil.copytree(tmp_path / "backup", state)
    with pytest.raises(LedgerError, match="this is an older copy"):
        run()
    for mark in (tmp_path / "config" / "privatile" / "keys").glob("*.mark"):
        mark.unlink()
    run()  # the control
