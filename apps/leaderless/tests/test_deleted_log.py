"""The log is deleted while everybody runs: an alarm, nothing signed, and a new log that goes on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from peers_kit import Peers, leaderless
from privatile.cli import main
from privatile.federation.connection import connected
from privatile_leaderless.folder import log_request, log_stream, log_subject
from privatile_leaderless.service import PeerService
from replica.filed import ATTACKS
from tests.federation.kit import PATIENCE, until

pytestmark = [pytest.mark.network, pytest.mark.process]


async def delete_log(peers: Peers, name: str) -> None:
    """What an organization that runs a server can do: a stream of its own, whose copies the servers take for a request.

    The copy of an empty entry of its own asks them to delete the log.
    """
    roster, identity = peers.folders[name].peers(), peers.study.identity
    stream, own = log_stream(identity, 0), log_subject(identity, 0, name)
    urls = [roster.servers[name].url()]
    async with connected(name, urls, peers.folders[name].key(), roster.authorities) as liar:
        sent = {"src": own, "dest": f"$JS.API.STREAM.DELETE.{stream}"}
        made = {"name": "COPY", "sources": [{"name": stream, "filter_subject": own}], "republish": sent}
        reply = await liar.nc.request(log_request("STREAM.CREATE.COPY"), json.dumps(made).encode(), timeout=20)
        assert "error" not in json.loads(reply.data), reply.data
        await liar.nc.publish(own, b"")
        await liar.nc.flush(20)
        async with asyncio.timeout(PATIENCE):
            while True:
                reply = await liar.nc.request(log_request(f"STREAM.INFO.{stream}"), b"{}", timeout=20)
                if json.loads(reply.data).get("error", {}).get("code") == 404:
                    return
                await asyncio.sleep(0.05)


def test_a_log_that_is_deleted_under_running_peers_is_noticed_and_a_new_one_goes_on(tmp_path: Path) -> None:
    rounds = 400
    peers = Peers(tmp_path, leaderless(3, rounds=rounds, length=1))

    def begin() -> tuple[list[PeerService], list[asyncio.Task[str]]]:
        services = [peers.service(name) for name in peers.study.clients]
        return services, [asyncio.create_task(one.run()) for one in services]

    async def play() -> None:
        async with peers.servers():
            services, tasks = begin()
            await until(lambda: min(one.replica.closed for one in services) >= 3)
            for one in services:  # so far all were honest, and in time
                assert not [event for event in one.peer_log.journal.events() if event.kind in ATTACKS]
                assert one.peer_log.store.query("SELECT * FROM peer_evidence") == []
            await delete_log(peers, "site0")
            await until(lambda: all("log lost" in {alarm.kind for alarm in one._notes.alarms()} for one in services))
            closed = [one.replica.closed for one in services]
            assert max(closed) < rounds
            await asyncio.sleep(0.5)
            assert [one.replica.closed for one in services] == closed
            for one in services:
                one.stop()
            assert await asyncio.gather(*tasks) == ["stopped"] * 3
            for name in peers.study.clients:
                peers.logs.pop(name).close()
                said = CliRunner().invoke(main, ["peer", "recover", str(peers.folders[name].path), "--yes"])
                assert said.exit_code == 0, said.output
            services, tasks = begin()
            target = max(closed) + 3
            await until(lambda: min(one.replica.committed for one in services) >= target)
            for one in services:
                one.stop()
            await asyncio.gather(*tasks)
            for one in services:
                found = [(event.kind, event.round) for event in one.peer_log.journal.events()]
                told = [kind for kind, _ in found if kind in ("log lost", "begun")]
                assert told == ["log lost", "begun"], found
                assert dict(found)["begun"] in (max(closed), max(closed) - 1)
                (back,) = [event.text for event in one.peer_log.journal.events() if event.kind == "log back"]
                assert back == "the log is there; this peer reads it from its first entry"
                assert "log lost" not in {alarm.kind for alarm in one._notes.alarms()}

    asyncio.run(play())
    for log in peers.logs.values():
        log.close()
    assert peers.check() >= 3 * 3
