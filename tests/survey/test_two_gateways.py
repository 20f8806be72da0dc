"""Two gateways on one folder, after somebody has deleted gateway.pid: no acknowledged answer is lost."""

from __future__ import annotations

import asyncio
import http.client
import json
from contextlib import suppress
from pathlib import Path

import pytest

from privatile.errors import StoreError
from privatile.run.run_file import RunStore
from privatile.survey.service import SurveyService
from privatile.survey.serving import close_survey
from privatile.survey.store import Superseded, SurveyStore
from tests.survey.kit import Line, Made, make_survey, question
from tests.survey.processes import gateway


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return make_survey(tmp_path / "survey", round_answers=4, grace=0.0)


def counted(made: Made) -> tuple[int, int]:
    """Answers that the files have counted, and how many of them are ones."""
    with RunStore.open(made.folder.run_file, read_only=True) as run:
        closed = [(sum(one.ask.lengths), sum(ones or 0 for ones in one.ones)) for one in run.rounds()]
    study = made.folder.study()
    with SurveyStore.open(made.folder.store_file, study.digest, len(study.strata), read_only=True) as store:
        both = [*closed, *((one.came, one.ones) for one in store.counts())]
    return sum(came for came, _ in both), sum(ones for _, ones in both)


async def both_serve(made: Made) -> int:
    """Two gateways in turns; the number of answers that they acknowledged."""
    visitors = [Line(SurveyService(made.folder)) for _ in range(2)]
    for visitor in visitors:
        await visitor.service.start(follow=False)
    codes, told = iter(made.codes), 0
    for visitor in (*visitors, *visitors, visitors[1]):
        for _ in range(4):  # a round
            told += await visitor.take_part(next(codes))
        for _ in range(2):
            with suppress(StoreError):
                await visitor.service.look()
    for visitor in visitors:
        visitor.wire.lose()
        await visitor.service.stop()
    return told


def test_every_answer_that_either_acknowledged_is_counted(made: Made) -> None:
    acknowledged = asyncio.run(both_serve(made))
    assert acknowledged == 12, "the newer one serves"
    assert counted(made) == (acknowledged, acknowledged)


def test_without_the_check_answers_are_lost(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control."""
    monkeypatch.setattr(SurveyStore, "require_writer", lambda self: None)
    acknowledged = asyncio.run(both_serve(made))
    assert counted(made)[0] < acknowledged


async def test_the_older_one_learns_it_without_a_visitor_and_hands_out_nothing(made: Made) -> None:
    old, new = SurveyService(made.folder), SurveyService(made.folder)
    await old.start(follow=False)
    visitor, told = Line(old), []
    old.on_superseded = lambda: told.append("superseded")
    code = made.codes[0]
    assert (await visitor.send(question(code)))[0][0] == 200
    await new.start(follow=False)
    with pytest.raises(Superseded, match="another gateway"):
        await old.look()
    # A code that was handed out before needs no change of the file: it is refused all the same.
    assert await visitor.send(question(code)) == [(503, {"error": "unavailable"})]
    assert told == ["superseded"]
    visitor.wire.lose()
    await old.stop()
    await new.stop()


@pytest.mark.process
@pytest.mark.network
def test_a_gateway_whose_lock_was_deleted_stops_and_says_why(made: Made, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with gateway(made.folder.path, log, "--behind-proxy") as running:
        line = http.client.HTTPConnection(running.host, running.port, timeout=5.0)
        line.request("POST", "/answer", json.dumps({"code": made.codes[0], "round": 1, "answer": True}))
        assert json.loads(line.getresponse().read()) == {"counted": True}
        line.close()
        made.folder.pid_file.unlink()
        close_survey(made.folder)  # as a second gateway would
        assert running.process.wait(10) != 0
    assert "another gateway" in " ".join(log.read_text().split())
    assert counted(made) == (1, 1)
