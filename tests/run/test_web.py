"""What the server makes of requests in any pieces, of bytes that are none, and of visitors who stand still."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from tests.run.connection_kit import Connection, post


class Echo:
    """Answers with the path and the body, `later` ones after a moment, `never` ones not at all; notes what it saw."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return
            body, more = body + message["body"], message["more_body"]
        self.seen.append(f"{scope['path']} {body.decode()}")
        if body == b"broken":
            raise RuntimeError("an error of ours")
        if body == b"never":
            await asyncio.Event().wait()
        if body.startswith(b"later"):
            await asyncio.sleep(0.01)
        body = scope["path"].encode() + b" " + body
        headers = [(b"x", b"y"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


HOT, LATER, COLD = post(b"/hot", b"now"), post(b"/hot", b"later"), post(b"/cold", b"x")
UPGRADE = post(b"/hot", b"now", b"Connection: Upgrade", b"Upgrade: h2c")
CHUNKED = b"POST /hot HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nnow\r\n0\r\n\r\n"
NONE = b"\x16\x03\x01 no request\r\n\r\n"
TWO_LENGTHS = b"POST /hot HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nnow!"
STREAMS = {
    "no body": ([b"POST /hot HTTP/1.1\r\nHost: a\r\n\r\n"], ["/hot "], "200"),
    "two, one after the other": ([HOT, LATER], ["/hot now", "/hot later"], "200 200"),
    "several in one packet": ([LATER + COLD + HOT], ["/hot later", "/cold x", "/hot now"], "200 200 200"),
    "half of the next with one": ([LATER + HOT[:20], HOT[20:-1], HOT[-1:]], ["/hot later", "/hot now"], "200 200"),
    "HEAD": ([b"HEAD /hot HTTP/1.1\r\nHost: a\r\n\r\n", HOT], ["/hot ", "/hot now"], "200 200"),
    "HTTP/1.0": ([post(b"/hot", b"now", version=b"1.0") + HOT], ["/hot now"], "200 closed"),
    "Connection: close": ([post(b"/hot", b"now", b"Connection: close") + HOT], ["/hot now"], "200 closed"),
    "chunks": ([CHUNKED + HOT], ["/hot now", "/hot now"], "200 200"),
    "Expect": ([post(b"/hot", b"", b"Expect: 100-continue").replace(b": 0", b": 3"), b"now"], ["/hot now"], "100 200"),
    "a host twice": ([post(b"/hot", b"now", b"Host: b")], [], "400 closed"),
    "no host": ([b"POST /hot HTTP/1.1\r\nContent-Length: 3\r\n\r\nnow"], [], "400 closed"),
    "two lengths": ([TWO_LENGTHS], [], "400 closed"),
    "a length that is none": ([TWO_LENGTHS.replace(b"Length: 3", b"Length: -3")], [], "400 closed"),
    "chunks within chunks": ([CHUNKED.replace(b"chunked", b"chunked, chunked")], [], "400 closed"),
    "headers after chunks": ([CHUNKED[:-2] + b"Host: b\r\nExpect: 100-continue\r\n\r\n"], ["/hot now"], "200"),
    "what follows an upgrade that is none": ([UPGRADE + HOT], ["/hot now", "/hot now"], "200 200"),
    "no request": ([NONE], [], "400 closed"),
    "no request after one": ([HOT + NONE], ["/hot now"], "200 400 closed"),
    "no request behind one under way": ([LATER, NONE + HOT], ["/hot later"], "200 400 closed"),
}  # fmt: skip


@pytest.mark.parametrize("stream", STREAMS)
def test_what_becomes_of_a_stream(stream: str) -> None:
    pieces, seen, replies = STREAMS[stream]

    async def scene() -> None:
        app = Echo()
        line = Connection(app)
        await line.send(*pieces)
        came = await line.replies(replies.count("0 ") + replies.endswith("0"))
        await asyncio.sleep(0.02)
        assert " ".join(re.findall(r"HTTP/1.1 (\d+)", came.decode()) + ["closed"] * line.transport.closing) == replies
        assert app.seen == seen
        line.lose()

    asyncio.run(scene())


def test_split_at_every_byte_it_is_the_same() -> None:
    pair = HOT + COLD + HOT

    async def scene() -> None:
        whole = Connection(Echo())
        await whole.send(pair)
        expected = await whole.replies(3)
        lines = [Connection(Echo()) for _ in range(len(pair))]
        await asyncio.gather(*(line.send(pair[:at], pair[at:]) for at, line in enumerate(lines) if at))
        await lines[0].send(*(pair[at : at + 1] for at in range(len(pair))))
        for line in lines:
            assert await line.replies(3) == expected
            line.lose()
        whole.lose()

    asyncio.run(scene())


def test_a_visitor_who_leaves_gets_nothing_and_breaks_nothing() -> None:
    async def scene() -> None:
        app = Echo()
        line = Connection(app)
        await line.send(LATER)
        line.lose()
        await asyncio.sleep(0.02)
        assert line.transport.written == b""

    asyncio.run(scene())


def test_a_server_that_stops_answers_what_is_under_way() -> None:
    async def scene() -> None:
        line = Connection(Echo())
        await line.send(LATER)
        line.protocol.shutdown()
        assert not line.transport.is_closing()
        assert (await line.replies(1)).endswith(b"/hot later")
        assert line.transport.closing
        idle = Connection(Echo())
        await idle.send(HOT)
        idle.protocol.shutdown()
        assert idle.transport.closing
        for one in (line, idle):
            one.lose()

    asyncio.run(scene())


def test_who_does_not_read_is_given_no_more() -> None:
    async def scene() -> None:
        app = Echo()
        line = Connection(app)
        line.protocol.pause_writing()
        await line.send(HOT)
        await asyncio.sleep(0.01)
        assert (app.seen, line.transport.written) == (["/hot now"], b"")
        line.protocol.resume_writing()
        assert (await line.replies(1)).endswith(b"/hot now")
        line.lose()

    asyncio.run(scene())


def test_a_connection_stays_while_requests_come_and_no_longer() -> None:
    async def scene() -> None:
        line, silent, half, waiting = (Connection(Echo(), request_timeout=0.05) for _ in range(4))
        await half.send(HOT[:30])
        await waiting.send(post(b"/hot", b"never"))
        for _ in range(15):
            await line.send(HOT)
            await asyncio.sleep(0.01)
        assert [one.transport.closing for one in (line, silent, half, waiting)] == [False, True, True, False]
        await asyncio.sleep(0.12)
        assert line.transport.closing
        for one in (line, silent, half, waiting):
            one.lose()
            assert one.protocol._patience.cancelled(), "a timer would keep what is left of the connection"

    asyncio.run(scene())


def test_headers_without_end_are_refused() -> None:
    async def scene() -> None:
        for sent, replies in ((200, b"400"), (10, b"200")):  # the control: ten kilobytes of headers
            app = Echo()
            line = Connection(app)
            headers = [b"X-%d: %b\r\n" % (number, b"x" * 990) for number in range(sent)]
            await line.send(HOT[: HOT.index(b"\r\n\r\n") + 2], *headers, b"\r\nnow")
            assert (await line.replies(1))[9:12] == replies
            assert len(app.seen) == (replies == b"200")
            line.lose()

    asyncio.run(scene())


def test_little_is_read_while_a_request_waits() -> None:
    async def scene() -> None:
        app = Echo()
        line = Connection(app)
        flood = asyncio.create_task(line.send(post(b"/hot", b"never"), *[HOT * 500] * 100))
        await asyncio.sleep(0.05)
        assert line.transport.paused
        assert line.received <= 3, "pieces of a hundred"
        assert app.seen == ["/hot never"]
        line.lose()
        await flood
        # The control: as soon as requests are answered all of them are read.
        line = Connection(app := Echo())
        await line.send(LATER, *[HOT * 5] * 20)
        assert (await line.replies(101)).count(b"/hot now") == 100
        assert not line.transport.closing
        line.lose()

    asyncio.run(scene())


def test_who_reads_nothing_is_cut() -> None:
    async def scene() -> None:
        never, slow, closed, waits = lines = [Connection(Echo(), request_timeout=0.05) for _ in range(4)]
        for line in (never, slow):
            line.protocol.pause_writing()
            line.transport.unsent = 100_000
            await line.send(HOT)
        closed.transport.unsent = 100_000
        closed.transport.close()
        await waits.send(post(b"/hot", b"never"))
        for _ in range(20):
            await asyncio.sleep(0.01)
            slow.transport.unsent -= 100
        found = [line.transport.aborted for line in lines]
        # Another 100,000 bytes wait once the first are sent: that is no standstill.
        for _ in range(20):
            slow.protocol.resume_writing()
            slow.protocol.pause_writing()
            slow.transport.unsent = 100_000
            await asyncio.sleep(0.01)
        found.append(slow.transport.aborted)
        for line in lines:
            line.lose()
        assert found == [True, False, True, False, False]

    asyncio.run(scene())


def test_a_server_that_stops_does_not_wait_for_who_reads_nothing() -> None:
    async def scene() -> None:
        line = Connection(Echo(), timeout_graceful_shutdown=0.05)
        line.protocol.pause_writing()
        await line.send(HOT)
        line.protocol.shutdown()
        found = [line.transport.closing]
        await asyncio.sleep(0.1)
        found.append(line.transport.aborted)
        line.lose()
        assert found == [False, True]

    asyncio.run(scene())


def test_who_leaves_with_requests_waiting_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        app = Echo()
        for first in (LATER, post(b"/cold", b"later")):
            line = Connection(app)
            await line.send(first + COLD + HOT)
            await asyncio.sleep(0.002)
            line.lose()
        await asyncio.sleep(0.02)
        assert app.seen == ["/hot later", "/cold later"]
        assert not caplog.records

    asyncio.run(scene())


def test_an_error_of_ours_is_logged_and_what_anybody_can_send_is_not(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        for bad in (
            post(b"/hot", b"", b"Connection: Upgrade", b"Upgrade: websocket"),
            post(b"/cold", b"", b"Connection: Upgrade", b"Upgrade: h2c"),
            b"\x16\x03\x01 no request\r\n\r\n",
        ):
            line = Connection(Echo())
            await line.send(bad)
            await asyncio.sleep(0.005)
            line.lose()
        assert not caplog.records
        line = Connection(Echo())
        await line.send(post(b"/hot", b"broken"))
        assert line.transport.closing
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        line.lose()

    asyncio.run(scene())
