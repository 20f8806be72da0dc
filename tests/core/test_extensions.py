"""What an extension has made is refused where it is not installed, with the command that installs it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from privatile.cli import main
from privatile.core.extensions import KNOWN, of_path
from privatile.errors import InputError
from privatile.federation.setup.folder import check_coordinated, open_folder
from privatile.federation.study import FederationStudy, load_study, study_toml
from privatile.run.run_file import RunStore
from privatile.run.tables import folder_facts, no_run_in
from tests.federation.kit import make_study
from tests.made_runs import long_run

INSTALL = "pip install ./apps/leaderless"


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where no extension is installed."""
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **chosen: ())
    packages = [known.package for known in KNOWN]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in packages else find_spec(name))


def marked_folder(folder: Path) -> Path:
    folder.mkdir()
    (folder / "study.toml").write_text(study_toml(make_study()), encoding="utf-8")
    return folder


def with_key(folder: Path) -> Path:
    file = marked_folder(folder) / "study.toml"
    file.write_text("tolerate = 0\n" + file.read_text(encoding="utf-8"), encoding="utf-8")
    return folder


def with_file(folder: Path) -> Path:
    (marked_folder(folder) / "peer.json").write_text("{}", encoding="utf-8")
    return folder


def run_file(folder: Path) -> Path:
    folder.mkdir()
    path = long_run(folder / "run.db", rounds=30)
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE peer (roster TEXT NOT NULL)")
    file.close()
    return path


def invitation(folder: Path) -> Path:
    folder.mkdir()
    (folder / "invitation.json").write_text(json.dumps({"privatile_peer_invitation": 1}), encoding="utf-8")
    return folder / "invitation.json"


@pytest.mark.usefixtures("absent")
@pytest.mark.parametrize(
    ("make", "use"),
    [
        (with_key, lambda path: load_study(path / "study.toml")),
        (with_key, open_folder),
        (with_key, no_run_in),
        (with_file, open_folder),
        (with_file, folder_facts),
        (run_file, lambda path: RunStore.open(path, read_only=True)),
        (invitation, check_coordinated),
    ],
)
def test_what_names_an_extension_says_how_to_install_it(
    tmp_path: Path, make: Callable[[Path], Path], use: Callable[[Path], Any]
) -> None:
    path = make(tmp_path / "made")
    with pytest.raises(InputError, match=INSTALL):
        use(path)


def test_what_names_none_is_read_without_one(tmp_path: Path, absent: None) -> None:
    folder = marked_folder(tmp_path / "made")
    assert load_study(folder / "study.toml").extension is None
    assert open_folder(folder).path == folder
    assert no_run_in(folder) == ""
    facts = folder_facts(folder)
    assert facts is not None
    assert facts.begins == f"privatile serve {folder}"


@pytest.mark.parametrize(
    "words",
    [
        ("peer", "--help"),
        ("federation", "init", "DIR", "--leaderless"),
        ("federation", "init", "DIR", "--tolerate", "1"),
        ("release", "DIR", "--sign", "record.json"),
    ],
)
def test_its_commands_and_options_say_how_to_install_it(words: tuple[str, ...], absent: None) -> None:
    done = CliRunner().invoke(main, list(words))
    assert (done.exit_code, INSTALL in " ".join(done.output.split())) == (2, True), done.output


def test_help_lists_its_command_only_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    about = KNOWN[0].about
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert about in CliRunner().invoke(main, ["--help"]).output
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert about not in CliRunner().invoke(main, ["--help"]).output


@pytest.mark.parametrize("plain", [{"extra": {"tolerate": 1}}, {"extra": {}}])
def test_a_study_cannot_bring_settings_of_its_own(plain: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="extra: there is no such setting"):
        FederationStudy.from_dict(make_study().to_dict() | plain)


def test_an_invitation_that_says_twice_whose_it_is_is_no_extensions(tmp_path: Path) -> None:
    path = tmp_path / "invitation.json"
    path.write_text(f'{{"{KNOWN[0].invitation}": 1}}', encoding="utf-8")
    assert of_path(path) is not None
    path.write_text(f'{{"{KNOWN[0].invitation}": 1, "{KNOWN[0].invitation}": 2}}', encoding="utf-8")
    assert of_path(path) is None
