"""Peers over a real cluster: three organizations, three servers with TLS, a run to its end through kills."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from privatile.cli import main
from privatile.errors import InputError
from privatile.federation.peer.running import catch_up, recover, vote
from privatile.federation.peer.service import PeerService
from privatile.federation.run.lock import lock_folder
from privatile.federation.run.status import read_status
from privatile.federation.setup.broker import EmbeddedBroker
from privatile.federation.setup.peer_roster import write_peer_invitation
from privatile.server.run_file import RunStore
from tests.federation.peers_kit import Peers, leaderless, stream_leader

pytestmark = [pytest.mark.network, pytest.mark.process]


def test_a_run_survives_kills_and_waits_for_a_majority_of_the_servers(tmp_path: Path) -> None:
    peers = Peers(tmp_path, leaderless(3, rounds=200, length=2, deadline=60.0))
    peers.write_data()
    first, second, third = peers.study.clients

    async def play() -> None:
        async with peers.servers() as servers:
            services = [peers.service(name) for name in (first, second)]
            tasks = [asyncio.create_task(one.run()) for one in services]
            peers.start(third)
            async with asyncio.timeout(60):
                while services[0].replica.closed < 10:
                    await asyncio.sleep(0.05)
            peers.kill(third)
            pid = servers[first].process_id
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            others = [word for one in servers.values() for word in ("--broker", one.settings.url)]
            peers.start(third, *others)
            await asyncio.sleep(0.5)
            await asyncio.to_thread(servers[first].start)
            await reach(services, 15)
            await lose_the_majority(services, servers)
            ends = await asyncio.wait_for(asyncio.gather(*tasks), 120)
            assert ends == ["finished", "finished"]
            assert await asyncio.to_thread(peers.processes[third].wait, 60) == 0

    try:
        asyncio.run(play())
        for log in peers.logs.values():
            log.close()
        assert peers.rounds(third) == 200
        assert peers.check() == 600
    finally:
        peers.stop()


async def lose_the_majority(services: list[PeerService], servers: dict[str, EmbeddedBroker]) -> None:
    """With one of three servers dead the run goes on; with two nothing closes, until they are back."""

    async def kill(name: str) -> int:
        pid = servers[name].process_id
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.3)  # what was in the log before is read
        return max(one.replica.closed for one in services)

    followers = [name for name in servers if name != await stream_leader(services)]
    # Their loss costs no election: only the majority is missed.
    await reach(services, await kill(followers[0]) + 3)
    before = await kill(followers[1])
    assert before < services[0].replica.study.rounds
    await asyncio.sleep(2.0)
    assert max(one.replica.closed for one in services) == before
    for name in followers:
        await asyncio.to_thread(servers[name].start)
    await reach(services, before + 3)


async def reach(services: list[PeerService], rounds: int) -> None:
    async with asyncio.timeout(60):
        while min(one.replica.closed for one in services) < rounds:
            await asyncio.sleep(0.02)


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
            async with asyncio.timeout(30):
                while not all("log lost" in {alarm.kind for alarm in one._notes.alarms()} for one in services):
                    await asyncio.sleep(0.05)
            good, details = services[0].health()
            assert (good, details["connected"]) == (False, False)
            await halt(peers, services, tasks)
            assert peers.committed("site0") == before
            numbers = {recover(folder) for folder in peers.folders.values()}
            assert numbers == {1}
            services, tasks = begin(peers)
            assert await asyncio.wait_for(asyncio.gather(*tasks), 60) == ["finished"] * 3
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
            assert catch_up(peers.folders["site2"], peers.folders["site0"].store_file) >= 1
            late, more = begin(peers, "site2")
            ends = await asyncio.wait_for(asyncio.gather(*tasks[:2], *more), 60)
            assert ends == ["finished"] * 3
            assert late[0].replica.chain == services[0].replica.chain

    asyncio.run(play())
    for log in peers.logs.values():
        log.close()
    with RunStore.open(peers.folders["site1"].store_file, read_only=True) as store:
        silent = [one.round for one in store.all_rounds() if None in one.ones]
    assert silent, "a round was closed without the peer that was away"
    assert peers.check() == 90 - len(silent)


def test_another_log_in_its_place_is_noticed_and_votes_are_cast(tmp_path: Path) -> None:
    peers = Peers(tmp_path, leaderless(3, rounds=3000, length=1), servers=1)
    folder = peers.folders["site0"]

    async def play() -> None:
        async with peers.servers():
            services, tasks = begin(peers)
            await reach(services, 3)
            # Nobody decides alone; two of three are enough.
            vote(peers.folders["site0"])
            await asyncio.sleep(1.5)
            assert not services[1].replica.aborted
            await halt(peers, services, tasks)
            # The same position with another entry behind it: what was read is not what lies there.
            log = peers.service("site0").peer_log
            log.store.execute([("UPDATE peer SET last = ?", ("0" * 64,))])
            log.close()
            services, tasks = begin(peers, "site0")
            async with asyncio.timeout(30):
                while not any(event.kind == "log lost" for event in services[0].peer_log.journal.events()):
                    await asyncio.sleep(0.05)
            (said,) = [event for event in services[0].peer_log.journal.events() if event.kind == "log lost"]
            assert "it was replaced" in said.text
            await halt(peers, services, tasks)
            services, tasks = begin(peers, "site1", "site2")
            said_so = vote(peers.folders["site1"])
            assert "2 of 3" in said_so
            assert await asyncio.wait_for(asyncio.gather(*tasks), 60) == ["aborted", "aborted"]

    asyncio.run(play())
    for log in peers.logs.values():
        log.close()
    assert not list((folder.path / "votes").glob("*.json"))
    assert read_status(peers.folders["site1"]).state == "aborted"


def test_the_log_that_is_back_ends_the_alarm(tmp_path: Path) -> None:
    peers = Peers(tmp_path, leaderless(3, rounds=20, length=4), servers=1)

    async def play() -> None:
        services, tasks = begin(peers)
        async with asyncio.timeout(30):
            while not all(one.peer_log.journal.lasts("no broker") for one in services):
                await asyncio.sleep(0.05)
        await halt(peers, services, tasks)
        async with peers.servers():
            services, tasks = begin(peers)
            await reach(services, 1)
            assert not any(one.peer_log.journal.lasts("no broker") for one in services)
            await halt(peers, services, tasks)

    asyncio.run(play())


def test_a_lost_key_is_replaced_by_votes(tmp_path: Path) -> None:
    peers = Peers(tmp_path, leaderless(3, rounds=60, length=2, deadline=0.5), servers=1)
    write_peer_invitation(tmp_path / "invitation.json", peers.study)
    third = peers.folders["site2"]

    async def play() -> None:
        async with peers.servers():
            services, tasks = begin(peers)
            await reach(services, 3)
            await halt(peers, services[2:], tasks[2:])
            words = ["peer", "enroll", str(tmp_path / "invitation.json"), str(third.path), "--client", "site2"]
            done = CliRunner().invoke(main, [*words, "--new-key"])
            assert done.exit_code == 0, done.output
            fingerprint = third.key().public.fingerprint
            assert fingerprint in done.output
            with pytest.raises(InputError, match="read it out"):
                vote(peers.folders["site0"], key=third.enrolment_file, fingerprint="0" * 32)
            await reach(services[:2], services[0].replica.closed + 2)  # without it
            late, more = begin(peers, "site2")
            for name in ("site0", "site1"):
                vote(peers.folders[name], key=third.enrolment_file, fingerprint=fingerprint)
            ends = await asyncio.wait_for(asyncio.gather(*tasks[:2], *more), 90)
            assert ends == ["finished"] * 3
            assert late[0].replica.keys["site2"] == third.key().public

    asyncio.run(play())
    for log in peers.logs.values():
        log.close()
    with RunStore.open(peers.folders["site1"].store_file, read_only=True) as store:
        ones = [one.ones for one in store.all_rounds()]
    assert None in [row[2] for row in ones]  # while nobody knew its key
    assert ones[-1][2] is not None
    peers.check()
