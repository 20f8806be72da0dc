"""What one message costs: python -m studies.leaderless.costs

Reading an entry is what the connection takes for it and what a peer's replica does with it (signature, form, counts,
its share of closing the round), each measured by itself. Three nats-servers of a cluster run on this machine (no TLS),
with a replicated stream that syncs every message, and answers of the size of real ones. Processor time is counted where
a queue is limited by a processor (reading, delivering), time on the clock where it is limited by a disk or a reply
(appending, a durable transaction). Prints a line for `run.py`.
"""

import asyncio
import base64
import os
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import nats
from nats.aio.msg import Msg
from nats.js.api import DeliverPolicy, StreamConfig
from privatile_leaderless.replica import Replica

from privatile.core.messages import Answer, Position, Question
from privatile.federation.setup.broker import find_binary, free_port
from privatile.federation.study import ClientAgreement, FederationStudy
from privatile.federation.wire import Body, RoundAnswers
from privatile.records.keys import KeyPair, verify

SERVERS, MESSAGES, READERS = 3, 2000, 5


def seconds_each(act: Callable[[], object], times: int = 2000) -> float:
    """Processor seconds of one call."""
    start = time.process_time()
    for _ in range(times):
        act()
    return (time.process_time() - start) / times


def applied_entry(peers: int = 20, rounds: int = 20) -> float:
    """Processor seconds of a replica per entry of a whole run."""
    keys = {f"peer{k}": KeyPair.generate() for k in range(peers)}
    terms = {name: ClientAgreement(1.0, 1.0 / peers, rounds * 20) for name in keys}
    study = FederationStudy(
        "0" * 12,
        "Costs",
        "a study",
        "x",
        (0.5,),
        (0.0, 100.0),
        rounds,
        design="rounds",
        extra={"tolerate": 1},
        clients=terms,
    )
    public = {name: key.public for name, key in keys.items()}
    writer, reader = (Replica(study, public, "1" * 64) for _ in range(2))
    log: list[tuple[str, bytes]] = []

    def write(entry: Body, sender: str) -> None:
        log.append((sender, entry.pack(keys[sender])))
        writer.apply(*log[-1])

    while not writer.finished:
        if writer.asked is not None:
            questions = {name: writer.asked.questions(name) for name in writer.missing}
            for name, asked in questions.items():
                answers = [Answer(one, name, one.length // 2, Position(one.round, b"2" * 16)) for one in asked]
                write(writer.answer(RoundAnswers.of(study.digest, answers)), name)
        elif writer.ended:
            for name in keys:
                write(writer.final(name), name)
        else:
            write(writer.proposal("peer0"), "peer0")
    entries = iter(log)
    return seconds_each(lambda: reader.apply(*next(entries)), len(log))


def durable_transaction(folder: Path, times: int = 300) -> float:
    """Seconds of one synced transaction."""
    store = sqlite3.connect(folder / "ledger.db", isolation_level=None)
    store.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE entries (round, text);")
    start = time.perf_counter()
    for number in range(times):
        store.execute("INSERT INTO entries VALUES (?, ?)", (number, "x" * 200))
    return (time.perf_counter() - start) / times


def processor_time(process: int) -> float:
    """Seconds that a process has used so far."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def configuration(folder: Path, place: int, ports: list[int], routes: list[int]) -> Path:
    """One server of the cluster."""
    others = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
    path = folder / f"{place}.conf"
    path.write_text(
        f"server_name: s{place}\nlisten: 127.0.0.1:{ports[place]}\n"
        f"jetstream {{ store_dir: '{folder / str(place)}', sync_interval: always }}\n"
        f"cluster {{ name: c, listen: 127.0.0.1:{routes[place]}, routes: [{others}] }}\n",
        encoding="utf-8",
    )
    return path


async def _quiet(_: Exception) -> None:
    """A server that does not listen yet is tried again."""


async def through_cluster(ports: list[int], processes: list[int], payload: bytes) -> tuple[float, float, float]:
    """Seconds to append a message, a server's to deliver one, a connection's to take one."""
    connection = await nats.connect([f"nats://127.0.0.1:{port}" for port in ports], error_cb=_quiet)
    streams = connection.jetstream(timeout=5)
    for _ in range(60):
        try:
            await streams.add_stream(StreamConfig(name="LOG", subjects=["log.>"], num_replicas=SERVERS))
            break
        except nats.errors.Error:  # the cluster has no leader yet
            await asyncio.sleep(0.5)
    await streams.publish("log.a", payload)
    start = time.perf_counter()
    for first in range(0, MESSAGES, 100):
        await asyncio.gather(*(streams.publish("log.a", payload) for _ in range(first, first + 100)))
    append = (time.perf_counter() - start) / MESSAGES
    left = MESSAGES * READERS
    done = asyncio.Event()

    async def take(_: Msg) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            done.set()

    before, start = sum(map(processor_time, processes)), time.process_time()
    for _ in range(READERS):
        await streams.subscribe("log.>", cb=take, ordered_consumer=True, deliver_policy=DeliverPolicy.ALL)
    await asyncio.wait_for(done.wait(), 120)
    taken = (time.process_time() - start) / (MESSAGES * READERS)
    deliver = (sum(map(processor_time, processes)) - before) / (MESSAGES * READERS)
    await connection.close()
    return append, deliver, taken


def main() -> None:
    """Measure and print."""
    key = KeyPair.generate()
    asked = Question("r" * 29, 7, 0.5, 50.0, 1024)
    answer = RoundAnswers.of("0" * 64, [Answer(asked, "north", 512, Position(7, b"2" * 16))])
    payload = answer.pack(key)
    body, _, tail = payload.rpartition(b"\n")
    signature = base64.b64decode(tail)
    sign = seconds_each(lambda: answer.pack(key))
    check = seconds_each(lambda: verify(key.public.signer, body, signature))
    binary = find_binary()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        durable = durable_transaction(folder)
        ports, routes = ([free_port() for _ in range(SERVERS)] for _ in range(2))
        running = [
            subprocess.Popen(
                [binary.path, "-c", configuration(folder, place, ports, routes)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for place in range(SERVERS)
        ]
        try:
            append, deliver, taken = asyncio.run(through_cluster(ports, [one.pid for one in running], payload))
        finally:
            for one in running:
                one.kill()
                one.wait()
    print(f"load {os.getloadavg()[0]:.1f}, {binary.version}, {len(payload)} bytes")
    read = taken + applied_entry()
    print(
        f"Costs(sign={sign:.2g}, read={read:.2g}, check={check:.2g}, append={append:.2g}, deliver={deliver:.2g}, "
        f"answer={durable:.2g}, hop=…)"
    )


if __name__ == "__main__":
    main()
