"""Random histories with votes in one honest log: everybody stands at the same place, however they came there.

Ledgers are restored, a peer answers twice or reports ones only, people vote, processes are killed. Whoever reads the
log, catches up with a file, follows the closed rounds or starts again from its own file has the same state.
"""

from __future__ import annotations

import os
import random

import pytest

from privatile.core.messages import Position
from privatile_leaderless.entries import Entry
from replica.hostile import remembered
from replica.kit import Logged, StoredPeer, make_study
from replica.test_decisions import follows, same_state

pytestmark = pytest.mark.timeout(7200)  # of the long form
HISTORIES = 500 if os.environ.get("PRIVATILE_LONG") else 4
STUDY = make_study(5, 4, 1, length=60, patience=2)


class Clerk(StoredPeer):
    """A peer whose people vote, and which may misbehave once in a while."""

    def __init__(self, name: str, chance: random.Random, *, lies: bool) -> None:
        super().__init__(STUDY, name)
        self.chance, self.lies = chance, lies

    def answer(self) -> bytes | None:
        found = super().answer()
        asked = self.replica.asked
        if found is None or asked is None or not self.lies or self.chance.random() < 0.5:
            return found
        questions = asked.questions(self.name)
        counts = [one.length for one in questions]
        return self.signed(questions, counts, self.ledger.given[questions[0].round][2])

    def extra(self) -> list[bytes]:
        """What people and accidents bring about."""
        replica, chance = self.replica, self.chance
        found: list[Entry] = []
        if replica.recovering or replica.round is None:
            return []
        if chance.random() < 0.1 and self.name in ("peer0", "peer1", "peer2"):  # too few to end it
            found.append(replica.vote(self.name))
        link = replica.link(self.name)
        if link is not None and chance.random() < 0.04 and self.name in replica.missing:
            back = Position(link.sequence - 1, (chance.getrandbits(128)).to_bytes(16, "big"))
            self.ledger.sequence = max(self.ledger.sequence, link.sequence)
            found.append(replica.restored(self.name, link, back))
        return [entry.pack(self.key) for entry in found]


def play(seed: int) -> tuple[int, int]:
    chance = random.Random(seed)
    peers = [Clerk(name, chance, lies=name == "peer4" and seed % 4 == 0) for name in STUDY.clients]
    log: list[Logged] = []
    written: set[Logged] = set()
    restarts = 0
    for _ in range(160):
        peer = chance.choice(peers)
        for _ in range(chance.randint(0, 10)):
            if peer.read < len(log):
                peer.see(*log[peer.read])
                peer.read += 1
        if chance.random() < 0.1:
            if chance.random() < 0.5:
                peer.save()
            peer.restart()
            restarts += 1
        peer.is_late = chance.random() < 0.2
        for payload in [*peer.wants(), *peer.extra()]:
            if (peer.name, payload) not in written or chance.random() < 0.1:
                written.add((peer.name, payload))
                log.append((peer.name, payload))
    first = peers[0]
    for peer in peers:
        peer.follow(log)
        peer.save()
        assert peer.replica.head == first.replica.head
        assert same_state(peer.replica, first.replica)
        before = peer.replica
        peer.restart()
        assert same_state(peer.replica, before)
        assert (peer.replica.committed, peer.replica.missing) == (before.committed, before.missing)
    again, behind = StoredPeer(STUDY, "peer0"), StoredPeer(STUDY, "peer0")
    for reader in (again, behind):
        reader.follow(log[: chance.randint(0, len(log))])
        reader.save()
    behind.take_over(first)
    for reader in (again, behind):
        reader.follow(log)
        assert same_state(reader.replica, first.replica)
        assert (reader.replica.asks, reader.replica.missing) == (first.replica.asks, first.replica.missing)
    other = follows(first.replica)
    first.replica._history.drop_open()
    assert same_state(other, first.replica)
    return first.replica.committed, sum(len(one.notes) for one in first.replica.closed_rounds())


def test_all_ways_to_a_place_lead_to_the_same_state() -> None:
    with remembered():
        found = [play(seed) for seed in range(HISTORIES)]
    assert sum(rounds for rounds, _ in found) > HISTORIES
    assert sum(notes for _, notes in found) > HISTORIES
