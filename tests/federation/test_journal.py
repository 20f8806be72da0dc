"""What the coordinator keeps of answers that do not count: enough for `verify`, and never without end."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from privatile.core.messages import Answer
from privatile.federation.coordinator import service as service_module
from privatile.federation.coordinator.intake import MOST_OFFENCES
from privatile.federation.coordinator.journal import ROWS_PER_CLIENT, Uncounted
from privatile.federation.coordinator.service import CoordinatorService
from privatile.federation.operations.serve import OpenRun
from privatile.federation.wire import (
    LARGEST_ANSWER,
    AnswerMessage,
    Hello,
    Link,
    Welcome,
    read_message,
)
from tests.federation.kit import Federation, make_study


class Port:
    """A connection that delivers nothing."""

    async def welcome(self, client: str, payload: bytes) -> None:
        pass


class Table:
    """A coordinator without a broker, and answers to its open round."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.federation = Federation(folder, make_study(2, rounds=10, length=4, **settings), port=4222)
        self.run: OpenRun = self.federation.open_run()
        self.service: CoordinatorService = self.federation.coordinator(self.run)
        self.asked = self.next_round()

    def next_round(self) -> Any:
        assert self.service._open_round()
        self.asked = self.service._intake.questions
        return self.asked

    def answer(self, client: str, ones: int = 2, asked: Any = None) -> bytes:
        study, questions = self.federation.study, (asked or self.asked)[client]
        answers = [Answer(one, client, ones, Link(one.round, f"{one.round:032x}").position) for one in questions]
        return AnswerMessage.of(study.digest, answers).pack(self.federation.sites[client].key())


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def test_bad_and_repeated_answers_in_turn_do_not_grow_the_journal(table: Table) -> None:
    """Before: one row for every bad answer, without end, as long as a repeated one came in between."""
    service = table.service
    service._on_answer("site1", table.answer("site1"))
    good = table.answer("site1")
    for number in range(200):
        service._on_answer("site1", table.answer("site1", ones=99 + number))  # each is an offence of its own
        service._on_answer("site1", good)
    assert [event.kind for event in table.run.journal.events()] == ["rejected"] * MOST_OFFENCES + ["quarantined"]
    # Even where the organizer trusts it again and again, its bad answers are thinned out.
    rows = 0
    for _ in range(200):
        service._intake.readmit("site1")
        rows += service._notes.worth_a_row("rejected", "site1")
    assert rows <= ROWS_PER_CLIENT + 10


@pytest.mark.parametrize("early", [False, True])
def test_nobody_is_welcomed_before_stored_answers_are_read(
    table: Table, monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    """A lost ledger's answer may wait at the broker: a restored one must hear of it, or it goes on too early."""
    service, key = table.service, table.federation.sites["site1"].key()
    hello = Hello(table.federation.study.digest, "site1", "1" * 32, Link(0, "0" * 32), None, "2" * 32, None).pack(key)
    heard: list[Welcome] = []

    class Broker(Port):
        """Keeps an answer of site1, which says hello at every moment."""

        def __init__(self, *_: object) -> None:
            self.lost = asyncio.Event()

        async def open(self, *_: object, replicas: int) -> None:
            service._catching_up = service._catching_up and not early
            await service._on_hello(self, "site1", hello)  # type: ignore[arg-type]

        async def stored_answer(self, client: str) -> bytes | None:
            await service._on_hello(self, "site1", hello)  # type: ignore[arg-type]
            return table.answer(client) if client == "site1" else None

        async def ask(self, payload: bytes) -> str:
            await service._on_hello(self, "site1", hello)  # type: ignore[arg-type]
            service.stop()
            return ""

        async def welcome(self, client: str, payload: bytes) -> None:
            message = read_message(payload, table.federation.directory.key().public.signer, LARGEST_ANSWER)
            assert isinstance(message, Welcome)
            heard.append(message)

    monkeypatch.setattr(service_module, "connected", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(service_module, "CoordinatorPort", Broker)
    assert asyncio.run(service.run()) == "stopped"
    stands = [None if one.ledger is None else one.ledger.sequence for one in heard]
    assert set(stands) == ({None, 1} if early else {1})  # the control: with the ledger as it was before that answer


def test_declared_restores_do_not_grow_the_journal(table: Table) -> None:
    study, key = table.federation.study, table.federation.sites["site1"].key()
    links = [Link(5, "5" * 32), Link(6, "6" * 32)]
    table.service._intake._links["site1"] = links[0]
    welcomed: list[str] = []
    greet = table.service._intake.greet

    def remember(client: str, payload: bytes, done: int, nonce: str) -> Any:
        welcomed.append(nonce)
        return greet(client, payload, done, nonce)

    table.service._intake.greet = remember  # type: ignore[method-assign, assignment]

    async def scene() -> None:
        for number in range(200):
            old, new = links if number % 2 == 0 else links[::-1]
            echo = welcomed[-1] if welcomed else None
            hello = Hello(study.digest, "site1", "1" * 32, new, old, f"{number:032x}", echo)
            await table.service._on_hello(Port(), "site1", hello.pack(key))  # type: ignore[arg-type]

    asyncio.run(scene())
    rows = [event for event in table.run.journal.events() if event.kind == "restored"]
    assert 1 <= len(rows) <= ROWS_PER_CLIENT + 10


def test_answers_of_silent_clients_that_came_and_did_not_count_are_kept_with_the_reason(tmp_path: Path) -> None:
    table = Table(tmp_path, quorum=1)
    service, journal = table.service, table.run.journal
    for client in ("site0", "site1"):
        service._on_answer(client, table.answer(client))
    service._close_round()
    first, second = table.asked, table.next_round()
    service._on_answer("site1", table.answer("site1", ones=99))
    service._on_answer("site0", table.answer("site0"))
    service._close_round()  # the quorum is one: site1 is silent
    table.next_round()
    for _ in range(300):
        service._on_answer("site1", table.answer("site1", asked=second))  # late: kept once
        service._on_answer("site1", table.answer("site1", asked=first))  # counted in its round: not kept
        service._on_answer("site1", b"rubbish")
    service._write_heard_and_uncounted()
    service._on_answer("site1", table.answer("site1", asked=second))
    service._write_heard_and_uncounted()
    kept = [one._replace(at=0.0) for one in journal.uncounted()]
    reason = next(one.reason for one in kept if one.outcome == "rejected")
    assert kept == [
        Uncounted(2, "site1", "late", "", 0.0, 301),
        Uncounted(2, "site1", "rejected", reason, 0.0, 1),
    ]
    assert "ones must be" in reason
    assert "99" not in reason
    late = journal.late_links()
    assert list(late) == ["site1"]
    assert late == service._intake.late_links
    assert len(table.run.store.query("SELECT * FROM uncounted")) == 2
