"""What liars and the operator of the log try, one by one: each ends as the protocol says, with evidence."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from privatile_leaderless import quorums
from privatile_leaderless.chain import end_chain
from privatile_leaderless.entries import CloseVote, Final, PeerAnswer, Proposal
from privatile_leaderless.replica import Replica
from replica.kit import (
    Logged,
    Peer,
    after,
    answer_of,
    asked_after,
    checkpoints,
    close_votes,
    key_of,
    kinds,
    lie_twice,
    make,
    new_replica,
    one_history,
    read,
    run,
    say,
    stands,
    two_faces,
)

# -- forks by the log's operator ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [1, 3], ids=["in mid-run", "at the last round"])
@pytest.mark.parametrize("first", [2, 3])
def test_a_forked_log_commits_one_history_at_most(rounds: int, first: int) -> None:
    peers = make(5, 4)
    log = after(peers, rounds)
    groups = [peers[:first], peers[first:4]]
    logs = [list(log), list(log)]
    for group, own, face in zip(groups, logs, two_faces(peers, "peer4", log), strict=True):
        for peer in group:
            peer.is_late = True
        face.is_late = True
        run([*group, face], own)
    assert one_history(peers[:4])
    committed = [max(peer.replica.committed for peer in group) for group in groups]
    assert [any(peer.replica.finished for peer in group) for group in groups] == [first == 3, False]
    assert committed[1] <= rounds  # two of five have signed no round that follows
    # Whoever was led astray learns it from the others' signatures, and goes on where they are.
    lost = groups[1][-1]
    lost.read = len(log)
    lost.follow(logs[0])
    assert one_history(peers[:4])
    if first == 3:
        assert "astray" in kinds(lost)
        rounds_kept = lost.replica.closed_rounds()[: lost.replica.committed]
        lost.replica, lost.read = new_replica(lost.study), 0
        lost.replica.catch_up(rounds_kept)
        lost.follow(logs[0])
        assert lost.replica.finished
        assert lost.replica.head == peers[0].replica.head
    for sender, payload in logs[1][len(log) :]:
        peers[0].see(sender, payload)
    assert one_history(peers[:4])


def test_a_fork_that_is_merged_shows_in_the_evidence() -> None:
    peers = make(5, 4)
    log = asked_after(peers, 2, 2)
    other = [*log, *(answer_of(peer) for peer in peers[1:])]  # without the first one
    own = [*log, answer_of(peers[0]), *other[len(log) :]]
    for peer in peers[:2]:
        peer.is_late = True
        peer.follow(other)
    votes = close_votes(peers[:2])
    for peer in peers[:2]:
        peer.follow([*other, *votes])
    for peer in peers[2:]:
        peer.follow(own)
    assert {peer.replica.closed for peer in peers} == {3}
    assert len({peer.replica.chain for peer in peers}) == 2  # two closing sets
    question = say(peers[0])
    peers[0].see(*question[0])
    strange = answer_of(peers[0])
    mine = say(peers[3])
    peers[3].see(*mine[0])
    found = peers[3].see(*strange)
    assert [one.kind for one in found] == ["other history"]
    assert found[0].payloads == (strange[1],)
    assert peers[0].name in peers[3].replica.missing


def test_two_closing_sets_cannot_both_be_committed() -> None:
    peers = make(5, 4)
    log = asked_after(peers, 2, 2)
    answers = [answer_of(peer) for peer in peers]
    votes = close_votes(peers[:2])
    whole, short = [*log, *answers, *votes], [*log, *answers[1:], *votes, answers[0]]
    groups, logs = (peers[:2], peers[2:4]), (whole, short)
    for group, own, face in zip(groups, logs, two_faces(peers, "peer4", log), strict=True):
        for peer in [*group, face]:
            peer.follow(own)
            peer.is_late = True
        run([*group, face], own)
    assert peers[0].replica.chain != peers[2].replica.chain
    assert [peer.replica.closed for peer in peers[:4]] == [3] * 4
    assert [peer.replica.committed for peer in peers[:4]] == [2] * 4
    assert all("2 of 4" in peer.replica.paused or "3 of 4" in peer.replica.paused for peer in peers[:4])


@pytest.mark.parametrize("control", ["no slots", "small quorum"])
def test_without_the_rules_a_fork_is_committed_twice(control: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if control == "small quorum":
        monkeypatch.setattr(quorums, "signing", lambda study: 3)
    peers = make(5, 4)
    log = asked_after(peers, 2, 2)
    answers = [answer_of(peer) for peer in peers]
    votes = close_votes(peers[:2])
    logs = [[*log, *answers, *votes], [*log, *answers[1:], *votes, answers[0]]]
    groups = (peers[:2], peers[2:4])
    liars = ["peer4"] if control == "small quorum" else ["peer1", "peer3", "peer4"]
    faces = [two_faces(peers, name, log) for name in liars]
    for view, (group, own) in enumerate(zip(groups, logs, strict=True)):
        present = [*(peer for peer in group if peer.name not in liars), *(face[view] for face in faces)]
        for peer in present:
            peer.follow(own)
            peer.is_late = True
        run(present, own)
    assert peers[0].replica.finished
    assert peers[2].replica.finished
    assert not one_history([peers[0], peers[2]])


def test_a_replica_that_counts_answers_of_another_history_is_led_astray(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of the chain value in every answer."""
    peers = make(4, 3)
    asked_after(peers, 1)
    true = read(answer_of(peers[1]))
    astray = ("peer1", msgspec.structs.replace(true, chain="f" * 64).pack(peers[1].key))
    assert [one.kind for one in peers[2].see(*astray)] == ["other history"]
    original = Replica._answer

    def careless(self: Replica, entry: PeerAnswer, payload: bytes) -> Any:
        return original(self, msgspec.structs.replace(entry, chain=self.chain), payload)

    monkeypatch.setattr(Replica, "_answer", careless)
    assert [one.kind for one in peers[3].see(*astray)] == ["counted"]


