"""The last round and a lost log: a signature over the end also takes the slot of the rounds before it.

The operator of the log shows one peer all answers to the last round, and loses the log. The others follow that round,
which it relays, and sign it in checkpoints that only it is shown: it commits the round. Then they are shown the earlier
checkpoints alone, a log that begins before the round, and no answer of that peer.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from privatile.federation.replica.entries import Relay
from privatile.federation.replica.replica import Replica
from privatile.federation.replica.slots import Claims
from tests.federation.replica.kit import (
    Logged,
    StoredPeer,
    answer_of,
    asked_after,
    make_study,
    one_history,
    read,
    run,
    say,
)

ROUNDS = 3


def renew(peers: Sequence[StoredPeer], epoch: int = 1) -> None:
    for peer in peers:
        peer.save()
        peer.log.begin_epoch(epoch)
        peer.replica.new_epoch(epoch)
        peer.read = 0


def show(peer: StoredPeer, entries: Sequence[Logged]) -> None:
    for entry in entries:
        peer.see(*entry)
        peer.read += 1


def begin(clients: int, tolerate: int, rounds: int, asked: int) -> tuple[list[StoredPeer], list[Logged]]:
    """All have answered a round, and only the last peer has read it: for the others it is open. The log is lost."""
    study = make_study(clients, rounds, tolerate)
    peers = [StoredPeer(study, name) for name in study.clients]
    log = asked_after(peers, asked - 1, 1)
    answers = [answer_of(peer) for peer in peers]
    peers[-1].follow([*log, *answers])
    assert [peer.replica.closed for peer in peers] == [asked - 1] * (clients - 1) + [asked]
    renew(peers)
    return peers, answers


def attack(clients: int, tolerate: int) -> tuple[list[StoredPeer], StoredPeer]:
    peers, answers = begin(clients, tolerate, ROUNDS, ROUNDS)
    victim, others = peers[-1], peers[:-1]
    early = [entry for peer in others for entry in say(peer)]
    say(victim)
    show(victim, early[:1])
    relays = [entry for entry in say(victim) if isinstance(read(entry), Relay)]
    for peer in others:
        show(peer, relays)
    show(victim, [entry for peer in others for entry in say(peer)])
    for peer in others:
        show(peer, early)
        show(peer, answers[:-1])
        peer.is_late, peer.read = True, 0
    run(others, [])
    assert victim.replica.committed == ROUNDS  # by q signatures of the others
    return others, victim


@pytest.mark.parametrize(("clients", "tolerate"), [(3, 0), (4, 1), (5, 1)])
def test_an_operator_cannot_end_a_run_otherwise_than_it_was_committed(clients: int, tolerate: int) -> None:
    others, victim = attack(clients, tolerate)
    assert one_history([*others, victim])
    assert not any(peer.replica.finished for peer in others)
    # Whoever takes over the committed rounds goes on with them.
    for peer in others:
        peer.replica.catch_up(victim.replica.closed_rounds(), victim.replica.proof)
    renew([*others, victim], 2)
    run([*others, victim], [])
    assert all(peer.replica.finished for peer in [*others, victim])
    assert one_history([*others, victim])


def test_without_the_slot_before_the_end_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    def end_only(self: Replica) -> Claims:
        return ((self.slot, self.head),)

    monkeypatch.setattr(Replica, "claims", property(end_only))
    others, victim = attack(5, 1)
    assert all(peer.replica.finished for peer in others)
    assert not one_history([*others, victim])


def test_a_peer_that_has_followed_a_relayed_round_no_longer_stands_before_it() -> None:
    """A slow peer's checkpoint must not begin the log before a round that others have signed meanwhile.

    They could sign no other in its place: without the one who closed it first, the run would stand still for ever.
    """
    peers, _ = begin(5, 1, 6, 3)
    first, slow = peers[-1], peers[3]
    log = [entry for peer in (*peers[:3], first) for entry in say(peer)]
    first.follow(log)
    log += say(first)
    for peer in peers[:2]:
        peer.follow(log)
        log += say(peer)  # they have followed the round, and sign it
    log += [(slow.name, slow.wants()[0])]
    for peer in peers:
        peer.follow(log)
    assert all(peer.replica.recovering for peer in peers)  # three stand after the round, two before it
    live = peers[:-1]
    for peer in live:
        peer.is_late = True
    run(live, log)  # the first one is away
    assert all(peer.replica.finished for peer in live)
    run(peers, log)
    assert one_history(peers)
    assert all(peer.replica.finished for peer in peers)
