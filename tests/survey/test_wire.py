"""A survey's gateway behind a real server's protocol: what bytes on a connection get, and what they count."""

from __future__ import annotations

import asyncio
import json

import pytest

from privatile.errors import StoreError
from privatile.survey import gateway as gateway_module
from privatile.survey import intake as questions_module
from privatile.survey.gateway import HEADERS, MAX_BODY
from privatile.survey.store import FREE, Count, SurveyStore
from tests.run.connection_kit import post
from tests.survey.kit import Made, answer, question, visited


async def test_what_is_refused(made: Made) -> None:
    code = made.codes[0]
    length, chunks = b"Content-Length: 4\r\n", b"Transfer-Encoding: chunked\r\n"
    head, body = b"POST /question HTTP/1.1\r\nHost: localhost\r\n", question(code).partition(b"\r\n\r\n")[2]
    in_chunks = b"\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    refused = {
        post(b"/answer", b"{}"): (400, "malformed"),
        post(b"/answer", b'{"code": "%b", "round": 0, "answer": true}' % code.encode()): (400, "malformed"),
        post(b"/question", b'{"code": "\xff"}'): (400, "malformed"),
        post(b"/question", b'{"code": "%b", "more": 1}' % code.encode()): (400, "malformed"),
        post(b"/question?x=y", b"{}"): (400, "malformed"),
        head + length + chunks + in_chunks + answer(code): (400, "malformed"),
        head.replace(b"localhost", b"evil.example") + length + chunks + in_chunks + answer(code): (400, "malformed"),
        post(b"/question", b" " * (MAX_BODY + 1)): (413, "size"),
        head + chunks + b"\r\n" + b"1\r\n \r\n" * (MAX_BODY + 1): (413, "size"),
        post(b"/question", b"{}", host=b"evil.example"): (421, "host"),
        question("A" * 22): (404, "unknown"),
        question("x"): (404, "unknown"),
        answer("A" * 22): (404, "unknown"),
        post(b"/nothing", b"{}"): (404, "unknown"),
        post(b"http://localhost/question", body): (404, "unknown"),
        b"GET /live/ HTTP/1.1\r\nHost: localhost\r\n\r\n": (404, "unknown"),
        question(code).replace(b"POST", b"PUT"): (405, "method"),
        post(b"/health", b""): (405, "method"),
    }

    for sent, (status, reason) in refused.items():
        async with visited(made) as line:
            assert await line.send(sent) == [(status, {"error": reason})], sent
            came = line.wire.transport.written.lower().partition(b"\r\n\r\n")[0]
            for name, value in {**HEADERS, "Cache-Control": "no-store"}.items():
                assert came.count(f"{name}: {value}".lower().encode()) == 1, (sent, name)
            assert b"set-cookie" not in came
            # What follows such a request may be part of it.
            assert line.wire.transport.closing == (reason in ("malformed", "size"))
            assert not any(line.service.intake.table.states)
    async with visited(made) as line:  # the control: chunks alone are a body
        assert [status for status, _ in await line.send(head + chunks + in_chunks)] == [200]


async def test_a_host_after_the_body_is_none(made: Made) -> None:
    body = json.dumps({"code": made.codes[0]}).encode()
    head, trailer = b"POST /question HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n", b"0\r\nHost: localhost\r\n\r\n"

    for host, status in ((b"Host: evil.example\r\n", 421), (b"Host: localhost\r\n", 200)):
        async with visited(made) as line:
            found = await line.send(head % host + b"%x\r\n%b\r\n" % (len(body), body) + trailer)
            assert [one for one, _ in found] == [status]


async def test_requests_in_one_packet_are_answered_in_order(made: Made) -> None:
    async with visited(made) as line:
        code, other = made.codes[:2]
        health = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        packet = question(code) + health + answer(code) + answer(code, False) + question("A" * 22) + question(other)
        found = await line.send(packet, replies=6)
        assert [status for status, _ in found] == [200, 200, 200, 200, 404, 200]
        assert found[0][1]["round"] == 1
        assert found[1][1]["state"] == "open"
        assert [body for _, body in found[2:4]] == [{"counted": True}, {"counted": True, "repeat": True}]
        assert line.service.intake.store.counts() == [Count(1, 1)]


async def test_a_slow_body_and_one_without_end(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_module, "MAX_BODY_SECONDS", 0.05)

    async with visited(made) as line:
        whole = question(made.codes[0])
        assert (await line.send(whole[:-5], whole[-5:]))[0][0] == 200
        assert await line.send(whole[:-5]) == [(408, {"error": "slow"})]
        assert line.wire.transport.closing
    async with visited(made) as line:
        head = post(b"/answer", b"").replace(b"Content-Length: 0", b"Content-Length: 100000")
        assert await line.send(head + b" " * 600) == [(413, {"error": "size"})]


async def test_nothing_is_acknowledged_before_the_disk_has_it(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    async with visited(made) as line:
        async with line.service.intake.alone:  # a commit is under way
            await line.wire.send(answer(made.codes[0]))
            await asyncio.sleep(0.03)
            assert line.wire.transport.written == b""
        assert (await line.wire.replies(1)).endswith(b'{"counted":true}')

        def full(self: SurveyStore) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(SurveyStore, "commit", full)
            assert await line.send(answer(made.codes[1])) == [(503, {"error": "unavailable"})]
        assert line.service.intake.store.counts() == [Count(1, 1)]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_visitor_who_leaves_keeps_no_other_from_a_reply(
    made: Made, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    def full(self: SurveyStore) -> None:
        raise OSError(28, "No space left on device")

    async with visited(made) as line:
        if fails:
            monkeypatch.setattr(SurveyStore, "commit", full)
        first, second = (asyncio.create_task(line.service.answer(code, 9, True)) for code in made.codes[:2])
        await asyncio.sleep(0)
        first.cancel()
        if fails:
            with pytest.raises(StoreError, match="not written"):
                await second
        else:
            assert (await second).before == FREE
            assert line.service.intake.store.late() == [2], "the one who left has answered, too"


async def test_who_asks_while_a_round_closes_gets_the_next_question(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, where the round closes soon; and is told to come again where it does not."""

    async with visited(made, follow=True) as line:
        for code in made.codes[:5]:
            await line.send(question(code))
            await line.send(answer(code))
        ((status, asked),) = await line.send(question(made.codes[5]))
        assert (status, asked["round"], asked["handed_before"]) == (200, 2, False)
        # Somebody keeps this round open: whoever asks is not kept for ever.
        monkeypatch.setattr(questions_module, "PATIENCE", 0.03)
        for code in made.codes[6:11]:
            await line.send(question(code))
            await line.send(answer(code, number=2))
        async with line.service.intake.alone:
            began = asyncio.get_running_loop().time()
            assert await line.send(question(made.codes[12])) == [(503, {"error": "wait"})]
            assert 0.02 < asyncio.get_running_loop().time() - began < 1.0
        assert line.service.intake.table.states[line.service._find(made.codes[12])[1]] == 0
