"""A log that is read again, from its beginning or after a restart: what counted for nobody does not count then."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import pytest

from privatile.core.messages import Position
from privatile_leaderless.entries import Decision, PeerAnswer
from privatile_leaderless.unread import Unread
from replica.kit import (
    Logged,
    StoredPeer,
    after,
    answer_of,
    asked_after,
    checkpoints,
    close_votes,
    key_of,
    key_votes,
    keys_of,
    make_study,
    say,
    stands,
    stored,
)
from replica.test_decisions import same_state
from tests.made_runs import copied


def commit_second(peers: Sequence[StoredPeer], log: list[Logged]) -> Sequence[StoredPeer]:
    """Round 2 is closed: all but the last answer the next question, and two have read and kept that."""
    log += say(peers[1])
    for peer in peers:
        peer.follow(log)
    log += [answer_of(peer) for peer in peers[:3]]
    for peer in peers[1:3]:
        peer.follow(log)
        peer.save()
    assert peers[1].replica.committed == 2
    return peers[1:3]


def test_a_restored_ledger_that_did_not_count_in_its_round_does_not_count_when_the_log_is_read_again() -> None:
    """A liar declares it while its answer stands in the round: who read that later, after the round, took it."""
    study = make_study(4, 4, 1)
    peers = [StoredPeer(study, name) for name in study.clients]
    log = after(peers, 1)
    liar = peers[3]
    log += say(peers[0])
    liar.follow(log)
    answer = liar.answer()
    assert answer is not None
    lost = msgspec.json.decode(answer.rpartition(b"\n")[0], type=PeerAnswer).ledger
    gone = liar.replica.restored(liar.name, lost, Position(90, b"f" * 16)).pack(liar.key)
    log += [(liar.name, answer), (liar.name, gone)]
    for peer in peers[:3]:
        peer.follow(log)
        log.append(answer_of(peer))
    for peer in peers:
        peer.follow(log)
    log += say(peers[0])
    for peer in peers[:3]:
        peer.follow(log)
        log.append(answer_of(peer))
    first, second = peers[:2]
    for peer in (first, second):
        peer.follow(log)
        peer.save()
    assert first.replica.committed == 2
    first.replica, first.read = first.log.read_again(second.replica.keys), 0
    first.follow(log)
    assert first.replica.link(liar.name) == second.replica.link(liar.name)
    assert first.replica._history.notes == second.replica._history.notes == []


@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize(
    "silent",
    ["", "silent", "silent, with a vote for a key", "silent, its key replaced", "silent, votes with the replaced key"],
)
def test_what_a_liar_writes_before_a_round_is_closed_counts_for_nobody_who_reads_the_log_again(
    silent: str, epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever answers last, or votes last to close, knows the chain value that nobody else has yet."""
    peers = stored()
    log = asked_after(peers, 1)
    if epoch:
        for peer in peers:
            peer.log.begin_epoch(1)
            peer.replica.new_epoch(1)
            peer.read = 0
        log = stands(peers)
        log += checkpoints(peers, log)
        peers[0].follow(log)
        log += say(peers[0])
        for peer in peers:
            peer.follow(log)
    liar = peers[3]
    if "replaced" in silent:
        if "votes with" in silent:
            log += close_votes(peers[:1])
        log += key_votes(peers[1:], "peer0", key_of("peer0 again"))
        for peer in peers:
            peer.follow(log)
        peers[0].key = key_of("peer0 again")
    elif "key" in silent:  # which nobody else wants
        change = Decision("key", "peer3", None, key_of("peer3").public.signer, key_of("peer3 again").public)
        log.append(("peer3", liar.replica.vote("peer3", change).pack(liar.key)))
    if silent:
        log += [answer_of(peer) for peer in peers[1:]]
        log += [] if "votes with" in silent else close_votes(peers[1:2])
        (last,) = close_votes([liar])
    else:
        log += [answer_of(peer) for peer in peers[:3]]
        last = answer_of(liar)
    knows = StoredPeer.from_copy(liar, copied(liar.store))
    knows.follow([*log, last])
    assert (peers[1].replica.closed, knows.replica.closed) == (1, 2)
    true = knows.replica.proposal("peer3")
    near = msgspec.structs.replace(true.asks[0], query=math.nextafter(true.asks[0].query, math.inf))
    early = [
        msgspec.structs.replace(true, asks=(near,)),
        knows.replica.vote("peer3", Decision("readmit", "peer0", 7)),
        knows.replica.restored("peer3", knows.replica.link("peer3") or Position(), Position(90, b"f" * 16)),
    ]
    log += [("peer3", entry.pack(liar.key)) for entry in early]
    place = len(log)
    log.append(last)
    for peer in peers:
        peer.follow(log)
    log += say(peers[1])
    for peer in peers:
        peer.follow(log)
    log += [answer_of(peer) for peer in peers[:3]]
    live, again = peers[1], peers[2]
    for peer in (live, again):
        peer.follow(log)
        peer.save()
    assert (live.replica.closed, live.replica.committed) == (2, 2)

    def read_again() -> tuple[object, ...]:
        again.replica, again.read = again.log.read_again(keys_of(live)), 0
        again.follow(log[:place])
        again.save()
        again.restart()  # in the midst of it
        again.follow(log)
        return again.replica.asks, again.replica._history.notes, again.replica._history.links

    here = (live.replica.asks, live.replica._history.notes, live.replica._history.links)
    assert read_again() == here
    assert again.replica.missing == live.replica.missing == ["peer3"]
    monkeypatch.setattr(Unread, "is_complete", True)
    assert read_again() != here  # the negative control


