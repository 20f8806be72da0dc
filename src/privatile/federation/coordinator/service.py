"""What drives a run: connections, the clock, requests of other commands. What it does is in `CoordinatorCore`."""

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from privatile.errors import BrokerError, RunPaused, StoreError
from privatile.federation.connection import Backoff
from privatile.federation.coordinator.core import CoordinatorCore, End, log
from privatile.federation.monitoring import facts
from privatile.federation.transport import Connect, CoordinatorTransport

TICK = 1.0
"""Seconds between two checks of requests, of the roster and of the question that the broker keeps."""


@dataclass(frozen=True)
class Control:
    """A folder of requests: small files, which survive a crash of either side, and are removed when they are read."""

    folder: Path

    def request(self, action: str, client: str = "") -> None:
        """Ask for `abort`, for `close`, or to `readmit` a client."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.folder / (f"{action}.{client}" if client else action)).touch()

    def take(self) -> list[tuple[str, str]]:
        """Remove every request and give its action and client."""
        try:
            names = sorted(os.listdir(self.folder))  # noqa: PTH208  (the cheapest way to list a folder)
        except FileNotFoundError:
            return []
        found = []
        for name in names:
            (self.folder / name).unlink(missing_ok=True)
            action, _, client = name.partition(".")
            found.append((action, client))
        return found


async def _nothing() -> None:
    pass


@dataclass(eq=False, repr=False)
class CoordinatorService:
    """Asks rounds, collects answers until the core closes them, asks the next, over one connection after another."""

    core: CoordinatorCore
    connect: Connect[CoordinatorTransport]
    _: KW_ONLY
    signers: Callable[[], Mapping[str, str]]
    """Gives the clients' signing keys as they are now."""
    broker: str = ""
    """Where the connection leads, in words."""
    repair: Callable[[], Awaitable[None]] = _nothing
    """Mends what it can between two connections: starts a broker that is gone."""
    control: Control | None = None
    exit_when_paused: bool = False
    backoff: Backoff = field(default_factory=lambda: Backoff(longest=2.0))

    def __post_init__(self) -> None:
        self.metrics = self.core.metrics
        self._published = b""
        """What the broker should keep: the last question that was published."""
        self._broker_lost = False
        self._next_check = 0.0
        self._changed = asyncio.Event()
        self._stop = asyncio.Event()
        self._end: End | None = None

    def stop(self) -> None:
        """Keep what is done, tell the clients, return."""
        self._stop.set()
        self._changed.set()

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether the run makes progress, and how far it is."""
        return self.core.health()

    async def run(self) -> End:
        """Ask rounds until the run ends or somebody stops it."""
        if self.core.aborting:
            self._stop.set()
        if self.core.journal.stopped():
            self.core.record("started", "the coordinator continues the run")
        while self._end is None:
            try:
                async with self.connect(self._changed.set) as transport:
                    self.core.catching_up = True
                    await transport.open(self._on_answer, lambda *hello: self._on_hello(transport, *hello))
                    self.backoff.reset()
                    self.metrics.set("connected", 1)
                    if self._broker_lost:
                        self._broker_lost = False
                        self.core.record("broker back", "the broker is connected again")
                    log.info("connected", extra=facts(broker=self.broker))
                    await self._session(transport)
            except BrokerError as error:
                if not self._broker_lost:
                    self._broker_lost = True
                    self.core.record("no broker", f"{error} The coordinator keeps trying.")
                else:
                    log.warning("no broker", extra=facts(reason=str(error)))
            self.metrics.set("connected", 0)
            if self._end is None and self._stop.is_set():
                self._end = "stopped"
            if self._end is None:
                self.metrics.add("reconnects")
                await self.repair()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), self.backoff.next())
        if self._end == "stopped":
            with contextlib.suppress(StoreError):  # a full disk must not make a failure of a stop
                self.core.record("stopped", "the coordinator was stopped; `privatile serve` continues the run")
        return self._end

    async def _session(self, transport: CoordinatorTransport) -> None:
        if not self._stop.is_set() and self.core.question(time.time()):
            await self._read_stored_answers(transport)
        self.core.catching_up = False
        guard = asyncio.create_task(self._guard_question(transport))
        guard.add_done_callback(lambda _: self._changed.set())
        try:
            while self._end is None and not transport.lost.is_set():
                stopped = self._stop.is_set()
                question = b"" if stopped else self.core.question(time.time())
                if not question:
                    end, notice = self.core.end(stopped=stopped)
                    await self._publish(transport, notice)
                    self._end = end
                    return
                await self._publish(transport, question)
                self._published = question
                await self._collect(transport, guard)
        finally:
            guard.cancel()
            self.core.write_notes(time.time())

    async def _guard_question(self, transport: CoordinatorTransport) -> None:
        """Publish the open question again where the broker keeps anything else: clients look it up there."""
        while True:
            await asyncio.sleep(TICK)
            expected = self._published
            try:
                kept = await transport.stored_question()
            except BrokerError:
                continue  # slow, or just being lost: that says nothing about what it keeps
            if not self.core.intake.is_open or expected != self._published or kept in (expected, self.core.asked):
                continue  # as it should be, or a new round has just begun
            self.metrics.add("restored_questions")
            await self._publish(transport, expected)
            self.core.record_some("question", "the broker kept another message than the open question: restored")

    async def _publish(self, transport: CoordinatorTransport, payload: bytes) -> None:
        if reason := await transport.ask(payload):
            self.core.record("broker", f"the broker could not store a question: {reason}. Is its disk full?")

    async def _read_stored_answers(self, transport: CoordinatorTransport) -> None:
        """Take the answers that came in while no coordinator listened."""

        async def read(client: str) -> None:
            payload = await transport.stored_answer(client)
            if payload is not None:
                self._on_answer(client, payload, stored=True)

        missing = self.core.intake.missing
        for start in range(0, len(missing), 100):
            await asyncio.gather(*(read(client) for client in missing[start : start + 100]))

    async def _collect(self, transport: CoordinatorTransport, guard: "asyncio.Task[None]") -> None:
        """Wait until the round is closed; less when the connection is lost or the service stops.

        An error that ended the guard of the question (a full disk) is raised here: the run does not go on without it.
        """
        loop = asyncio.get_running_loop()
        clock = time.time if self.core.study.is_open else loop.time
        began = loop.time()
        self.core.begin(clock())
        while True:
            wakes = self.core.look(clock())
            if not self.core.intake.is_open:
                break
            if self.core.paused and self.exit_when_paused:
                raise RunPaused(
                    f"the run is paused: {self.core.paused}. Start it again with `privatile serve` to continue."
                )
            if transport.lost.is_set() or self._stop.is_set():
                return
            if guard.done():
                guard.result()
            self._changed.clear()
            # Timers that set the event are far cheaper, round for round, than a wait with a timeout.
            left = wakes - clock()
            wake = loop.call_later(min(TICK, left) if left > 0.0 else TICK, self._changed.set)
            await self._changed.wait()
            wake.cancel()
            self._check_requests()
        self.metrics.set("round_seconds", loop.time() - began)

    def _on_answer(self, client: str, payload: bytes, *, stored: bool = False) -> None:
        self.core.take(client, payload, stored=stored)
        if self.core.may_close_early:
            self._changed.set()

    async def _on_hello(self, transport: CoordinatorTransport, client: str, payload: bytes) -> None:
        welcome = self.core.greet(client, payload)
        if welcome is not None:
            with contextlib.suppress(BrokerError):
                await transport.welcome(client, welcome)

    def _check_requests(self) -> None:
        """Carry out requests of other commands; use keys that were admitted, replaced or revoked."""
        if time.monotonic() < self._next_check:
            return
        self._next_check = time.monotonic() + TICK
        self.core.use_keys(self.signers())
        self.core.write_notes(time.time())
        for action, client in self.control.take() if self.control is not None else []:
            self.core.request(action, client)
            if self.core.aborting:
                self.stop()
