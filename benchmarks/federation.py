"""Rounds a second of a federation, everything on and every client a process, beside a bare echo.

    python benchmarks/federation.py --clients 10 --rounds 600

TLS, nkeys, a broker that syncs every message, a durable ledger a client and a durable store are all on. The echo is the
same exchange without privatile: a question of the same size published to a synced stream, one process a client that
publishes an answer of the same size to a synced stream, one process that collects. The ratio says what signatures,
ledgers (one durable transaction an answer) and the store (one a round) cost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from privatile.federation import subjects
from privatile.federation.broker import BrokerSettings, EmbeddedBroker, free_port
from privatile.federation.connection import Msg, connected
from privatile.federation.directory import Directory, admit, initialize, new_identity
from privatile.federation.invitation import read_enrolment, read_invitation
from privatile.federation.site import enroll, find_site
from privatile.federation.study import Study, Terms
from privatile.server.store import RunStore


def set_up(folder: Path, clients: int, rounds: int, length: int) -> Directory:
    """A federation with all its sites on this machine, each with a file of its own."""
    terms = {f"client{k}": Terms(1.0, 1.0 / clients, rounds * length) for k in range(clients)}
    study = Study(new_identity(), "Benchmark", "benchmark", "x", 0.5, (0.0, 100.0), rounds, clients=terms)
    directory = initialize(folder / "organizer", study, BrokerSettings(port=free_port()))
    rng = np.random.default_rng(1)
    for name in study.clients:
        site = enroll(read_invitation(directory.invitation_file(name)), folder / name)
        enrolment = read_enrolment(site.enrolment_file)
        admit(directory, enrolment, enrolment.keys.fingerprint)
        values = rng.normal(50.0, 10.0, rounds * length)
        np.savetxt(folder / name / "data.csv", values, header="x", comments="", fmt="%.4f")
    return directory


def run_federation(folder: Path, directory: Directory) -> float:
    """Rounds a second between the 5% mark and the end, from the store's own clock."""
    command = [sys.executable, "-m", "privatile"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    serve = subprocess.Popen([*command, "serve", str(directory.path)], **quiet)  # type: ignore[call-overload]
    joins = [
        subprocess.Popen(  # type: ignore[call-overload]
            [
                *(*command, "join", str(directory.invitation_file(name)), "--site", str(folder / name)),
                *("--source", str(folder / name / "data.csv"), "--value", "x", "--yes"),
            ],
            **quiet,
        )
        for name in directory.study().clients
    ]
    try:
        if serve.wait(600):
            raise SystemExit(f"serve ended with status {serve.returncode}")
        for process in joins:
            process.wait(60)
    finally:
        for process in [serve, *joins]:
            if process.poll() is None:
                process.kill()
    store = RunStore.open(directory.store_file, read_only=True)
    times = [stored.at for stored in store.rounds()]
    store.close()
    first = len(times) // 20
    return (len(times) - 1 - first) / (times[-1] - times[first])


async def echo_client(directory: Directory, folder: Path, name: str, size: int) -> None:
    """One bare client: whatever is asked, a payload of `size` bytes goes back."""
    invitation = read_invitation(directory.invitation_file(name))
    key = find_site(folder, invitation, folder / name).key()
    identity = invitation.study.identity
    async with connected(name, invitation.brokers, key, invitation.authority) as connection:

        async def on_ask(message: Msg) -> None:
            await connection.nc.publish(subjects.answer_subject(identity, name), message.data[:8] + b"x" * (size - 8))

        await connection.nc.subscribe(subjects.ask_subject(identity), cb=on_ask)
        await connection.lost.wait()


async def echo_coordinator(directory: Directory, rounds: int, size: int) -> float:
    """Ask, wait for every client's echo, ask again; rounds a second."""
    study, settings = directory.study(), directory.settings()
    got = asyncio.Event()
    waiting: set[str] = set()
    current = b""
    authority = directory.authority.read_text()
    async with connected("coordinator", [settings.url], directory.key(), authority) as connection:
        js = connection.nc.jetstream()
        for stream, subject in (
            (subjects.ask_stream(study.identity), subjects.ask_subject(study.identity)),
            (subjects.answer_stream(study.identity), subjects.answer_subject(study.identity, "*")),
        ):
            await js.add_stream(name=stream, subjects=[subject], max_bytes=64 << 20, allow_direct=True)

        async def on_answer(message: Msg) -> None:
            if message.data[:8] == current:
                waiting.discard(message.subject.rpartition(".")[2])
                if not waiting:
                    got.set()

        await connection.nc.subscribe(subjects.answer_subject(study.identity, "*"), cb=on_answer)

        async def ask(number: int) -> None:
            nonlocal current
            current = b"%08d" % number
            waiting.update(study.clients)
            got.clear()
            await connection.nc.request(subjects.ask_subject(study.identity), current + b"x" * (size - 8), timeout=10)

        number = 0
        while True:  # until every client listens
            number += 1
            await ask(number)
            try:
                await asyncio.wait_for(got.wait(), 1.0)
                break
            except TimeoutError:
                continue
        start = time.perf_counter()
        for _ in range(rounds):
            number += 1
            await ask(number)
            await got.wait()
        return rounds / (time.perf_counter() - start)


def run_echo(folder: Path, directory: Directory, rounds: int) -> float:
    """The same exchange without privatile."""
    ask_size, answer_size = 420, 420  # as measured in docs/wire.md
    broker = EmbeddedBroker(directory.broker_files, directory.settings())
    broker.start()
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--echo", name, "--folder", str(folder), "--size", str(answer_size)]
        )
        for name in directory.study().clients
    ]
    try:
        return asyncio.run(echo_coordinator(directory, rounds, ask_size))
    finally:
        for process in processes:
            process.kill()
            process.wait()
        broker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--length", type=int, default=10)
    parser.add_argument("--echo", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, default=420, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.echo:
        asyncio.run(echo_client(Directory(options.folder / "organizer"), options.folder, options.echo, options.size))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        directory = set_up(folder, options.clients, options.rounds, options.length)
        echo = run_echo(folder, directory, options.rounds)
        federation = run_federation(folder, directory)
    print(
        json.dumps(
            {
                "clients": options.clients,
                "rounds": options.rounds,
                "federation_rounds_per_second": round(federation, 1),
                "echo_rounds_per_second": round(echo, 1),
                "ratio": round(federation / echo, 2),
                "cores": os.cpu_count(),
                "machine": platform.machine(),
                "python": platform.python_version(),
                "load_before": round(os.getloadavg()[2], 2),
            }
        )
    )


if __name__ == "__main__":
    main()
