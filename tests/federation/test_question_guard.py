"""The coordinator watches the question that the broker keeps: a slow broker, a replaced question, a full disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from privatile.errors import BrokerError, StoreError
from privatile.federation.coordinator import service as service_module
from privatile.federation.coordinator.service import CoordinatorService
from privatile.federation.study import ClientAgreement
from tests.federation.kit import PATIENCE, Federation, make_study

pytestmark = pytest.mark.network


class Port:
    """A broker that keeps what `stored` says."""

    def __init__(self, stored: Callable[[], bytes | None]) -> None:
        self.lost = asyncio.Event()
        self.stored = stored
        self.looked = 0
        self.asked: list[bytes] = []

    async def ask(self, payload: bytes) -> str:
        self.asked.append(payload)
        return ""

    async def stored_question(self) -> bytes | None:
        self.looked += 1
        return self.stored()

    async def stored_answer(self, client: str) -> bytes | None:
        return None


def watch(folder: Path, port: Port, service_changes: Callable[[CoordinatorService], Any] = lambda one: None) -> Any:
    """A session of some ticks; gives the service and what the journal holds."""
    federation = Federation(folder, make_study({"north": ClientAgreement(2.0, 1.0, 400)}, 20))
    run = federation.open_run()
    service = federation.coordinator(run)
    service_changes(service)

    async def scene() -> None:
        session = asyncio.create_task(service._session(port))  # type: ignore[arg-type]
        while port.looked < 3 and not session.done():
            await asyncio.sleep(0.005)
        service.stop()
        await session

    asyncio.run(asyncio.wait_for(scene(), PATIENCE))
    kinds = [event.kind for event in run.journal.events()]
    run.store.close()
    return service.metrics.value("restored_questions"), kinds


@pytest.fixture(autouse=True)
def short_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "TICK", 0.01)


def slow() -> bytes | None:
    raise BrokerError("the broker did not say what it keeps (TimeoutError).")


def test_a_slow_broker_is_not_taken_for_one_that_keeps_another_message(tmp_path: Path) -> None:
    restored, kinds = watch(tmp_path, Port(slow))
    assert not restored
    assert "question" not in kinds


@pytest.mark.parametrize("kept", [None, b"rubbish"])
def test_a_broker_that_keeps_nothing_or_another_message_gets_the_question_again(
    tmp_path: Path, kept: bytes | None
) -> None:
    port = Port(lambda: kept)
    restored, kinds = watch(tmp_path, port)
    assert restored >= 2
    assert kinds.count("question") >= 2
    assert len(set(port.asked[:3])) == 1


def test_a_guard_that_cannot_write_its_event_ends_the_service_with_the_reason(tmp_path: Path) -> None:
    """Before, a full disk ended the guard alone, and nobody was told."""

    def full(service: CoordinatorService) -> None:
        def note(kind: str, *rest: object) -> None:
            if kind == "question":
                raise StoreError("run.db could not be written (disk full).")

        service.journal.note = note  # type: ignore[method-assign, assignment]

    port = Port(lambda: b"rubbish")
    with pytest.raises(StoreError, match="disk full"):
        watch(tmp_path, port, full)
    assert len(port.asked) >= 2  # the question was published again first
