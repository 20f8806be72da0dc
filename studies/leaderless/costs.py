"""What one message costs: python -m studies.leaderless.costs

Three nats-servers of a cluster on this machine (no TLS), a replicated stream that syncs every message, answers of the
size of real ones. Processor time is counted where a queue is limited by a processor (reading, delivering), time on the
clock where it is limited by a disk or a reply (appending, a durable transaction). Prints a line for `run.py`.
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

from privatile.core.messages import Answer
from privatile.federation.setup.broker import free_port
from privatile.federation.setup.broker_binary import find_binary
from privatile.federation.wire.keys import KeyPair, verify
from privatile.federation.wire.messages import LARGEST_ANSWER, AnswerMessage, Link, read_message

SERVERS, MESSAGES, READERS = 3, 2000, 5


def seconds_each(act: Callable[[], object], times: int = 2000) -> float:
    """Processor seconds of one call."""
    start = time.process_time()
    for _ in range(times):
        act()
    return (time.process_time() - start) / times


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


async def through_cluster(
    ports: list[int], processes: list[int], payload: bytes, signer: str
) -> tuple[float, float, float]:
    """Seconds to append a message, a server's to deliver one, a reader's to take one."""
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

    async def take(message: Msg) -> None:
        nonlocal left
        read_message(message.data, signer, LARGEST_ANSWER)
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
    answer = AnswerMessage.of("0" * 64, "1" * 64, [Answer("r" * 29, 7, "north", 0.5, 512)], Link(7, "2" * 32))
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
            append, deliver, read = asyncio.run(
                through_cluster(ports, [one.pid for one in running], payload, key.public.signer)
            )
        finally:
            for one in running:
                one.kill()
                one.wait()
    print(f"load {os.getloadavg()[0]:.1f}, {binary.version}, {len(payload)} bytes")
    print(
        f"Costs(sign={sign:.2g}, read={read:.2g}, check={check:.2g}, append={append:.2g}, deliver={deliver:.2g}, "
        f"answer={durable:.2g}, hop=…)"
    )


if __name__ == "__main__":
    main()
