"""Coordinator and clients over a real broker, as tasks of one process."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nats.errors
import numpy as np
import pytest

from privatile.api.local_run import ask_rounds
from privatile.client.coins import SeededCoins
from privatile.client.ledger.ledger import Ledger
from privatile.client.ledger.spending_rules import SpendingRules
from privatile.client.sources.opening import open_source
from privatile.core.messages import Answer, Question
from privatile.errors import LedgerError, RunPaused, SiteRefusal
from privatile.federation.coordinator.service import CoordinatorService
from privatile.federation.run.serve import OpenRun
from privatile.federation.site.folder import Site
from privatile.federation.site.limits import SiteLimits
from privatile.federation.site.responder import open_responder
from privatile.federation.site.service import ClientService
from privatile.federation.study.study import ClientAgreement
from privatile.federation.wire import messages as wire
from privatile.federation.wire.connection import connected
from privatile.federation.wire.messages import AskMessage, Link
from privatile.server.coordinator import Coordinator
from privatile.server.run_file import RunStore
from tests.federation.kit import PATIENCE, Federation, make_study, tasks, until
from tests.marks import forget_marks

pytestmark = pytest.mark.network


def transcript(store: RunStore) -> list[tuple[Any, ...]]:
    return [(one.level_index, one.round, one.ask, one.ones) for one in store.all_rounds()]


class SilentWire:
    """A connection that keeps what is published."""

    def __init__(self) -> None:
        self.published: list[bytes] = []

    @property
    def nc(self) -> SilentWire:
        return self

    async def publish(self, subject: str, payload: bytes) -> None:
        self.published.append(payload)


class Answering(ClientService):
    """A client whose answers pass through the test's hands."""

    twist: Callable[[int, tuple[Answer, ...]], tuple[Answer, ...] | None]

    async def _answer(self, connection: Any, payload: bytes) -> None:
        inner = self.responder

        class Twisted:
            def answer(self, questions: Sequence[Question]) -> tuple[tuple[Answer, ...], Link]:
                answers, link = inner.answer(questions)
                changed = service.twist(questions[0].round, answers)
                if changed is None:
                    raise asyncio.CancelledError
                return changed, link

        service = self
        self.responder = Twisted()  # type: ignore[assignment]
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await super()._answer(connection, payload)
        finally:
            self.responder = inner


def twisted(
    federation: Federation, name: str, twist: Callable[[int, tuple[Answer, ...]], tuple[Answer, ...] | None]
) -> Answering:
    client = federation.client(name)
    client.__class__ = Answering
    assert isinstance(client, Answering)
    client.twist = twist
    return client


# -- the same draws, the same transcript ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "design", "levels", "values"),
    [
        ("cohort", "rounds", (0.5,), "any"),
        ("local", "rounds", (0.5,), "any"),
        ("cohort", "rounds", (0.1, 0.5, 0.9), "any"),
        ("local", "rounds", (0.1, 0.5, 0.9), "any"),
        ("cohort", "auto", (0.9, 0.1, 0.5), "step=0.5"),
        ("cohort", "auto", (0.5,), "continuous"),
    ],
)
def test_broker_and_in_process_runs_agree_bit_for_bit(
    tmp_path: Path, mode: str, design: str, levels: tuple[float, ...], values: str
) -> None:
    rounds = 25 if design == "rounds" else 60
    # Clients of unequal size whose records do not divide by the levels.
    agreements = {f"site{k}": ClientAgreement(1.0, (k + 1) / 6, rounds * 5 * len(levels) + 7 * k) for k in range(3)}
    study = make_study(agreements, rounds, mode=mode, design=design, levels=levels, values=values)
    federation = Federation(tmp_path, study)
    copies = tmp_path / "copies"
    copies.mkdir()
    for name, site in federation.sites.items():
        with Ledger.open(site.ledger_file) as ledger, ledger.transaction():
            pass  # the file, with its keys, so that both runs walk the same order
        shutil.copy(site.ledger_file, copies / name)

    def coins(k: int) -> SeededCoins:
        return SeededCoins(np.random.default_rng([7, k]))

    run = asyncio.run(federation.run({name: coins(k) for k, name in enumerate(study.clients)}))
    responders = []
    forget_marks()
    for k, name in enumerate(study.clients):
        responder = open_responder(
            study,
            name,
            open_source(federation.values[name], value=None),
            Ledger.open(copies / name),
            SpendingRules(max_epsilon=1.0),
            coins=coins(k),
        )
        responders.append(responder._responder)
    local = Coordinator(RunStore.create(tmp_path / "local.db", study.run, study.spec))
    ask_rounds(local, responders)
    assert len(transcript(run.store)) == rounds * len(levels)
    assert transcript(run.store) == transcript(local.store)
    both = [[replace(one, date=None).to_json() for one in found.results()] for found in (run.coordinator, local)]
    assert both[0] == both[1]
    for name in study.clients:
        check_everybody_answered_one_level_once(federation, name)


