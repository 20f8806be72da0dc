"""The load on a survey's gateway: HTTP/1.1 by hand, since a client library would take more time than the server."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import ssl
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import uvloop
from benchmarks.survey_servers import HOST, trust_all

from privatile.core.mechanism import RandomizedResponse

THRESHOLD = RandomizedResponse.from_epsilon(1.0).threshold


def request(path: str, body: bytes) -> bytes:
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), len(body), body)


class Wire(asyncio.Protocol):
    """One connection while it lasts."""

    def __init__(self) -> None:
        self._came = b""
        self._reply: asyncio.Future[tuple[int, bytes]] | None = None

    def data_received(self, data: bytes) -> None:
        came = self._came + data if self._came else data
        end = came.find(b"\r\n\r\n") + 4
        at = came.find(b"content-length: ", 0, end) + 16
        if end < 4 or at < 16 or len(came) < end + int(came[at : came.index(b"\r\n", at)]):
            self._came = came
            return
        self._came = b""
        if self._reply is not None and not self._reply.done():
            self._reply.set_result((int(came[9:12]), came[end:]))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(ConnectionError("closed"))

    def expect(self) -> asyncio.Future[tuple[int, bytes]]:
        self._reply = asyncio.get_running_loop().create_future()
        return self._reply


class Line:
    """One keep-alive connection, opened again where the server has closed it."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._port, self._context = port, context

    async def open(self) -> None:
        connecting = asyncio.get_running_loop().create_connection(Wire, HOST, self._port, ssl=self._context)
        self._transport, self._wire = await connecting

    async def exchange(self, sent: bytes) -> tuple[int, bytes]:
        """Send and read the reply; where the server has closed the connection, the same again on a new one."""
        for _ in range(3):
            if not self._transport.is_closing():
                with suppress(ConnectionError):
                    self._transport.write(sent)
                    return await self._wire.expect()
            self.close()
            await self.open()
        raise ConnectionError("closed again and again")

    def close(self) -> None:
        self._transport.close()


class Load:
    """What many connections did in some seconds."""

    def __init__(self) -> None:
        self.done, self.late, self.waits = 0, 0, 0
        self.seconds = 0.0
        """From the moment when all connections were open."""
        self.asked: list[float] = []
        """Seconds of every question, and of every answer."""
        self.answered: list[float] = []


class Device(NamedTuple):
    """A person's device, as far as it is ready before the clock starts."""

    code: bytes
    question: bytes
    """The whole request."""
    value: float
    coin: int


def devices(codes: Iterable[str], seed: int = 1) -> Iterator[Device]:
    """Devices of people whose values are normal around 50."""
    rng = random.Random(seed)
    for code in codes:
        question = request("/question", b'{"code": "%s"}' % code.encode())
        yield Device(code.encode(), question, rng.gauss(50.0, 15.0), rng.getrandbits(64))


@lru_cache(16)
def asked(body: bytes) -> tuple[int, float]:
    """Round and query of a reply; the same for everybody in a round."""
    reply = json.loads(body)
    return reply["round"], float(reply["query"])


async def together(load: Load, port: int, connections: int, visit: Callable[[Line], Coroutine[Any, Any, None]]) -> None:
    """Visitors on so many connections; the clock starts when all of them are open."""
    context = trust_all()
    lines = [Line(port, context) for _ in range(connections)]
    for line in lines:
        await line.open()
    began = time.monotonic()
    await asyncio.gather(*(visit(line) for line in lines))
    load.seconds = time.monotonic() - began
    for line in lines:
        line.close()


async def take_part(line: Line, device: Device, load: Load, *, wait: float = 0.02, delay: float = 0.0) -> None:
    """One device: ask, compare, draw, send. It waits `wait` while a round drains, and `delay` before it sends."""
    while True:
        began = time.perf_counter()
        status, body = await line.exchange(device.question)
        load.asked.append(time.perf_counter() - began)
        if status == 200:
            break
        if status != 503:
            raise RuntimeError(f"{status} {body!r}")
        load.waits += 1
        await asyncio.sleep(wait)
    number, query = asked(body)
    bit = (device.value > query) is (device.coin < THRESHOLD)
    if delay:
        await asyncio.sleep(delay)
    began = time.perf_counter()
    text = b'{"code": "%s", "round": %d, "answer": %s}' % (device.code, number, b"true" if bit else b"false")
    status, body = await line.exchange(request("/answer", text))
    load.answered.append(time.perf_counter() - began)
    if status != 200:
        raise RuntimeError(f"{status} {body!r}")
    load.done += 1
    load.late += b"false" in body


async def answer_survey(
    port: int, people: Iterator[Device], connections: int, seconds: float, *, new_connections: bool = False
) -> Load:
    load = Load()

    async def visitor(line: Line) -> None:
        stop = time.monotonic() + seconds
        for device in people:
            await take_part(line, device, load)
            if time.monotonic() >= stop:
                break
            if new_connections:
                line.close()
                await line.open()

    await together(load, port, connections, visitor)
    return load


T = TypeVar("T")


def play(load: Coroutine[Any, Any, T]) -> T:
    """Run a load on the fastest event loop there is: the generator must not be what is measured."""
    gc.freeze()  # prepared devices are many
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(load)


def p99(times: list[float]) -> float:
    return sorted(times)[int(0.99 * (len(times) - 1))] * 1000.0
