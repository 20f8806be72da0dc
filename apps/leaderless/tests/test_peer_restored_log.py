"""The log is lost, and with it the file of one organization, which is put back from a backup."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from peers_kit import Peers, leaderless
from privatile_leaderless.service import PeerService, catch_up
from test_peer_copies import Page

pytestmark = pytest.mark.network  # the kit looks for free ports


def test_a_restored_peer_does_not_let_a_new_log_begin_before_what_was_committed(tmp_path: Path) -> None:
    peers = Peers(tmp_path, leaderless(3, rounds=8, length=4, patience=5), servers=1)
    store, backup = peers.folders["site0"].store_file, tmp_path / "backup.db"

    async def play(page: Page, services: list[PeerService], turns: range) -> None:
        for turn in turns:
            for one in services:
                await page.turn(one, 1000.0 * turn)  # every deadline is over at the next turn
        for one in services:
            one._keep()

    def begin(*names: str) -> list[PeerService]:
        return [peers.service(name) for name in names]

    def close(*names: str) -> None:
        for name in names:
            peers.logs.pop(name).close()

    def take_over(name: str, other: str) -> PeerService:
        close(name)
        catch_up(peers.folders[name], peers.folders[other].store_file)
        (found,) = begin(name)
        return found

    async def lose() -> None:
        page, services = Page(), begin(*peers.study.clients)
        await play(page, services, range(4))
        with contextlib.closing(sqlite3.connect(store)) as connection:
            connection.execute("VACUUM INTO ?", (str(backup),))
        await play(page, services, range(4, 6))
        await play(page, services[:2], range(6, 14))  # the third is away
        assert [one.replica.closed >= 5 for one in services] == [True, True, False]
        close(*peers.study.clients)
        for suffix in ("-wal", "-shm"):
            Path(f"{store}{suffix}").unlink(missing_ok=True)
        shutil.copy(backup, store)

    async def recover() -> None:
        committed = peers.committed("site1")
        assert len(committed) >= 4
        for one in begin(*peers.study.clients):
            one.peer_log.begin_epoch(1)
            if one.client == "site0":
                one.peer_log.store.execute([("UPDATE peer SET restored = 1", ())])
        close(*peers.study.clients)
        page, (first, third) = Page(), begin("site0", "site2")
        await play(page, [third, first], range(3))
        await play(page, [third, first], range(3, 8))
        assert third.replica.recovering  # the second may know more, and does
        (second,) = begin("site1")
        await play(page, [first, second, third], range(8, 12))
        assert "this peer lacks rounds before. Take over" in third.replica.paused
        third = take_over("site2", "site1")
        await play(page, [first, second, third], range(12, 28))
        assert second.replica.finished
        assert third.replica.finished
        assert first.replica.behind is not None
        spoken = [entry.sender for entry in page.entries if b'"kind":"stand"' in entry.payload]
        assert set(spoken) == {"site1", "site2"}
        assert any("before the others have" in event.text for event in first.peer_log.journal.events())
        first = take_over("site0", "site1")
        await play(page, [first], range(28, 30))
        assert first.replica.finished
        for name in peers.study.clients:
            assert peers.committed(name)[: len(committed)] == committed

    asyncio.run(lose())
    asyncio.run(recover())
    close(*peers.study.clients)
    assert peers.check() > 0
