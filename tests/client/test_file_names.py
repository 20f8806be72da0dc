"""Files and folders of a ledger: two names of one file, relative folders, keys that may not be changed, zeros."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import shuffle
from privatile.client.sources.databases import open_source
from privatile.core.private_files import config_folder, create_private, state_folder
from privatile.errors import LedgerError
from tests.client.test_edited_files import ask, site


def test_a_hard_link_to_a_ledger_is_not_a_second_ledger(tmp_path: Path) -> None:
    """The log lies beside the other name: before, what it holds was asked again."""
    path, hard, soft = (tmp_path / name for name in ("ledger.db", "hard.db", "soft.db"))
    with Ledger.open(path) as ledger:
        site(ledger).answer(ask(1))
    soft.symlink_to(path)
    Ledger.open(soft).close()  # the control
    os.link(path, hard)
    for name in (path, hard):
        with pytest.raises(LedgerError, match=r"has 2 names \(hard links\).*remove the others"):
            Ledger.open(name)
    hard.unlink()
    Ledger.open(path).close()


def test_a_ledger_whose_making_was_killed_between_its_two_names_can_be_used(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        site(ledger).answer(ask(1))
    draft, other = tmp_path / ".0123456789abcdef.draft", tmp_path / ".fedcba9876543210.draft"
    os.link(path, draft)
    other.write_bytes(b"somebody else's")
    Ledger.open(path).close()
    assert (draft.exists(), other.exists(), path.stat().st_nlink) == (False, True, 1)


def test_relative_folders_are_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before, every working folder had a ledger of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("XDG_CONFIG_HOME", "config")
    assert (state_folder(), config_folder()) == (tmp_path / ".local/state/privatile", tmp_path / ".config/privatile")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert state_folder() == tmp_path / "state" / "privatile"


def test_a_key_that_can_be_read_but_not_changed_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        site(ledger).answer(ask(1))
        key = ledger.secret.path
    assert key is not None
    key.chmod(0o644)
    chmod = Path.chmod

    def refuse(path: Path, mode: int) -> None:
        if path == key:
            raise OSError(30, "Read-only file system")
        chmod(path, mode)

    monkeypatch.setattr(Path, "chmod", refuse)
    Ledger.open(tmp_path / "ledger.db").close()


def test_the_folders_of_a_new_key_are_private(tmp_path: Path) -> None:
    create_private(tmp_path / "config" / "privatile" / "keys" / "a.key", lambda draft: draft.write_bytes(b"key"))
    for folder in ("config/privatile", "config/privatile/keys"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700


def test_a_zero_has_no_sign() -> None:
    """Before, the same column written with -0 was another one, and its records answered again."""
    ledger = Ledger.in_memory()
    plain, signed, other = np.array([0.0, 1.5, 3.0]), np.array([-0.0, 1.5, 3.0]), np.array([0.5, 1.5, 3.0])
    one, two, three = (shuffle(open_source(data), ledger)["all"].content for data in (plain, signed, other))
    assert one == two
    assert one != three


def test_what_was_removed_from_a_ledger_or_a_run_is_gone_from_its_file(tmp_path: Path) -> None:
    from privatile.run.run_file import connect

    with Ledger.open(tmp_path / "ledger.db") as ledger:
        site(ledger).answer(ask(1))
        assert ledger.execute("PRAGMA secure_delete").fetchone() == (1,)
    run = connect(tmp_path / "run.db")
    assert run.execute("PRAGMA secure_delete").fetchone() == (1,)
    run.close()
