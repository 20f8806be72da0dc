"""Random kills of peers and of servers in a run without a coordinator; the short form is in test_peers.py.

Three organizations with a server each. At random moments a peer or a server is killed with -9, a server is asked to
end, or both at once. The peers' files are compared with each other and with the ledgers again and again: no count may
be wrong, lost or doubled, and all chains are the same. At the end nobody is killed any more, and the run must go on.
`PRIVATILE_KILLS` (1,000 unless given) and `PRIVATILE_SECONDS` (1,800) say when to stop.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from privatile.federation.setup.broker import running_broker
from tests.federation.peers_kit import Peers, leaderless, until

KILLS = int(os.environ.get("PRIVATILE_KILLS", "1000"))
SECONDS = float(os.environ.get("PRIVATILE_SECONDS", "1800"))


class Trouble:
    """Kills at random, and counts them."""

    def __init__(self, peers: Peers, seed: int) -> None:
        self.peers, self.random = peers, random.Random(seed)
        self.killed = {"peer": 0, "server": 0, "server, SIGTERM": 0}

    def next(self) -> None:
        name = self.random.choice(list(self.peers.study.clients))
        what = self.random.choices(("peer", "server", "server, SIGTERM", "both"), (4, 4, 1, 1))[0]
        if what in ("server", "both"):
            self.kill_server(name, signal.SIGKILL)
        if what == "server, SIGTERM":
            self.kill_server(name, signal.SIGTERM)
        if what in ("peer", "both"):
            self.peers.kill(name)
            self.killed["peer"] += 1
            self.peers.start(name, "--linger", "5")

    def kill_server(self, name: str, number: int) -> None:
        pid = running_broker(self.peers.folders[name].broker_files)
        if pid is not None:
            os.kill(pid, number)
            self.killed["server" if number == signal.SIGKILL else "server, SIGTERM"] += 1


@pytest.mark.process
@pytest.mark.network
@pytest.mark.faults
@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.skipif(not os.environ.get("PRIVATILE_LONG"), reason="a long form: PRIVATILE_LONG=1")
def test_no_count_is_wrong_lost_or_doubled_by_a_thousand_kills(tmp_path: Path) -> None:
    peers = Peers(tmp_path, leaderless(3, rounds=100_000, length=1, deadline=300.0))
    peers.write_data()
    trouble = Trouble(peers, seed=15)
    began, compared = time.monotonic(), 0
    try:
        for name in peers.study.clients:
            peers.start(name, "--linger", "5")
        until(lambda: all(peers.rounds(name) >= 5 for name in peers.study.clients))
        while sum(trouble.killed.values()) < KILLS and time.monotonic() - began < SECONDS:
            trouble.next()
            time.sleep(trouble.random.choice((0.1, 0.5, 1.0, 2.0, 4.0)))
            if sum(trouble.killed.values()) % 20 == 0:
                peers.check()
                compared += 1
                rounds = [peers.rounds(name) for name in peers.study.clients]
                print(
                    f"{time.monotonic() - began:.0f} s: {sum(trouble.killed.values())} kills, rounds {rounds}",
                    flush=True,
                )
        target = max(peers.rounds(name) for name in peers.study.clients) + 10
        until(lambda: all(peers.rounds(name) >= target for name in peers.study.clients), 180.0)
        peers.stop()
        counts = peers.check()
        kills, seconds = sum(trouble.killed.values()), time.monotonic() - began
        print(f"{kills} kills {trouble.killed} in {seconds:.0f} s, {target} rounds and more")
        print(f"{counts} counts equal to the ledgers, {compared + 1} comparisons")
    finally:
        peers.stop()
