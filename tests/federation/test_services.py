"""Coordinator and clients over a real broker, as tasks of one process."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nats.errors
import numpy as np
import pytest

from privatile.api.local_run import ask_rounds
from privatile.client.ledger.account import SpendingRules
from privatile.client.ledger.ledger import Ledger
from privatile.client.randomizer import SeededCoins
from privatile.client.sources.databases import open_source
from privatile.errors import RunPaused
from privatile.federation.connection import Connection, NatsSite
from privatile.federation.coordinator.service import CoordinatorService
from privatile.federation.operations.serve import OpenRun
from privatile.federation.site.responder import open_responder
from privatile.federation.study import ClientAgreement
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore
from tests.federation.kit import PATIENCE, Federation, make_study, tasks, until
from tests.federation.test_misbehaving_clients import twisted
from tests.marks import forget_marks

pytestmark = pytest.mark.network


def transcript(store: RunStore) -> list[tuple[Any, ...]]:
    return [(one.level_index, one.round, one.ask, one.ones) for one in store.all_rounds()]


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
    study = make_study(agreements, rounds, mode=mode, design=design, levels=levels, value_kind=values)
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
                await until(lambda: "site1 has been silent for 3 rounds" in coordinator.core.paused)
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
    rounds = list(coordinator.core.coordinator.store.rounds())
    assert rounds[0].ones.count(None) <= 1
    assert all(one.ones[2] is None for one in rounds[1:])


# -- what is refused -----------------------------------------------------------------------------------------------


# -- ledgers -------------------------------------------------------------------------------------------------------


def test_a_connection_that_is_lost_before_the_first_subscription_is_opened_again(tmp_path: Path) -> None:
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
        yield NatsSite(Connection(Lost(), asyncio.Event(), []), federation.study.identity, "site0")  # type: ignore[arg-type]

    async def scene() -> str:
        return await asyncio.wait_for(client.run(), PATIENCE)

    client = federation.client("site0", connect=lose)
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
    from privatile.federation.operations.commands import abort_run
    from privatile.federation.operations.status import read_status

    async def scene() -> None:
        async with federation.running_broker():
            run = federation.open_run()
            coordinator = federation.coordinator(run)
            async with tasks(federation.client("site0").run(), federation.client("site1").run()) as clients:
                work = asyncio.ensure_future(coordinator.run())
                await until(lambda: run.coordinator.done >= 3)
                from privatile.federation.coordinator.service import Control

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
