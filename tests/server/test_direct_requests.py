"""Requests that an application answers itself get the same bytes as those that uvicorn gives it, in the same order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from privatile.server.direct_requests import DirectProtocol
from privatile.server.web import LARGEST_HEADERS, MOST_PIPELINED, WholeResponse
from tests.server.direct_kit import Connection, post


class Echo:
    """Answers with the path and the body, `later` ones after a moment; notes which way each request came."""

    def __init__(self) -> None:
        self.ways: list[str] = []
        self.responds: list[Any] = []
        self.direct = {b"/hot": self._hot}

    def _hot(self, host: bytes, body: bytes, respond: Any) -> None:
        self.ways.append("direct")
        self.responds.append(respond)
        if body == b"broken":
            raise RuntimeError("an error of ours")
        if body == b"never":
            return
        whole = WholeResponse(200, ((b"x", b"y"),), b"/hot " + body)
        if body.startswith(b"later"):
            asyncio.get_running_loop().call_later(0.01, respond, whole)
        else:
            respond(whole)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return
            body, more = body + message["body"], message["more_body"]
        self.ways.append("usual")
        if body.startswith(b"later"):
            await asyncio.sleep(0.01)
        body = scope["path"].encode() + b" " + body
        headers = [(b"x", b"y"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


HOT, LATER, COLD = post(b"/hot", b"now"), post(b"/hot", b"later"), post(b"/cold", b"x")
UPGRADE = post(b"/hot", b"now", b"Connection: Upgrade", b"Upgrade: h2c")
CHUNKED = b"POST /hot HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nnow\r\n0\r\n\r\n"
STREAMS = {
    "one": ([HOT], ["direct"]),
    "as a browser sends it": ([post(b"/hot", b"{}", b"Connection: keep-alive", b"Accept: */*")], ["direct"]),
    "no body": ([b"POST /hot HTTP/1.1\r\nHost: a\r\n\r\n"], ["direct"]),
    "two, one after the other": ([HOT, LATER], ["direct", "direct"]),
    "two in one packet": ([LATER + HOT], ["direct", "usual"]),
    "five in one packet": ([LATER + HOT + HOT + LATER + HOT], ["direct", *["usual"] * 4]),
    "then another kind": ([LATER + COLD], ["direct", "usual"]),
    "after another kind": ([COLD + LATER + HOT], ["usual", "usual", "usual"]),
    "another kind between": ([HOT, COLD, HOT], ["direct", "usual", "direct"]),
    "half of the next comes with one": ([HOT + HOT[:20], HOT[20:] + HOT[:-1], HOT[-1:]], ["direct", "direct", "usual"]),
    "half of another comes with one that waits": ([LATER + COLD[:-1], COLD[-1:], HOT], ["direct", "usual", "direct"]),
    "another method": ([HOT.replace(b"POST", b"PUT")], ["usual"]),
    "GET": ([b"GET /hot HTTP/1.1\r\nHost: a\r\n\r\n"], ["usual"]),
    "HEAD": ([b"HEAD /hot HTTP/1.1\r\nHost: a\r\n\r\n", HOT], ["usual", "direct"]),
    "HTTP/1.0": ([post(b"/hot", b"now", version=b"1.0")], ["usual"]),
    "HTTP/1.0 that stays": ([post(b"/hot", b"now", b"Connection: keep-alive", version=b"1.0")], ["usual"]),
    "Connection: close": ([post(b"/hot", b"now", b"Connection: close") + HOT], ["usual"]),
    "chunks": ([CHUNKED + HOT], ["usual", "usual"]),
    "Expect": ([post(b"/hot", b"", b"Expect: 100-continue").replace(b": 0", b": 3"), b"now"], ["usual"]),
    "a header twice": ([post(b"/hot", b"now", b"Host: b")], ["usual"]),
    "no host": ([b"POST /hot HTTP/1.1\r\nContent-Length: 3\r\n\r\nnow"], ["usual"]),
    "a query": ([post(b"/hot?a=b", b"now")], ["usual"]),
    "a whole address": ([post(b"http://elsewhere/hot", b"now")], []),
    "no address": ([b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"], []),
    "headers after chunks": ([CHUNKED[:-2] + b"Host: b\r\nExpect: 100-continue\r\n\r\n"], ["usual"]),
    "an encoded path": ([post(b"/%68ot", b"now")], ["usual"]),
    "an upgrade, and a request after it": ([UPGRADE + HOT], ["usual"]),
    "an upgrade that is none": ([post(b"/hot", b"now", b"Upgrade: h2c") + HOT], ["usual", "usual"]),
    "something else after it": ([HOT + b"\x16\x03\x01 no request\r\n\r\n"], []),
    "something else behind one under way": ([LATER, b"\x16\x03\x01 no request\r\n\r\n"], ["direct"]),
    "two lengths": ([b"POST /hot HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nnow!"], []),
    "length and chunks": ([CHUNKED.replace(b"Host", b"Content-Length: 3\r\nHost")], []),
}  # fmt: skip


async def came_back(pieces: list[bytes], *, direct: bool) -> tuple[bytes, bool, list[str]]:
    """What a connection gets for some pieces, and whether it is closed then."""
    app = Echo()
    line = Connection(app, direct=direct)
    await line.send(*pieces)
    last, quiet = b"", 0
    while quiet < 15:  # milliseconds without news: the slowest answer takes ten
        await asyncio.sleep(0.001)
        quiet = quiet + 1 if line.transport.written == last and not line.protocol.pipeline else 0
        last = line.transport.written
    closed = line.transport.closing
    line.lose()
    return last, closed, app.ways


@pytest.mark.parametrize("stream", STREAMS)
def test_the_same_bytes_as_by_way_of_uvicorn(stream: str) -> None:
    pieces, ways = STREAMS[stream]
    usual = asyncio.run(came_back(pieces, direct=False))
    assert set(usual[2]) <= {"usual"}
    found = asyncio.run(came_back(pieces, direct=True))
    if stream.startswith("something else"):  # a refusal would seem to be the first one's response
        assert usual[:2] == (b"", True)
    assert found[:2] == usual[:2]
    assert found[2] == ways


def test_split_at_every_byte_it_is_the_same() -> None:
    pair, head = HOT + COLD + HOT, HOT.index(b"\r\n\r\n") + 4

    async def scene() -> None:
        expected = (await came_back([pair], direct=False))[0]
        apps = [Echo() for _ in range(len(pair))]
        lines = [Connection(app) for app in apps]
        await asyncio.gather(*(line.send(pair[:at], pair[at:]) for at, line in enumerate(lines) if at))
        for line in lines[1:]:
            assert await line.replies(3) == expected
            line.lose()
        # Answered directly where the body came with the end of the head.
        assert [app.ways[0] for app in apps[1:]] == [
            "usual" if head <= at < len(HOT) else "direct" for at in range(1, len(pair))
        ]
        one = Connection(Echo())
        await one.send(*(pair[at : at + 1] for at in range(len(pair))))
        assert await one.replies(3) == expected
        one.lose()
        lines[0].lose()

    asyncio.run(scene())


def test_a_visitor_who_leaves_gets_nothing_and_breaks_nothing() -> None:
    async def scene() -> None:
        app = Echo()
        line = Connection(app)
        await line.send(LATER)
        line.lose()
        await asyncio.sleep(0.02)
        assert line.transport.written == b""
        assert line.protocol.cycle is None, "nothing keeps the connection"

    asyncio.run(scene())


def test_a_second_response_is_none() -> None:
    async def scene() -> None:
        app = Echo()
        line = Connection(app)
        await line.send(HOT)
        written = await line.replies(1)
        app.responds[0](WholeResponse(200, (), b"again"))
        assert line.transport.written == written
        line.lose()

    asyncio.run(scene())


def test_a_server_that_stops_answers_what_is_under_way_and_says_that_it_is_the_last() -> None:
    async def scene() -> None:
        line = Connection(Echo())
        await line.send(LATER)
        line.protocol.shutdown()
        assert not line.transport.is_closing()
        assert b"connection: close\r\n" in await line.replies(1)
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
        assert (app.ways, line.transport.written) == (["usual"], b"")
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


def test_headers_without_end_are_not_heard() -> None:
    async def scene() -> None:
        app = Echo()
        line = Connection(app)
        await line.send(
            post(b"/hot", b"now", *(b"X-%d: %b" % (k, b"x" * 1000) for k in range(LARGEST_HEADERS // 1000 + 1)))
        )
        assert line.transport.aborted
        line.lose()
        await asyncio.sleep(0.01)
        assert app.ways == []

    asyncio.run(scene())


GET = b"GET /cold HTTP/1.1\r\n\r\n"


def test_requests_without_end_are_not_kept() -> None:
    async def scene() -> None:
        app = Echo()
        line = Connection(app)
        seen = 0
        begin = line.protocol.on_message_begin

        def counted() -> None:
            nonlocal seen
            seen += 1
            begin()

        line.protocol.on_message_begin = counted
        line.protocol.parser = type(line.protocol.parser)(line.protocol)  # it has taken the method before
        await line.send(GET * 5000, GET)
        assert line.transport.aborted
        assert (seen, len(line.protocol.pipeline)) == (MOST_PIPELINED + 2, 0)
        line.lose()
        await asyncio.sleep(0.01)
        assert app.ways == []
        # The control: as many as may wait are all answered, and then as many again.
        line = Connection(app)
        for number in (1, 2):
            await line.send(GET * (1 + MOST_PIPELINED))
            assert (await line.replies(number * (1 + MOST_PIPELINED))).count(b"/cold ") == number * (1 + MOST_PIPELINED)
        assert not line.transport.closing
        line.lose()

    asyncio.run(scene())


def test_nothing_is_read_while_a_request_waits() -> None:
    async def scene() -> None:
        line = Connection(Echo())
        await line.send(LATER + post(b"/cold", b"later") * 3)
        looks = set()
        while line.transport.written.count(b"HTTP/1.1 ") < 4:
            looks.add((bool(line.protocol.pipeline), line.transport.paused))
            await asyncio.sleep(0.001)
        assert (True, True) in looks
        assert (True, False) not in looks
        assert not line.transport.paused
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
        for first in (LATER, post(b"/cold", b"later"), post(b"/hot", b"later", b"X: " + b"x" * LARGEST_HEADERS)):
            line = Connection(app)
            await line.send(first + COLD + HOT)
            await asyncio.sleep(0.002)
            line.lose()
        await asyncio.sleep(0.02)
        assert app.ways == ["direct", "usual"]
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


def test_uvicorn_keeps_what_is_read_and_set_here() -> None:
    """The names are uvicorn's own: another version must have them all."""
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

    async def scene() -> None:
        line = Connection(Echo())
        names = {"cycle", "flow", "headers", "logger", "parser", "pipeline", "server_state", "transport"}
        assert names <= set(vars(line.protocol))
        line.lose()

    asyncio.run(scene())
    overridden = {name for name in vars(DirectProtocol) if name.startswith("on_")} | {"send_400_response"}
    assert overridden <= set(vars(HttpToolsProtocol))
    nothing: Any = None
    cycle = RequestResponseCycle({"method": "POST"}, *[nothing] * 10)  # type: ignore[typeddict-item]
    assert {"disconnected", "keep_alive", "message_event", "response_complete"} <= set(vars(cycle))
