"""Both files of a survey from an old backup: found, refused, and gone on with only where that is declared."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from privatile.cli import main
from privatile.errors import StoreError
from privatile.survey import serving
from privatile.survey import store as mark_module
from privatile.survey.serving import close_survey, read_status
from privatile.survey.store import SurveyMark
from tests.survey.kit import Clock, Made, make_survey, visitors

BOTH = ("survey.db", "run.db")


def backup(made: Made) -> dict[str, bytes]:
    return {name: (made.folder.path / name).read_bytes() for name in BOTH}


def put_back(made: Made, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (made.folder.path / name).write_bytes(content)


def take_part(made: Made, first: int, last: int, *, restored: bool = False) -> list[bool]:
    """Whether the question of each had been handed out before."""
    clock = Clock()

    async def scene() -> list[bool]:
        async with visitors(made.folder, clock=clock, restored=restored) as people:
            warned = []
            for code in made.codes[first:last]:
                while (reply := await people.question(code)).status_code == 503:
                    clock.now += 1.0  # after a restart nobody knows who is awaited
                    await people.service.look()
                asked = reply.json()
                warned.append(asked["handed_before"])
                await people.answer(code, asked["round"], True)
                await people.service.look()
            return warned

    return asyncio.run(scene())


@pytest.fixture
def old(tmp_path: Path) -> tuple[Made, dict[str, bytes]]:
    """A survey after fifteen answers, and what was saved of it after six."""
    made = make_survey(tmp_path / "survey")
    take_part(made, 0, 6)
    saved = backup(made)
    take_part(made, 6, 15)
    return made, saved


def test_both_files_of_an_old_backup_are_refused_until_that_is_declared(old: tuple[Made, dict[str, bytes]]) -> None:
    made, saved = old
    newest = backup(made)
    put_back(made, saved)
    for attempt in (lambda: take_part(made, 6, 7), lambda: close_survey(made.folder)):
        with pytest.raises(StoreError, match="older copy: its codes have seen 12 changes, and had seen 30"):
            attempt()
    assert not made.folder.close_request.exists()
    put_back(made, newest)
    assert take_part(made, 15, 17) == [False, False], "the newest files go on"

    put_back(made, saved)
    assert take_part(made, 6, 10, restored=True) == [True] * 4, "whoever comes is warned"
    assert take_part(made, 20, 22) == [True, True], "declared once"
    assert "restored     1 time from a backup" in read_status(made.folder).to_text()
    told = read_status(made.folder).to_text()
    assert re.search(r"no interval yet: it takes at least about [0-9,]+ answers; this survey can have 40 at most", told)
    put_back(made, saved)
    with pytest.raises(StoreError, match="older copy"):
        take_part(made, 6, 7)


def test_the_command_declares_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[bool] = []
    monkeypatch.setattr(serving, "serve_survey", lambda *words, restored, **more: given.append(restored))
    for words in ([], ["--restored"]):
        assert CliRunner().invoke(main, ["survey", "serve", str(tmp_path), *words]).exit_code == 0
    assert given == [False, True]


def test_what_the_mark_cannot_see(old: tuple[Made, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    """On another machine, or where the mark was restored too, an older copy looks like the newest."""
    made, saved = old
    put_back(made, saved)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(made.folder.path / "elsewhere"))
    assert take_part(made, 6, 7) == [False]


async def test_a_mark_that_cannot_be_written_is_told_and_serves_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_survey(tmp_path / "survey")
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(mark_module, "EVERY_SECONDS", -1.0)

    async with visitors(made.folder, follow=True) as people:
        await people.take_part(made.codes[0])
        while not people.service.alarms():
            await asyncio.sleep(0.01)
        reply = await people.client.get("/health")
        assert (reply.status_code, reply.json()["alarms"]) == (200, ["no mark"])


def test_the_mark_is_never_ahead_and_only_put_goes_back(tmp_path: Path) -> None:
    mark = SurveyMark(tmp_path / "keys" / "x.mark")
    assert mark.read() == 0
    mark.advance(7)
    mark.advance(5)
    assert mark.read() == 7
    mark.put(5)
    assert mark.read() == 5
    mark.path.write_text("damaged")
    assert mark.read() == 0


def test_the_mark_is_read_by_its_user_alone(tmp_path: Path) -> None:
    mark = SurveyMark(tmp_path / "keys" / "one.mark")
    for changes in (3, 5):
        mark.put(changes)
        assert (mark.read(), mark.path.stat().st_mode & 0o777) == (changes, 0o600)
