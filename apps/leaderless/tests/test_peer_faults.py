"""Random kills of peers and of servers in a run without a coordinator; the suite has kills at
chosen places of real processes (test_peers.py), and of simulated peers at random ones (replica/).

Three organizations with a server each; then four, of which one may lie, with a deadline so short that rounds are closed
without those who were killed. At random moments a peer or a server is killed with -9, a server is asked to
end, or both at once. The peers' files are compared with each other and with the ledgers again and again: no count may
be wrong, lost or doubled, and all chains are the same; a count that is silent and was drawn all the same is never asked
for again. At the end nobody is killed any more, and the run must go on.
`PRIVATILE_KILLS` (1,000 unless given) and `PRIVATILE_SECONDS` (1,800) say when to stop.
"""

from __future__ import annotations

import math
import os
import random
import signal
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from peers_kit import Peers, leaderless, until
from privatile.federation.setup.broker import running_broker

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


class Shape(NamedTuple):
    """Who takes part, and how long a round waits for somebody."""

    clients: int
    tolerate: int
    deadline: float
    share: float
    """Of the kills."""


SHAPES = {
    "nobody is left out": Shape(3, 0, 300.0, 0.7),
    "rounds close without somebody": Shape(4, 1, 0.5, 0.3),
}


@pytest.mark.process
@pytest.mark.network
@pytest.mark.faults
@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.skipif(not os.environ.get("PRIVATILE_LONG"), reason="a long form: PRIVATILE_LONG=1")
def test_no_count_is_wrong_lost_or_doubled_by_a_thousand_kills(shape: Shape, tmp_path: Path) -> None:
    study = leaderless(
        shape.clients, shape.tolerate, rounds=100_000, length=1, deadline=shape.deadline, patience=10_000
    )
    peers = Peers(tmp_path, study)
    peers.write_data()
    trouble = Trouble(peers, seed=15)
    kills, seconds = math.ceil(shape.share * KILLS), shape.share * SECONDS
    began, compared = time.monotonic(), 0
    try:
        for name in peers.study.clients:
            peers.start(name, "--linger", "5")
        until(lambda: all(peers.rounds(name) >= 5 for name in peers.study.clients))
        while sum(trouble.killed.values()) < kills and time.monotonic() - began < seconds:
            trouble.next()
            time.sleep(trouble.random.choice((0.1, 0.5, 1.0, 2.0, 4.0)))
            if sum(trouble.killed.values()) % 20 == 0:
                now = peers.compare()
                compared += 1
                rounds = [peers.rounds(name) for name in peers.study.clients]
                print(
                    f"{time.monotonic() - began:.0f} s: {sum(trouble.killed.values())} kills, rounds {rounds}, {now}",
                    flush=True,
                )
        target = max(peers.rounds(name) for name in peers.study.clients) + 10
        until(lambda: all(peers.rounds(name) >= target for name in peers.study.clients), 180.0)
        peers.stop()
        found, rounds = peers.compare(), [peers.rounds(name) for name in peers.study.clients]
        print(f"{sum(trouble.killed.values())} kills {trouble.killed} in {time.monotonic() - began:.0f} s")
        print(f"{rounds} rounds, {found}, {compared + 1} comparisons")
    finally:
        peers.stop()
    assert found.counts + found.silent == sum(rounds)
    if shape.tolerate:
        assert found.silent > 0  # rounds were closed without somebody
        assert found.counts >= 3 * max(rounds) - shape.clients * 10  # q of them have answered each
    else:
        assert found.counts == sum(rounds) >= 3 * target
