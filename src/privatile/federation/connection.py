"""One TLS connection to a broker, opened once and never repaired in place, and the two ends of it that a run uses.

The broker library's own reconnection hides what was lost. Here a lost connection ends; the service opens a new one,
says hello and asks for the last question again, so that a cut connection and a restart are the same case.
"""

import asyncio
import contextlib
import logging
import random
import re
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import nats
import nats.errors
from nats.aio.client import Client as Nats
from nats.aio.msg import Msg
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig

from privatile.core.decoding import json_value
from privatile.errors import BrokerError, require
from privatile.federation import wire
from privatile.federation.monitoring import facts
from privatile.federation.wire import MAX_ANSWER, MAX_ASK
from privatile.records.keys import KeyPair

require("nats", "federation")


__all__ = ["Backoff", "Connection", "Msg", "connected", "explain"]

MIN_WAIT, MAX_WAIT = 0.1, 30.0
"""Seconds between attempts: doubling from the first to the second, without end."""

WATCH = 0.5
"""Seconds between checks that a connection is still open."""

MAX_CAUSES = 100
"""Errors of one connection that are kept: what a server sends must not fill this process."""


@dataclass(frozen=True)
class Connection:
    """An open connection, and an event that is set when it is lost."""

    nc: Nats
    lost: asyncio.Event
    complaints: list[str]
    """Permissions that the broker has refused."""

    async def kept(self, stream: str, subject: str) -> bytes | None:
        """The last message of a stream on a subject, None where there is none; a BrokerError without a reply."""
        try:
            kept = await self.nc.request(f"$JS.API.DIRECT.GET.{stream}.{subject}", b"", timeout=5.0)
        except (nats.errors.Error, TimeoutError) as error:
            raise BrokerError(f"the broker did not say what it keeps ({type(error).__name__}).") from None
        return None if kept.headers and kept.headers.get("Status") else kept.data

    async def last(self, stream: str, subject: str) -> bytes | None:
        """The same; None also where the broker does not reply."""
        try:
            return await self.kept(stream, subject)
        except BrokerError:
            return None


def _is_no_noise(record: logging.LogRecord) -> bool:
    """Drop what asyncio says whenever the broker closes a connection by TLS: it is of no use to anybody."""
    return "returning true from eof_received()" not in str(record.msg)


