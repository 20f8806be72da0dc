"""Restored, copied and replaced ledgers, keys and run files in use, over a real broker."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest

from privatile.client.ledger.ledger import Ledger
from privatile.errors import LedgerError, SiteRefusal
from privatile.federation.connection import connected
from privatile.federation.coordinator.service import CoordinatorService
from privatile.federation.operations.serve import OpenRun
from privatile.federation.site.folder import Site
from privatile.federation.site.service import ClientService
from tests.federation.kit import PATIENCE, Federation, make_study, tasks, until
from tests.federation.test_services import transcript
from tests.marks import forget_marks

pytestmark = pytest.mark.network


def test_a_restored_ledger_stops_then_marks_what_it_lost_as_spent(tmp_path: Path) -> None:
    study = make_study(2, rounds=150, length=4, deadline=0.4)
    federation = Federation(tmp_path, study)
    ledger_file = federation.sites["site1"].ledger_file
    backup = tmp_path / "backup.db"

    async def part(client: ClientService, coordinator: CoordinatorService, run: OpenRun, rounds: int) -> None:
        wanted = run.coordinator.done + rounds  # a fast machine is further on than it was told
        given = client.core.responder.link().sequence + rounds  # and a slow one closes rounds without the client

        def far_enough() -> bool:
            return run.coordinator.done >= wanted and client.core.responder.link().sequence >= given

        async with tasks(client.run(), federation.client("site0").run(), coordinator.run()) as running:
            await until(lambda: far_enough() or any(one.done() for one in running))
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
            away = run.coordinator.done + 2
            async with tasks(federation.coordinator(run).run(), federation.client("site0").run()) as (work, _):
                # No answer of the lost ledger waits at the broker any more: it would count, and its link come back.
                await until(lambda: run.coordinator.done >= away)
                async with tasks(federation.client("site1", restored=True).run()):
                    assert await asyncio.wait_for(work, PATIENCE) == "finished"
        return run

    run = asyncio.run(scene())
    assert "restored" in [event.kind for event in run.journal.events()]
    with federation.ledger("site1") as ledger:
        spans = ledger.execute("SELECT start, stop FROM answers ORDER BY start").fetchall()
        (lost,) = ledger.execute("SELECT SUM(length) FROM answers WHERE ones IS NULL").fetchone()
    assert lost >= 4 * 3
    assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(spans))


def test_a_copied_ledger_in_use_twice_is_caught(tmp_path: Path) -> None:
    study = make_study(2, rounds=150, length=4, deadline=60.0)  # no round closes without the client
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
