"""Rounds a second of a federation, everything on and every client a process, beside a bare echo.

    python benchmarks/federation.py --clients 10 --rounds 600

TLS, nkeys, a broker that syncs every message, a durable ledger a client and a durable store are all on. The echo is the
same exchange by JetStream alone: a question of the same size published to a synced stream and acknowledged, a push
consumer in one process per client, which publishes an answer of the same size to a synced stream and waits for its
acknowledgement, and one process that consumes the answers. The ratio compares the federation with that. The core echo
is the fastest exchange over the same synced streams: delivered while it is being stored, acknowledged to nobody; it is
how the federation's own messages travel, without signatures, ledgers and store.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from nats.js.api import DeliverPolicy

from privatile.federation import wire
from privatile.federation.connection import Msg, connected
from privatile.federation.setup.broker import EmbeddedBroker, free_port
from privatile.federation.setup.folder import Directory, admit, initialize, new_identity
from privatile.federation.setup.invitation import read_enrolment, read_invitation
from privatile.federation.setup.permissions import BrokerSettings
from privatile.federation.site.folder import enroll, find_site
from privatile.federation.study import ClientAgreement, FederationStudy
from privatile.run.run_file import RunStore

ASK_BYTES, ANSWER_BYTES = 300, 350
"""Sizes of a federation's own messages; benchmarks/scale.py prints them."""


def set_up(folder: Path, clients: int, rounds: int, length: int) -> Directory:
    """A federation with all its sites on this machine, each with a file of its own."""
    terms = {f"client{k}": ClientAgreement(1.0, 1.0 / clients, rounds * length) for k in range(clients)}
    study = FederationStudy(new_identity(), "Benchmark", "benchmark", "x", (0.5,), (0.0, 100.0), rounds, clients=terms)
    directory = initialize(folder / "organizer", study, BrokerSettings(port=free_port()))
    rng = np.random.default_rng(1)
    for name in study.clients:
        site = enroll(read_invitation(directory.invitation_file(name)), folder / name, max_epsilon=100.0)
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
                *(
                    *command,
                    "join",
                    str(directory.invitation_file(name)),
                    "--site",
                    str(folder / name),
                ),
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


async def echo_client(directory: Directory, folder: Path, name: str, size: int, plain: bool) -> None:
    """One bare client: whatever is asked, a payload of `size` bytes goes back."""
    invitation = read_invitation(directory.invitation_file(name))
    key = find_site(folder / name, invitation, directory.invitation_file(name)).key()
    identity = invitation.study.identity
    async with connected(name, invitation.brokers, key, invitation.authority) as connection:
        nc, js = connection.nc, connection.nc.jetstream()
        subject = wire.answer_subject(identity, name)

        async def on_ask(message: Msg) -> None:
            payload = message.data[:8] + b"x" * (size - 8)
            await (nc.publish(subject, payload) if plain else js.publish(subject, payload))

        if plain:
            await nc.subscribe(wire.ask_subject(identity), cb=on_ask)
        else:
            await js.subscribe(wire.ask_subject(identity), cb=on_ask, deliver_policy=DeliverPolicy.NEW)
        await connection.lost.wait()


async def echo_coordinator(directory: Directory, rounds: int, size: int, plain: bool) -> float:
    """Ask, wait for every client's echo, ask again; rounds per second."""
    study, settings = directory.study(), directory.settings()
    got = asyncio.Event()
    waiting: set[str] = set()
    current = b""
    authority = directory.authority.read_text()
    async with connected("coordinator", [settings.url], directory.key(), authority) as connection:
        nc, js = connection.nc, connection.nc.jetstream()

        async def on_answer(message: Msg) -> None:
            if message.data[:8] == current:
                waiting.discard(message.subject.rpartition(".")[2])
                if not waiting:
                    got.set()

        answers = wire.answer_subject(study.identity, "*")
        if plain:
            await nc.subscribe(answers, cb=on_answer)
        else:
            await js.subscribe(answers, cb=on_answer, deliver_policy=DeliverPolicy.NEW)

        async def ask(number: int) -> None:
            nonlocal current
            current = b"%08d" % number
            waiting.update(study.clients)
            got.clear()
            await js.publish(wire.ask_subject(study.identity), current + b"x" * (size - 8))

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


async def add_streams(directory: Directory) -> None:
    identity, settings = directory.study().identity, directory.settings()
    authority = directory.authority.read_text()
    async with connected("coordinator", [settings.url], directory.key(), authority) as connection:
        js = connection.nc.jetstream()
        for stream, subject in (
            (wire.ask_stream(identity), wire.ask_subject(identity)),
            (wire.answer_stream(identity), wire.answer_subject(identity, "*")),
        ):
            await js.add_stream(name=stream, subjects=[subject], max_bytes=64 << 20, allow_direct=True)


def run_echo(folder: Path, directory: Directory, rounds: int, *, plain: bool) -> float:
    """The same exchange without privatile."""
    files = directory.broker_files
    # Consumers need the whole JetStream interface, which a federation's clients may not use.
    configuration = json.loads(files.configuration.read_text().partition("\n")[2])
    users = [user for account in configuration.pop("accounts").values() for user in account["users"]]
    configuration["authorization"]["users"] = [{"nkey": user["nkey"]} for user in users]
    files.configuration.write_text(json.dumps(configuration))
    broker = EmbeddedBroker(files, directory.settings())
    broker.start()
    processes = []
    try:
        asyncio.run(add_streams(directory))
        command = [sys.executable, __file__, "--folder", str(folder), *(["--plain"] if plain else []), "--echo"]
        processes = [
            subprocess.Popen([*command, name], stderr=subprocess.DEVNULL) for name in directory.study().clients
        ]
        return asyncio.run(echo_coordinator(directory, rounds, ASK_BYTES, plain))
    finally:
        for process in processes:
            process.kill()
            process.wait()
        broker.stop()
        shutil.rmtree(files.folder / "jetstream", ignore_errors=True)
        directory.write_configuration()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--length", type=int, default=10)
    parser.add_argument("--echo", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.echo:
        organizer = Directory(options.folder / "organizer")
        asyncio.run(echo_client(organizer, options.folder, options.echo, ANSWER_BYTES, options.plain))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        directory = set_up(folder, options.clients, options.rounds, options.length)
        echo = run_echo(folder, directory, options.rounds, plain=False)
        floor = run_echo(folder, directory, options.rounds, plain=True)
        federation = run_federation(folder, directory)
    print(
        json.dumps(
            {
                "clients": options.clients,
                "rounds": options.rounds,
                "federation_rounds_per_second": round(federation, 1),
                "jetstream_echo_rounds_per_second": round(echo, 1),
                "ratio": round(federation / echo, 2),
                "core_echo_rounds_per_second": round(floor, 1),
                "cores": os.cpu_count(),
                "machine": platform.machine(),
                "python": platform.python_version(),
                "load_before": round(os.getloadavg()[2], 2),
            }
        )
    )


if __name__ == "__main__":
    main()
