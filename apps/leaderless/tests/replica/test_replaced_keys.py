"""Where a key was replaced, everybody reads the same, with the key that held there: live, again, later, elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest

from privatile.federation.site.limits import SiteLimits
from privatile.federation.site.responder import SiteResponder
from privatile.records.keys import PublicKeys
from privatile_leaderless import quorums
from privatile_leaderless.entries import CloseVote, Decision, asks_digest
from privatile_leaderless.following import Following
from privatile_leaderless.peer_file import LogEntry
from privatile_leaderless.replica import Replica
from privatile_leaderless.roster import PeerRoster
from privatile_leaderless.service import PeerService
from privatile_leaderless.votes import VoteBox
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
    lie_twice,
    new_replica,
    run,
    say,
    stands,
    stored,
)
from replica.test_decisions import follows, same_state, vote
from tests.made_runs import copied


def all_follow(peers: Sequence[StoredPeer], log: list[Logged]) -> None:
    for peer in peers:
        peer.follow(log)


def lose_log(peers: Sequence[StoredPeer]) -> None:
    for peer in peers:
        peer.save()
        peer.log.begin_epoch(1)
        peer.replica.new_epoch(1)
        peer.read = 0


def again(name: str) -> str:
    return f"{name} again"


@pytest.mark.parametrize("first", ["key", "readmit"])
def test_an_answer_that_came_in_quarantine_and_was_signed_anew_is_in_the_round_as_it_was_counted(first: str) -> None:
    """Otherwise the chain and the files hold different signatures, and no file can be read any more."""
    peers = stored(5)
    log = asked_after(peers, 1)
    one, other = lie_twice(peers)
    log += [one, *(answer_of(peer) for peer in peers[:4])]
    all_follow(peers, log)
    log += [other, *say(peers[0])]
    all_follow(peers, log)
    assert "peer4" in peers[0].replica.quarantined
    log += [answer_of(peer) for peer in peers[1:]]
    keys = key_votes(peers[:4], "peer4", key_of(again("peer4")))
    decided = [vote(peer, Decision("readmit", "peer4", 2)) for peer in peers[:4]]
    log += [*keys, *decided] if first == "key" else [*decided, *keys]
    all_follow(peers, log)
    peers[4].key = key_of(again("peer4"))
    assert ("peer4" in peers[0].replica.missing) is (first == "key")
    run(peers, log)
    for peer in peers:
        assert peer.replica.finished
        peer.save()
        before = peer.replica
        peer.restart()
        assert (peer.replica.chain, peer.replica.finished) == (before.chain, True)
    assert same_state(follows(peers[0].replica), peers[0].replica)


@pytest.mark.parametrize("waits", [False, True])
def test_an_answer_before_its_question_with_a_key_that_was_replaced_meanwhile_does_not_count(waits: bool) -> None:
    """Who follows the round would write down the older key, and who has read the log the newer one."""
    peers = stored()
    log = after(peers, 1)
    question = say(peers[0])
    lost = peers[3]
    knows = StoredPeer.from_copy(lost, copied(lost.store))
    knows.replica = new_replica(lost.study)
    knows.replica.catch_up(lost.replica.closed_rounds())
    knows.see(*question[0])
    log.append(answer_of(knows))
    all_follow(peers, log)
    log += key_votes(peers[:3], "peer3", key_of(again("peer3")))
    lost.key = knows.key = key_of(again("peer3"))
    log += [] if waits else [answer_of(knows)]  # signed anew, still before the question
    log += question
    all_follow(peers, log)
    assert ("peer3" in peers[0].replica.missing) is waits
    run(peers, log)
    assert all(peer.replica.finished for peer in peers)
    live, other = peers[0].replica._history.records[1], follows(peers[0].replica)._history.records[1]
    assert live.accepted == other.accepted
    assert live.accepted["peer3"].signer == lost.key.public.signer


def presigned() -> tuple[list[StoredPeer], list[Logged]]:
    """A liar has its next key beforehand: with it, a checkpoint; with the present one, a question and a vote to close.

    None of it counts for those who read the log live: the log has not begun. The last two entries before the round is
    closed are a vote of the liar for the next round, and the vote that closes this one.
    """
    peers = stored()
    after(peers, 1)
    lose_log(peers)
    liar, new = peers[0], key_of(again("peer0"))
    question = liar.replica.proposal("peer0")
    here = (liar.study.digest, liar.study.run, "peer0", 1, 2, liar.replica.chain, asks_digest(question.asks))
    log = stands(peers)
    signed = checkpoints(peers[1:], log)
    log += [("peer0", liar.replica.checkpoint("peer0").pack(new)), *signed[:2]]
    log += [("peer0", question.pack(liar.key)), ("peer0", CloseVote(*here).pack(liar.key)), signed[2]]
    all_follow(peers, log)
    log += say(peers[1])
    all_follow(peers, log)
    assert peers[1].replica.asks == question.asks
    log += [*key_votes(peers[1:], "peer0", new), *(answer_of(peer) for peer in peers[1:]), *close_votes(peers[1:2])]
    all_follow(peers, log)
    liar.key = new
    last = close_votes(peers[2:3])
    knows = new_replica(liar.study)
    knows.catch_up(liar.replica.closed_rounds())
    knows.new_epoch(1)
    for entry in [*log, *last]:
        knows.apply(*entry)
    assert (peers[1].replica.closed, knows.closed) == (1, 2)
    log += [("peer0", knows.vote("peer0", Decision("readmit", "peer1", 7)).pack(new)), *last]
    all_follow(peers, log)
    log += say(peers[1])
    all_follow(peers, log)
    log += [answer_of(peer) for peer in peers[:3]]
    return peers, log


@pytest.mark.parametrize("rule", [True, False])
def test_a_checkpoint_with_a_key_that_did_not_hold_yet_counts_for_nobody(
    rule: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the log begins earlier for who reads it again, and a vote to close counts that counted for nobody."""
    peers, log = presigned()
    live, reader = peers[1:3]
    for peer in (live, reader):
        peer.follow(log)
        peer.save()
    assert (live.replica.committed, live.replica._history.notes) == (2, [])
    if not rule:  # the negative control: whoever has a key now had it always
        monkeypatch.setattr(Following, "_keys_of", lambda replica, entry: replica.keys)
    reader.replica, reader.read = reader.log.read_again(keys_of(live)), 0
    reader.follow(log)
    assert same_state(reader.replica, live.replica) is rule


