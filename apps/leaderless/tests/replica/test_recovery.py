"""A lost log: where the next one begins, what is dropped, what is sent again, who catches up."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from privatile_leaderless import recovery
from privatile_leaderless.chain import signed_value
from privatile_leaderless.entries import Checkpoint, Decision, Relay
from replica.kit import (
    Logged,
    Peer,
    after,
    answer_of,
    asked_after,
    checkpoints,
    close_votes,
    kinds,
    make,
    one_history,
    read,
    run,
    say,
    stands,
    two_faces,
)


def renew(peers: list[Peer], epoch: int = 1) -> list[Logged]:
    """The log is gone; a new and empty one."""
    for peer in peers:
        peer.replica.new_epoch(epoch)
        peer.read = 0
    return []


def ledgers_agree(peers: list[Peer]) -> bool:
    """Every count of every closed round is the one that its peer's ledger holds."""
    return all(
        (record.accepted[peer.name].body.ones, record.accepted[peer.name].body.ledger) == peer.ledger.given[number][1:]
        for number, record in enumerate(peers[0].replica._history.records, 1)
        for peer in peers
        if peer.name in record.accepted
    )


def test_a_log_that_has_not_begun_says_what_it_waits_for() -> None:
    peers = make(4, 4, tolerate=1)
    after(peers, 2)
    assert not peers[0].replica.paused
    log = renew(peers)
    assert "begins when 3 that can sign the same place have said where they stand; 0 have" in peers[0].replica.paused
    log += stands(peers[:2])
    for peer in peers[:2]:
        assert "2 have said it; nothing came from peer2, peer3: `privatile peer recover` there" in peer.replica.paused
    log += say(peers[2])
    for peer in peers[:3]:
        peer.follow(log)
    log += checkpoints(peers[:2], log)
    peers[0].follow(log)
    assert "begins after round 2 when 3 sign that; 2 have; nothing came from peer3" in peers[0].replica.paused
    run(peers, log, lambda: peers[0].replica.closed == 3)
    assert not peers[0].replica.paused


def test_a_new_log_goes_on_with_the_same_question_and_the_same_answers() -> None:
    peers = make(5, 4)
    log = asked_after(peers, 2, 1)
    sent = [answer_of(peer) for peer in peers[:3]]
    asks = peers[0].replica.asks
    log = run(peers, renew(peers))
    assert all(peer.replica.finished for peer in peers)
    assert len({peer.replica.head for peer in peers}) == 1
    assert peers[0].replica.closed_rounds()[2].asks == asks
    assert set(sent) <= set(log)  # byte for byte
    assert ledgers_agree(peers)
    begun = [one.round for one in peers[0].happenings if one.kind == "begun"]
    assert begun == [2]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_round_that_one_has_closed_is_dropped_where_the_others_have_spoken_before_they_knew_it(at_once: bool) -> None:
    peers = make(5, 4)
    log = asked_after(peers, 2, 1)
    answers = [answer_of(peer) for peer in peers]
    votes = close_votes(peers[:2])
    # One has read far enough to close the round, without the last answer; nobody else has.
    peers[0].follow([*log, *answers[:4], *votes])
    assert peers[0].replica.closed == 3
    closed = peers[0].replica.chain
    log = renew(peers)
    log += stands(peers) if at_once else []
    run(peers, log)  # it has signed nothing after that round: it goes on with the others, or they with it
    assert all(peer.replica.finished for peer in peers)
    assert (peers[0].replica._history.chains[3] == closed) is not at_once
    assert ledgers_agree(peers)


@pytest.mark.parametrize("counted", [4, 5])
def test_a_round_that_too_many_have_signed_for_another_is_taken(counted: int) -> None:
    """Two of five have answered the round after it: the other three are no quorum for another in its place."""
    peers = make(5, 4)
    log = asked_after(peers, 2, 1)
    log += [answer_of(peer) for peer in peers][:counted]
    log += close_votes(peers[:2]) if counted < 5 else []
    for peer in peers[:2]:
        peer.follow(log)
        assert peer.replica.closed == 3
    kept = peers[0].replica.chain
    log += say(peers[0])
    for peer in peers[:2]:
        peer.follow(log)
        answer_of(peer)
    log = renew(peers)
    run(peers, log)
    assert [one.round for one in peers[4].happenings if one.kind == "begun"] == [3]
    assert all(peer.replica.finished for peer in peers)
    assert peers[4].replica._history.chains[3] == kept


