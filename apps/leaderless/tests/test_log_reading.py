"""Reading the log entry by entry while there is no consumer, without a server: what comes late, and another log."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from privatile_leaderless import log as log_module
from privatile_leaderless.chain import payload_digest
from privatile_leaderless.log import LogLost, LogPort, Refused, Reply
from privatile_leaderless.peer_file import LogEntry


class Servers:
    """A log that can be read entry by entry; nobody makes consumers."""

    stream = "LOG"

    def __init__(self, *payloads: bytes) -> None:
        self.payloads = payloads
        self.asked: list[int] = []
        self.may_reply = asyncio.Event()
        self.may_reply.set()

    async def check(self, position: int) -> None:
        pass

    async def consumer(self, peer: str, position: int) -> Reply:
        await asyncio.Event().wait()
        raise AssertionError

    def read(self, position: int, subject: str, payload: bytes) -> LogEntry:
        return LogEntry(position, subject.rpartition(".")[2], payload)

    async def entry(self, position: int) -> LogEntry | None:
        self.asked.append(position)
        found = self.payloads[position - 1 : position]
        await asyncio.sleep(0)
        await self.may_reply.wait()
        return LogEntry(position, "site1", found[0]) if found else None


async def opened(servers: Servers, position: int = 0, last: bytes = b"") -> LogPort:
    async def nothing(*_: object, **__: object) -> None:
        pass

    connection: Any = SimpleNamespace(nc=SimpleNamespace(subscribe=nothing, publish=nothing), lost=asyncio.Event())
    port = LogPort(connection, "0" * 12, 0, "site0", replicas=1)
    made: Any = servers
    port.requests = made
    await port.open(position, payload_digest(last) if position else "")
    return port


def soon() -> float:
    return asyncio.get_running_loop().time() + 5.0


def test_of_another_log_nothing_is_read_while_this_peer_is_busy() -> None:
    async def play(last: bytes) -> list[bytes]:
        servers = Servers(b"a", b"b", b"x", b"y", b"z")
        port = await opened(servers, 3, last)
        while 6 not in servers.asked and not port._broken:  # it answers, in another thread
            await asyncio.sleep(0)
        try:
            return [entry.payload for entry in await port.entries(soon())]
        finally:
            port.close()

    with pytest.raises(LogLost, match="was replaced"):
        asyncio.run(play(b"c"))
    assert asyncio.run(play(b"x")) == [b"y", b"z"]  # negative control: the same log


def test_a_log_that_is_replaced_before_anything_new_was_read_is_noticed() -> None:
    async def play(replaced: bool) -> list[bytes]:
        servers = Servers(b"a", b"b", b"c")
        port = await opened(servers, 3, b"c")
        while not port.verified:
            await port.entries(soon())
        while 4 not in servers.asked:
            await asyncio.sleep(0)
        servers.payloads = (b"x", b"y", b"z", b"w") if replaced else (b"a", b"b", b"c", b"d")
        port._consumer = "gone"  # a consumer of the old stream
        port._break("status 409")
        found: list[bytes] = []
        while not found:
            found += [entry.payload for entry in await port.entries(soon())]
        port.close()
        return found

    with pytest.raises(LogLost, match="was replaced"):
        asyncio.run(play(True))
    assert asyncio.run(play(False)) == [b"d"]


def test_a_reply_that_comes_late_is_not_the_end_of_the_log() -> None:
    async def play() -> None:
        servers = Servers()
        servers.may_reply.clear()
        port = await opened(servers)
        while not servers.asked:
            await asyncio.sleep(0)
        port._take(LogEntry(1, "site1", b"a"), 7)  # by the consumer
        servers.payloads = (b"a",)
        servers.may_reply.set()
        while servers.asked == [1]:
            await asyncio.sleep(0)
            assert port.behind == 7  # nothing is decided before they are read
        port.close()

    asyncio.run(play())


def test_a_consumer_says_how_many_entries_come_after_those_that_were_read_singly() -> None:
    async def play() -> list[int]:
        port = await opened(Servers(b"a", b"b"))
        while port._next < 3:
            await port.entries(soon())
        port._consumer = "made"
        found = [port.behind]
        for number, behind in ((1, 4), (2, 3), (3, 0)):
            reply = f"$JS.ACK.LOG.made.1.{number}.{number}.0.{behind}"
            message: Any = SimpleNamespace(reply=reply, subject="log.site1", data=b"c", headers=None)
            await port._on_message(message)
            found.append(port.behind)
        port.close()
        return found

    # Once it lives, nothing else says that the end is reached, and a peer does nothing before.
    assert asyncio.run(play()) in ([1, 1, 3, 0], [0, 0, 3, 0])


def test_entries_that_come_while_others_are_published_are_given_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_module, "HEARTBEAT", 60.0)

    async def play() -> float:
        loop = asyncio.get_running_loop()
        port = await opened(Servers())
        port.close()
        await asyncio.sleep(0.01)
        began = loop.time()

        async def send(payload: bytes) -> None:
            port._take(LogEntry(1, "site1", b"a"), 1)

        await port.publish(b"mine")
        port._send = send  # type: ignore[method-assign]
        for unseen in port._outbox._unseen.values():
            unseen.at, unseen.wait = 0.0, 60.0
        assert [entry.payload for entry in await port.entries(began + 60.0)] == [b"a"]
        return loop.time() - began

    assert asyncio.run(play()) < 30.0


def test_consumers_that_break_at_once_are_not_made_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """One wrong delivery for each: a peer asked the servers for two thousand a second."""

    class Wrong(Servers):
        """Makes consumers, and every delivery is the second one."""

        made = 0
        port: LogPort

        async def consumer(self, peer: str, position: int) -> Reply:
            self.made += 1
            name = f"consumer{self.made}"
            told: Any = SimpleNamespace(reply=f"$JS.ACK.LOG.{name}.1.9.2.0.0", subject="s", data=b"", headers=None)
            asyncio.get_running_loop().call_later(0.01, lambda: asyncio.ensure_future(self.port._on_message(told)))
            return Reply(name=name)

    async def play(seconds: float) -> int:
        servers = Wrong()
        servers.port = port = await opened(servers)
        until = asyncio.get_running_loop().time() + seconds
        while servers.made < 20 and (now := asyncio.get_running_loop().time()) < until:
            await port.entries(min(until, now + 0.05))
        port.close()
        return servers.made

    assert asyncio.run(play(0.5)) <= 5
    monkeypatch.setattr(log_module, "FIRST_PAUSE", 0.0)
    assert asyncio.run(play(60.0)) >= 20


def test_a_log_whose_consumers_are_all_taken_is_read_entry_by_entry_until_one_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Taken(Servers):
        asked_for = 0

        async def consumer(self, peer: str, position: int) -> Reply:
            self.asked_for += 1
            return Reply(Refused(400, "maximum consumers limit reached")) if self.asked_for < 4 else Reply(name="free")

    async def play() -> None:
        servers = Taken(b"one", b"two")
        port = await opened(servers)
        found: list[bytes] = []
        while len(found) < 2:
            found += [entry.payload for entry in await port.entries(soon())]
        assert found == [b"one", b"two"]
        while port._consumer != "free":
            await port.entries(asyncio.get_running_loop().time() + 0.01)
        assert servers.asked_for == 4
        port.close()

    monkeypatch.setattr(log_module, "FIRST_PAUSE", 0.01)
    asyncio.run(asyncio.wait_for(play(), 30.0))