def check_everybody_answered_one_level_once(federation: Federation, name: str) -> None:
    """The ledger's spans, over all levels, cover every record once and none twice."""
    study = federation.study
    with federation.ledger(name) as ledger:
        rows = ledger.execute("SELECT start, stop, length, level, round FROM answers ORDER BY start").fetchall()
    assert rows[0][0] == 0
    assert all(one[1] == two[0] for one, two in itertools.pairwise(rows))
    assert rows[-1][1] == sum(row[2] for row in rows) == study.clients[name].records
    assert {(row[3], row[4]) for row in rows} == set(itertools.product(study.asked_levels, range(1, study.rounds + 1)))
    assert len(rows) == study.rounds * len(study.levels)


# -- silence -------------------------------------------------------------------------------------------------------


def test_a_silent_client_keeps_its_last_mean_then_the_run_pauses_then_continues(tmp_path: Path) -> None:
    study = make_study(2, rounds=500, length=1, deadline=0.6, patience=3)
    federation = Federation(tmp_path, study)
    at_pause: list[tuple[int | None, ...]] = []

    async def scene() -> OpenRun:
        run = federation.open_run()
        async with federation.running_broker():
            coordinator = federation.coordinator(run)
            south = federation.client("site1")
            gone = asyncio.ensure_future(south.run())
            async with tasks(coordinator.run(), federation.client("site0").run()) as (work, *_):
                await until(lambda: run.coordinator.done >= 2)
                south.stop()
                await gone
                assert run.coordinator.done < 500
                await until(lambda: "site1 has been silent for 3 rounds" in coordinator._paused_for)
                at_pause.extend(one.ones for one in run.store.rounds())
                assert coordinator.health()[0] is False
                async with tasks(federation.client("site1").run()):
                    assert await asyncio.wait_for(work, PATIENCE) == "finished"
        return run

    run = asyncio.run(scene())
    # It continued for three rounds without the client, and for no more.
    assert [ones[1] for ones in at_pause[-3:]] == [None] * 3
    assert at_pause[-4][1] is not None
    stored = [one.ones for one in run.store.rounds()]
    assert stored[: len(at_pause)] == at_pause
    assert stored[len(at_pause)][1] is not None  # the round that waited was answered by it
    kinds = [event.kind for event in run.journal.events()]
    assert "paused" in kinds
    assert "resumed" in kinds
    assert run.coordinator.tracks[0].state.round == 500


def test_the_first_round_needs_every_client_else_the_run_pauses(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(2, deadline=0.2))

    async def alone() -> None:
        run = federation.open_run()
        async with federation.running_broker():
            with pytest.raises(RunPaused, match="site0 has never answered"):
                await asyncio.wait_for(federation.coordinator(run, exit_when_paused=True).run(), PATIENCE)
        run.store.close()

    asyncio.run(alone())
    run = asyncio.run(federation.run())  # the state can be resumed
    assert run.store.finished


def test_a_quorum_closes_a_round_without_the_slow_client(tmp_path: Path) -> None:
    study = make_study(3, rounds=6, quorum=2, deadline=30.0, patience=100)
    federation = Federation(tmp_path, study)

    async def scene() -> CoordinatorService:
        run = federation.open_run()
        async with federation.running_broker():
            coordinator = federation.coordinator(run)
            slow = twisted(federation, "site2", lambda number, answers: answers if number == 1 else None)
            async with tasks(
                coordinator.run(), federation.client("site0").run(), federation.client("site1").run(), slow.run()
            ) as (work, *_):
                assert await asyncio.wait_for(work, PATIENCE) == "finished"
        return coordinator

    coordinator = asyncio.run(scene())
    rounds = list(coordinator.coordinator.store.rounds())
    assert rounds[0].ones.count(None) <= 1
    assert all(one.ones[2] is None for one in rounds[1:])


