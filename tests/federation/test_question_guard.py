"""The coordinator watches the question that the broker keeps: a slow broker, a replaced question, a full disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from privatile.errors import BrokerError, StoreError
from privatile.federation.coordinator import service as service_module
from privatile.federation.study import ClientAgreement
from tests.federation.kit import PATIENCE, Federation, make_study
from tests.federation.memory import Broker


def watch(folder: Path, stored: Callable[[], bytes | None], note: Any = None) -> tuple[float, list[str], Broker]:
    """A session of some ticks beside a broker that keeps what `stored` says; what the journal holds afterwards."""
    federation = Federation(folder, make_study({"north": ClientAgreement(2.0, 1.0, 400)}, 20), port=4222)
    run, broker = federation.open_run(), Broker()
    broker.kept_question = stored  # type: ignore[method-assign]
    service = federation.coordinator(run, connect=broker.coordinator)
    if note is not None:
        service.core.journal.note = note  # type: ignore[method-assign]

    async def scene() -> None:
        session = asyncio.create_task(service.run())
        while broker.looked < 3 and not session.done():
            await asyncio.sleep(0.005)
        service.stop()
        await session

    try:
        asyncio.run(asyncio.wait_for(scene(), PATIENCE))
    finally:
        kinds = [event.kind for event in run.journal.events()]
        run.store.close()
    return service.metrics.value("restored_questions"), kinds, broker


@pytest.fixture(autouse=True)
def short_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "TICK", 0.01)


def slow() -> bytes | None:
    raise BrokerError("the broker did not say what it keeps (TimeoutError).")


def test_a_slow_broker_is_not_taken_for_one_that_keeps_another_message(tmp_path: Path) -> None:
    restored, kinds, _ = watch(tmp_path, slow)
    assert not restored
    assert "question" not in kinds


@pytest.mark.parametrize("kept", [None, b"rubbish"])
def test_a_broker_that_keeps_nothing_or_another_message_gets_the_question_again(
    tmp_path: Path, kept: bytes | None
) -> None:
    restored, kinds, broker = watch(tmp_path, lambda: kept)
    assert restored >= 2
    assert kinds.count("question") >= 2
    assert len(set(broker.asked[:3])) == 1


def test_a_guard_that_cannot_write_its_event_ends_the_service_with_the_reason(tmp_path: Path) -> None:
    """Before, a full disk ended the guard alone, and nobody was told."""

    def note(kind: str, *rest: object) -> None:
        if kind == "question":
            raise StoreError("run.db could not be written (disk full).")

    with pytest.raises(StoreError, match="disk full"):
        watch(tmp_path, lambda: b"rubbish", note)
