"""A site's backup that is put back on a new machine answers nobody until the restore is declared."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from privatile.cli import main
from privatile.client.ledger.ledger import Ledger
from privatile.federation.operations.commands import back_up


def call(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, arguments)
    return done.exit_code, done.output


def asked(folder: Path, client: str) -> tuple[int, str]:
    range_ = ("--range", "0", "1000", "--epsilon", "1", "--max-epsilon", "1", "--yes")
    return call("estimate", str(folder / "pay.csv"), "--value", "pay", "--client", "site", "--only", client, *range_)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new machine, with the backup of a site that asked A before it and B after it."""
    rows = [f"{site},{number}" for site in "AB" for number in range(200 + ord(site), 600 + ord(site))]
    (tmp_path / "pay.csv").write_text("\n".join(["site,pay", *rows]) + "\n")

    def at(name: str) -> Path:
        for variable, folder in (("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config")):
            monkeypatch.setenv(variable, str(tmp_path / name / folder))
        return tmp_path / name

    old = at("old")
    code, output = asked(tmp_path, "A")
    assert code == 0, output
    ledger = old / "state" / "privatile" / "ledger.db"
    back_up(ledger.parent, tmp_path / "backup", keys=True)
    with Ledger.open(ledger) as book:
        assert book.meta("copy") is None  # the ledger in use is as it was
    code, output = asked(tmp_path, "B")
    assert code == 0, output
    new = at("new")
    shutil.copytree(tmp_path / "backup" / "config", new / "config" / "privatile")
    (new / "state" / "privatile").mkdir(parents=True)
    shutil.copy(tmp_path / "backup" / "ledger.db", new / "state" / "privatile")
    return new


def test_a_backup_on_a_new_machine_asks_nobody_again(machine: Path) -> None:
    """Before, B was asked a second time, with exit code 0."""
    for _ in range(2):
        code, output = asked(machine.parent, "B")
        assert code != 0
        assert "copy from a backup" in output
        assert "privatile ledger restored" in output
    assert call("ledger", "show")[0] == 0
    assert call("ledger", "verify")[0] == 0
    assert call("ledger", "restored")[0] == 0
    assert call("ledger", "verify")[0] == 0
    for client in "AB":
        code, output = asked(machine.parent, client)
        assert code != 0
        assert "may not answer" not in output  # it is declared: these people count as spent
        assert "restored from a backup" in output


def test_without_the_entry_in_the_copy_they_are_asked_again(machine: Path) -> None:
    """Negative control: a copy that does not say what it is, as `cp` makes it. The seal holds with it and without."""
    with closing(sqlite3.connect(machine / "state" / "privatile" / "ledger.db")) as book:
        assert book.execute("DELETE FROM meta WHERE key = 'copy'").rowcount == 1
        book.commit()
    assert call("ledger", "verify")[0] == 0
    assert asked(machine.parent, "B")[0] == 0