# -- what is refused -----------------------------------------------------------------------------------------------


def test_unusable_answers_are_rejected_then_quarantined_until_the_client_is_readmitted(tmp_path: Path) -> None:
    study = make_study(
        2, rounds=200, length=1, deadline=0.3, patience=200
    )  # not over before three wrong answers are sent
    federation = Federation(tmp_path, study)
    lying = True

    def too_many(number: int, answers: tuple[Answer, ...]) -> tuple[Answer, ...]:
        return tuple(replace(one, ones=10_000) for one in answers) if lying and number >= 2 else answers

    async def scene() -> OpenRun:
        nonlocal lying
        run = federation.open_run()
        async with federation.running_broker():
            coordinator = federation.coordinator(run)
            liar = twisted(federation, "site1", too_many)
            liar.heartbeat = 0.1
            async with tasks(coordinator.run(), federation.client("site0").run()) as (work, *_):
                with pytest.raises(SiteRefusal, match="unusable"):
                    await asyncio.wait_for(liar.run(), PATIENCE)
                assert "quarantined: site1" in coordinator.health()[1]["paused"]
                lying = False
                from privatile.federation.coordinator.control import Control

                Control(federation.directory.path / "control").request("readmit", "site1")
                await until(lambda: not coordinator._intake.quarantined)
                async with tasks(federation.client("site1").run()):
                    assert await asyncio.wait_for(work, PATIENCE) == "finished"
        return run

    run = asyncio.run(scene())
    kinds = [event.kind for event in run.journal.events()]
    assert kinds.count("rejected") == 3
    assert "quarantined" in kinds
    assert "readmitted" in kinds
    assert not any("10000" in event.text and "ones" not in event.text for event in run.journal.events())


def test_an_impossible_share_of_ones_is_a_proven_lie(tmp_path: Path) -> None:
    study = make_study(2, rounds=10, length=200)
    federation = Federation(tmp_path, study)

    def all_ones(number: int, answers: tuple[Answer, ...]) -> tuple[Answer, ...]:
        return tuple(replace(one, ones=200) for one in answers)

    async def scene() -> None:
        run = federation.open_run()
        async with federation.running_broker():
            liar = twisted(federation, "site1", all_ones)
            async with tasks(federation.client("site0").run(), liar.run()):
                with pytest.raises(RunPaused, match="quarantined: site1"):
                    await asyncio.wait_for(federation.coordinator(run, exit_when_paused=True).run(), PATIENCE)
        assert "impossible" in run.journal.quarantined()["site1"]

    asyncio.run(scene())


def test_equivocation_is_refused_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    study = make_study(1, rounds=5)
    federation = Federation(tmp_path, study)
    key = federation.directory.key()

    async def scene() -> ClientService:
        run = federation.open_run()
        async with federation.running_broker():
            await asyncio.wait_for(
                asyncio.gather(federation.client("site0").run(), federation.coordinator(run).run()), PATIENCE
            )
        first = next(iter(run.store.rounds()))
        asked = first.ask.sent
        good = Question(study.run, 1, 0.5, asked, first.ask.lengths[0])
        forged = {
            "another query": replace(good, query=asked + 1.0),
            "another length": replace(good, length=first.ask.lengths[0] + 1),
            "another step": replace(good, step=0.5),
            "another run": replace(good, run="elsewhere"),
            "beyond the rounds": replace(good, round=99),
            "outside the range": replace(good, round=5, query=1e9),
            "another level": replace(good, round=5, level=0.25),
        }
        spent = federation.ledger("site0").position
        fresh = federation.client("site0")
        fresh._welcomed = True
        wire_end = SilentWire()
        published = wire_end.published
        for question in forged.values():
            message = AskMessage.of(study.digest, {"site0": (question,)})
            await fresh._on_ask(wire_end, message.pack(key))  # type: ignore[arg-type]
        changed = AskMessage.of("f" * 64, {"site0": (good,)})
        await fresh._on_ask(wire_end, changed.pack(key))  # type: ignore[arg-type]
        assert published == []
        assert federation.ledger("site0").position == spent
        await fresh._on_ask(wire_end, AskMessage.of(study.digest, {"site0": (good,)}).pack(key))  # type: ignore[arg-type]
        (payload,) = published
        answer = wire.read_message(payload, federation.sites["site0"].key().public.signer, wire.LARGEST_ANSWER)
        assert isinstance(answer, wire.AnswerMessage)
        assert answer.answers[0].ones == first.ones[0]  # the identical question gets the stored count
        return fresh

    with caplog.at_level(logging.WARNING, logger="privatile"):
        fresh = asyncio.run(scene())
    assert fresh.metrics.value("refused") == 8
    assert fresh.metrics.value("equivocations") == 2  # a step, in cohort mode, is refused before
    assert [record.getMessage() for record in caplog.records].count("equivocation") == 2


