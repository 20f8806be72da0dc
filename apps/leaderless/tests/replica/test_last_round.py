"""The last round and a lost log: a signature over the end also takes the slot of the rounds before it.

The operator of the log shows one peer all answers to the last round, and loses the log. The others are to begin the
new one before that round, and have signed so. Then they are killed, and have forgotten what they were shown, though not
what they have signed (a real peer forgets neither: they become durable together). Now a liar says that it has signed
the round, so that too few can sign the one before: they follow it, and sign it in checkpoints that only the one is
shown, which commits it. They are killed again and are shown the earlier checkpoints alone, a log that begins before the
round, and no answer of that peer.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import msgspec
import pytest

from privatile_leaderless.chain import Claims, closed_chain
from privatile_leaderless.entries import Checkpoint
from privatile_leaderless.replica import Replica
from replica.kit import (
    Logged,
    StoredPeer,
    answer_of,
    asked_after,
    checkpoints,
    make_study,
    new_replica,
    one_history,
    read,
    run,
    say,
    stands,
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
    fresh = {peer.name: copy.deepcopy(peer.replica.closed_rounds()) for peer in others}

    def kill(peer: StoredPeer) -> None:
        peer.replica, peer.stood = new_replica(peer.study), {}
        peer.replica.catch_up(fresh[peer.name])
        peer.replica.new_epoch(1)
        peer.unwritten, peer.read = [], 0

    liar, study = others[0], victim.study
    liar.claim = lambda *_: True  # type: ignore[method-assign]
    early = stands(others)
    early += checkpoints(others, early)
    (told,) = say(victim)
    stand = read(told)
    chain = closed_chain(stand.last, tuple(study.clients))
    false = msgspec.structs.replace(stand, sender=liar.name, slot=ROUNDS + 1, chain=chain)
    for peer in others:
        kill(peer)
    late = [told, (liar.name, false.pack(liar.key)), *(entry for peer in others[1:] for entry in say(peer))]
    for peer in others:
        show(peer, late)
        peer.read = 0
    show(victim, [entry for peer in others for entry in say(peer) if isinstance(read(entry), Checkpoint)])
    for peer in others:
        kill(peer)
        show(peer, early)
        show(peer, answers[:-1])
        peer.is_late, peer.read = True, 0
    run(others, [])
    assert victim.replica.committed == ROUNDS  # by q signatures of the others
    return others, victim


@pytest.mark.parametrize(("clients", "tolerate"), [(4, 1), (5, 1)])
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


def test_all_sign_the_same_place_however_far_they_have_read_when_they_speak() -> None:
    """One has closed a round that the others have not, and some learn of it before they say where they stand.

    Whoever signed it while the others begin before it could sign no other in its place; and without the one who closed
    it first, the run would stand still for ever.
    """
    peers, _ = begin(5, 1, 6, 3)
    first, slow = peers[-1], peers[3]
    log = [*say(peers[0]), *say(first)]
    for peer in peers[1:3]:
        peer.follow(log)
        log += say(peer)
    log += say(slow)
    for peer in peers:
        peer.follow(log)
        assert peer.replica.begins_at is not None
        assert peer.replica.closed == 2
    log += checkpoints(peers, log)
    live = peers[:-1]
    for peer in live:
        peer.is_late = True
    run(live, log)  # the first one is away
    assert all(peer.replica.finished for peer in live)
    run(peers, log)
    assert one_history(peers)
    assert all(peer.replica.finished for peer in peers)
