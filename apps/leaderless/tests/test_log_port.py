"""The log on a real server: what a peer may do there, what it may not, and when it is not the log."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nats.errors
import pytest

from peers_kit import Peers, leaderless
from privatile.errors import BrokerError
from privatile.federation.connection import Connection, connected
from privatile.records.keys import KeyPair
from privatile_leaderless.chain import payload_digest
from privatile_leaderless.entries import MAX_ENTRY_BYTES
from privatile_leaderless.folder import log_request, log_stream, log_subject
from privatile_leaderless.log import LogLost, LogPort, LogRequests, Refused, Reply
from tests.federation.kit import PATIENCE

pytestmark = [pytest.mark.network, pytest.mark.process]


@contextlib.asynccontextmanager
async def at_the_server(peers: Peers, name: str, key: KeyPair | None = None) -> AsyncIterator[Connection]:
    roster = peers.folders[name].peers()
    url = roster.servers["site0"].url()
    async with connected(name, [url], key or peers.folders[name].key(), roster.authority_of(url)) as connection:
        yield connection


def port(peers: Peers, connection: Connection, name: str, epoch: int = 0) -> LogPort:
    makes = peers.folders[name].server() is not None
    return LogPort(connection, peers.study.identity, epoch, name, replicas=1, makes=makes)


async def read(log: LogPort, count: int) -> list[tuple[int, str, bytes]]:
    found: list[tuple[int, str, bytes]] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < count:
            found += await log.entries(asyncio.get_running_loop().time() + 1.0)
    return found


async def open_and_read(log: LogPort, position: int, digest: str) -> None:
    await log.open(position, digest)
    await read(log, 1)


def test_entries_are_read_in_one_order_from_any_place_on(tmp_path: Path) -> None:
    peers = Peers(tmp_path, leaderless(3), servers=1)

    async def play() -> None:
        async with peers.servers(), at_the_server(peers, "site0") as first, at_the_server(peers, "site1") as second:
            one, two = port(peers, first, "site0"), port(peers, second, "site1")
            await one.open()
            await two.open()
            for number in range(5):
                await one.publish(b"a%d" % number)
                await two.publish(b"b%d" % number)
            log = await read(one, 10)
            assert log == await read(two, 10)
            assert [position for position, _, _ in log] == list(range(1, 11))
            assert {(sender, payload[:1]) for _, sender, payload in log} == {("site0", b"a"), ("site1", b"b")}
            assert not one._outbox.due(math.inf)
            again = port(peers, second, "site1")
            position, _, payload = log[6]
            await again.open(position, payload_digest(payload))
            before = again.verified
            assert await read(again, 3) == log[7:]
            # Nothing is decided before the last applied entry was seen.
            assert (before, again.verified) == (False, True)
            for position, digest, told in ((7, "0" * 64, "was replaced"), (11, "0" * 64, "has 10 entries")):
                other = port(peers, first, "site0")
                with pytest.raises(LogLost, match=told):
                    await open_and_read(other, position, digest)
            with pytest.raises(LogLost, match="is gone"):
                await port(peers, first, "site0", epoch=1).open(5, "0" * 64)

    asyncio.run(play())


def test_what_was_not_seen_is_published_again(tmp_path: Path) -> None:
    peers = Peers(tmp_path, leaderless(3), servers=1)

    async def play() -> None:
        async with peers.servers(), at_the_server(peers, "site0") as connection:
            log = port(peers, connection, "site0")
            await log.open()
            sent = log._send

            async def lose(payload: bytes) -> None:
                log.published += 1

            log._send = lose  # type: ignore[method-assign]  # the broker never gets it
            await log.publish(b"entry")
            await log.publish(b"entry")
            assert await log.entries(asyncio.get_running_loop().time() + 0.1) == ()
            log._send = sent  # type: ignore[method-assign]
            assert await read(log, 1) == [(1, "site0", b"entry")]
            assert not log._outbox.due(math.inf)

    asyncio.run(play())


def test_the_log_is_read_where_no_consumer_can_be_made_yet(tmp_path: Path) -> None:
    """The leader of all servers makes consumers; while there is none the stream's own gives the entries."""
    peers = Peers(tmp_path, leaderless(3), servers=1)

    async def play() -> None:
        async with peers.servers(), at_the_server(peers, "site0") as connection:
            log = port(peers, connection, "site0")
            make, may = log.requests.consumer, asyncio.Event()

            async def later(peer: str, position: int) -> Reply:
                await may.wait()
                return await make(peer, position)

            log.requests.consumer = later  # type: ignore[method-assign]  # no leader of all servers
            await log.open()
            async with asyncio.timeout(PATIENCE):
                while log.behind:  # at 0 this peer may act
                    await log.entries(asyncio.get_running_loop().time() + 1.0)
            for number in range(5):
                await log.publish(b"a%d" % number)
            assert [payload for _, _, payload in await read(log, 5)] == [b"a%d" % number for number in range(5)]
            assert log._consumer == ""
            may.set()
            async with asyncio.timeout(PATIENCE):
                while not log._lives:
                    await log.entries(asyncio.get_running_loop().time() + 0.1)
            # The consumer begins with what was read without it: nothing comes twice.
            await log.publish(b"b")
            assert await read(log, 1) == [(6, "site0", b"b")]
            log.close()
            # Negative control: without single entries nothing is read before there is a consumer.
            may.clear()
            other = port(peers, connection, "site0")
            other.requests.consumer = later  # type: ignore[method-assign]
            other._read_singly = asyncio.Event().wait  # type: ignore[method-assign, assignment]
            await other.open()
            assert await other.entries(asyncio.get_running_loop().time() + 0.5) == ()
            other.close()

    asyncio.run(play())