def test_the_sites_limits_decide_how_few_records_a_question_may_ask(tmp_path: Path) -> None:
    limits = SiteLimits(1.0, min_cohort=5)
    with pytest.raises(SiteRefusal, match="at least 5"):
        limits.check_length(Question("r", 1, 0.5, 50.0, 4))
    federation = Federation(tmp_path, make_study(1, rounds=5, length=4))
    study, key, client = federation.study, federation.directory.key(), federation.client("site0")
    client.limits, client._welcomed = limits, True
    wire_end = SilentWire()
    for length, answers in ((4, 0), (5, 1)):
        asked = AskMessage.of(study.digest, {"site0": (Question(study.run, 1, 0.5, 50.0, length),)})
        asyncio.run(client._on_ask(wire_end, asked.pack(key)))  # type: ignore[arg-type]
        assert len(wire_end.published) == answers
    assert client.metrics.value("refused") == 1


def test_a_study_beyond_the_sites_limits_is_refused_before_any_connection(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(1))
    path = federation.sites["site0"].limits_file
    path.write_text("max_epsilon = 0.25\n")
    with pytest.raises(SiteRefusal, match=r"allow 0\.25"):
        federation.client("site0")


# -- ledgers -------------------------------------------------------------------------------------------------------


def test_a_restored_ledger_stops_then_marks_what_it_lost_as_spent(tmp_path: Path) -> None:
    study = make_study(2, rounds=150, length=4, deadline=0.4)
    federation = Federation(tmp_path, study)
    ledger_file = federation.sites["site1"].ledger_file
    backup = tmp_path / "backup.db"

    async def part(client: ClientService, coordinator: CoordinatorService, run: OpenRun, rounds: int) -> None:
        wanted = run.coordinator.done + rounds  # a fast machine is further on than it was told
        async with tasks(client.run(), federation.client("site0").run(), coordinator.run()) as running:
            await until(lambda: run.coordinator.done >= wanted or any(one.done() for one in running))
            coordinator.stop()
            await running[2]

    async def scene() -> OpenRun:
        async with federation.running_broker():
            run = federation.open_run()
            await part(federation.client("site1"), federation.coordinator(run), run, 3)
            with Ledger.open(ledger_file) as ledger:
                ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            shutil.copy(ledger_file, backup)
            await part(federation.client("site1"), federation.coordinator(run), run, 6)
            for tail in ("", "-wal", "-shm"):
                Path(f"{ledger_file}{tail}").unlink(missing_ok=True)
            shutil.copy(backup, ledger_file)
            forget_marks()
            with pytest.raises(LedgerError, match="restored from a backup"):
                async with tasks(federation.coordinator(run).run()):
                    await asyncio.wait_for(federation.client("site1").run(), PATIENCE)
            coordinator = federation.coordinator(run)
            client = federation.client("site1", restored=True)
            async with tasks(client.run(), federation.client("site0").run()):
                assert await asyncio.wait_for(coordinator.run(), PATIENCE) == "finished"
        return run

    run = asyncio.run(scene())
    assert "restored" in [event.kind for event in run.journal.events()]
    with federation.ledger("site1") as ledger:
        spans = ledger.execute("SELECT start, stop FROM answers ORDER BY start").fetchall()
        (lost,) = ledger.execute("SELECT SUM(length) FROM answers WHERE ones IS NULL").fetchone()
    assert lost >= 4 * 3
    assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(spans))


