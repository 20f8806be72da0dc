"""Two processes with one organization's key: a copied folder, each with its own copy of the ledger."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from peers_kit import Peers, leaderless
from privatile.client.ledger.ledger import Ledger
from privatile.client.sources.source import ONLY_CLIENT
from privatile.errors import LedgerError
from privatile_leaderless.folder import PeerFolder
from privatile_leaderless.log import LogPort
from privatile_leaderless.peer_file import LogEntry
from privatile_leaderless.service import PeerService

pytestmark = pytest.mark.network  # the kit looks for free ports


class Page:
    """A log without a network: what is published stands in it at once."""

    delay = 0.0

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.sender = ""

    async def publish(self, payload: bytes) -> None:
        self.entries.append(LogEntry(len(self.entries) + 1, self.sender, payload))

    async def turn(self, service: PeerService, now: float) -> None:
        """Let a peer read what it has not read, and do what is due."""
        self.sender, port = service.client, cast(LogPort, self)
        for entry in self.entries[0 if service._last is None else service._last[0] :]:
            service._apply(entry)
        await service._conduct.act(port, now)


def has_question(service: PeerService) -> bool:
    return service.replica.asked is not None


def copied(peers: Peers, name: str) -> PeerFolder:
    shutil.copytree(peers.folders[name].path, peers.folder / "copy")
    shutil.copytree(peers.folders[name].site, peers.folder / "site-copy")
    folder = PeerFolder.open(peers.folder / "copy")
    folder.site = peers.folder / "site-copy"
    folder.ledger_file, folder.key_file = folder.site / "ledger.db", folder.site / f"{name}.key"
    return folder


def test_a_copy_whose_ledger_lacks_a_counted_answer_answers_nothing(tmp_path: Path) -> None:
    peers = Peers(tmp_path, leaderless(2, rounds=8, length=4), servers=1)
    page = Page()

    async def play() -> None:
        first, second = (peers.service(name) for name in peers.study.clients)
        while first.replica.closed < 2:
            for one in (first, second):
                await page.turn(one, 0.0)
        while not has_question(first) or first.client in first.replica.missing:
            await page.turn(first, 0.0)
        original, peers.folders["site1"] = peers.folders["site1"], copied(peers, "site1")
        copy = peers.service("site1")
        copy._conduct._forgotten = 1  # as `federation backup` marks it
        await page.turn(copy, 0.0)  # its ledger is as far as the log: it waits for the next round
        number = len(given(original)) + 1
        while second.replica.closed < number:
            for one in (second, first):
                await page.turn(one, 0.0)
        while not has_question(first):
            await page.turn(first, 0.0)
        before = given(peers.folders["site1"])
        assert len(given(original)) == len(before) + 1
        with pytest.raises(LedgerError, match="were seen before"):
            await page.turn(copy, 100.0)
        assert given(peers.folders["site1"]) == before

    def given(folder: PeerFolder) -> dict[int, Any]:
        with Ledger.open(folder.ledger_file, read_only=True) as ledger:
            return dict(ledger.answers(peers.study.run, ONLY_CLIENT))

    asyncio.run(play())