@pytest.mark.parametrize("shown", ["as it was", "without a vote", "a vote with the replaced key"])
def test_a_round_with_a_new_key_is_complete_where_it_was_closed_whatever_the_operator_shows(shown: str) -> None:
    """The votes to close it are asked for too; a key counts from the vote on that has decided it, and no longer."""
    peers = stored()
    log = asked_after(peers, 1)
    lost = peers[0]
    log += key_votes(peers[1:], "peer0", key_of("peer0 again"))
    log += [answer_of(peer) for peer in peers[1:]]
    for peer in peers:
        peer.follow(log)
    stolen = close_votes([lost])
    lost.key = key_of("peer0 again")
    log += close_votes(peers[1:3])
    place = len(log)
    for peer in peers:
        peer.follow(log)
    assert peers[1].replica.closed_rounds()[1].answers[0] is None
    live, again = commit_second(peers, log)
    assert live.replica.keys["peer0"] == key_of("peer0 again").public
    again.replica, again.read = again.log.read_again(keys_of(peers[3])), 0
    cut = {"without a vote": [], "a vote with the replaced key": stolen}.get(shown)
    if cut is not None:
        log = [*log[: place - 1], *cut, *log[place:]]
    again.follow(log)
    if cut is not None:  # nothing is decided, and nothing is signed, until the log shows them
        assert (again.replica.asks, again.replica._now.proof) == ((), {})
    else:
        assert again.replica.asks == live.replica.asks != ()
        assert again.replica.missing == live.replica.missing == ["peer3"]
        assert same_state(again.replica, live.replica)


@pytest.mark.parametrize("stolen", [False, True])
def test_a_new_log_that_began_with_a_key_that_was_replaced_since_can_be_read_again(stolen: bool) -> None:
    peers = stored()
    after(peers, 1)
    for peer in peers:
        peer.log.begin_epoch(1)
        peer.replica.new_epoch(1)
        peer.read = 0
    log = stands(peers[:3])
    log += checkpoints(peers[:3], log)  # just enough
    peers[0].follow(log)
    log += say(peers[0])
    for peer in peers:
        peer.follow(log)
    log += key_votes(peers[1:], "peer0", key_of("peer0 again"))
    log += [*(answer_of(peer) for peer in peers[1:]), *close_votes(peers[1:3])]
    for peer in peers:
        peer.follow(log)
    late = peers[0].replica.checkpoint("peer0").pack(peers[0].key)  # of a round after which the key no longer holds
    peers[0].key = key_of("peer0 again")
    live, again = commit_second(peers, log)
    again.replica, again.read = again.log.read_again(keys_of(live)), 0
    again.follow([*log[:3], ("peer0", late), *log[4:]] if stolen else log)
    assert again.replica.recovering is stolen
    if not stolen:
        assert (again.replica.asks, again.replica.missing) == (live.replica.asks, ["peer3"])
        assert same_state(again.replica, live.replica)


@pytest.mark.parametrize("twice", ["an answer", "a vote to close"])
def test_what_counted_for_nobody_and_was_written_again_does_not_complete_a_round(twice: str) -> None:
    """A liar's last entry of a round stands in the log before that round, too: there nobody has counted it."""
    peers = stored()
    log = asked_after(peers, 1)
    liar = peers[3]
    if twice == "an answer":
        news, last, place = [answer_of(peer) for peer in peers[:3]], answer_of(liar), 1  # before the first round
    else:
        news = [*(answer_of(peer) for peer in peers[1:]), *close_votes(peers[1:2])]
        (last,), place = close_votes([liar]), len(log) - 1  # before the question
    liar.follow([*log, *news, last])
    true = liar.replica.proposal("peer3")
    near = msgspec.structs.replace(true.asks[0], query=math.nextafter(true.asks[0].query, math.inf))
    early = msgspec.structs.replace(true, asks=(near,)).pack(liar.key)
    log = [*log[:place], last, *log[place:], *news, ("peer3", early), last]
    others = stored()[:3]
    for other, peer in zip(others, peers, strict=False):
        other.ledger = peer.ledger
        other.follow(log)
    assert [other.replica.closed for other in others] == [2, 2, 2]
    log += say(others[1])
    for other in others:
        other.follow(log)
    log += [answer_of(other) for other in others]
    live, again = others[1:]
    for other in (live, again):
        other.follow(log)
        other.save()
    assert live.replica.committed == 2
    again.replica, again.read = again.log.read_again(keys_of(live)), 0
    behind = [StoredPeer(live.study, "peer0") for _ in range(len(log))]
    for cut, peer in enumerate(behind):  # who catches up with a file, wherever they were in the log
        peer.follow(log[:cut])
        peer.save()
        peer.replica.catch_up(live.replica.closed_rounds(), live.replica.proof)
        peer.save()
        peer.restart()
    for reader in (again, *behind):
        reader.follow(log)
        assert reader.replica.asks == live.replica.asks
        assert reader.replica.missing == live.replica.missing == ["peer3"]
