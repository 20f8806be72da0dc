"""What a peer does: it compares its ledger with what the log shows, asks nobody twice, and casts its people's votes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest

from logged_peers import LoggedPeer, Peers, leaderless_study
from privatile.client.ledger.ledger import Ledger
from privatile.errors import LedgerError, OtherContent
from privatile_leaderless.chain import signed_value
from privatile_leaderless.conduct import PeerProtocol, VoteBox
from privatile_leaderless.entries import LevelAsk, read_entry
from privatile_leaderless.log import LogPort
from privatile_leaderless.notes import PeerNotes
from privatile_leaderless.peer_file import LogEntry
from tests.marks import forget_marks


class ListedLog:
    """What a peer needs of the log's port, over the list of `Peers`."""

    delay = 0.0

    def __init__(self, peers: Peers, name: str) -> None:
        self.peers, self.name = peers, name

    async def publish(self, payload: bytes) -> None:
        self.peers.write(self.name, payload)


def make_conduct(
    peer: LoggedPeer, claim: Callable[[tuple[LevelAsk, ...]], bool], *, restored: bool = False
) -> PeerProtocol:
    return PeerProtocol(
        peer.name,
        peer.key,
        peer.replica,
        peer.log,
        peer.responder,
        peer.limits,
        PeerNotes(peer.study, peer.replica, peer.log.journal),
        VoteBox(peer.folder.vote_file),
        claim,
        restored,
    )


def conduct(peer: LoggedPeer, *, restored: bool) -> PeerProtocol:
    peer.begin(restored=restored)
    return make_conduct(peer, lambda asks: peer.log.claim(peer.replica.claims, asks), restored=restored)


def test_a_peer_whose_ledger_was_restored_asks_nobody_twice(tmp_path: Path) -> None:
    peers = Peers(tmp_path)
    north, west = peers["north"], peers["west"]
    ledger_file, backup = west.folder.ledger_file, tmp_path / "backup.db"
    peers.play(2)
    west.responder.ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(ledger_file, backup)
    peers.play(2)
    peers.write("north", north.replica.proposal("north").pack(north.key))  # round 5 is open
    west.responder.ledger.close()
    west.log.close()
    for tail in ("", "-wal", "-shm"):
        Path(f"{ledger_file}{tail}").unlink(missing_ok=True)
    shutil.copy(backup, ledger_file)
    forget_marks()
    port = cast("LogPort", ListedLog(peers, "west"))
    with pytest.raises(LedgerError, match=r"2 entries of run .* but 4 were seen before"):  # nobody has said why
        asyncio.run(conduct(west, restored=False).act(port, 0.0))
    west.responder.ledger.close()
    west.log.close()
    went_on = conduct(west, restored=True)
    asyncio.run(went_on.act(port, 0.0))
    # 20 records per round: 40 of the backup, 40 that it lacks, 20 of the open round, which may have been answered too.
    assert west.responder.account.state().asked == 100
    assert "west" in north.replica.missing  # it answers from the next round on
    for peer in (north, peers["south"]):
        peers.write(peer.name, peer.answer())
    peers.write("north", north.replica.close_vote("north").pack(north.key))
    assert north.replica.closed == 5
    peers.write("north", north.replica.proposal("north").pack(north.key))
    asyncio.run(went_on.act(port, 10.0))
    assert "west" not in north.replica.missing
    assert west.responder.account.state().asked == 120
    with Ledger.open(ledger_file, read_only=True) as ledger:
        spans = ledger.execute("SELECT start, stop FROM answers ORDER BY start").fetchall()
    assert all(one[1] <= other[0] for one, other in pairwise(spans))
    peers.close()


def test_a_peer_that_comes_with_another_file_is_told_how_many_have_answered(tmp_path: Path) -> None:
    peers = Peers(tmp_path)
    north = peers["north"]
    peers.play(2)
    north.responder.ledger.close()
    north.log.close()
    own, north.values = north.values, north.values + 1.0
    with pytest.raises(OtherContent, match="with other content, or in another order, of which 40 records answered"):
        north.begin()
    north.values = own
    north.begin()  # the control
    peers.close()


