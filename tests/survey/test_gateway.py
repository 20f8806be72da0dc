"""The protocol, and what must not work: replayed, guessed, raced, late, oversized."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from starlette.requests import Request

from privatile.errors import StoreError
from privatile.report.survey_pages import SurveyPages
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore
from privatile.survey import intake as intake_module
from privatile.survey.folder import new_code
from privatile.survey.gateway import MAX_BODY, QuestionBody, _sent
from privatile.survey.intake import Refusal
from privatile.survey.serving import read_status
from privatile.survey.store import Count, SurveyStore
from tests.survey.kit import Clock, Made, Visitors, make_survey, visitors


async def test_a_person_asks_and_answers_once(made: Made, people: Visitors) -> None:
    code = made.codes[0]
    asked = await people.question(code)
    assert asked.status_code == 200
    assert asked.json() == {
        "survey": people.service.study.survey,
        "round": 1,
        "query": "5000.0",
        "handed_before": False,
    }
    assert (await people.question(code)).json()["handed_before"] is True
    assert (await people.answer(code, 1, True)).json() == {"counted": True}
    # The reply was lost: the same again, and another bit, change nothing and tell nothing.
    for bit in (True, False):
        assert (await people.answer(code, 1, bit)).json() == {"counted": True, "repeat": True}
    assert (await people.question(code)).status_code == 409
    assert people.service.intake.store.counts() == [Count(1, 1)]


def test_unknown_codes_get_nothing_and_write_nothing(made: Made) -> None:
    async def scene() -> None:
        async with visitors(made.folder) as people:
            for code in (new_code(), "", "x" * 22, "é" * 22, made.codes[0][:-1], made.codes[0] + "A", "A" * 22):
                assert (await people.question(code)).status_code == 404
                assert (await people.answer(code, 1, True)).status_code == 404
            assert people.service.intake._task is None

    def rows() -> list[list[tuple[Any, ...]]]:
        """Everything but the number of those who have opened the file."""
        with closing(sqlite3.connect(made.folder.store_file)) as file:
            tables = ("codes", "counts", "late", "round")
            return [file.execute(f"SELECT * FROM {name}").fetchall() for name in tables]

    before = rows()
    asyncio.run(scene())
    assert rows() == before


def test_two_answers_at_once_count_once(made: Made) -> None:
    async def scene() -> list[dict[str, Any]]:
        async with visitors(made.folder) as people:
            code = made.codes[0]
            await people.question(code)
            replies = await asyncio.gather(*(people.answer(code, 1, bool(k % 2)) for k in range(20)))
            assert sum(one.came for one in people.service.intake.store.counts()) == 1
            return [reply.json() for reply in replies]

    replies = asyncio.run(scene())
    assert replies.count({"counted": True}) == 1
    assert replies.count({"counted": True, "repeat": True}) == 19


async def test_a_device_whose_reply_was_lost_is_no_second_device(made: Made, people: Visitors) -> None:

    async def asked(visit: object, code: str = made.codes[0]) -> Any:
        reply = await people.client.post("/question", json={"code": code, "visit": visit})
        return reply.json().get("handed_before", reply.status_code)

    assert [await asked("mine"), await asked("mine")] == [False, False]
    assert await asked("another's") is True
    assert await asked("") is True
    assert await asked("mine") is False, "the first device is still the first"
    assert (await people.question(made.codes[0])).json()["handed_before"] is True
    assert [await asked("x" * 33), await asked(7)] == [400, 400]
    # Without a mark nothing is known again: the control.
    assert [await asked("", made.codes[1]), await asked("", made.codes[1])] == [False, True]


def test_marks_of_devices_take_bounded_memory(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "MAX_VISITS", 2)

    async def scene() -> list[bool]:
        async with visitors(made.folder) as people:
            asked = [(await people.question(code, visit="mine")).json() for code in (*made.codes[:3], *made.codes[:3])]
            return [one["handed_before"] for one in asked[3:]]

    assert asyncio.run(scene()) == [True, False, False], "who is forgotten is warned"


def test_two_devices_at_once_are_told_of_each_other(made: Made) -> None:
    async def scene() -> list[bool]:
        async with visitors(made.folder) as people:
            replies = await asyncio.gather(*(people.question(made.codes[0]) for _ in range(5)))
            return [reply.json()["handed_before"] for reply in replies]

    assert sorted(asyncio.run(scene())) == [False, True, True, True, True]


async def test_a_round_drains_closes_and_takes_no_late_answer(made: Made) -> None:
    clock = Clock()

    async with visitors(made.folder, clock=clock) as people:
        look = people.service.look
        slow, slower, *others = made.codes[:8]
        for code in (slow, slower, *others[:4]):
            assert (await people.question(code)).status_code == 200
        for code in others[:4]:
            await people.answer(code, 1, True)
        await look()
        assert (await people.client.get("/survey.json")).json()["state"] == "open"
        await people.take_part(others[4])
        await look()  # five have answered: no question any more
        refused = await people.question(others[5])
        assert (refused.status_code, refused.json()) == (503, {"error": "wait"})
        assert int(refused.headers["retry-after"]) >= 1
        assert (await people.answer(slow, 1, True)).json() == {"counted": True}  # within the grace time
        clock.now += 1.0
        await look()
        assert people.service.state.number == 2
        assert (await people.answer(slower, 1, True)).json() == {"counted": False, "reason": "late"}
        again = {"counted": False, "reason": "late", "repeat": True}
        assert (await people.answer(slower, 2, True)).json() == again
        assert (await people.question(slower)).status_code == 409
        # To a round that was never asked (a restored file): spent too, since the bit has left the device.
        assert (await people.answer(others[5], 7, True)).json() == {"counted": False, "reason": "late"}
        await people.service._refresh()
        live = (await people.client.get("/live.json")).json()
        assert (live["answers"], live["late"], live["rounds"]) == (6, 2, 1)
    with RunStore.open(made.folder.run_file, read_only=True) as store:
        assert [(one.ask.lengths, one.ones) for one in store.rounds()] == [((6,), (6,))], "the length is who came"


def test_a_survey_ends_by_command_number_and_date(tmp_path: Path) -> None:
    async def scene(made: Made, clock: Clock, people_first: int, *, request: bool = False) -> None:
        async with visitors(made.folder, clock=clock) as people:
            for code in made.codes[:people_first]:
                assert (await people.take_part(code)).json() == {"counted": True}
            if request:
                made.folder.close_request.touch()
            for _ in range(3):
                clock.now += 1.0
                await people.service.look()
            assert people.service.state.phase.value == "closed"
            assert (await people.question(made.codes[-1])).status_code == 410
            assert (await people.answer(made.codes[-1], 1, True)).json() == {"counted": False, "reason": "late"}
            assert (await people.client.get("/live.json")).json()["state"] == "closed"
        async with visitors(made.folder, clock=clock) as people:  # and stays so after a restart
            await people.service.look()
            assert (await people.question(made.codes[-2])).status_code == 410
            assert (await people.answer(made.codes[-1], 1, True)).json()["repeat"]
            assert (await people.client.get("/survey.json")).json()["state"] == "closed"

    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 5.0))
    for name, changes, came, why in (
        ("command", {}, 3, "command"),
        ("answers", {"end_answers": 8}, 8, "answers"),
        ("date", {"end_date": soon}, 0, "date"),
    ):
        made = make_survey(tmp_path / name, **changes)
        asyncio.run(scene(made, Clock(time.time()), came, request=name == "command"))
        with RunStore.open(made.folder.run_file, read_only=True) as store:
            assert store.why_ended == why == read_status(made.folder).facts["ended"]
            assert sum(one.answered for one in Coordinator(store).clients.values()) == came


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b"{}", 400),
        (b'{"code": 5, "round": 1, "answer": true}', 400),
        (b'{"code": "CODE", "round": 1, "answer": 1}', 400),
        (b'{"code": "CODE", "round": "1", "answer": true}', 400),
        (b'{"code": "CODE", "round": 0, "answer": true}', 400),
        (b'{"code": "CODE", "round": 99999999999999999999999, "answer": true}', 400),
        (b'{"code": "CODE", "round": 1, "answer": true, "value": 52000}', 400),
        (b'{"code": "CODE", "round": 1, "answer": false, "answer": true}', 400),
        (b'{"code": "CODE", "code": "CODE", "round": 1, "answer": true}', 400),
        (b'{"code": "CODE", "round": 1, "answer": true' + b" " * 600 + b"}", 413),
        (b'{"code": "\xff\xfe", "round": 1, "answer": true}', 400),
        (b"[" * 500, 400),
    ],
)
async def test_a_body_that_is_none_of_ours_is_refused(made: Made, people: Visitors, body: bytes, status: int) -> None:
    reply = await people.client.post("/answer", content=body.replace(b"CODE", made.codes[0].encode()))
    assert reply.status_code == status, reply.text
    assert people.service.intake.store.counts() == [Count(0, 0)]


def test_a_long_body_is_not_read_to_its_end() -> None:
    pieces = 0

    async def receive() -> dict[str, Any]:
        nonlocal pieces
        pieces += 1
        return {"type": "http.request", "body": b" " * 100, "more_body": True}

    with pytest.raises(Refusal, match="size"):
        asyncio.run(_sent(Request({"type": "http"}, receive), msgspec.json.Decoder(QuestionBody)))
    assert pieces <= MAX_BODY // 100 + 1


async def test_a_code_in_an_address_another_host_and_another_method_are_refused(made: Made, people: Visitors) -> None:
    code, client = made.codes[0], people.client
    assert (await client.post(f"/question?c={code}", json={"code": code})).status_code == 400
    assert (await client.get(f"/?c={code}")).status_code == 400
    assert (await client.post(f"/question/{code}", json={"code": code})).status_code in (404, 405)
    refused = await client.get("/question")
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    other = {"Host": "evil.example"}
    assert (await client.post("/question", json={"code": code}, headers=other)).status_code == 421
    assert (await client.get("/", headers=other)).status_code == 421
    two = [("Host", "survey.example"), ("Host", "evil.example")]
    assert (await client.get("/", headers=two)).status_code == 421
    assert not any(people.service.intake.store.codes().states), "every code is free"


def test_every_response_is_strict_about_scripts_and_sets_no_cookie(made: Made) -> None:
    async def scene() -> list[httpx.Response]:
        async with visitors(made.folder) as people:
            paths = ("/", "/survey.json", "/live.json", "/static/answer.js", "/organiser.json", "/nothing", "/health")
            replies = [await people.client.get(path) for path in paths]
            replies += [await people.question(made.codes[0]), await people.question("A" * 22)]
            replies += [await people.client.get("/?x"), await people.client.get("/", headers={"Host": "evil.example"})]
            return replies

    for reply in asyncio.run(scene()):
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert reply.headers["strict-transport-security"]
        assert "set-cookie" not in reply.headers
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert not reply.is_redirect


async def test_the_public_page_is_in_the_visitors_language(tmp_path: Path) -> None:
    made = make_survey(tmp_path / "survey", languages=["de", "en"])

    async with visitors(made.folder, pages=SurveyPages()) as people:

        async def shown(path: str, **headers: str) -> str:
            page = (await people.client.get(path, headers={"Accept-Language": "", **headers})).text
            return page.split('<html lang="')[1][:2] if "<html" in page else page

        assert await shown("/live") == "de", "the survey's first language"
        assert await shown("/live", **{"Accept-Language": "fr, en;q=0.5, de;q=0.4"}) == "en"
        assert await shown("/live.en") == "en"
        for path in ("/live.fr", "/live.xx", "/live."):
            assert "unknown" in await shown(path)
        assert (await people.client.get("/live.json")).json()["first_interval_after"] > 100


async def test_the_organisers_facts_need_the_token(made: Made) -> None:
    async with visitors(made.folder) as people:
        await people.take_part(made.codes[0])
        await people.question(made.codes[1])
        get = people.client.get
        for header in ({}, {"Authorization": "Bearer x"}, {"Authorization": made.token}):
            assert (await get("/organiser.json", headers=header)).status_code == 401
        facts = (await get("/organiser.json", headers={"Authorization": f"Bearer {made.token}"})).json()
        (stratum,) = facts["strata"]
        assert (stratum["spent"], stratum["handed"], stratum["codes"]) == (1, 1, 40)
        assert facts["open_round"]["answers"] == 1
    assert made.token not in "".join(path.read_text("latin-1") for path in made.folder.path.iterdir())


async def test_a_full_disk_acknowledges_nothing(made: Made, people: Visitors, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: SurveyStore) -> None:
        raise StoreError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(SurveyStore, "commit", full)
        for reply in (await people.question(made.codes[0]), await people.answer(made.codes[0], 1, True)):
            assert (reply.status_code, reply.json()) == (503, {"error": "unavailable"})
            assert "retry-after" in reply.headers
    assert people.service.intake.store.counts() == [Count(0, 0)]
    assert not any(people.service.intake.table.states), "memory follows the disk"
    assert (await people.take_part(made.codes[0])).json() == {"counted": True}
    assert people.service.intake.store.counts() == [Count(1, 1)]


async def test_codes_that_somebody_else_changed_are_not_answered_for(made: Made, people: Visitors) -> None:
    with closing(sqlite3.connect(made.folder.store_file)) as other, other:
        other.execute("UPDATE codes SET state = 2")
    assert (await people.answer(made.codes[0], 1, True)).status_code == 503
    assert people.service.intake.store.counts() == [Count(0, 0)]
    # The file is right: the next attempt goes by it, and holds up nobody else.
    assert (await people.answer(made.codes[0], 1, True)).json() == {"counted": True, "repeat": True}


def test_more_requests_than_memory_is_given_to_are_told_to_come_again(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> list[int]:
        async with visitors(made.folder) as people:
            monkeypatch.setattr(intake_module, "MAX_WAITING", 3)
            replies = await asyncio.gather(*(people.question(code) for code in made.codes))
            return [reply.status_code for reply in replies]

    statuses = asyncio.run(scene())
    assert set(statuses) == {200, 503}


async def test_nothing_is_logged(
    made: Made, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, "privatile")

    async with visitors(made.folder) as people:
        for code in made.codes[:6]:
            await people.take_part(code)
        await people.question("A" * 22)
    assert not [record for record in caplog.records if record.name.startswith("privatile")]
    out, err = capfd.readouterr()
    assert not out
    assert not err
