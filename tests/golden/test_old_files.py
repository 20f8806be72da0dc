"""One file of every format, as it was written once: today's program opens it, or refuses it in words that help."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from privatile.cli import main
from privatile.client.ledger.ledger import Ledger
from privatile.errors import PrivatileError
from privatile.federation.setup.folder import open_folder
from privatile.federation.setup.invitation import read_enrolment, read_invitation
from privatile.records import read_record
from privatile.report.groups import read_groups
from privatile.run.view import RunView
from privatile.survey.folder import SurveyFolder
from tests.golden.old_files import unpack
from tests.golden.snapshots import stored_files


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with stored_files(unpack) as place:
        yield place


def ledger(path: Path) -> object:
    with Ledger.open(path, create=False, read_only=True) as opened:
        return opened.verify()


def survey(path: Path) -> object:
    return SurveyFolder(path).study().digest and RunView.read(path / "run.db", drawn=True).levels[0].result


def said(*words: object) -> str:
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


OPENED: dict[str, tuple[str, Callable[[Path], object]]] = {
    "enrolment": ("federation/north/north.enrolment.json", lambda path: read_enrolment(path).keys.fingerprint),
    "experiment": ("store.db", lambda path: "1 of 1 cells" in said("simulate", "show", path)),
}

READER = "d3633e0a"
"""The commit that reads the formats before today's."""

RENAMED = "values is gone. Use value_kind"

REFUSED: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "ledger": ("ledger.db", ledger, "they answer again.*commit d3633e0a.*--ledger NEW"),
    "a site's ledger": ("federation/north/ledger.db", ledger, "they answer again"),
    "groups": ("groups", read_groups, "Read it with the one that wrote it"),
    "run": ("run.db", RunView.read, READER),
    "run with levels": ("levels.db", RunView.read, READER),
    "run that goes on": ("going.db", RunView.read, READER),
    "record": ("record.json", read_record, READER),
    "peers' record": ("peers-record.json", read_record, READER),
    "survey's record": ("survey-record.json", read_record, READER),
    "study of a federation": ("federation/organizer", lambda path: open_folder(path).study().digest, RENAMED),
    "study of peers": ("peers/north", lambda path: open_folder(path).study().digest, RENAMED),
    "invitation": ("federation/organizer/invitations/north.json", read_invitation, READER),
    "survey": ("survey", survey, RENAMED),
}
"""Formats that have changed since."""


@pytest.mark.parametrize("name", REFUSED)
def test_a_format_that_has_changed_is_refused(folder: Path, name: str) -> None:
    place, opened, said = REFUSED[name]
    with pytest.raises(PrivatileError, match=said):
        opened(folder / place)


@pytest.mark.parametrize("name", OPENED)
def test_every_stored_file_is_opened(folder: Path, name: str) -> None:
    place, opened = OPENED[name]
    assert opened(folder / place)


@pytest.mark.parametrize("name", ["enrolment"])
def test_a_file_that_was_changed_is_not(folder: Path, tmp_path: Path, name: str) -> None:
    """The negative control."""
    place, opened = OPENED[name]
    content = bytearray((folder / place).read_bytes())
    content[len(content) // 2 :] = bytes(byte ^ 0x5A for byte in content[len(content) // 2 :])
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(PrivatileError):
        opened(tmp_path / "file")
