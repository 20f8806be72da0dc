"""Rounds a second without a coordinator, what a lost server costs, and what more peers cost.

    python benchmarks/leaderless.py rates       one server beside three replicas
    python benchmarks/leaderless.py failover    kill -9 and SIGTERM of the stream's leader
    python benchmarks/leaderless.py peers       5, 20 and 50 peers; all with --save FILE

Everything is on: TLS between peers and servers and between servers, signatures, a synced stream, a durable ledger and a
durable file per peer. `rates` has a process per peer and takes turns; the others hold all peers in one process, so that
their rounds a second are a lower bound. A pause is the longest time between two closed rounds after the signal.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a script's own folder is on the path, this one is not
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "apps" / "leaderless" / "tests"))
from peers_kit import Peers, leaderless, stream_leader

from privatile.run.run_file import RunStore

LEAST_RATIO, LONGEST_KILL, LONGEST_TERM = 0.45, 10.0, 1.0
"""What is asked for: the rate with three replicas beside one server, and the 95% points of the pauses in seconds."""


def one_rate(folder: Path, peers: int, servers: int, rounds: int) -> float:
    """Committed rounds a second of a whole run, a process per peer, between a tenth of it and its end."""
    found = Peers(folder, leaderless(peers, rounds=rounds, length=4), servers)
    found.write_data()
    try:
        for name in found.study.clients:
            found.start(name, "--linger", "20")
        for process in found.processes.values():
            if process.wait(600):
                raise SystemExit(f"a peer ended with status {process.returncode}: see {folder}")
    finally:
        found.stop()
    assert found.check() == peers * rounds
    with RunStore.open(next(iter(found.folders.values())).store_file, read_only=True) as store:
        times = [one.at for one in store.rounds()]
    first = len(times) // 10
    return (len(times) - 1 - first) / (times[-1] - times[first])


def rates(options: argparse.Namespace) -> dict[str, Any]:
    """One server and three replicas, in turn."""
    alone: list[float] = []
    replicated: list[float] = []
    for turn in range(options.turns):
        for servers, found in ((1, alone), (3, replicated)):
            with tempfile.TemporaryDirectory() as folder:
                found.append(one_rate(Path(folder), options.peers, servers, options.rounds))
            print(f"turn {turn + 1}, {servers} servers: {found[-1]:.1f} rounds a second", flush=True)
    ratio = float(np.median(replicated) / np.median(alone))
    return {
        "peers": options.peers,
        "rounds": options.rounds,
        "one_server": [round(rate, 1) for rate in alone],
        "three_replicas": [round(rate, 1) for rate in replicated],
        "ratio_of_medians": round(ratio, 3),
        "at_least": LEAST_RATIO,
        "holds": ratio >= LEAST_RATIO,
    }


async def pauses(folder: Path, number: int, times: int) -> list[float]:
    """The longest time without a closed round after each signal to the stream's leader."""
    peers = Peers(folder, leaderless(3, rounds=100_000, length=1, deadline=300.0))
    found = []
    async with peers.servers() as servers:
        services = [peers.service(name) for name in peers.study.clients]
        tasks = [asyncio.create_task(one.run()) for one in services]
        for _ in range(times):
            before = services[0].replica.closed
            while services[0].replica.closed < before + 20:
                await asyncio.sleep(0.02)
            name = await stream_leader(services[:1])
            pid = servers[name].process_id
            assert pid is not None
            closed, last, longest = services[0].replica.closed, time.monotonic(), 0.0
            os.kill(pid, number)
            end, restarted = last + 60.0, False
            seen = 0
            while time.monotonic() < end and (seen < 30 or not restarted or time.monotonic() < last + 0.5):
                await asyncio.sleep(0.005)
                now = time.monotonic()
                if services[0].replica.closed > closed:
                    seen += services[0].replica.closed - closed
                    closed = services[0].replica.closed
                    longest, last = max(longest, now - last), now
                if seen >= 20 and not restarted:
                    restarted = True
                    await asyncio.to_thread(servers[name].start)
                    last = time.monotonic()
                    break
            found.append(longest)
            print(f"signal {number} to {name}: {longest:.2f} s", flush=True)
        for one in services:
            one.stop()
        await asyncio.gather(*tasks)
    for log in peers.logs.values():
        log.close()
    peers.check()
    return found


def failover(options: argparse.Namespace) -> dict[str, Any]:
    """Pauses after kill -9 and after SIGTERM."""
    result: dict[str, Any] = {}
    for name, number, limit in (
        ("kill_9", signal.SIGKILL, LONGEST_KILL),
        ("sigterm", signal.SIGTERM, LONGEST_TERM),
    ):
        with tempfile.TemporaryDirectory() as folder:
            found = sorted(asyncio.run(pauses(Path(folder), number, options.times)))
        p95 = float(np.quantile(found, 0.95, method="higher"))
        result[name] = {
            "seconds": [round(one, 2) for one in found],
            "p95": round(p95, 2),
            "below": limit,
            "holds": p95 < limit,
        }
    return result


async def whole_run(folder: Path, count: int, rounds: int) -> dict[str, Any]:
    """A run of all peers in one process over three servers."""
    tolerate = 1 if count >= 4 else 0
    peers = Peers(folder, leaderless(count, tolerate, rounds=rounds, length=4, deadline=300.0))
    async with peers.servers():
        services = [peers.service(name) for name in peers.study.clients]
        ports: set[Any] = set()
        tasks = [asyncio.create_task(one.run()) for one in services]
        first = services[0]
        while first.replica.closed < rounds // 10:
            await asyncio.sleep(0.005)
        began, at, cpu = time.monotonic(), first.replica.closed, time.process_time()
        while not first.replica.finished:
            ports |= {one._port for one in services if one._port is not None}
            await asyncio.sleep(0.005)
        seconds, used = time.monotonic() - began, time.process_time() - cpu
        await asyncio.gather(*tasks)
    for log in peers.logs.values():
        log.close()
    assert peers.check() == count * rounds
    published, size = sum(one.published for one in ports), sum(one.published_bytes for one in ports)
    return {
        "peers": count,
        "rounds": rounds,
        "rounds_per_second": round((rounds - at) / seconds, 2),
        "processor_ms_per_round_and_peer": round(1000.0 * used / (rounds - at) / count, 2),
        "entries_per_round": round(published / rounds, 2),
        # A question and all answers in every round, and everybody's signature of the end.
        "entries_needed_per_round": round((rounds * (count + 1) + count) / rounds, 2),
        "deliveries_per_round": round(count * published / rounds, 1),
        "bytes_published_per_round": round(size / rounds),
        "bytes_delivered_per_round": round(count * size / rounds),
    }


def more_peers(options: argparse.Namespace) -> dict[str, Any]:
    """5, 20 and 50 peers."""
    found = []
    for count, rounds in ((5, 100), (20, 30), (50, 12)):
        with tempfile.TemporaryDirectory() as folder:
            found.append(asyncio.run(whole_run(Path(folder), count, rounds)))
        print(found[-1], flush=True)
    return {"runs": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("rates", "failover", "peers"))
    parser.add_argument("--peers", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    load = round(os.getloadavg()[0], 1)
    found = {"rates": rates, "failover": failover, "peers": more_peers}[options.what](options)
    found |= {
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["python", "benchmarks/leaderless.py", *sys.argv[1:]]),
        "cores": os.cpu_count(),
        "load_average": load,
    }
    print(json.dumps(found, indent=2))
    if options.save:
        kept = json.loads(options.save.read_text()) if options.save.exists() else {}
        options.save.write_text(json.dumps({**kept, options.what: found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
