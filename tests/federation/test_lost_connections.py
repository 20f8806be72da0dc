"""What a lost connection changes: when a round closes, whether a broker is left, how much is kept of its errors."""

from __future__ import annotations

import asyncio
import gc
import selectors
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nats
import pytest

from privatile.errors import BrokerError
from privatile.federation.connection import MAX_CAUSES, connected
from tests.federation.memory import Broker, SiteEnd
from tests.federation.played import Table

DEADLINE = 30.0


class Clock(selectors.DefaultSelector):
    """The clock of an event loop that never waits: where nothing happens it jumps to the next timer."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(None if timeout is None else 0)
        if not found and timeout is not None:
            self.now += timeout
        return found


def nowhere(on_lost: Callable[[], None]) -> Any:
    raise BrokerError("nothing listens")


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    clock = Clock()
    loop = asyncio.SelectorEventLoop(clock)
    loop.time = lambda: clock.now  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(scene())


@pytest.mark.parametrize("restarted", [False, True])
def test_a_deadline_begins_anew_after_a_lost_connection_or_a_restart(tmp_path: Path, restarted: bool) -> None:
    """Clients come back after the coordinator does. Measured from the first question, a round would be closed before
    they can answer, and their silence would count against the study's patience."""
    table, broker = Table(tmp_path, deadline=DEADLINE), Broker()

    async def scene() -> None:
        run, core = table.run, table.core
        service = table.federation.coordinator(run, connect=broker.coordinator)
        service.core = core
        session = asyncio.create_task(service.run())
        table.take("site0", "site1")  # the first round needs every client
        while core.coordinator.done < 1:
            await asyncio.sleep(1.0)
        table.asked = core.intake.questions
        broker.answers["site0"] = table.answer("site0")
        table.take("site0")
        await asyncio.sleep(DEADLINE - 10.0)
        assert core.coordinator.done == 1, "the deadline has not come"
        service.connect = nowhere
        broker.lose()
        await asyncio.sleep(2 * DEADLINE)
        if restarted:
            service.stop()
            await session
            run.store.close()
            run = table.federation.open_run()
            service = table.federation.coordinator(run)
            core = service.core
        service.connect = broker.coordinator
        if restarted:
            session = asyncio.create_task(service.run())
        await asyncio.sleep(DEADLINE - 2.0)
        assert core.coordinator.done == 1, "the deadline has begun anew"
        assert list(core.intake.answers) == ["site0"], "and what was answered counts"
        await asyncio.sleep(4.0)
        assert core.coordinator.done == 2
        service.stop()
        await session
        run.store.close()

    play(scene)


@pytest.mark.parametrize("keeps", [False, True])
def test_a_broker_that_keeps_no_question_is_left(tmp_path: Path, keeps: bool) -> None:
    """A welcomed site has been asked something: where nothing is kept the connection, or the broker, is not the one
    that the coordinator uses, and the site connects again. One that keeps the question is the control."""
    table, broker = Table(tmp_path), Broker()

    async def scene() -> None:
        site = table.federation.client("site0", heartbeat=0.01, connect=broker.site("site0"))
        end = SiteEnd(broker, "site0")
        if keeps:
            broker.question = table.core.asked

        async def greet(client: str, payload: bytes) -> None:
            await end.on_welcome(table.core.greet(client, payload) or b"")

        async with broker.coordinator(lambda: None) as other:
            await other.open(lambda *answer: None, greet)
            session = asyncio.create_task(site._session(end))
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
        for number in range(50 * MAX_CAUSES):
            complaint = Complaint(f"nats: Permissions Violation for subject {number}")
            alive.add(complaint)
            await options["error_cb"](complaint)
        return SimpleNamespace(is_connected=True, close=lambda: asyncio.sleep(0))

    async def scene() -> None:
        federation = table.federation
        key, authority = federation.sites["site0"].key(), federation.directory.authority.read_text()
        async with connected("site0", ["tls://127.0.0.1:4222"], key, authority) as connection:
            gc.collect()
            assert len(connection.complaints) == MAX_CAUSES
            assert len(alive) <= MAX_CAUSES + 1  # and the last one, which `connect` still holds

    monkeypatch.setattr(nats, "connect", connect)
    asyncio.run(scene())