def test_a_copied_ledger_in_use_twice_is_caught(tmp_path: Path) -> None:
    study = make_study(2, rounds=150, length=4, deadline=0.5)
    federation = Federation(tmp_path, study)
    ledger_file = federation.sites["site1"].ledger_file

    async def scene() -> OpenRun:
        async with federation.running_broker():
            run = federation.open_run()
            coordinator = federation.coordinator(run)
            one = federation.client("site1")
            async with tasks(one.run(), federation.client("site0").run(), coordinator.run()) as running:
                await until(lambda: run.coordinator.done >= 2)
                coordinator.stop()
                await running[2]
            with Ledger.open(ledger_file) as ledger:
                ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            shutil.copytree(federation.sites["site1"].path, tmp_path / "clone")
            forget_marks()
            coordinator = federation.coordinator(run)
            wanted = run.coordinator.done + 3
            async with tasks(federation.client("site1").run(), federation.client("site0").run()) as _:
                work = asyncio.ensure_future(coordinator.run())
                await until(lambda: run.coordinator.done >= wanted)
                coordinator.stop()
                await work
            original = federation.sites["site1"]
            federation.sites["site1"] = Site(tmp_path / "clone", "site1")
            try:
                with pytest.raises(LedgerError, match="restored from a backup"):
                    async with tasks(federation.coordinator(run).run()):
                        await asyncio.wait_for(federation.client("site1").run(), PATIENCE)
            finally:
                federation.sites["site1"] = original
        return run

    run = asyncio.run(scene())
    assert run.coordinator.done >= 5


def test_two_live_holders_of_one_key_both_stop(tmp_path: Path) -> None:
    study = make_study(2, rounds=10, deadline=5.0)
    federation = Federation(tmp_path, study)

    async def scene() -> list[Any]:
        async with federation.running_broker():
            run = federation.open_run()
            async with tasks(federation.coordinator(run).run()):
                one = federation.client("site1")
                first = asyncio.ensure_future(one.run())
                await until(lambda: one.metrics.value("answers") >= 1)  # the same ledger in both
                shutil.copytree(federation.sites["site1"].path, tmp_path / "twin")
                forget_marks()
                original = federation.sites["site1"]
                federation.sites["site1"] = Site(tmp_path / "twin", "site1")
                second = asyncio.ensure_future(federation.client("site1").run())
                federation.sites["site1"] = original
                both = await asyncio.wait_for(asyncio.gather(first, second, return_exceptions=True), PATIENCE)
                # The organizer is told too: the site will be silent from now on.
                await until(
                    lambda: ("two holders", "site1") in [(one.kind, one.client) for one in run.journal.events()]
                )
                return list(both)

    first, twin = asyncio.run(scene())
    assert isinstance(first, SiteRefusal), first
    assert "two live holders" in str(first)
    assert isinstance(twin, SiteRefusal), twin
    assert "two live holders" in str(twin)


