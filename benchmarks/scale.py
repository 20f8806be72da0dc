"""How a federation grows: rounds per second by number of clients, and a fleet of devices that answer one bit each.

    python benchmarks/scale.py                             # all of it: 3, 10, 100, 1000 clients and 100,000 devices
    python benchmarks/scale.py --clients 3 10 100 1000     # one part, or other sizes
    python benchmarks/scale.py --devices 100000

One line of JSON a measurement, as it is ready.

Clients: TLS, nkeys, a synced broker, ledgers on disk, the store on disk; many clients share a process here, which on
one machine costs less than a process each. Devices: one signed answer of one bit per device, each device in one round
of a cohort, over the same synced broker; the counts are a real run's and give its estimate.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from privatile.client.sources.databases import open_source
from privatile.core.messages import Answer, Position, Question
from privatile.federation import wire as subjects
from privatile.federation import wire as wire
from privatile.federation.connection import Msg, connected
from privatile.federation.operations.join import JoinOptions, prepare_client
from privatile.federation.setup.broker import EmbeddedBroker, free_port
from privatile.federation.setup.folder import Directory, Roster, initialize, new_identity
from privatile.federation.setup.invitation import read_invitation
from privatile.federation.setup.permissions import BrokerSettings
from privatile.federation.site.folder import Site, enroll
from privatile.federation.site.service import ClientService
from privatile.federation.study import ClientAgreement, FederationStudy
from privatile.federation.wire import RoundAnswers, RoundQuestions
from privatile.records.keys import KeyPair
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore

EVERY_SIZE = (3, 10, 100, 1000)
EVERY_DEVICE = 100_000


def set_up(folder: Path, clients: int, rounds: int, length: int) -> Directory:
    terms = {f"c{k}": ClientAgreement(1.0, 1.0 / clients, rounds * length) for k in range(clients)}
    study = FederationStudy(
        new_identity(), "Scale", "benchmark", "x", (0.5,), (0.0, 100.0), rounds, clients=terms, design="rounds",
        deadline=120.0,
    )  # fmt: skip
    directory = initialize(folder / "organizer", study, BrokerSettings(port=free_port()))
    # One reading of the study serves all: a site reads one invitation, this machine would read a thousand.
    first = read_invitation(directory.invitation_file("c0"))
    keys = {
        name: enroll(replace(first, client=name), folder / name, max_epsilon=100.0).key().public
        for name in study.clients
    }
    directory.save_roster(Roster(keys, ()))
    return directory


async def many_clients(folder: Path, names: list[str], length: int) -> None:
    directory = Directory(folder / "organizer")
    first = read_invitation(directory.invitation_file("c0"))
    services: list[ClientService] = []
    for place, name in enumerate(names):
        invitation = replace(first, client=name)
        records = invitation.study.clients[name].records
        values = np.random.default_rng(place).normal(50.0, 10.0, records)
        services.append(
            prepare_client(invitation, Site(folder / name, name), open_source(values, value=None), JoinOptions("value"))
        )
    await asyncio.gather(*(service.run() for service in services))


def measure_clients(clients: int, rounds: int, length: int, processes: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        directory = set_up(folder, clients, rounds, length)
        quiet = subprocess.DEVNULL
        serve = subprocess.Popen(
            [sys.executable, "-m", "privatile", "serve", str(directory.path)], stdout=quiet, stderr=quiet
        )
        shares = [[f"c{k}" for k in range(start, clients, processes)] for start in range(processes)]
        crews = [
            subprocess.Popen(
                [sys.executable, __file__, "--crew", *share, "--folder", str(folder), "--length", str(length)],
                stdout=quiet,
                stderr=quiet,
            )
            for share in shares
            if share
        ]
        try:
            if serve.wait(900):
                raise SystemExit(f"serve ended with status {serve.returncode}")
            for crew in crews:
                crew.wait(60)
        finally:
            for process in [serve, *crews]:
                if process.poll() is None:
                    process.kill()
        store = RunStore.open(directory.store_file, read_only=True)
        times = [stored.at for stored in store.rounds()]
        question = Question(store.run, rounds, 0.5, 49.123456789, length)
        ask = RoundQuestions.of("0" * 64, dict.fromkeys(directory.study().clients, (question,)))
        key = KeyPair.generate()
        answer = RoundAnswers.of("0" * 64, [Answer(question, "c0", length, Position(rounds))]).pack(key)
        store.close()
        first = len(times) // 20
        return {
            "clients": clients,
            "processes": processes,
            "rounds_per_second": round((len(times) - 1 - first) / (times[-1] - times[first]), 2),
            "messages_per_round": 1 + clients,
            "ask_bytes": len(ask.pack(key)),
            "answer_bytes": len(answer),
            "store_bytes_per_round": round(directory.store_file.stat().st_size / rounds),
        }


async def measure_devices(devices: int, rounds: int, connections: int) -> dict[str, object]:
    """Every device has a key, a value and a round; it sends one bit. The coordinator counts and steps."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        length = devices // rounds
        names = {
            f"gate{k}": ClientAgreement(1.0, 1.0 / connections, devices // connections) for k in range(connections)
        }
        study = FederationStudy(
            new_identity(), "Fleet", "benchmark", "x", (0.5,), (0.0, 100.0), rounds, clients=names, design="rounds"
        )
        directory = initialize(folder / "organizer", study, BrokerSettings(port=free_port()))
        sites = {
            one: enroll(read_invitation(directory.invitation_file(one)), folder / one, max_epsilon=100.0)
            for one in names
        }
        directory.save_roster(Roster({one: site.key().public for one, site in sites.items()}, ()))
        broker = EmbeddedBroker(directory.broker_files, directory.settings())
        broker.start()
        # A sample of device keys stands for all of them: making a hundred thousand is not what is measured.
        keys = [KeyPair.generate() for _ in range(256)]
        values = np.random.default_rng(1).normal(50.0, 10.0, devices)
        mechanism = ClientAgreement(1.0, 1.0, 1).mechanism
        coordinator = Coordinator(RunStore.create(folder / "run.db", study.run, study.spec, durable=True))
        authority = directory.authority.read_text()
        url = directory.settings().url
        try:
            async with connected("coordinator", [url], directory.key(), authority) as hub:
                js = hub.nc.jetstream()
                subject = subjects.answer_subject(study.identity, "*")
                await js.add_stream(name=subjects.answer_stream(study.identity), subjects=[subject], max_bytes=1 << 28)
                counts: dict[str, int] = {}
                heard = 0
                full = asyncio.Event()
                wanted = 0

                async def count(message: Msg) -> None:
                    nonlocal heard
                    place, _, payload = message.data.partition(b" ")
                    told = wire.read_message(payload, keys[int(place) % 256].public.signer, wire.MAX_ANSWER)
                    if isinstance(told, RoundAnswers):
                        gate = message.subject.rpartition(".")[2]
                        counts[gate] = counts.get(gate, 0) + told.counts[0].ones
                        heard += 1
                        if heard == wanted:
                            full.set()

                await hub.nc.subscribe(subject, cb=count, pending_msgs_limit=10**7, pending_bytes_limit=1 << 30)
                links = [connected(one, [url], sites[one].key(), authority) for one in names]
                gates = [await link.__aenter__() for link in links]
                next_device = 0
                start = time.perf_counter()
                while (asked := coordinator.rounds()) is not None:
                    questions = asked[0].questions
                    wanted, heard = sum(question.length for question in questions), 0
                    counts.clear()
                    full.clear()
                    for gate, connection, question in zip(names, gates, questions, strict=True):
                        for _ in range(question.length):
                            device, next_device = next_device, next_device + 1
                            truth = np.array([values[device % devices] > question.query])
                            coin = np.frombuffer(os.urandom(8), dtype=np.uint64)
                            bit = int(mechanism.respond(truth, coin)[0])
                            answer = Answer(question, f"device{device}", bit, Position(1))
                            told = RoundAnswers.of(study.digest, [answer]).pack(keys[device % 256])
                            await connection.nc.publish(
                                subjects.answer_subject(study.identity, gate), b"%d " % device + told
                            )
                        await connection.nc.flush(30)
                    await full.wait()
                    coordinator.accept([[counts.get(gate, 0) for gate in names]])
                seconds = time.perf_counter() - start
                for link in links:
                    await link.__aexit__(None, None, None)
            result = coordinator.result()
            return {
                "devices": next_device,
                "rounds": rounds,
                "cohort": length,
                "devices_per_second": round(next_device / seconds),
                "seconds": round(seconds, 1),
                "estimate": round(result.estimate, 3),
                "interval": [round(end, 3) for end in result.confidence_interval],
                "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            }
        finally:
            broker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else "",
        epilog="Without --clients and --devices everything is measured: 3, 10, 100, 1000 clients and 100,000 devices.",
    )
    parser.add_argument("--clients", type=int, nargs="+", metavar="K", help="numbers of clients to measure")
    parser.add_argument("--devices", type=int, metavar="N", help="devices of a fleet to measure, one bit each")
    parser.add_argument("--rounds", type=int, default=0, help="by default 300 up to 10 clients, 60 up to 100, then 20")
    parser.add_argument("--length", type=int, default=10, help="records per client and round")
    parser.add_argument("--crew", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.crew:
        # A thousand ledgers and connections in one process need as many files.
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
        asyncio.run(many_clients(options.folder, options.crew, options.length))
        return
    everything = options.clients is None and options.devices is None
    for clients in options.clients or (EVERY_SIZE if everything else ()):
        rounds = options.rounds or (300 if clients <= 10 else 60 if clients <= 100 else 20)
        processes = clients if clients <= 10 else 4
        report(measure_clients(clients, rounds, options.length, processes))
    devices = options.devices or (EVERY_DEVICE if everything else 0)
    if devices:
        report(asyncio.run(measure_devices(devices, 50, 4)))


def report(measured: dict[str, object]) -> None:
    print(json.dumps({**measured, "load": os.getloadavg()[0]}), flush=True)


if __name__ == "__main__":
    main()