@pytest.mark.parametrize("away", [0, 1, 2, 3])
def test_two_lost_logs_that_one_peer_each_has_read_to_the_end(away: int) -> None:
    """Each has closed the round, without another answer, and has signed that. No quorum is left for the round before,
    nor without the others' word for either: two see it in the log, and one of the two is away at first."""
    peers = make(4, 6, 1)
    first, second, third, last = peers
    log = asked_after(peers, 1)
    log += [answer_of(peer) for peer in peers[:3]]
    for peer in peers[:3]:
        peer.follow(log)
    first.follow([*log, *close_votes(peers[:2])])
    first.claim(first.replica.claims)  # as an answer to the next round would
    log = run((second, third, last), renew([second, third, last]))
    second.follow([*log, *close_votes([second, third])])
    second.claim(second.replica.claims)
    assert len({peer.replica.chain for peer in (first, second, third)}) == 3
    log = renew(peers, 2)
    present = [peer for number, peer in enumerate(peers) if number != away]
    run(present, log)
    # Two that have signed different rounds and one that has not: nobody chooses before the fourth has spoken.
    assert [peer.replica.recovering for peer in present] == [away in (2, 3)] * 3
    for peer in peers:
        peer.is_late = away < 2
    run(peers, log)
    for peer in peers:
        peer.is_late = True
    run(peers, log)
    assert all(peer.replica.finished for peer in peers)
    assert one_history(peers)
    assert ledgers_agree(peers)


def test_a_forged_fork_in_recovery_commits_nothing_twice() -> None:
    """The operator makes two new logs; a liar signs a checkpoint of another round in each."""
    peers = make(4, 4)
    log = after(peers, 2)
    faces = two_faces(peers, "peer3", log)
    groups = [peers[:1], peers[1:3]]
    for group, face in zip(groups, faces, strict=True):
        for peer in [*group, face]:
            peer.is_late = True
        run([*group, face], renew([*group, face]))
    assert one_history(peers[:3])
    # A group without a quorum does not even begin; the other one ends without it.
    assert peers[0].replica.recovering
    assert [peer.replica.finished for peer in peers[:3]] == [False, True, True]
    run([peers[0], faces[0]], renew([peers[0], faces[0]], 2))
    assert one_history(peers[:3])
    assert peers[0].replica.committed <= 2


def test_a_new_log_never_begins_before_a_committed_round() -> None:
    peers = make(5, 4)
    asked_after(peers, 2, 1)
    for peer in peers[:4]:
        answer_of(peer)  # signs slot 3: round 2 may be committed somewhere
    behind = Peer(peers[0].study, "peer4")  # the fifth has only read the first round
    behind.follow(after(make(5, 4), 1))
    behind.ledger, behind.slots = peers[4].ledger, peers[4].slots
    assert behind.replica.closed == 1
    peers[4] = behind
    assert not any(peer.claim(((2, peer.replica._history.chains[1]),)) for peer in peers[:4])
    run(peers, renew(peers))
    assert one_history(peers)
    assert all(peer.replica.finished for peer in peers)
    assert [one.round for one in peers[0].happenings if one.kind == "begun"] == [2]
    assert "behind" in kinds(behind) or "relayed" in kinds(behind)


def test_a_relayed_round_must_lead_to_what_a_quorum_has_signed() -> None:
    peers = make(5, 4)
    log = after(peers, 3)
    renew(peers)
    signed = stands(peers)
    signed += checkpoints(peers, signed)[:4]
    late = Peer(peers[0].study, "peer4")
    late.follow(log[:1])
    late.replica.new_epoch(1)
    for entry in signed:
        late.see(*entry)
    assert late.replica.behind == 3
    true = list(peers[0].replica.relays("peer0", 0))
    for relay in true:
        closed = msgspec.structs.replace(relay.closed, answers=(None, *relay.closed.answers[1:]))
        late.see("peer0", msgspec.structs.replace(relay, closed=closed).pack(peers[0].key))
    assert late.replica.behind == 3
    for relay in reversed(true):
        late.see("peer0", relay.pack(peers[0].key))
    assert not late.replica.recovering
    assert late.replica.chain == peers[0].replica.chain
    assert late.replica.committed == 3


