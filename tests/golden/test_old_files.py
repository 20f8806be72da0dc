"""One file of every format, as it was written once: today's program opens it, or refuses it in words that help."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from privatile.cli import main
from privatile.client.ledger.ledger import Ledger
from privatile.errors import PrivatileError, StoreError
from privatile.federation.operations.folders import open_folder
from privatile.federation.record import read_record, verify_record
from privatile.federation.record.verify import Checks
from privatile.federation.setup.invitation import read_enrolment, read_invitation
from privatile.report.groups import read_groups
from privatile.report.view import read_results, read_view
from privatile.survey.folder import SurveyFolder
from privatile.survey.record import verify_survey_record
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
    return SurveyFolder(path).study().digest and read_view(path / "run.db").levels[0].result


def said(*words: object) -> str:
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


def checked(verified: Checks) -> bool:
    if verified.failed:
        raise StoreError("\n".join(verified.failed))
    return True


OPENED: dict[str, tuple[str, Callable[[Path], object]]] = {
    "ledger": ("ledger.db", ledger),
    "a site's ledger": ("federation/north/ledger.db", ledger),
    "enrolment": ("federation/north/north.enrolment.json", lambda path: read_enrolment(path).keys.fingerprint),
    "experiment": ("store.db", lambda path: "1 of 1 cells" in said("simulate", "show", path)),
}

COMMIT = "Commit d3633e0a of privatile reads earlier formats"
RENAMED = "values is gone. Use value_kind"

REFUSED: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "groups": ("groups", read_groups, "Read it with the one that wrote it"),
    "run": ("run.db", read_results, COMMIT),
    "run with levels": ("levels.db", read_results, COMMIT),
    "run that goes on": ("going.db", read_view, COMMIT),
    "record": ("record.json", lambda path: checked(verify_record(read_record(path))), RENAMED),
    "peers' record": ("peers-record.json", lambda path: checked(verify_record(read_record(path))), RENAMED),
    "survey's record": ("survey-record.json", lambda path: checked(verify_survey_record(read_record(path))), RENAMED),
    "study of a federation": ("federation/organizer", lambda path: open_folder(path).study().digest, RENAMED),
    "study of peers": ("peers/north", lambda path: open_folder(path).study().digest, RENAMED),
    "invitation": ("federation/organizer/invitations/north.json", read_invitation, RENAMED),
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


@pytest.mark.parametrize("name", ["ledger", "enrolment"])
def test_a_file_that_was_changed_is_not(folder: Path, tmp_path: Path, name: str) -> None:
    """The negative control."""
    place, opened = OPENED[name]
    content = bytearray((folder / place).read_bytes())
    content[len(content) // 2 :] = bytes(byte ^ 0x5A for byte in content[len(content) // 2 :])
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(PrivatileError):
        opened(tmp_path / "file")
