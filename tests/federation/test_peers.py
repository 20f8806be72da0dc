"""Peers over a real cluster: three organizations, three servers with TLS, a run to its end through kills."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.federation.peers_kit import Peers, leaderless

pytestmark = [pytest.mark.network, pytest.mark.process]


def test_a_run_survives_the_kill_of_a_server_and_of_a_peer(tmp_path: Path) -> None:
    peers = Peers(tmp_path, leaderless(3, rounds=60, length=4, deadline=60.0))
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
            peers.start(third)
            await asyncio.sleep(0.5)
            await asyncio.to_thread(servers[first].start)
            ends = await asyncio.wait_for(asyncio.gather(*tasks), 120)
            assert ends == ["finished", "finished"]
            assert await asyncio.to_thread(peers.processes[third].wait, 60) == 0

    try:
        asyncio.run(play())
        for log in peers.logs.values():
            log.close()
        assert peers.rounds(third) == 60
        assert peers.check() == 180
    finally:
        peers.stop()
