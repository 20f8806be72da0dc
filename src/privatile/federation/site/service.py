"""What drives a client: connect outward, say hello, answer what comes, for months.

Every failure of the network, of the broker or of this process has the same remedy: connect, say hello, look up the last
question. What the client replies is in `SiteCore`.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar

from privatile.errors import BrokerError, LedgerError
from privatile.federation.connection import Backoff
from privatile.federation.monitoring import facts
from privatile.federation.site.core import End, SiteCore, log
from privatile.federation.transport import Connect, SiteTransport

T = TypeVar("T")

HEARTBEAT = 15.0
"""Seconds between hellos of an idle client; also how long a question can stay unseen after a lost message."""

SILENCE_SECONDS = 5.0
"""How long a coordinator may be silent before the client says that it waits for one."""

NO_COORDINATOR = (
    "the broker answers, but no coordinator of this study does. It may not have been started yet (privatile serve), "
    "the invitation may be of another study, or the coordinator may run another version of privatile: ask the "
    "organizer. This client goes on by itself as soon as there is one"
)

AT_ONCE = 20_000
"""Records answered without the worker thread: under a millisecond of work, less than the thread would cost."""


@dataclass(eq=False, repr=False)
class ClientService:
    """One client of one study, over one connection after another."""

    core: SiteCore
    connect: Connect[SiteTransport]
    _: KW_ONLY
    heartbeat: float = HEARTBEAT
    backoff: Backoff = field(default_factory=Backoff)

    def __post_init__(self) -> None:
        self.metrics = self.core.metrics
        self._stop = asyncio.Event()
        self._wake = asyncio.Event()
        # One call of the core at a time: a question that is looked up and the same one that is delivered must not
        # compete for the ledger.
        self._free = asyncio.Lock()
        # The ledger's work is done in one thread, so that a large cohort does not delay heartbeats.
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="responder")
        self._skipped: bytes | None = None

    def stop(self) -> None:
        """Finish the current answer and return."""
        self._stop.set()
        self._wake.set()

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether the client is connected and welcomed."""
        connected, welcome = bool(self.metrics.value("connected")), self.core.welcome
        number = int(self.metrics.value("round"))
        details = {"client": self.core.client, "connected": connected, "welcomed": welcome, "round": number}
        return connected and welcome, details

    @property
    def _over(self) -> bool:
        return self.core.is_over or self._stop.is_set()

    async def run(self) -> End:
        """Serve until the study ends or somebody stops this client; refusals of limits or ledger are raised."""
        client = self.core.client
        try:
            while not self._over:
                try:
                    async with self.connect(self._wake.set) as transport:
                        self.backoff.reset()
                        log.info("connected", extra=facts(client=client))
                        self.metrics.set("connected", 1)
                        await self._session(transport)
                except BrokerError as error:
                    log.warning("no connection", extra=facts(client=client, reason=str(error)))
                self.metrics.set("connected", 0)
                if not self._over:
                    self.metrics.add("reconnects")
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._stop.wait(), self.backoff.next())
            if self.core.end is not None or self.core.outdated:
                try:
                    await self._in_worker(self.core.responder.account.release)
                except LedgerError as error:
                    # The study is over all the same; `privatile ledger release` does it later.
                    log.warning("records stay reserved", extra=facts(client=client, reason=str(error)))
        finally:
            self._worker.shutdown(wait=True)
        if self.core.failure is not None:
            raise self.core.failure
        return self.core.end or "stopped"

    async def _in_worker(self, work: Callable[[], T]) -> T:
        async with self._free:
            return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    async def _session(self, transport: SiteTransport) -> None:
        self.core.welcome, self._skipped = False, None
        loop = asyncio.get_running_loop()

        async def on_question(payload: bytes, more: bool) -> None:
            await self._on_question(transport, payload, more=more)

        async def on_welcome(payload: bytes) -> None:
            before = self.core.welcome
            await self._reply(transport, await self._in_worker(lambda: self.core.welcomed(payload)))
            if self.core.welcome and not before:
                await self._look_up(transport)

        async def on_hello(payload: bytes) -> None:
            await self._reply(transport, await self._in_worker(lambda: self.core.own_hello(payload, loop.time())))

        await transport.open(on_question, on_welcome, on_hello)
        await self._say_hello(transport)
        settled, waits_from = False, loop.time() + SILENCE_SECONDS
        while not (self._over or transport.lost.is_set()):
            try:
                # Until the coordinator has replied, say hello again soon: it may not have been there. Look up the
                # question soon as well, once: a new subscription may miss what is published in its first moment.
                await asyncio.wait_for(self._wake.wait(), self.heartbeat if settled else min(2.0, self.heartbeat))
            except TimeoutError:
                settled = self.core.welcome
                if not settled and loop.time() >= waits_from:
                    waits_from = math.inf
                    log.warning("waiting", extra=facts(client=self.core.client, reason=NO_COORDINATOR))
                await self._say_hello(transport)
                if self.core.welcome and not await self._look_up(transport):
                    return  # a working broker would give the question that it keeps: this connection is dead
            self._wake.clear()

    async def _say_hello(self, transport: SiteTransport) -> None:
        await self._reply(transport, await self._in_worker(self.core.hello))

    async def _reply(self, transport: SiteTransport, hello: bytes | None) -> None:
        if hello is not None:
            await transport.hello(hello, flush=self.core.is_over)
        if self.core.is_over:
            self._wake.set()

    async def _look_up(self, transport: SiteTransport) -> bool:
        """Answer the last question that the broker keeps; False where it gives none."""
        payload = await transport.last_question()
        if payload is not None:
            await self._on_question(transport, payload, more=False)
        return payload is not None

    async def _on_question(self, transport: SiteTransport, payload: bytes, *, more: bool) -> None:
        # Only the newest question matters: rounds that are closed count no more answers. What the coordinator has not
        # signed is no question, and must not hide the one before it.
        if more:
            self._skipped = payload if self.core.is_question(payload) else self._skipped
            return
        newest = payload if self._skipped is None or self.core.is_question(payload) else self._skipped
        self._skipped = None
        if not self.core.welcome:  # a question came before the welcome: the coordinator is there now
            await self._say_hello(transport)
            return
        async with self._free:
            questions = self.core.asked(newest)
            if not questions:
                answer = None
            elif sum(question.length for question in questions) <= AT_ONCE and not self.core.study.is_open:
                answer = self.core.answer(questions)
            else:
                work = asyncio.get_running_loop().run_in_executor(self._worker, self.core.answer, questions)
                answer = await work
        if answer is not None:
            await transport.answer(answer)
        if self.core.is_over:
            self._wake.set()