def test_what_comes_while_a_peer_is_behind_is_applied_when_it_has_caught_up() -> None:
    peers = make(5, 4)
    log = after(peers, 2)
    late = Peer(peers[0].study, "peer4")
    late.follow(log[:3])
    late.ledger, late.slots = peers[4].ledger, peers[4].slots
    present = peers[:4]
    new = renew(present)
    renew([late])
    for peer in present:
        peer.is_late = True
    run(present, new)  # they go on without it
    assert present[0].replica.finished
    late.follow(new)
    assert late.replica.behind == 2
    for relay in present[0].replica.relays("peer0", 0):
        late.see("peer0", relay.pack(present[0].key))
    assert late.replica.finished
    assert late.replica.head == present[0].replica.head


def test_a_liar_that_writes_without_end_fills_no_memory_of_a_peer_that_is_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Signed or not; what others write meanwhile is kept, and so is the room for it where rounds are relayed."""
    monkeypatch.setattr(recovery, "MOST_BYTES", 20_000)
    peers = make(5, 4)
    log = after(peers, 2)
    late = Peer(peers[0].study, "peer4")
    late.follow(log[:3])
    renew([*peers[:4], late])
    for peer in peers[:4]:
        peer.is_late = True
    new = stands(peers[:4])
    new += checkpoints(peers[:4], new)
    vote = peers[3].replica.vote("peer3", Decision("abort")).pack(peers[3].key)
    new += [entry for number in range(100) for entry in (("peer3", b"%d" % number), ("peer3", vote))]
    late.follow(new)
    kept = late.replica._recovery
    assert kept is not None
    assert late.replica.behind == 2
    assert 10 < len(kept.waiting) < 150  # of 200; what is not signed has room of its own
    assert {one.client for one in late.happenings if one.kind == "refused"} == {"peer3"}
    run(peers[:4], new)
    assert peers[0].replica.finished
    late.follow(new)
    others = [sender for _, sender, _ in kept.waiting if sender != "peer3"]
    assert len(others) > 10
    for relay in peers[0].replica.relays("peer0", 0):
        late.see("peer0", relay.pack(peers[0].key))
    assert not late.replica.recovering
    # What the liar wrote later is lost here: this peer is led along no other history, and catches up.
    late.replica.catch_up(peers[0].replica.closed_rounds(), peers[0].replica.proof)
    assert late.replica.finished
    assert late.replica.head == peers[0].replica.head


def test_a_log_that_is_lost_at_the_very_end_ends_the_same() -> None:
    for signed in (0, 2, 5):
        peers = make(5, 3)
        asked_after(peers, 3)
        assert all(peer.replica.ended for peer in peers)
        finals = [entry for peer in peers[:signed] for entry in say(peer)]
        assert len(finals) == signed
        head = peers[0].replica.head
        new = run(peers, renew(peers))
        assert all(peer.replica.finished for peer in peers)
        assert {peer.replica.head for peer in peers} == {head}
        assert sum(isinstance(read(entry), Checkpoint) and read(entry).ended for entry in new) >= 4


def test_no_peer_signs_two_values_in_one_slot_over_several_lost_logs() -> None:
    peers = make(4, 4)
    everything: list[Logged] = []
    log: list[Logged] = []
    for epoch in itertools.count(1):
        run(peers, log, lambda own=log, most=7 * epoch: len(own) >= most)  # type: ignore[misc]
        everything += log
        if all(peer.replica.finished for peer in peers):
            break
        log = renew(peers, epoch)
        assert epoch < 12
    signed: dict[tuple[str, int], str] = {}
    for sender, payload in everything:
        value = signed_value(read((sender, payload)))
        if value is not None:
            assert signed.setdefault((sender, value[0]), value[1]) == value[1]
    assert ledgers_agree(peers)


def test_a_liar_that_relays_without_end_fills_nobodys_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "MOST_BYTES", 20_000)
    peers = make(4, 3, 1)
    log = after(peers, 1)
    liar, (closed,) = peers[3], peers[3].replica.closed_rounds()
    for peer in peers:
        peer.replica.new_epoch(1)
    relay = Relay(liar.study.digest, liar.study.run, liar.name, 1, closed)
    for number in range(50):
        made = msgspec.structs.replace(closed, before=f"{number:064}", answers=("x" * 1000, None, None, None))
        log.append((liar.name, msgspec.structs.replace(relay, closed=made).pack(liar.key)))
    peers[0].follow(log)
    kept = peers[0].replica._recovery
    assert kept is not None
    assert 0 < len(kept._relays) < 21
    run(peers, log)
    assert all(peer.replica.finished for peer in peers[:3])
