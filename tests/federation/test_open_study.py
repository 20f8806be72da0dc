"""Federations whose records arrive over weeks: the run is the one that the counts give; when it closes and ends."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privatile.core.mechanism import RandomizedResponse
from privatile.federation.coordinator.journal import Journal
from privatile.federation.operations.record import countersign, release, verify_record
from privatile.federation.operations.serve import OpenRun
from privatile.federation.study import Arrivals
from privatile.federation.wire import LevelCount, RoundAnswers, read_message
from privatile.records import CountersignRefused, sign, transcript_digest
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore
from tests.federation.kit import PATIENCE
from tests.federation.open_kit import DAY, OneCoin, OpenFederation, make_open_study, people, spent

pytestmark = pytest.mark.network  # a free port of the loopback is looked for; nothing is sent


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[OpenFederation]:
    made = OpenFederation(tmp_path, make_open_study())
    yield made
    made.run_.store.close()


# -- the run is the one that the counts give -------------------------------------------------------------------------


def test_it_is_the_open_run_of_one_process_with_the_same_draws(tmp_path: Path) -> None:
    """The same arrivals, counted here by hand: lengths are what came, counts what the coins say."""
    federation = OpenFederation(tmp_path, make_open_study(epsilon=3.0, round_answers=50))
    study = federation.study
    coins = {name: OneCoin(np.random.default_rng(k)) for k, name in enumerate(study.clients)}
    mechanism = RandomizedResponse.from_epsilon(3.0)
    for name in study.clients:
        federation.start(name, coins[name])
    with RunStore.create(":memory:", study.run, study.spec) as store:
        alone = Coordinator(store)

        def before(number: int) -> None:
            rounds = alone.rounds()
            assert rounds is not None
            ones: list[int | None] = []
            lengths = []
            for k, name in enumerate(study.clients):
                come = people(f"{name}-{number}", 0 if number % 7 == k else 14 + number % 6, 55.0)
                federation.arrive(name, come)
                present = coins[name].next_round()
                above = np.array(list(come.values())) > rounds[0].questions[k].query
                count = int(mechanism.respond(above, np.full(len(come), present)).sum())
                ones.append(count if come else None)
                lengths.append(len(come))
            alone.accept([ones], lengths=[lengths])

        federation.play(18, before)
        mine, other = federation.run_.coordinator.results()[0].facts(), alone.results()[0].facts()
        assert {**mine, "date": None} == {**other, "date": None}
        assert mine["anytime_interval"] == mine["confidence_interval"]
        assert coins["north"].drawn == federation.run_.coordinator.asked["north"]


def start_the_same(made: OpenFederation, seed: int) -> Callable[[int], None]:
    """Start the sites of a run that is the same every time; the arrivals of a round, in some rounds at one site only.

    Fewer people come than are asked for, and those of a round have one seeded coin (`OneCoin`): an estimate from 900
    answers of honest coins has no interval once in about 100 runs.
    """
    coins = {name: OneCoin(np.random.default_rng([seed, k])) for k, name in enumerate(made.study.clients)}
    for name, coin in coins.items():
        made.start(name, coin)

    def before(number: int) -> None:
        for k, (name, coin) in enumerate(coins.items()):
            coin.next_round()
            if (number + k) % 5 or number < 3:
                made.arrive(name, people(f"{name}-{number}", (28, 18)[k]))

    return before


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> OpenFederation:
    """A run to the end that was fixed beforehand, with a late answer and rounds to which nobody of a site came."""
    made = OpenFederation(
        tmp_path_factory.mktemp("open"), make_open_study(epsilon=3.0, round_answers=50, end_answers=900)
    )
    before = start_the_same(made, 4)
    made.play(5, before)
    # South answers, and its answer comes after the round: spent, not counted.
    before(0)
    asked = made.open_round()
    for name in made.study.clients:
        assert made.answer(name, asked) is None  # fewer have come than are asked for, and there is time
    made.now += DAY
    payload = made.answer("north", asked)
    assert payload is not None
    assert made.core.take("north", payload).outcome == "counted"
    late = made.answer("south", asked)
    made.close_round()
    assert late is not None
    made.play(200, before)
    assert "ended by answers" in made.core._finish()
    return made


def test_it_verifies_and_sites_countersign(finished: OpenFederation) -> None:
    record = release(finished.directory)
    assert record["body"]["ended_by"] == "answers"
    result = record["body"]["results"][0]
    assert result["records"] >= 700
    assert all(track.at_fixed_end for track in finished.run_.coordinator.tracks)
    for name in finished.study.clients:
        record = finished.countersigned(record, name)
    checked = verify_record(record, finished.directory.store_file)
    assert not checked.failed, checked.failed
    assert any(
        "south says: not counted: 1 answer it gave (round 6). Such answers were lost with a crash" in text
        for text in checked.flagged
    )
    assert any("each for its question and its counts" in text for text in checked.passed)


@pytest.mark.parametrize("also_counts", [False, True])
def test_forged_lengths_are_refused(finished: OpenFederation, tmp_path: Path, also_counts: bool) -> None:
    record, altered = release(finished.directory), tmp_path / "run.db"
    with sqlite3.connect(finished.directory.store_file) as source, sqlite3.connect(altered) as copy:
        source.backup(copy)
        number, lengths, ones = copy.execute(
            "SELECT round, lengths, ones FROM rounds ORDER BY round LIMIT 1"
        ).fetchone()
        more = [json.loads(lengths)[0] + 3, *json.loads(lengths)[1:]]
        raised = [json.loads(ones)[0] + 3, *json.loads(ones)[1:]] if also_counts else json.loads(ones)
        changed = (json.dumps(more), json.dumps(raised), number)
        copy.execute("UPDATE rounds SET lengths = ?, ones = ? WHERE round = ?", changed)
    body: dict[str, Any] = record["body"]
    with RunStore.frozen(altered) as store:
        body["transcript"]["digest"] = transcript_digest(store)
    record["signatures"]["signer"] = sign(body, finished.directory.key())
    failed = verify_record(record, altered).failed
    assert any("signatures of clients hold" in text for text in failed)
    with finished.ledger("north") as ledger, pytest.raises(CountersignRefused, match="another question"):
        countersign(record, "north", finished.sites["north"].key(), altered, ledger)


def test_an_end_by_a_date_that_has_not_come_is_refused(tmp_path: Path) -> None:
    made = OpenFederation(tmp_path, make_open_study(epsilon=3.0, round_answers=50, end_date="2100-01-01"))
    made.play(20, start_the_same(made, 4))
    made.run_.store.finish("date")
    with sqlite3.connect(made.directory.store_file) as changed:
        changed.execute("UPDATE run SET finished = ?", (Arrivals(end_date="2100-01-01").ends_at,))
    record = release(made.directory)
    for transcript in (None, made.directory.store_file):
        failed = verify_record(record, transcript).failed
        assert len(failed) == 1
        assert "its end is not in the future" in failed[0]
    record["body"]["transcript"]["until"] = time.time()
    record["signatures"]["signer"] = sign(record["body"], made.directory.key())
    told = str(verify_record(record, made.directory.store_file).failed)
    assert "a time before its last round" in told, "the record cannot name another end than its file"


def test_lengths_are_signed_and_bounded(federation: OpenFederation) -> None:
    federation.arrive("north", people("north", 40))
    federation.start("north")
    payload = federation.answer("north", federation.open_round())
    key = federation.sites["north"].key()
    assert payload is not None
    message = read_message(payload, key.public.signer, 4096)
    assert isinstance(message, RoundAnswers)
    (count,) = message.counts

    def offered(*counts: LevelCount) -> str:
        forged = RoundAnswers(*(getattr(message, name) for name in message.__struct_fields__))
        forged = RoundAnswers(
            forged.study, forged.run, forged.round, forged.client, forged.question, counts, forged.ledger
        )
        return federation.core.intake.offer("north", forged.pack(key)).reason

    assert federation.core.intake.offer("north", payload.replace(b'"length":15', b'"length":14')).outcome == "unsigned"
    assert "another question" in offered(LevelCount(14, count.ones))
    assert "at most 15 records may take part" in offered(LevelCount(16, count.ones))
    federation.core.intake.readmit("north")
    assert federation.core.intake.offer("north", payload).outcome == "counted"


# -- when rounds close and the run ends ------------------------------------------------------------------------------


def test_rounds_close_by_number_and_by_the_clock(tmp_path: Path) -> None:
    federation = OpenFederation(tmp_path, make_open_study(deadline=100.0, end_date="2100-01-01"))
    now, core = time.time(), federation.core
    for name in federation.study.clients:
        federation.start(name)
    asked = federation.open_round()

    def answered(name: str) -> None:
        federation.arrive(name, people(f"{name}-{now}", 40))
        federation.now += 1000.0
        payload = federation.answer(name, asked)
        assert payload is not None
        assert core.take(name, payload).outcome == "counted"

    def closes() -> bool:
        core.look(now)
        return not core.intake.is_open

    now += 1000.0
    assert not closes()  # nobody has come: it waits for the first
    now -= 1000.0
    answered("north")
    assert not closes()  # 15 of 25 have come, and there is time
    now += 101.0
    assert not closes()  # its time is over, but an answer may be under way
    now += 10.0
    assert closes()
    now += 1.0
    asked = federation.open_round()
    answered("north")
    assert not closes()
    answered("south")
    assert closes()  # 25, and nobody is awaited
    assert federation.open_round()
    now = Arrivals(end_date="2100-01-01").ends_at
    assert not closes()
    now += 10.0
    assert closes()
    assert federation.open_round() == b""


def test_an_answer_under_way_is_waited_for(tmp_path: Path) -> None:
    """The number is reached by one site: the other has drawn its coins, and its answer counts."""
    federation = OpenFederation(tmp_path, make_open_study(end_answers=5))
    now, core = time.time(), federation.core
    for name in federation.study.clients:
        federation.arrive(name, people(name, 40))
        federation.start(name)
    asked = federation.open_round()
    payloads = {name: federation.answer(name, asked) for name in federation.study.clients}
    for name, payload in payloads.items():
        core.look(now)
        assert core.intake.is_open
        assert payload is not None
        core.take(name, payload)
    core.look(now)
    assert not core.intake.is_open
    assert federation.run_.coordinator.asked == {name: spent(federation, name)[0] for name in payloads}


def test_a_coordinator_that_starts_again_asks_the_same_and_its_round_is_as_old(federation: OpenFederation) -> None:
    federation.arrive("north", people("north", 100))
    federation.start("north")
    federation.play(2)
    asked = federation.open_round()
    with RunStore.open(federation.directory.store_file, read_only=True) as store:
        again = federation.new_core(OpenRun(store, Journal(store), Coordinator(store)))
        assert again.question(0.0) == asked
        ((closed,),) = store.query("SELECT max(at) FROM rounds")
        assert again._round.since == closed


def test_by_command(federation: OpenFederation) -> None:
    federation.open_round()
    federation.core.request("close")
    federation.close_round()
    assert federation.open_round() == b""
    assert federation.core._finish() == "the run ended by command after 0 rounds"


def test_over_a_broker(tmp_path: Path) -> None:
    """The whole thing with its services: files that grow, one site that starts late, an end by number of answers."""
    study = make_open_study(epsilon=5.0, deadline=30.0, round_answers=80, end_answers=240)
    federation = OpenFederation(tmp_path, study, files=True)
    for name in study.clients:
        federation.arrive(name, people(name, 400))

    async def run() -> list[Any]:
        clients = [federation.start(name) for name in study.clients]
        for client in clients:
            client.core.responder._clock = time.monotonic  # type: ignore[attr-defined]
        service = federation.coordinator(federation.run_)
        ended = asyncio.gather(service.run(), *(client.run() for client in clients))

        async def grow() -> None:
            for number in range(200):
                await asyncio.sleep(0.1)
                for name in study.clients:
                    federation.arrive(name, people(f"{name}-{number}", 60))

        growing = asyncio.create_task(grow())
        try:
            return await asyncio.wait_for(ended, PATIENCE)
        finally:
            growing.cancel()

    async def whole() -> list[Any]:
        async with federation.running_broker():
            return await run()

    assert asyncio.run(whole()) == ["finished"] * 3
    assert federation.run_.store.why_ended == "answers"
    for name in study.clients:
        assert spent(federation, name)[1] == study.clients[name].mechanism.epsilon
    told = {name: totals.answered for name, totals in federation.run_.coordinator.clients.items()}
    assert told == {name: spent(federation, name)[0] for name in study.clients}