def test_a_vote_that_comes_after_its_round_is_cast_again(tmp_path: Path) -> None:
    peers = Peers(tmp_path)
    north = peers["north"]
    peers.play(1)
    north.responder.ledger.close()
    north.log.close()
    votes, went_on = VoteBox(north.folder.vote_file), conduct(north, restored=False)
    sent: list[bytes] = []

    class Slow(ListedLog):
        async def publish(self, payload: bytes) -> None:
            if b'"kind":"vote"' in payload:
                sent.append(payload)

    port = cast("LogPort", Slow(peers, "north"))

    def cast_votes() -> None:
        asyncio.run(went_on.act(port, 0.0))

    def arrive(payload: bytes) -> None:
        peers.write("north", payload)
        went_on.seen(LogEntry(peers.position, "north", payload))

    votes.put()
    cast_votes()
    cast_votes()
    (late,) = sent  # once
    peers.play(1)
    arrive(late)
    assert not north.replica.has_voted("north")
    assert north.folder.vote_file.exists()  # it would be lost otherwise
    cast_votes()
    (_, again) = sent
    arrive(again)
    assert north.replica.has_voted("north")
    cast_votes()
    assert not north.folder.vote_file.exists()
    # One whose file is still there after it was counted, as after a crash, is not cast again.
    votes.put()
    cast_votes()
    assert (north.folder.vote_file.exists(), len(sent)) == (False, 2)
    peers.close()


@pytest.mark.parametrize("what", ["answer", "final", "checkpoint"])
def test_nothing_is_signed_whose_slot_is_not_in_the_file(tmp_path: Path, what: str) -> None:
    peers = Peers(tmp_path, leaderless_study(rounds=2))
    north, others = peers["north"], (peers["south"], peers["west"])
    peers.play(1)
    if what == "checkpoint":
        for peer in (north, *others):
            peer.log.begin_epoch(1)
            peer.replica.new_epoch(1)
        for peer in others:
            peers.write(peer.name, peer.replica.stand(peer.name, peer.log.slots, ()).pack(peer.key))
        assert north.replica.begins_at is not None
    elif what == "final":
        peers.play(1)
        peers.write("north", north.replica.proposal("north").pack(north.key))
        assert north.replica.ended
    else:
        peers.write("north", north.replica.proposal("north").pack(north.key))
    slot, chain = north.replica.claims[-1]
    claimed: list[bool] = []
    signed: list[bytes] = []

    class Watched(ListedLog):
        async def publish(self, payload: bytes) -> None:
            value = signed_value(read_entry(payload, north.key.public.signer))
            if value is not None:
                assert north.log.store.query("SELECT chain FROM peer_slots WHERE slot = ?", value[:1]) == [value[1:]]
                signed.append(payload)

    def conduct_with(allowed: bool) -> PeerProtocol:
        def claim(asks: tuple[LevelAsk, ...]) -> bool:
            claimed.append(allowed)
            return allowed and north.log.claim(north.replica.claims, asks)

        return make_conduct(north, claim)

    port = cast("LogPort", Watched(peers, "north"))
    asyncio.run(conduct_with(False).act(port, 0.0))
    assert (claimed, signed) == ([False], [])
    asyncio.run(conduct_with(True).act(port, 0.0))
    assert [signed_value(read_entry(payload, north.key.public.signer)) for payload in signed] == [(slot, chain)]
    peers.close()


def test_a_vote_to_abort_is_said_again_in_a_new_log_and_once(tmp_path: Path) -> None:
    peers = Peers(tmp_path)
    north = peers["north"]
    peers.play(1)
    peers.write("north", north.replica.vote("north").pack(north.key))
    peers.play(1)
    for peer in peers.peers.values():
        peer.log.begin_epoch(1)
        peer.replica.new_epoch(1)
    said: list[str] = []

    class Watched(ListedLog):
        async def publish(self, payload: bytes) -> None:
            said.append(type(read_entry(payload, north.key.public.signer)).__name__)
            await super().publish(payload)

    north_goes_on = make_conduct(north, lambda asks: north.log.claim(north.replica.claims, asks))
    for _ in range(3):
        asyncio.run(north_goes_on.act(cast("LogPort", Watched(peers, "north")), 0.0))
    assert sorted(said) == ["PositionReport", "Vote"]
    assert all(peer.replica.has_voted("north") for peer in peers.peers.values())
    peers.close()