def closed_with_new_keys(peers: Sequence[StoredPeer], lost: Sequence[str], readers: Sequence[StoredPeer]) -> None:
    """Round 2 replaces these keys, and only these peers read the vote that closes it; then the log is lost."""
    log = asked_after(peers, 1)
    voters = [peer for peer in peers if peer.name not in lost]
    for name in lost:
        log += key_votes(voters, name, key_of(again(name)))
    needed = quorums.liars(peers[0].study) + 1
    log += [answer_of(peer) for peer in voters]
    all_follow(peers, log)
    log += close_votes(voters[: needed - 1])
    all_follow(peers, log)
    log += close_votes(voters[needed - 1 : needed])
    all_follow(readers, log)
    lose_log(peers)


def talk(peers: Sequence[StoredPeer], log: list[Logged]) -> None:
    for _ in range(4):
        all_follow(peers, log)
        for peer in peers:
            log += [entry for entry in say(peer) if entry not in log]
    run(peers, log)


def test_a_peer_that_is_ahead_by_a_new_key_begins_the_new_log_with_the_others() -> None:
    """The key of the others' checkpoints is the older one: it alone has closed the round in which it was replaced."""
    peers = stored()
    ahead = peers[3]
    closed_with_new_keys(peers, ["peer0"], [ahead])
    assert [peer.replica.closed for peer in peers] == [1, 1, 1, 2]
    log = [entry for peer in peers for entry in say(peer)]
    talk([peers[0], peers[1], ahead], log)  # who is silent from now on has signed a checkpoint
    assert not ahead.replica.recovering
    assert "peer3" not in peers[0].replica.missing
    for peer in peers:  # it has signed the value of its own round 2, and none in the next
        peer.is_late = True
    run(peers, log)
    assert all(peer.replica.finished for peer in peers)


@pytest.mark.parametrize("anew", [True, False])
def test_a_peer_that_is_behind_by_new_keys_begins_the_new_log_where_the_others_do(
    anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two say where they stand with keys that it does not know before it has followed the round: it looks again.

    The round must not be dropped, either, in which the keys were replaced: with them nothing earlier can be signed.
    """
    peers = stored(7, 4, 2)
    closed_with_new_keys(peers, ["peer0", "peer1"], peers[:5])
    assert [peer.replica.closed for peer in peers] == [2, 2, 2, 2, 2, 1, 1]
    for peer in peers[:2]:
        peer.key = key_of(again(peer.name))
    if not anew:
        monkeypatch.setattr(Replica, "_read_anew", lambda replica, recovery: iter(()))
    late, present = peers[5], [*peers[:4], peers[5]]  # a quorum
    log = [entry for peer in present for entry in say(peer)]
    talk(present, log)
    assert late.replica.recovering is not anew
    if anew:
        assert same_state(late.replica, peers[2].replica)
        assert (late.replica.asks, late.replica.missing) == (peers[2].replica.asks, ["peer4", "peer6"])


def test_a_server_is_told_of_keys_that_came_with_a_relayed_round(tmp_path: Path) -> None:
    """It would not admit their owners before its next start."""
    peers = stored(7, 4, 2)
    closed_with_new_keys(peers, ["peer0", "peer1"], peers[:5])
    for peer in peers[:2]:
        peer.key = key_of(again(peer.name))
    late, log = peers[5], [entry for peer in (*peers[:4], peers[5]) for entry in say(peer)]
    told: list[Mapping[str, PublicKeys]] = []
    service = PeerService(
        late.name,
        late.key,
        cast("PeerRoster", None),
        late.log,
        late.replica,
        cast("SiteResponder", None),
        cast("SiteLimits", None),
        VoteBox(tmp_path),
        urls=(),
        on_key=lambda keys: told.append(dict(keys)),
    )
    for place, (sender, payload) in enumerate(log, 1):
        service._apply(LogEntry(place, sender, payload))
    assert [told[-1][peer.name] for peer in peers[:2]] == [peer.key.public for peer in peers[:2]]
