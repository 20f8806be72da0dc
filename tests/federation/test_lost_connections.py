"""What a lost connection changes: when a round closes, whether a broker is left, how much is kept of its errors."""

from __future__ import annotations

import asyncio
import gc
import secrets
import selectors
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nats
import pytest

from privatile.federation import wire
from privatile.federation.connection import MOST_CAUSES, Connection, connected
from tests.federation.test_journal import Table

DEADLINE = 30.0


class Clock(selectors.DefaultSelector):
    """The clock of an event loop that never waits: where nothing happens it jumps to the next timer."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(None if timeout is None else 0)
        if not found and timeout is not None:
            self.now += timeout
        return found


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    clock = Clock()
    loop = asyncio.SelectorEventLoop(clock)
    loop.time = lambda: clock.now  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(scene())


class Port:
    """A coordinator's connection with a broker that keeps what it is given."""

    def __init__(self, answers: dict[str, bytes]) -> None:
        self.lost = asyncio.Event()
        self.answers = answers
        self.question = b""

    async def ask(self, payload: bytes) -> str:
        self.question = payload
        return ""

    async def stored_question(self) -> bytes:
        return self.question

    async def stored_answer(self, client: str) -> bytes | None:
        return self.answers.get(client)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_deadline_begins_anew_after_a_lost_connection_or_a_restart(tmp_path: Path, restarted: bool) -> None:
    """Clients come back after the coordinator does. Measured from the first question, a round would be closed before
    they can answer, and their silence would count against the study's patience."""
    table = Table(tmp_path, deadline=DEADLINE)

    async def scene() -> None:
        run, service = table.run, table.service
        first = Port({})
        session = asyncio.create_task(service._session(first))  # type: ignore[arg-type]
        for client in ("site0", "site1"):  # the first round needs every client
            service._on_answer(client, table.answer(client))
        while service.coordinator.done < 1:
            await asyncio.sleep(1.0)
        table.asked = service._intake.questions
        kept = {"site0": table.answer("site0")}
        service._on_answer("site0", kept["site0"])
        await asyncio.sleep(DEADLINE - 10.0)
        assert service.coordinator.done == 1, "the deadline has not come"
        first.lost.set()
        await session
        await asyncio.sleep(2 * DEADLINE)
        if restarted:
            run.store.close()
            run = table.federation.open_run()
            service = table.federation.coordinator(run)
        session = asyncio.create_task(service._session(Port(kept)))  # type: ignore[arg-type]
        await asyncio.sleep(DEADLINE - 2.0)
        assert service.coordinator.done == 1, "the deadline has begun anew"
        assert list(service._intake.answers) == ["site0"], "and what was answered counts"
        await asyncio.sleep(4.0)
        assert service.coordinator.done == 2
        service.stop()
        await session
        run.store.close()

    play(scene)


class Broker:
    """A site's connection: replies to its hellos as the coordinator does, and keeps one question or none."""

    def __init__(self, table: Table, kept: bytes | None) -> None:
        self.table, self.kept = table, kept
        self.answers: list[bytes] = []
        self._heard: dict[str, Callable[[Any], Coroutine[Any, Any, None]]] = {}

    async def subscribe(self, subject: str, cb: Callable[[Any], Coroutine[Any, Any, None]]) -> SimpleNamespace:
        self._heard[subject] = cb
        return SimpleNamespace(pending_msgs=0)

    async def request(self, subject: str, payload: bytes, timeout: float) -> SimpleNamespace:
        if self.kept is None:
            return SimpleNamespace(headers={"Status": "404"}, data=b"")
        return SimpleNamespace(headers=None, data=self.kept)

    async def publish(self, subject: str, payload: bytes) -> None:
        federation = self.table.federation
        identity = federation.study.identity
        if subject != wire.hello_subject(identity, "site0"):
            self.answers.append(payload)
            return
        greeting = self.table.service._intake.greet("site0", payload, 0, secrets.token_hex(16))
        assert greeting is not None
        welcome = greeting.welcome.pack(federation.directory.key())
        await self._heard[wire.welcome_subject(identity, "site0")](SimpleNamespace(data=welcome))


@pytest.mark.parametrize("keeps", [False, True])
def test_a_broker_that_keeps_no_question_is_left(tmp_path: Path, keeps: bool) -> None:
    """A welcomed site has been asked something: where nothing is kept the connection, or the broker, is not the one
    that the coordinator uses, and the site connects again. One that keeps the question is the control."""
    table = Table(tmp_path)

    async def scene() -> None:
        broker = Broker(table, table.service._ask if keeps else None)
        site = table.federation.client("site0", heartbeat=0.01)
        connection = Connection(broker, asyncio.Event(), [])  # type: ignore[arg-type]
        session = asyncio.create_task(site._session(connection))
        left, _ = await asyncio.wait([session], timeout=0.5 if keeps else 5.0)
        assert bool(left) != keeps
        assert bool(broker.answers) == keeps
        site.stop()
        await session
        site._worker.shutdown()

    asyncio.run(scene())


def test_what_a_broker_sends_does_not_fill_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(tmp_path)
    alive: weakref.WeakSet[Exception] = weakref.WeakSet()

    class Complaint(Exception):
        pass

    async def connect(**options: Any) -> SimpleNamespace:
        for number in range(50 * MOST_CAUSES):
            complaint = Complaint(f"nats: Permissions Violation for subject {number}")
            alive.add(complaint)
            await options["error_cb"](complaint)
        return SimpleNamespace(is_connected=True, close=lambda: asyncio.sleep(0))

    async def scene() -> None:
        federation = table.federation
        key, authority = federation.sites["site0"].key(), federation.directory.authority.read_text()
        async with connected("site0", ["tls://127.0.0.1:4222"], key, authority) as connection:
            gc.collect()
            assert len(connection.complaints) == MOST_CAUSES
            assert len(alive) <= MOST_CAUSES + 1  # and the last one, which `connect` still holds

    monkeypatch.setattr(nats, "connect", connect)
    asyncio.run(scene())
