"""Peers over a real cluster: three organizations, three servers with TLS, a run to its end through kills."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest

from peers_kit import Peers, leaderless, stream_leader
from privatile.errors import InputError
from privatile.federation.operations.status import read_status
from privatile.federation.setup.broker import EmbeddedBroker
from privatile.run.locks import lock_folder
from privatile.run.run_file import RunStore
from privatile_leaderless.service import PeerService, catch_up, recover, vote_to_abort
from tests.federation.kit import PATIENCE, until

pytestmark = [pytest.mark.network, pytest.mark.process]


def test_a_run_survives_kills_and_waits_for_a_majority_of_the_servers(tmp_path: Path) -> None:
    peers = Peers(tmp_path, leaderless(3, rounds=200, length=2, deadline=600.0))
    peers.write_data()
    first, second, third = peers.study.clients

    async def play() -> None:
        async with peers.servers() as servers:
            services = [peers.service(name) for name in (first, second)]
            tasks = [asyncio.create_task(one.run()) for one in services]
            peers.start(third)
            await until(lambda: services[0].replica.closed >= 10)
            peers.kill(third)
            await kill_server(servers[first])
            others = [word for one in servers.values() for word in ("--broker", one.settings.url)]
            peers.start(third, *others)
            await until(lambda: not connected_to(servers[first], services[0]))  # it has noticed
            await asyncio.to_thread(servers[first].start)
            await reach(services, 15)
            await lose_the_majority(services, servers)
            ends = await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
            assert ends == ["finished", "finished"]
            assert await asyncio.to_thread(peers.processes[third].wait, PATIENCE) == 0

    try:
        asyncio.run(play())
        for log in peers.logs.values():
            log.close()
        assert peers.rounds(third) == 200
        assert peers.check() == 600
    finally:
        peers.stop()


def connected_to(server: EmbeddedBroker, service: PeerService) -> bool:
    url = None if service._port is None else service._port._nc.connected_url
    return url is not None and url.port == server.settings.port


async def kill_server(server: EmbeddedBroker) -> None:
    pid = server.process_id
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await until(lambda: server.process_id is None)


async def lose_the_majority(services: list[PeerService], servers: dict[str, EmbeddedBroker]) -> None:
    """With one of three servers dead the run goes on; with two nothing closes, until they are back."""
    followers = [name for name in servers if name != await stream_leader(services)]
    # Their loss costs no election: only the majority is missed.
    await kill_server(servers[followers[0]])
    await reach(services, furthest(services) + 5)
    await kill_server(servers[followers[1]])
    still = await at_rest(services, 2.0)
    # A run that went on without a majority would come to rest at its end only.
    assert still < services[0].replica.study.rounds
    for name in followers:
        await asyncio.to_thread(servers[name].start)
    await reach(services, still + 3)


def furthest(services: list[PeerService]) -> int:
    return max(one.replica.closed for one in services)


async def at_rest(services: list[PeerService], seconds: float) -> int:
    """Wait until no round is closed for so long; what was in the log before is read first. Gives the last round."""
    loop = asyncio.get_running_loop()
    last, since = -1, loop.time()
    async with asyncio.timeout(PATIENCE):
        while loop.time() < since + seconds:
            if furthest(services) != last:
                last, since = furthest(services), loop.time()
            await asyncio.sleep(0.02)
    return last


async def reach(services: list[PeerService], rounds: int) -> None:
    await until(lambda: min(one.replica.closed for one in services) >= rounds)


async def halt(peers: Peers, services: list[PeerService], tasks: list[asyncio.Task[str]]) -> None:
    for one in services:
        one.stop()
    assert await asyncio.gather(*tasks) == ["stopped"] * len(tasks)
    for one in services:
        peers.logs.pop(one.client).close()


def begin(peers: Peers, *names: str) -> tuple[list[PeerService], list[asyncio.Task[str]]]:
    services = [peers.service(name) for name in names or peers.study.clients]
    return services, [asyncio.create_task(one.run()) for one in services]


def test_a_lost_log_is_noticed_and_a_new_one_begins(tmp_path: Path) -> None:
    peers = Peers(tmp_path, leaderless(3, rounds=20, length=4), servers=1)
    first = peers.folders["site0"]

    async def play() -> None:
        async with peers.servers():
            services, tasks = begin(peers)
            await reach(services, 6)
            await halt(peers, services, tasks)
        before = peers.committed("site0")
        shutil.rmtree(first.broker_files.folder / "jetstream")
        async with peers.servers():
            # Two of them know that there was a log; nothing is signed into another one.
            services, tasks = begin(peers)
            await until(lambda: all("log lost" in {alarm.kind for alarm in one._notes.alarms()} for one in services))
            good, details = services[0].health()
            assert (good, details["connected"]) == (False, False)
            await halt(peers, services, tasks)
            assert peers.committed("site0") == before
            numbers = {recover(folder) for folder in peers.folders.values()}
            assert numbers == {1}
            services, tasks = begin(peers)
            assert await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE) == ["finished"] * 3
            assert services[0].replica.epoch == 1

    asyncio.run(play())
    for log in peers.logs.values():
        log.close()
    assert {peers.rounds(name) for name in peers.study.clients} == {20}
    assert peers.check() == 60


def test_the_run_goes_on_without_a_peer_and_it_catches_up(tmp_path: Path) -> None:
    peers = Peers(tmp_path, leaderless(3, rounds=30, length=4, deadline=0.3), servers=1)

    async def play() -> None:
        async with peers.servers():
            services, tasks = begin(peers)
            await reach(services, 3)
            await halt(peers, services[2:], tasks[2:])
            away = services[0].replica.closed
            await reach(services[:2], away + 3)
            held = lock_folder(peers.folders["site0"].pid_file, "peer")
            with held, pytest.raises(InputError, match="a peer is already running"):
                catch_up(peers.folders["site0"], peers.folders["site1"].store_file)
            said = catch_up(peers.folders["site2"], peers.folders["site0"].store_file)
            assert "New here: " in said
            assert "New here: 0 rounds" not in said
            late, more = begin(peers, "site2")
            ends = await asyncio.wait_for(asyncio.gather(*tasks[:2], *more), PATIENCE)
            assert ends == ["finished"] * 3
            assert late[0].replica.chain == services[0].replica.chain

    asyncio.run(play())
    for log in peers.logs.values():
        log.close()
    with RunStore.open(peers.folders["site1"].store_file, read_only=True) as store:
        missing = [place for one in store.all_rounds() for place, ones in enumerate(one.ones) if ones is None]
    assert 2 in missing, "a round was closed without the peer that was away"
    assert peers.check() == 90 - len(missing)


def test_another_log_in_its_place_is_noticed_and_votes_are_cast(tmp_path: Path) -> None:
    peers = Peers(tmp_path, leaderless(3, rounds=3000, length=1), servers=1)
    folder = peers.folders["site0"]

    async def play() -> None:
        async with peers.servers():
            services, tasks = begin(peers)
            await reach(services, 3)
            # Nobody decides alone; two of three are enough.
            vote_to_abort(folder)
            await until(lambda: not folder.vote_file.exists())  # it was read in the log, and counts
            position = services[0]._last
            assert position is not None
            await until(lambda: all((one._last or (0, ""))[0] >= position[0] for one in services))
            assert not any(one.replica.aborted for one in services)
            await halt(peers, services, tasks)
            # The same position with another entry behind it: what was read is not what lies there.
            log = peers.service("site0").peer_log
            log.store.execute([("UPDATE peer SET last = ?", ("0" * 64,))])
            log.close()
            services, tasks = begin(peers, "site0")
            await until(lambda: any(event.kind == "log lost" for event in services[0].peer_log.journal.events()))
            (said,) = [event for event in services[0].peer_log.journal.events() if event.kind == "log lost"]
            assert "it was replaced" in said.text
            await halt(peers, services, tasks)
            services, tasks = begin(peers, "site1", "site2")
            said_so = vote_to_abort(peers.folders["site1"])
            assert "2 of 3" in said_so
            assert await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE) == ["aborted", "aborted"]

    asyncio.run(play())
    for log in peers.logs.values():
        log.close()
    assert not folder.vote_file.exists()
    assert read_status(peers.folders["site1"]).state == "aborted"


def test_the_log_that_is_back_ends_the_alarm(tmp_path: Path) -> None:
    peers = Peers(tmp_path, leaderless(3, rounds=20, length=4), servers=1)

    async def play() -> None:
        services, tasks = begin(peers)
        await until(lambda: all(one.peer_log.journal.lasts("no broker") for one in services))
        await halt(peers, services, tasks)
        async with peers.servers():
            services, tasks = begin(peers)
            await reach(services, 1)
            await until(lambda: not any(one.peer_log.journal.lasts("no broker") for one in services))
            await halt(peers, services, tasks)

    asyncio.run(play())
