"""A peer that is shown another log than the others finds back as soon as it is shown theirs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from peers_kit import Peers, leaderless
from privatile.errors import BrokerError
from privatile_leaderless import service as service_module
from privatile_leaderless.log_port import LogPort
from privatile_leaderless.peer_file import LogEntry
from privatile_leaderless.service import PeerService
from test_peer_copies import Page

pytestmark = pytest.mark.network  # the kit looks for free ports


class Shown:
    """What the operator of the log shows to one peer."""

    behind, verified, delay = 0, True, 0.0

    def __init__(self, service: PeerService, page: Page, hidden: set[int]) -> None:
        self.service, self.page, self.hidden = service, page, hidden

    async def entries(self, until: float) -> list[LogEntry]:
        await asyncio.sleep(0.001)
        last = 0 if self.service._last is None else self.service._last[0]
        return [one for one in self.page.entries[last:] if one.position not in self.hidden]

    async def publish(self, payload: bytes) -> None:
        """It is withheld."""


def test_a_log_that_leads_astray_again_when_it_is_read_again_is_read_once_more_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, that was the last time: the peer stood still for ever, though it was shown everything by then."""
    monkeypatch.setattr(service_module, "LONG_PAUSE", 0.5)
    peers, page = Peers(tmp_path, leaderless(3, rounds=8, length=4), servers=1), Page()

    async def play() -> None:
        first, second, third = (peers.service(name) for name in peers.study.clients)
        while third.replica.closed < 1:
            for one in (first, second, third):
                await page.turn(one, 0.0)
        while third.replica.asked is None or third.client in third.replica.missing:
            for one in (first, third):
                await page.turn(one, 0.0)
        begin = len(page.entries)
        await page.turn(second, 0.0)  # its answer closes the round
        hidden = set(range(begin + 1, len(page.entries) + 1))
        while first.replica.missing != [third.client]:
            for one in (first, second):
                await page.turn(one, 0.0)
        port = cast(LogPort, Shown(third, page, hidden))
        with pytest.raises(BrokerError, match="read again"):
            await asyncio.wait_for(third._session(port), 5.0)
        began = asyncio.get_running_loop().time()
        with pytest.raises(BrokerError, match="read again"):
            await asyncio.wait_for(third._session(port), 5.0)
        assert asyncio.get_running_loop().time() - began > 0.3  # not over and over
        hidden.clear()
        await page.turn(third, 0.0)
        assert (third.replica.chain, third.replica.asks) == (first.replica.chain, first.replica.asks)

    asyncio.run(play())