@contextlib.asynccontextmanager
async def connected(
    party: str,
    urls: Sequence[str],
    key: KeyPair,
    authority: str,
    on_lost: Callable[[], None] = lambda: None,
    watch_seconds: float = WATCH,
    advice: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[Connection]:
    """Open a connection and close it at the end; a `BrokerError` says in words why none could be opened.

    `on_lost` is called when the connection is lost, or closed at the end; that is looked for every `watch_seconds`.
    `advice` is said in place of that in `ADVICE`, by kind of failure.
    """
    logging.getLogger("asyncio").addFilter(_is_no_noise)
    lost = asyncio.Event()
    causes: deque[BaseException] = deque(maxlen=MAX_CAUSES)
    complaints: list[str] = []

    async def on_error(error: Exception) -> None:
        causes.append(error)
        if "permissions violation" in str(error).lower() and len(complaints) < MAX_CAUSES:
            complaints.append(str(error))

    async def on_closed() -> None:
        lost.set()
        on_lost()

    try:
        nc = await asyncio.wait_for(
            nats.connect(
                servers=list(urls),
                name=party,
                tls=client_context(authority),
                nkeys_seed_str=key.seed,
                inbox_prefix=wire.inbox_prefix(party),
                allow_reconnect=False,
                # One attempt per server; the library does not count the first, and takes 0 for "without end".
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=5.0,
                ping_interval=10,
                max_outstanding_pings=2,
                error_cb=on_error,
                closed_cb=on_closed,
            ),
            timeout=20.0,
        )
    except (nats.errors.Error, OSError, TimeoutError) as error:
        raise BrokerError(explain([*causes, error], urls, advice)) from None

    async def watch() -> None:
        # The library's own callback may never come while it closes a TLS connection that was cut.
        while nc.is_connected:
            await asyncio.sleep(watch_seconds)
        await on_closed()

    watcher = asyncio.create_task(watch())
    try:
        yield Connection(nc, lost, complaints)
    finally:
        watcher.cancel()
        with contextlib.suppress(Exception):
            await asyncio.wait_for(nc.close(), timeout=2.0)


def client_context(authority_pem: str) -> ssl.SSLContext:
    """TLS 1.3 towards a broker whose certificate this authority, and no other, has signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=authority_pem)
    return context


ADVICE = {
    "expired": "The coordinator renews it with `privatile federation renew`; nothing is lost: this client keeps "
    "trying.",
    "other name": "The coordinator adds the name with `privatile federation renew --host NAME`.",
    "unknown key": "The coordinator admits it with `privatile federation admit`.",
}
"""What to do about a failure, by its kind."""

CERTIFICATE_FAILURES = (
    ("expired", "the broker's certificate has expired (or this machine's clock is ahead).", "expired"),
    (
        "not yet valid",
        "the broker's certificate is not valid yet: this machine's clock is probably behind. Set the clock; nothing "
        "is lost, this client keeps trying.",
        "",
    ),
    ("mismatch|not valid for", "the broker's certificate is for another host name.", "other name"),
    (
        "",
        "the broker's certificate was not signed by the authority that this client knows: this is another "
        "broker, or someone intercepts the connection. Compare fingerprints with whoever runs it before going on.",
        "",
    ),
)
"""What OpenSSL says of a certificate (a pattern), what it means, and the kind of failure; the last fits all others."""


def explain(causes: Sequence[BaseException], urls: Sequence[str], advice: Mapping[str, str] = ADVICE) -> str:
    """Why there is no connection, in words a site can act on."""
    advice = {**ADVICE, **advice}
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            said = (cause.verify_message or "").lower()
            meaning, kind = next(found for pattern, *found in CERTIFICATE_FAILURES if re.search(pattern, said))
            return f"{meaning} {advice[kind]}" if kind else meaning
    where = ", ".join(urls)
    texts = " ".join(f"{type(cause).__name__} {cause}" for cause in causes).lower()
    if "authorization" in texts:
        return (
            f"the broker at {where} does not know this key: it is not admitted yet, was revoked, or was replaced. "
            f"{advice['unknown key']}"
        )
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return f"no TLS connection with {where}: what answers there is not this federation's broker."
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return f"nothing listens at {where}: the broker is not running, or a firewall is in between."
    if re.search("name or service|getaddrinfo|gaierror", texts):
        return f"the name in {where} is not known here: check the address in the invitation."
    return f"no connection with {where} ({type(causes[-1]).__name__})."


@dataclass
class Backoff:
    """Waiting times between attempts: doubling, with jitter so that a thousand clients do not return at once.

    >>> waits = Backoff(draw=lambda: 0.5)
    >>> [waits.next() for _ in range(3)], [waits.next() for _ in range(20)][-1]
    ([0.1, 0.2, 0.4], 30.0)
    """

    longest: float = MAX_WAIT
    draw: Callable[[], float] = random.random
    _wait: float = MIN_WAIT

    def next(self) -> float:
        """How long to wait now."""
        wait = self._wait
        self._wait = min(2.0 * wait, self.longest)
        return wait * (0.5 + self.draw())

    def reset(self) -> None:
        """It worked: start from the shortest again."""
        self._wait = MIN_WAIT


log = logging.getLogger("privatile.federation.coordinator")

STREAM_BYTES = 64 << 20
"""What the broker keeps of each stream: a thousand rounds of a hundred clients, of which only the last matters."""


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Errors of the broker's library as a BrokerError."""
    try:
        yield
    except (nats.errors.Error, TimeoutError) as error:
        raise BrokerError(str(error) or type(error).__name__) from None


@dataclass
class NatsCoordinator:
    """The subjects and streams of one study, as the coordinator uses them."""

    connection: Connection
    identity: str
    replicas: int = 1

    def __post_init__(self) -> None:
        self.lost = self.connection.lost

    async def open(
        self, on_answer: Callable[[str, bytes], None], on_hello: Callable[[str, bytes], Awaitable[None]]
    ) -> None:
        """Make the two streams where they do not exist, and listen to every client."""
        identity, nc = self.identity, self.connection.nc
        with _told():
            js = nc.jetstream(timeout=5)
            for name, subject, largest in (
                (wire.ask_stream(identity), wire.ask_subject(identity), MAX_ASK),
                (wire.answer_stream(identity), wire.answer_subject(identity, "*"), MAX_ANSWER),
            ):
                config = StreamConfig(
                    name=name,
                    subjects=[subject],
                    retention=RetentionPolicy.LIMITS,
                    storage=StorageType.FILE,
                    discard=DiscardPolicy.OLD,
                    # By size alone: a limit of one message per subject would cost one deletion per message.
                    max_bytes=STREAM_BYTES,
                    num_replicas=self.replicas,
                    max_msg_size=largest,
                    # The broker confirms what the coordinator stores; a client needs no confirmation of its answers.
                    no_ack=name == wire.answer_stream(identity),
                    allow_direct=True,
                )
                await js.add_stream(config)

            async def answer(message: Msg) -> None:
                on_answer(message.subject.rpartition(".")[2], message.data)

            async def hello(message: Msg) -> None:
                await on_hello(message.subject.rpartition(".")[2], message.data)

            # A thousand clients answer within milliseconds of each other: the buffers hold a round of the largest.
            for subject, callback in (
                (wire.answer_subject(identity, "*"), answer),
                (wire.hello_subject(identity, "*"), hello),
            ):
                await nc.subscribe(subject, cb=callback, pending_msgs_limit=1_000_000, pending_bytes_limit=1 << 30)

    async def ask(self, payload: bytes) -> str:
        """Publish a question or notice and wait until the broker has stored it; gives the reason where it could not."""
        try:
            reply = await self.connection.nc.request(wire.ask_subject(self.identity), payload, timeout=5.0)
        except (nats.errors.Error, TimeoutError) as error:
            if not self.lost.is_set():
                log.warning("the broker did not confirm a question", extra=facts(reason=type(error).__name__))
            return ""
        refusal = json_value(reply.data).get("error")
        return "" if refusal is None else str(refusal.get("description", "no reason given"))

    async def welcome(self, client: str, payload: bytes) -> None:
        """Reply to a client's hello."""
        with _told():
            await self.connection.nc.publish(wire.welcome_subject(self.identity, client), payload)

    async def stored_question(self) -> bytes | None:
        """The last question or notice that the broker keeps."""
        return await self.connection.kept(wire.ask_stream(self.identity), wire.ask_subject(self.identity))

    async def stored_answer(self, client: str) -> bytes | None:
        """The client's last answer that the broker keeps; None also where it does not reply."""
        subject = wire.answer_subject(self.identity, client)
        return await self.connection.last(wire.answer_stream(self.identity), subject)


@dataclass
class NatsSite:
    """The subjects of one study, as a client uses them."""

    connection: Connection
    identity: str
    client: str

    def __post_init__(self) -> None:
        self.lost = self.connection.lost

    async def open(
        self,
        on_question: Callable[[bytes, bool], Awaitable[None]],
        on_welcome: Callable[[bytes], Awaitable[None]],
        on_hello: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """Listen to what the coordinator publishes, and to other processes that use this client's key."""
        nc = self.connection.nc

        async def question(message: Msg) -> None:
            await on_question(message.data, bool(questions.pending_msgs))

        async def welcome(message: Msg) -> None:
            await on_welcome(message.data)

        async def hello(message: Msg) -> None:
            await on_hello(message.data)

        with _told():
            await nc.subscribe(wire.welcome_subject(self.identity, self.client), cb=welcome)
            await nc.subscribe(wire.hello_subject(self.identity, self.client), cb=hello)
            questions = await nc.subscribe(wire.ask_subject(self.identity), cb=question)

    async def hello(self, payload: bytes, *, flush: bool = False) -> None:
        """Say hello."""
        await self._publish(wire.hello_subject(self.identity, self.client), payload)
        if flush:
            with contextlib.suppress(Exception):
                await self.connection.nc.flush(2)

    async def answer(self, payload: bytes) -> None:
        """Send an answer."""
        await self._publish(wire.answer_subject(self.identity, self.client), payload)

    async def _publish(self, subject: str, payload: bytes) -> None:
        with contextlib.suppress(Exception):  # a connection that is just being lost: it is sent again after the next
            await self.connection.nc.publish(subject, payload)

    async def last_question(self) -> bytes | None:
        """The last question or notice that the broker keeps."""
        return await self.connection.last(wire.ask_stream(self.identity), wire.ask_subject(self.identity))


Opened = TypeVar("Opened")


def connecting(
    party: str, urls: Sequence[str], key: KeyPair, authority: str, make: Callable[[Connection], Opened]
) -> Callable[[Callable[[], None]], contextlib.AbstractAsyncContextManager[Opened]]:
    """What opens such a connection whenever it is called (`transport.Connect`)."""

    @contextlib.asynccontextmanager
    async def connect(on_lost: Callable[[], None]) -> AsyncIterator[Opened]:
        async with connected(party, urls, key, authority, on_lost) as connection:
            yield make(connection)

    return connect
