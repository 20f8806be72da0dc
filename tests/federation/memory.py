"""A broker in memory: it keeps the last question and every client's last answer, and delivers what is sent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any


class Broker:
    """What both ends are connected to. `lose` cuts all connections; a test may change what is kept."""

    def __init__(self) -> None:
        self.question: bytes | None = None
        self.answers: dict[str, bytes] = {}
        self.asked: list[bytes] = []
        """Every question and notice that was published."""
        self.looked = 0
        """How often somebody has asked which question is kept."""
        self.ends: list[CoordinatorEnd | SiteEnd] = []

    @contextlib.asynccontextmanager
    async def coordinator(self, on_lost: Callable[[], None]) -> AsyncIterator[CoordinatorEnd]:
        """Connects a coordinator."""
        async with self._connected(CoordinatorEnd(self), on_lost) as end:
            yield end

    def site(self, client: str) -> Callable[[Callable[[], None]], Any]:
        """What connects a client."""

        @contextlib.asynccontextmanager
        async def connect(on_lost: Callable[[], None]) -> AsyncIterator[SiteEnd]:
            async with self._connected(SiteEnd(self, client), on_lost) as end:
                yield end

        return connect

    @contextlib.asynccontextmanager
    async def _connected(self, end: Any, on_lost: Callable[[], None]) -> AsyncIterator[Any]:
        end.on_lost = on_lost
        self.ends.append(end)
        try:
            yield end
        finally:
            self.ends.remove(end)

    def lose(self) -> None:
        for end in self.ends:
            end.lost.set()
            end.on_lost()

    def kept_question(self) -> bytes | None:
        return self.question

    def listening(self, kind: type[Any]) -> list[Any]:
        return [end for end in self.ends if isinstance(end, kind) and end.is_open and not end.lost.is_set()]


class CoordinatorEnd:
    def __init__(self, broker: Broker) -> None:
        self.broker, self.lost, self.is_open = broker, asyncio.Event(), False
        self.on_lost: Callable[[], None] = lambda: None

    async def open(
        self, on_answer: Callable[[str, bytes], None], on_hello: Callable[[str, bytes], Awaitable[None]]
    ) -> None:
        self.on_answer, self.on_hello, self.is_open = on_answer, on_hello, True

    async def ask(self, payload: bytes) -> str:
        self.broker.question = payload
        self.broker.asked.append(payload)
        for site in self.broker.listening(SiteEnd):
            await site.on_question(payload, False)
        return ""

    async def welcome(self, client: str, payload: bytes) -> None:
        for site in self.broker.listening(SiteEnd):
            if site.client == client:
                await site.on_welcome(payload)

    async def stored_question(self) -> bytes | None:
        self.broker.looked += 1
        return self.broker.kept_question()

    async def stored_answer(self, client: str) -> bytes | None:
        return self.broker.answers.get(client)


class SiteEnd:
    def __init__(self, broker: Broker, client: str) -> None:
        self.broker, self.client, self.lost, self.is_open = broker, client, asyncio.Event(), False
        self.on_lost: Callable[[], None] = lambda: None

    async def open(
        self,
        on_question: Callable[[bytes, bool], Awaitable[None]],
        on_welcome: Callable[[bytes], Awaitable[None]],
        on_hello: Callable[[bytes], Awaitable[None]],
    ) -> None:
        self.on_question, self.on_welcome, self.on_hello, self.is_open = on_question, on_welcome, on_hello, True

    async def hello(self, payload: bytes, *, flush: bool = False) -> None:
        for end in self.broker.listening(CoordinatorEnd):
            await end.on_hello(self.client, payload)

    async def answer(self, payload: bytes) -> None:
        self.broker.answers[self.client] = payload
        for end in self.broker.listening(CoordinatorEnd):
            end.on_answer(self.client, payload)

    async def last_question(self) -> bytes | None:
        return self.broker.kept_question()
