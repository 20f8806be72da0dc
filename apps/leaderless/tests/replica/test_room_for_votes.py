"""How many votes count in a round: a closed round fits into one entry, and nobody crowds out those to abort."""

from __future__ import annotations

import base64

import msgspec
import pytest

from privatile.core.messages import LARGEST_LENGTH, Position
from privatile.core.text import canonical_json
from privatile.errors import InputError
from privatile_leaderless import history, quorums
from privatile_leaderless.entries import (
    LARGEST_ENTRY,
    CloseVote,
    Decision,
    Note,
    Restored,
    Vote,
    read_entry,
)
from privatile_leaderless.history import MOST_NOTES
from privatile_leaderless.quorums import NOTE_BYTES
from replica.kit import (
    Logged,
    StoredPeer,
    after,
    answer_of,
    asked_after,
    key_of,
    key_votes,
    kinds,
    make,
    make_study,
    read,
    run,
    say,
)
from replica.test_decisions import follows, same_state, vote, with_question
from tests.made_runs import copied


def test_one_peer_cannot_fill_a_round_with_votes() -> None:
    peers, log = with_question()
    for number in range(MOST_NOTES + 10):
        log.append(vote(peers[3], Decision("readmit", "peer0", number)))
    peers[0].follow(log)
    assert kinds(peers[0]).count("vote") == MOST_NOTES


def test_votes_beyond_the_limit_count_for_nobody_however_the_log_is_read() -> None:
    """Live, in a log that is read again, after catching up, from a file: one state. Nor does a vote before its time."""
    study = make_study(4, 4, 1)
    peers = [StoredPeer(study, name) for name in study.clients]
    log = asked_after(peers, 1)
    liar, new = peers[3], key_of("peer3 again")
    log += [vote(liar, Decision("readmit", "peer0", number)) for number in range(MOST_NOTES + 4)]
    log.append(vote(liar, Decision("key", "peer3", None, key_of("peer3").public.signer, new.public)))
    early = msgspec.structs.replace(liar.replica.vote("peer3", Decision("readmit", "peer1", 9)), round=3)
    ledger = liar.replica.link("peer3")
    assert ledger is not None
    gone = msgspec.structs.replace(liar.replica.restored("peer3", ledger, Position(90, b"f" * 16)), round=3)
    log += [("peer3", entry.pack(liar.key)) for entry in (early, gone)]
    log += [answer_of(peer) for peer in peers]
    for peer in peers:
        peer.follow(log)
    log += say(peers[0])
    for peer in peers:
        peer.follow(log)
    log += [answer_of(peer) for peer in peers[:3]]
    live, again, late = peers[1], StoredPeer(study, "peer1"), StoredPeer(study, "peer0")
    for one in (live, again):
        one.follow(log)
        one.save()
    assert (live.replica.closed, live.replica.committed) == (2, 2)
    again.replica, again.read = again.log.read_again(live.replica.keys), 0
    again.follow(log)
    late.follow(log[:3])
    late.replica.catch_up(live.replica.closed_rounds())
    late.follow(log)
    for other in (again, late, StoredPeer.from_copy(live, copied(live.store))):
        assert same_state(other.replica, live.replica)
        assert other.replica.missing == live.replica.missing == ["peer3"]
        assert other.replica._history.notes == []
    assert [len(one.notes) for one in live.replica.closed_rounds()] == [0, MOST_NOTES]


def test_votes_of_liars_never_make_a_round_too_large_to_relay() -> None:
    """A vote may name any text as the key that is replaced: a round with long ones would fit into no entry."""
    peers = make(4, 3, 1)
    log = after(peers, 1)
    liar = peers[3]
    for number in range(MOST_NOTES):
        decision = Decision("key", "peer0", before=f"{number:200000}", keys=key_of(f"new {number}").public)
        body = liar.replica.vote(liar.name, decision).text()
        log.append((liar.name, body + b"\n" + base64.b64encode(liar.key.sign(body))))
        old = key_of(f"old {number}").public.signer
        short = Decision("key", "peer0", before=old, keys=key_of(f"new {number}").public)
        log.append(vote(liar, short))
    run(peers, log)
    replica = peers[0].replica
    assert replica.finished
    replica.epoch = 1  # rounds are relayed in a later log
    for relay in replica.relays("peer0", 0):
        assert read_entry(relay.pack(peers[0].key), peers[0].key.public.signer) == relay
    assert max(len(closed.notes) for closed in replica.closed_rounds()) == MOST_NOTES


def test_votes_that_find_no_room_in_a_round_count_in_the_next_and_those_to_abort_always(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So a closed round fits into an entry however many peers vote, and liars do not keep others from giving up."""
    peers = make(4, 4, 1)
    log = after(peers, 1)
    room = 3 * 900
    monkeypatch.setattr(history, "LARGEST_ENTRY", quorums.closed_round_bytes(peers[0].study) + room)
    junk = [vote(peers[3], Decision("readmit", "peer0", number)) for number in range(MOST_NOTES)]
    keys = key_votes(peers[:3], "peer3", key_of("peer3 again"))
    log += [*junk, *keys]
    for peer in peers:
        peer.follow(log)
    live = peers[0].replica._history
    assert 2 <= len(live.notes) < 6
    assert not any(peers[0].replica.has_voted(one.name, read_vote(keys[0])) for one in peers[:3])
    log += [vote(peers[3], Decision("abort")), *say(peers[0])]
    for peer in peers:
        peer.follow(log)
    assert peers[0].replica.has_voted("peer3", Decision("abort"))
    log += [answer_of(peer) for peer in peers]
    for peer in peers:
        peer.follow(log)
        assert peer.replica.closed == 2
        assert same_state(follows(peer.replica), peer.replica)
    log += key_votes(peers[:3], "peer3", key_of("peer3 again"))
    for peer in peers:
        peer.follow(log)
        assert peer.replica.keys["peer3"] == key_of("peer3 again").public


def read_vote(entry: Logged) -> Decision:
    found = read(entry)
    assert isinstance(found, Vote)
    return found.decision


def test_a_study_has_room_for_a_quorum_of_votes_in_every_round() -> None:
    name = "n" * 40
    signer = key_of("x").public.signer
    longest = [
        Vote(
            "f" * 64, "r" * 60, name, LARGEST_LENGTH, "f" * 64, Decision("key", name, None, signer, key_of("y").public)
        ),
        Restored("f" * 64, "r" * 60, name, LARGEST_LENGTH, "f" * 64, *2 * (Position(LARGEST_LENGTH, b"f" * 16),)),
        CloseVote("f" * 64, "r" * 60, name, LARGEST_LENGTH, LARGEST_LENGTH, "f" * 64, "f" * 64),
    ]
    for one in longest:
        note = Note(name, one.pack(key_of("x")).decode())
        assert len(canonical_json(msgspec.to_builtins(note))) < NOTE_BYTES
    with pytest.raises(InputError, match=r"a closed round of 600 clients would take about [\d,]+ bytes"):
        make_study(600, 3, 199)
    fits = make_study(460, 3, 153)
    assert quorums.closed_round_bytes(fits) + quorums.signing(fits) * NOTE_BYTES <= LARGEST_ENTRY