def test_a_consumer_that_is_asked_for_again_is_another_one() -> None:
    """With the same name it was the one that the servers had given to a server that was gone: 15 s without a reply."""
    names: list[str] = []

    class Deaf:
        """Replies to the third request only."""

        async def request(self, subject: str, payload: bytes, timeout: float) -> SimpleNamespace:
            names.append(json.loads(payload)["config"]["name"])
            if len(names) < 3:
                await asyncio.sleep(timeout)
            return SimpleNamespace(data=json.dumps({"name": names[-1], "num_pending": 4}).encode())

    async def play() -> Reply:
        connection: Any = SimpleNamespace(nc=Deaf(), lost=asyncio.Event())
        return await LogRequests(connection, "0" * 12, 0, replicas=3, makes=False).consumer("site0", 7)

    reply = asyncio.run(play())
    assert len(set(names)) == len(names) == 3
    assert (reply.name, reply.num_pending) == (names[-1], 4)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"state": 3}',
        b'{"message": {"seq": 1}}',
        b'{"message": {"data": "*"}}',
        b'{"name": "\xff"}',
        b"[" * 100_000,
    ],
)
def test_a_reply_that_is_none_is_a_lost_server(data: bytes) -> None:
    async def reply(*_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(data=data)

    async def play() -> None:
        connection: Any = SimpleNamespace(nc=SimpleNamespace(request=reply), lost=asyncio.Event())
        await LogRequests(connection, "0" * 12, 0, replicas=3, makes=False).entry(7)

    with pytest.raises(BrokerError, match="did not reply"):
        asyncio.run(play())


@pytest.mark.parametrize(
    ("subject", "payload"),
    [
        (log_subject("0" * 12, 0, "site1"), b"a" * (MAX_ENTRY_BYTES + 1)),
        (log_subject("0" * 12, 1, "site1"), b"a"),
        (log_subject("0" * 12, 0, "site1") + ".more", b"a"),
        (log_subject("0" * 12, 0, "s" * 5000), b"a"),
    ],
)
def test_what_no_peer_can_write_is_no_entry(subject: str, payload: bytes) -> None:
    """A server's operator filled the peers' files with entries of any size and sender."""
    connection: Any = SimpleNamespace(nc=None, lost=None)
    requests = LogRequests(connection, "0" * 12, 0, replicas=3, makes=False)
    assert requests.read(7, log_subject("0" * 12, 0, "site1"), b"a") == (7, "site1", b"a")
    with pytest.raises(LogLost, match="entry 7 of the log"):
        requests.read(7, subject, payload)


def test_a_servers_words_are_shown_without_terminal_escapes() -> None:
    assert Refused(500, "\x1b[2J" + "no " * 1000).text == "\ufffd[2J" + ("no " * 1000)[:196]


def test_a_peer_can_neither_forge_nor_delete_nor_bend_the_log(tmp_path: Path) -> None:
    peers = Peers(tmp_path, leaderless(3), servers=1)
    identity = peers.study.identity
    stream = log_stream(identity, 0)

    async def play() -> None:
        async with (
            peers.servers(),
            at_the_server(peers, "site0") as maker,
            at_the_server(peers, "site1") as connection,
        ):
            with pytest.raises(BrokerError, match="does not know this key"):
                async with at_the_server(peers, "site1", KeyPair.generate()):
                    pass
            await port(peers, maker, "site0").open()
            log = port(peers, connection, "site1")
            await log.open()
            await log.publish(b"mine")
            assert await read(log, 1) == [(1, "site1", b"mine")]
            forbidden = [
                log_subject(identity, 0, "site0"),
                f"$JS.API.STREAM.DELETE.{stream}",
                log_request(f"STREAM.DELETE.{stream}"),
                log_request(f"STREAM.PURGE.{stream}"),
                log_request(f"STREAM.UPDATE.{stream}"),
                log_request(f"STREAM.MSG.DELETE.{stream}"),
                log_request("STREAM.CREATE.OTHER"),
            ]
            for subject in forbidden:
                with pytest.raises(nats.errors.Error):
                    await connection.nc.request(subject, b"{}", timeout=0.1)
            async with asyncio.timeout(PATIENCE):
                while len(connection.complaints) < len(forbidden):
                    await asyncio.sleep(0.02)
            # Whoever has a server and comes first makes the next log. One that loses entries is no log.
            small = {"name": log_stream(identity, 1), "subjects": [log_subject(identity, 1, "*")], "max_msgs": 5}
            subject = log_request(f"STREAM.CREATE.{log_stream(identity, 1)}")
            made = await maker.nc.request(subject, json.dumps(small).encode(), timeout=20.0)
            assert "error" not in json.loads(made.data)
            with pytest.raises(LogLost, match=r"other settings \(.*max_msgs"):
                await port(peers, connection, "site1", epoch=1).open()
            again = port(peers, connection, "site1")
            await again.open()
            assert await read(again, 1) == [(1, "site1", b"mine")]

    asyncio.run(play())
