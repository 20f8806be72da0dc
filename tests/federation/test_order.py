"""What must be on the disk before anything else happens: a count before it is sent, a round with its evidence."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from privatile.client.sources.source import ONLY_CLIENT
from privatile.errors import StoreError
from privatile.federation.site import service as service_module
from privatile.federation.site.service import ClientService
from privatile.federation.wire import LARGEST_ANSWER, AnswerMessage, AskMessage, read_message
from tests.federation.kit import Federation, make_study
from tests.federation.open_kit import OpenFederation, make_open_study, people
from tests.federation.played import Wire
from tests.federation.test_journal import Table


class WatchedWire(Wire):
    """A connection that looks into the site's ledger, as another process would, at the moment of sending."""

    def __init__(self, federation: Federation, name: str) -> None:
        super().__init__()
        self.federation, self.name = federation, name
        self.in_ledger: list[tuple[int, ...]] = []

    async def publish(self, subject: str, payload: bytes) -> None:
        await super().publish(subject, payload)
        with self.federation.ledger(self.name) as ledger:
            given = ledger.answers(self.federation.study.run, ONLY_CLIENT)
        self.in_ledger.append(tuple(level.ones for level in given.get(len(self.published), ())))

    def sent(self) -> list[tuple[int, ...]]:
        signer = self.federation.sites[self.name].key().public.signer
        messages = [read_message(payload, signer, LARGEST_ANSWER) for payload in self.published]
        return [tuple(level.ones for level in one.counts) for one in messages if isinstance(one, AnswerMessage)]


def answer(service: ClientService, wire: Wire, *questions: bytes) -> None:
    for question in questions:
        asyncio.run(service._answer(wire, question))  # type: ignore[arg-type]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_count_is_in_the_ledger_before_it_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """Otherwise a process that dies in between would draw other coins for a question that was answered."""
    if not at_once:
        monkeypatch.setattr(service_module, "AT_ONCE", 0)
    federation = Federation(tmp_path, make_study(2, rounds=4, length=4, levels=(0.25, 0.5)), port=4222)
    run, wire = federation.open_run(), WatchedWire(federation, "site0")
    service, key = federation.client("site0"), federation.directory.key()
    for _ in range(2):
        questions = run.coordinator.questions()
        answer(service, wire, AskMessage.of(federation.study.digest, questions).pack(key))
        run.coordinator.accept([[1, 1], [1, 1]])
    assert wire.in_ledger == wire.sent()
    assert [len(counts) for counts in wire.in_ledger] == [2, 2]


@pytest.mark.network  # the kit looks for a free port
def test_a_count_of_an_open_study_is_in_the_ledger_before_it_is_sent(tmp_path: Path) -> None:
    federation = OpenFederation(tmp_path, make_open_study())
    federation.arrive("north", people("north", 40))
    wire = WatchedWire(federation, "north")
    answer(federation.start("north"), wire, federation.open_round())
    assert len(wire.in_ledger) == 1
    assert wire.in_ledger == wire.sent()


@pytest.mark.parametrize("table", ["evidence", "links", "rounds", "open_round"])
def test_counts_signatures_and_links_are_one_transaction(tmp_path: Path, table: str) -> None:
    """A disk that is full in the middle of a round leaves nothing of it; the same answers close it afterwards."""
    played = Table(tmp_path)
    path = played.run.store.path

    def rows() -> dict[str, list[tuple[object, ...]]]:
        names = ("evidence", "links", "rounds", "open_round")
        with closing(sqlite3.connect(path)) as file:
            return {name: file.execute(f"SELECT * FROM {name}").fetchall() for name in names}

    before = rows()
    with closing(sqlite3.connect(path)) as file, file:
        file.execute(f"CREATE TRIGGER full BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'disk full'); END")
    for client in ("site0", "site1"):
        played.service._on_answer(client, played.answer(client))
    with pytest.raises(StoreError, match="disk full"):
        played.service._close_round()
    assert rows() == before
    played.run.store.close()
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("DROP TRIGGER full")
    # A process that starts again has the same round open, and takes the same answers.
    run = played.federation.open_run()
    service = played.federation.coordinator(run)
    assert service._open_round()
    assert service._intake.questions == played.asked
    for client in ("site0", "site1"):
        service._on_answer(client, played.answer(client))
    service._close_round()
    run.store.close()
    after = rows()
    assert [len(after[name]) for name in ("evidence", "links", "rounds", "open_round")] == [2, 2, 1, 1]
