"""The load on a survey's gateway: HTTP/1.1 by hand, since a client library would take more time than the server."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import time
from collections.abc import Iterator

from benchmarks.survey_servers import HOST, trust_all

from privatile.core.mechanism import RandomizedResponse


class Line:
    """One keep-alive connection."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._port, self._context = port, context

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(HOST, self._port, ssl=self._context)

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Send and read the reply; where the server has closed the connection, the same again on a new one."""
        for _ in range(3):
            try:
                return await self._once(path, body)
            except (asyncio.IncompleteReadError, ConnectionError):
                self.close()
                await self.open()
        return await self._once(path, body)

    async def _once(self, path: str, body: bytes) -> tuple[int, bytes]:
        self._writer.write(
            b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), len(body), body)
        )
        head = await self._reader.readuntil(b"\r\n\r\n")
        at = head.lower().index(b"content-length:") + 15
        length = int(head[at : head.index(b"\r\n", at)])
        return int(head[9:12]), await self._reader.readexactly(length)

    def close(self) -> None:
        self._writer.close()


class Load:
    """What many connections did in some seconds."""

    def __init__(self) -> None:
        self.done, self.late, self.waits = 0, 0, 0
        self.times: list[float] = []


async def ask_echo(port: int, connections: int, seconds: float) -> Load:
    load, context, stop = Load(), trust_all(), time.monotonic() + seconds

    async def visitor() -> None:
        line = Line(port, context)
        await line.open()
        body = b'{"code": "AAAAAAAAAAAAAAAAAAAAAA", "round": 12, "answer": true}'
        while time.monotonic() < stop:
            began = time.perf_counter()
            await line.post("/echo", body)
            load.times.append(time.perf_counter() - began)
            load.done += 1
        line.close()

    await asyncio.gather(*(visitor() for _ in range(connections)))
    return load


async def take_part(
    line: Line,
    code: str,
    value: float,
    coins: RandomizedResponse,
    rng: random.Random,
    load: Load,
    *,
    wait: float = 0.02,
    delay: float = 0.0,
) -> None:
    """One device: ask, compare, draw, send. It waits `wait` while a round drains, and `delay` before it sends."""
    while True:
        began = time.perf_counter()
        status, body = await line.post("/question", b'{"code": "%s"}' % code.encode())
        load.times.append(time.perf_counter() - began)
        if status == 200:
            break
        if status != 503:
            raise RuntimeError(f"{status} {body!r}")
        load.waits += 1
        await asyncio.sleep(wait)
    asked = json.loads(body)
    truth = value > float(asked["query"])
    bit = truth if rng.getrandbits(64) < coins.threshold else not truth
    if delay:
        await asyncio.sleep(delay)
    began = time.perf_counter()
    text = b'{"code": "%s", "round": %d, "answer": %s}' % (code.encode(), asked["round"], b"true" if bit else b"false")
    status, body = await line.post("/answer", text)
    load.times.append(time.perf_counter() - began)
    if status != 200:
        raise RuntimeError(f"{status} {body!r}")
    load.done += 1
    load.late += b"false" in body


async def answer_survey(
    port: int, codes: Iterator[str], connections: int, seconds: float, *, new_connections: bool = False
) -> Load:
    load, context, stop = Load(), trust_all(), time.monotonic() + seconds
    coins = RandomizedResponse.from_epsilon(1.0)

    async def visitor(number: int) -> None:
        rng = random.Random(number)
        line = Line(port, context)
        if not new_connections:
            await line.open()
        for code in codes:
            if time.monotonic() >= stop:
                break
            if new_connections:
                await line.open()
            await take_part(line, code, rng.gauss(50.0, 15.0), coins, rng, load)
            if new_connections:
                line.close()
        line.close()

    await asyncio.gather(*(visitor(number) for number in range(connections)))
    return load


def p99(times: list[float]) -> float:
    return sorted(times)[int(0.99 * (len(times) - 1))] * 1000.0