def test_two_ends_cannot_both_be_signed() -> None:
    peers = make(4, 2)
    log = after(peers, 2)
    run(peers, log)
    early = Proposal(peers[0].study.digest, peers[0].study.run, "peer3", 2, peers[0].replica._history.chains[1], ())
    fresh = Peer(peers[0].study, "peer0")
    cut = next(place for place, entry in enumerate(log) if getattr(read(entry), "round", 0) == 2)
    fresh.follow(log[:cut])
    found = fresh.see("peer3", early.pack(key_of("peer3")))
    assert [one.kind for one in found] == ["refused"]
    assert "would have gone on" in found[0].text
    signers = {sender for sender, payload in log if isinstance(read((sender, payload)), Final)}
    assert len(signers) >= 3
    for peer in peers:
        assert peer.replica.finished
        assert peer.claim(((peer.replica.slot, end_chain("0" * 64, 2)),)) == (peer.name not in signers)


# -- liars ---------------------------------------------------------------------------------------------------------


def test_one_liar_closes_no_round_early() -> None:
    for tolerate, closes in ((1, False), (0, True)):
        peers = make(4, 3, tolerate)
        log = asked_after(peers, 1)
        answers = [answer_of(peer) for peer in peers[:3]]
        vote = (peers[2].name, peers[2].replica.close_vote("peer2").pack(peers[2].key))
        again = (peers[2].name, peers[2].replica.close_vote("peer2").pack(peers[2].key))
        peers[0].follow([*log, vote, again, *answers])
        assert (peers[0].replica.closed == 2) == closes
        if not closes:
            assert peers[0].replica.close_votes == {"peer2"}
            second = (peers[1].name, peers[1].replica.close_vote("peer1").pack(peers[1].key))
            assert "closed" in [one.kind for one in peers[0].see(*second)]


def test_votes_alone_do_not_close_a_round() -> None:
    peers = make(5, 3)
    log = asked_after(peers, 1)
    answers = [answer_of(peer) for peer in peers[:3]]
    votes = close_votes(peers)
    peers[0].follow([*log, *answers, *votes])
    assert peers[0].replica.closed == 1
    assert peers[0].replica.paused.startswith("3 of 4 answers are there: peer3, peer4")