def test_a_connection_that_is_lost_before_the_first_subscription_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is killed at this moment ended the client before."""
    federation = Federation(tmp_path, make_study(1))
    attempts = 0

    class Lost:
        async def subscribe(self, *arguments: Any, **settings: Any) -> None:
            raise nats.errors.ConnectionClosedError

    @contextlib.asynccontextmanager
    async def lose(*arguments: Any) -> AsyncIterator[Any]:
        nonlocal attempts
        attempts += 1
        if attempts == 3:
            client.stop()
        yield SimpleNamespace(nc=Lost(), lost=asyncio.Event())

    async def scene() -> str:
        return await asyncio.wait_for(client.run(), PATIENCE)

    client = federation.client("site0")
    monkeypatch.setattr("privatile.federation.site.service.connected", lose)
    assert asyncio.run(scene()) == "stopped"
    assert attempts == 3


# -- coming and going ----------------------------------------------------------------------------------------------


def test_a_coordinator_that_is_stopped_and_started_continues_the_same_run(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(2, rounds=600, length=1))

    async def scene() -> None:
        async with federation.running_broker():
            async with tasks(federation.client("site0").run(), federation.client("site1").run()) as clients:
                done = 0
                for _ in range(3):
                    run = federation.open_run()
                    assert run.coordinator.done >= done
                    coordinator = federation.coordinator(run)
                    work = asyncio.ensure_future(coordinator.run())
                    target = run.coordinator.done + 5
                    await until(lambda run=run, target=target: run.coordinator.done >= target)  # type: ignore[misc]
                    coordinator.stop()
                    assert await asyncio.wait_for(work, PATIENCE) == "stopped"
                    done = run.coordinator.done
                    run.store.close()
                run = federation.open_run()
                assert await asyncio.wait_for(federation.coordinator(run).run(), PATIENCE) == "finished"
                assert await asyncio.wait_for(asyncio.gather(*clients), PATIENCE) == ["finished", "finished"]
            run.store.close()

    asyncio.run(scene())


def test_abort_reaches_the_clients_and_stays(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(2, rounds=20_000, length=1))
    from privatile.federation.run.requests import abort_run
    from privatile.federation.run.status import read_status

    async def scene() -> None:
        async with federation.running_broker():
            run = federation.open_run()
            coordinator = federation.coordinator(run)
            async with tasks(federation.client("site0").run(), federation.client("site1").run()) as clients:
                work = asyncio.ensure_future(coordinator.run())
                await until(lambda: run.coordinator.done >= 3)
                from privatile.federation.coordinator.control import Control

                Control(federation.directory.path / "control").request("abort")
                assert await asyncio.wait_for(work, PATIENCE) == "aborted"
                assert await asyncio.wait_for(asyncio.gather(*clients), PATIENCE) == ["aborted", "aborted"]
            run.store.close()
            again = federation.open_run()
            assert await asyncio.wait_for(federation.coordinator(again).run(), PATIENCE) == "aborted"
            again.store.close()

    asyncio.run(scene())
    assert read_status(federation.directory).state == "aborted"
    assert "marked as aborted" in abort_run(federation.directory)


def test_a_rotated_key_works_at_once_and_the_old_one_no_more(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(2, rounds=10_000, length=1, deadline=1.0, patience=10_000))

    async def scene() -> None:
        async with federation.running_broker():
            run = federation.open_run()
            coordinator = federation.coordinator(run)
            old = federation.client("site1")
            async with tasks(federation.client("site0").run(), coordinator.run(), old.run()) as running:
                await until(lambda: run.coordinator.done >= 3)
                old_key = federation.sites["site1"].key()
                await asyncio.to_thread(federation.enroll, "site1", new_key=True)
                await until(lambda: old.metrics.value("connected") == 0)
                with pytest.raises(Exception, match="does not know this key"):
                    async with connected(
                        "site1",
                        federation.invitation("site1").brokers,
                        old_key,
                        federation.invitation("site1").authority,
                    ):
                        pass
                old.stop()
                await running[2]
                new = federation.client("site1")
                async with tasks(new.run()):
                    await until(lambda: new.metrics.value("answers") >= 3)
                coordinator.stop()
                await running[1]
            run.store.close()

    asyncio.run(scene())


def test_a_restored_store_asks_the_lost_rounds_again_and_ends_the_same(tmp_path: Path) -> None:
    rounds = 200
    federation = Federation(tmp_path, make_study(2, rounds=rounds, length=1))
    store = federation.directory.store_file

    async def part(wanted: int) -> list[tuple[Any, ...]]:
        run = federation.open_run()
        coordinator = federation.coordinator(run)
        clients = [federation.client(name) for name in federation.study.clients]
        async with tasks(*(client.run() for client in clients)):
            work = asyncio.ensure_future(coordinator.run())
            await until(lambda: run.coordinator.done >= wanted)
            coordinator.stop()
            await work
        rows = transcript(run.store)
        run.store.close()
        return rows

    async def scene() -> None:
        async with federation.running_broker():
            assert 3 <= len(await part(3)) < rounds
            shutil.copy(store, tmp_path / "backup.db")
            first = await part(rounds)
            for tail in ("", "-wal", "-shm"):
                Path(f"{store}{tail}").unlink(missing_ok=True)
            shutil.copy(tmp_path / "backup.db", store)
            assert await part(rounds) == first

    asyncio.run(scene())
    with federation.ledger("site0") as ledger:
        assert ledger.verify() == rounds
