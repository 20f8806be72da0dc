"""What the coordinator keeps of answers that do not count: enough for `verify`, and never without end."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from privatile.core.messages import Position
from privatile.federation.coordinator.intake import MAX_OFFENCES
from privatile.federation.coordinator.journal import ROWS_PER_CLIENT, Uncounted
from privatile.federation.wire import MAX_ANSWER, Hello, Welcome, read_message
from tests.federation.memory import Broker, CoordinatorEnd
from tests.federation.played import Table, close


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def test_bad_and_repeated_answers_in_turn_do_not_grow_the_journal(table: Table) -> None:
    """Before: one row for every bad answer, without end, as long as a repeated one came in between."""
    core = table.core
    core.take("site1", table.answer("site1"))
    good = table.answer("site1")
    for number in range(200):
        core.take("site1", table.answer("site1", ones=99 + number))  # each is an offence of its own
        core.take("site1", good)
    assert [event.kind for event in table.run.journal.events()] == ["rejected"] * MAX_OFFENCES + ["quarantined"]
    # Even where the organizer trusts it again and again, its bad answers are thinned out.
    rows = 0
    for _ in range(200):
        core.intake.readmit("site1")
        rows += core._notes.worth_a_row("rejected", "site1")
    assert rows <= ROWS_PER_CLIENT + 10


@pytest.mark.parametrize("early", [False, True])
def test_nobody_is_welcomed_before_stored_answers_are_read(table: Table, early: bool) -> None:
    """A lost ledger's answer may wait at the broker: a restored one must hear of it, or it goes on too early."""
    key = table.federation.sites["site1"].key()
    hello = Hello(table.federation.study.digest, "site1", "1" * 32, Position(0, b"0" * 16), None, "2" * 32, None).pack(
        key
    )
    heard: list[Welcome] = []
    broker = Broker()
    service = table.federation.coordinator(table.run, connect=broker.coordinator)
    service.core = core = table.core

    class End(CoordinatorEnd):
        """The broker keeps an answer of site1, which says hello at every moment."""

        async def open(self, *listening: Any) -> None:
            await super().open(*listening)
            core.catching_up = core.catching_up and not early
            await self.on_hello("site1", hello)

        async def stored_answer(self, client: str) -> bytes | None:
            await self.on_hello("site1", hello)
            return table.answer(client) if client == "site1" else None

        async def ask(self, payload: bytes) -> str:
            await self.on_hello("site1", hello)
            service.stop()
            return ""

        async def welcome(self, client: str, payload: bytes) -> None:
            message = read_message(payload, table.federation.directory.key().public.signer, MAX_ANSWER)
            assert isinstance(message, Welcome)
            heard.append(message)

    service.connect = lambda _: contextlib.nullcontext(End(broker))
    assert asyncio.run(service.run()) == "stopped"
    stands = [None if one.ledger is None else one.ledger.sequence for one in heard]
    assert set(stands) == ({None, 1} if early else {1})  # the control: with the ledger as it was before that answer


def test_declared_restores_do_not_grow_the_journal(table: Table) -> None:
    study, key = table.federation.study, table.federation.sites["site1"].key()
    links = [Position(5, b"5" * 16), Position(6, b"6" * 16)]
    table.core.intake._links["site1"] = links[0]
    echo = None
    for number in range(200):
        old, new = links if number % 2 == 0 else links[::-1]
        hello = Hello(study.digest, "site1", "1" * 32, new, old, f"{number:032x}", echo)
        welcome = read_message(table.core.greet("site1", hello.pack(key)) or b"", table.signer, MAX_ANSWER)
        assert isinstance(welcome, Welcome)
        echo = welcome.nonce
    rows = [event for event in table.run.journal.events() if event.kind == "restored"]
    assert 1 <= len(rows) <= ROWS_PER_CLIENT + 10


def test_answers_of_silent_clients_that_came_and_did_not_count_are_kept_with_the_reason(tmp_path: Path) -> None:
    table = Table(tmp_path, quorum=1)
    core, journal = table.core, table.run.journal
    table.take("site0", "site1")
    close(core)
    first, second = table.asked, table.next_round()
    core.take("site1", table.answer("site1", ones=99))
    core.take("site0", table.answer("site0"))
    close(core)  # the quorum is one: site1 is silent
    table.next_round()
    for _ in range(300):
        core.take("site1", table.answer("site1", asked=second))  # late: kept once
        core.take("site1", table.answer("site1", asked=first))  # counted in its round: not kept
        core.take("site1", b"rubbish")
    core.write_notes(0.0)
    core.take("site1", table.answer("site1", asked=second))
    core.write_notes(0.0)
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
    assert late == core.intake.late_links
    assert len(table.run.store.query("SELECT * FROM uncounted")) == 2


def test_a_coordinator_that_starts_again_shows_clients_the_links_of_its_file(table: Table) -> None:
    """What it has seen of a ledger comes back from the file as it was, and fits into a welcome."""
    table.take("site0", "site1")
    close(table.core)
    again = table.federation.new_core(table.federation.open_run())
    assert again.journal.links() == {name: Position(1, (1).to_bytes(16, "big")) for name in ("site0", "site1")}
    assert again.question(0.0)
    hello = Hello(table.federation.study.digest, "site0", "1" * 32, Position(), None, "2" * 32, None)
    payload = again.greet("site0", hello.pack(table.federation.sites["site0"].key())) or b""
    welcome = read_message(payload, table.signer, MAX_ANSWER)
    assert isinstance(welcome, Welcome)
    assert welcome.ledger == Position(1, (1).to_bytes(16, "big"))
