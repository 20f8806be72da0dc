"""What carries the messages of a federation: it has no opinion about them. `connection` does it over NATS."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar


class CoordinatorTransport(Protocol):
    """The coordinator's end of an open connection. Every method may raise a BrokerError."""

    lost: asyncio.Event
    """Set when the connection is lost: it is never repaired, the service opens another."""

    async def open(
        self, on_answer: Callable[[str, bytes], None], on_hello: Callable[[str, bytes], Awaitable[None]]
    ) -> None:
        """Deliver what clients send, each payload with the client on whose subject it came."""

    async def ask(self, payload: bytes) -> str:
        """Publish a question or notice, to be kept; gives the reason where it could not be stored."""

    async def welcome(self, client: str, payload: bytes) -> None:
        """Send one client the reply to its hello."""

    async def stored_question(self) -> bytes | None:
        """The last question or notice that is kept."""

    async def stored_answer(self, client: str) -> bytes | None:
        """The client's last answer that is kept."""


class SiteTransport(Protocol):
    """A client's end of an open connection. What is sent may be lost without an error: it is sent again."""

    lost: asyncio.Event

    async def open(
        self,
        on_question: Callable[[bytes, bool], Awaitable[None]],
        on_welcome: Callable[[bytes], Awaitable[None]],
        on_hello: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """Deliver questions (true with one behind which newer ones wait), welcomes, and hellos of the same client."""

    async def hello(self, payload: bytes, *, flush: bool = False) -> None:
        """Say hello; with `flush` it has left this process afterwards."""

    async def answer(self, payload: bytes) -> None:
        """Send an answer."""

    async def last_question(self) -> bytes | None:
        """The last question or notice that is kept; None without a reply, too."""


Transport = TypeVar("Transport")

Connect = Callable[[Callable[[], None]], AbstractAsyncContextManager[Transport]]
"""Opens a connection; a BrokerError says in words why none could be opened, or why it was lost.

The argument is called when it is lost, or closed at the end.
"""
