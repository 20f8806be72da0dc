"""A lost log: where the next one begins, what is dropped, what is sent again, who catches up."""

from __future__ import annotations

import itertools
import math

import msgspec
import pytest

from privatile_leaderless.chain import signed_value
from privatile_leaderless.entries import Checkpoint
from replica.kit import (
    Logged,
    Peer,
    after,
    answer_of,
    asked_after,
    checkpoints,
    close_votes,
    make,
    one_history,
    read,
    run,
    say,
    stands,
    stored,
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


def test_a_round_that_one_has_closed_and_not_signed_is_dropped() -> None:
    peers = make(5, 4)
    log = asked_after(peers, 2, 1)
    answers = [answer_of(peer) for peer in peers]
    votes = close_votes(peers[:2])
    # One has read far enough to close the round, without the last answer; nobody else has.
    peers[0].follow([*log, *answers[:4], *votes])
    assert peers[0].replica.closed == 3
    closed = peers[0].replica.chain
    run(peers, renew(peers))
    assert all(peer.replica.finished for peer in peers)
    assert peers[0].replica._history.chains[3] != closed
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


@pytest.mark.parametrize("present", [4, 3])
def test_a_peer_that_lacks_rounds_takes_them_over_from_a_file_and_reads_the_log_again(present: int) -> None:
    """With one more away it is needed for the quorum: the log begins when it has caught up."""
    peers = stored(4, 6, 1)
    late = peers[3]
    log = after(peers, 1)
    ahead = peers[:3]
    for peer in ahead:
        peer.is_late = True
    run(ahead, log, lambda: ahead[0].replica.closed >= 4)
    for peer in ahead:
        peer.follow(log)
    assert late.replica.closed == 1
    for peer in peers:
        peer.save()
        peer.log.begin_epoch(1)
        peer.replica.new_epoch(1)
        peer.read = 0
    others = peers[4 - present : 3]
    log = run([*others, late], [])
    assert late.replica.recovering
    if present == 4:
        assert late.replica.behind == 4
        assert "catch-up" in late.replica.paused
    assert all(peer.replica.finished is (present == 4) for peer in others)
    assert late.take_over(others[0])
    assert late.read == 0
    run([*others, late], log)
    assert all(peer.replica.finished for peer in [*others, late])
    assert one_history(peers)
    before = late.replica.chain
    assert not late.take_over(others[0])
    assert (late.replica.chain, late.read) == (before, len(log))


def test_a_file_that_brings_nothing_new_takes_away_nothing() -> None:
    """A round that is closed here alone, and signed, lies in the entries: it must be named in the next log."""
    peers = stored(4, 6, 1)
    log = asked_after(peers, 1, 1)
    log += [answer_of(peer) for peer in peers]
    ahead = peers[2]
    ahead.follow(log)
    ahead.see("peer2", ahead.replica.proposal("peer2").pack(ahead.key))
    ahead.read += 1
    answer_of(ahead)
    assert ahead.replica.closed == 2
    assert not ahead.take_over(peers[0])
    assert ahead.replica.closed == 2


def test_what_a_liar_writes_before_a_round_is_closed_stops_who_caught_up_until_it_does_so_again() -> None:
    """Whoever answers last knows the chain value that nobody else has yet. The others never count what it writes with
    it before its answer; who takes over that round from a file and reads the log again does, and says so."""
    peers = stored(4, 6, 1)
    log = asked_after(peers, 1)
    ahead, late, liar = peers[:2], peers[2], peers[3]
    log += [answer_of(peer) for peer in peers[:3]]
    last = answer_of(liar)
    knows = Peer(liar.study, "peer3")
    knows.follow([*log, last])
    true = knows.replica.proposal("peer3")
    near = msgspec.structs.replace(true.asks[0], query=math.nextafter(true.asks[0].query, math.inf))
    log += [("peer3", msgspec.structs.replace(true, asks=(near,)).pack(liar.key)), last]
    live = [*ahead, liar]
    for peer in live:
        peer.is_late = True

    def show(until: int) -> None:
        run(live, log, lambda: ahead[0].replica.closed >= until)
        for peer in live:
            peer.follow(log)

    show(3)
    assert late.take_over(ahead[0])
    assert late.read == 0
    show(4)
    late.follow(log)
    assert late.replica.astray
    assert late.replica.paused.startswith("3 organizations have signed another history: peer0, peer1, peer3. Take over")
    assert one_history(peers)
    assert late.take_over(ahead[0])
    run(peers, log)
    assert all(peer.replica.finished for peer in peers)
    assert one_history(peers)
