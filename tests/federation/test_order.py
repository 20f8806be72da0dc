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
from privatile.federation.wire import MAX_ANSWER, RoundAnswers, RoundQuestions, read_message
from tests.federation.kit import Federation, make_study
from tests.federation.memory import Broker, SiteEnd
from tests.federation.open_kit import OpenFederation, make_open_study, people
from tests.federation.played import Table, close


class WatchedEnd(SiteEnd):
    """A connection that looks into the site's ledger, as another process would, at the moment of sending."""

    def __init__(self, federation: Federation, name: str) -> None:
        super().__init__(Broker(), name)
        self.federation = federation
        self.sent: list[tuple[int, ...]] = []
        self.in_ledger: list[tuple[int, ...]] = []

    async def answer(self, payload: bytes) -> None:
        site, run = self.federation.sites[self.client], self.federation.study.run
        message = read_message(payload, site.key().public.signer, MAX_ANSWER)
        assert isinstance(message, RoundAnswers)
        with self.federation.ledger(self.client) as ledger:
            given = ledger.answers(run, ONLY_CLIENT).get(message.round, ())
        self.sent.append(tuple(count.ones for count in message.counts))
        self.in_ledger.append(tuple(level.ones for level in given))

    def take(self, service: ClientService, question: bytes) -> None:
        service.core.welcome = True
        asyncio.run(service._on_question(self, question, more=False))


@pytest.mark.parametrize("at_once", [True, False])
def test_a_count_is_in_the_ledger_before_it_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """Otherwise a process that dies in between would draw other coins for a question that was answered."""
    if not at_once:
        monkeypatch.setattr(service_module, "AT_ONCE", 0)
    federation = Federation(tmp_path, make_study(2, rounds=4, length=4, levels=(0.25, 0.5)), port=4222)
    run, end = federation.open_run(), WatchedEnd(federation, "site0")
    service, key = federation.client("site0"), federation.directory.key()
    for _ in range(2):
        end.take(service, RoundQuestions.of(federation.study.digest, run.coordinator.questions()).pack(key))
        run.coordinator.accept([[1, 1], [1, 1]])
    assert end.in_ledger == end.sent
    assert [len(counts) for counts in end.in_ledger] == [2, 2]


@pytest.mark.network  # the kit looks for a free port
def test_a_count_of_an_open_study_is_in_the_ledger_before_it_is_sent(tmp_path: Path) -> None:
    federation = OpenFederation(tmp_path, make_open_study())
    federation.arrive("north", people("north", 40))
    end = WatchedEnd(federation, "north")
    end.take(federation.start("north"), federation.open_round())
    assert len(end.in_ledger) == 1
    assert end.in_ledger == end.sent


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
    played.take("site0", "site1")
    with pytest.raises(StoreError, match="disk full"):
        close(played.core)
    assert rows() == before
    played.run.store.close()
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("DROP TRIGGER full")
    # A process that starts again has the same round open, and takes the same answers.
    run = played.federation.open_run()
    played.core = played.federation.new_core(run)
    before_it = played.asked
    assert played.next_round() == before_it
    played.take("site0", "site1")
    close(played.core)
    run.store.close()
    after = rows()
    assert [len(after[name]) for name in ("evidence", "links", "rounds", "open_round")] == [2, 2, 1, 1]