def test_two_answers_are_evidence_and_only_a_vote_to_abort_goes_on() -> None:
    peers = make(5, 3)
    log = asked_after(peers, 1)
    first, second = lie_twice(peers)
    log += [first, second, *(answer_of(peer) for peer in peers[:4])]
    for peer in peers:
        peer.follow(log)
        found = [one for one in peer.happenings if one.kind == "two answers"]
        assert {(one.client, one.round, one.payloads) for one in found} == {("peer4", 2, (first[1], second[1]))}
        assert peer.replica.closed == 1
        assert peer.replica.paused.startswith("quarantined: peer4")
    votes = [(peer.name, peer.replica.vote(peer.name).pack(peer.key)) for peer in peers]
    for peer in peers:
        peer.follow([*log, *votes[:3], votes[0]])
        assert peer.replica.closed == 1  # three of five are no quorum, and a vote counts once
        assert not peer.replica.aborted
    log += [*votes[:3], votes[0], votes[3]]
    for peer in peers:
        peer.follow(log)
        assert peer.replica.aborted
        assert peer.replica.round is None


def test_a_second_answer_after_the_round_is_closed_is_found_too() -> None:
    peers = make(5, 3)
    log = asked_after(peers, 1)
    first, second = lie_twice(peers)
    log += [first, *(answer_of(peer) for peer in peers[:4]), second]
    for peer in peers:
        peer.follow(log)
        assert peer.replica.closed == 2
        assert peer.replica.quarantined["peer4"].round == 2
    assert [one.payloads for one in peers[0].happenings if one.kind == "two answers"] == [(first[1], second[1])]


def test_a_withheld_answer_is_silence_until_patience_ends() -> None:
    peers = make(5, 6, patience=2)
    log = after(peers, 1)
    for peer in peers[:4]:
        peer.is_late = True
    present = peers[:4]
    run(present, log)
    replica = peers[0].replica
    assert replica.closed == 3
    assert replica.paused == "client peer4 has been silent for 2 rounds"
    assert [one.text for one in peers[0].happenings if one.kind == "closed"][1:] == ["without peer4"] * 2
    assert one_history(peers)
    # Its answers come through again: it goes on, with all others.
    run(peers, log)
    assert all(peer.replica.finished for peer in peers)
    assert [one is None for one in (row.answers[4] for row in replica.closed_rounds())][:4] == [
        False,
        True,
        True,
        False,
    ]


# -- replays -------------------------------------------------------------------------------------------------------


def test_every_entry_again_at_every_place_changes_nothing() -> None:
    peers = make(4, 3)
    log: list[Logged] = []
    run(peers, log)
    reader = Peer(peers[0].study, "peer0")
    for place, entry in enumerate(log):
        reader.see(*entry)
        for earlier in log[: place + 1 : 3]:
            reader.see(*earlier)
    assert reader.replica.head == peers[0].replica.head
    assert reader.replica.finished
    assert not {"two answers", "quarantined"} & set(kinds(reader))


def test_what_is_not_signed_by_its_sender_is_not_there() -> None:
    peers = make(4, 3)
    after(peers, 1)
    entry = say(peers[0])[0]
    assert [one.kind for one in peers[1].see("peer2", entry[1])] == ["unsigned"]
    assert [one.kind for one in peers[1].see("stranger", entry[1])] == ["unsigned"]
    assert [one.kind for one in peers[1].see("peer0", entry[1][:-4] + b"AAA=")] == ["unsigned"]
    as_other = msgspec.structs.replace(read(entry), sender="peer2").pack(peers[0].key)
    assert [one.kind for one in peers[1].see("peer0", as_other)] == ["refused"]
    elsewhere = msgspec.structs.replace(read(entry), study="0" * 64).pack(peers[0].key)
    assert [one.kind for one in peers[1].see("peer0", elsewhere)] == ["refused"]
    assert peers[1].replica.asked is None


def test_a_vote_to_close_holds_in_its_own_log_only() -> None:
    peers = make(4, 3)
    asked_after(peers, 1)
    votes = close_votes(peers)
    answers = [answer_of(peer) for peer in peers[:3]]
    assert isinstance(read(votes[0]), CloseVote)
    for peer in peers:
        peer.replica.new_epoch(1)
        peer.read = 0
    fresh = stands(peers)
    fresh += checkpoints(peers, fresh)
    for peer in peers:
        peer.follow([*fresh, *votes, *answers])
        assert peer.replica.closed == 1
        assert peer.replica.asked is not None
        assert peer.replica.close_votes == frozenset()
