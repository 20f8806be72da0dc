"""What a quorum decides belongs to the round in which it takes effect: whoever follows the round sees the same."""

from __future__ import annotations

import pytest

from privatile.core.messages import Position
from privatile.records.keys import KeyPair
from privatile_leaderless.decisions import Tally
from privatile_leaderless.entries import (
    Decision,
    Vote,
    read_entry,
)
from privatile_leaderless.replica import Replica
from privatile_leaderless.undecided import MOST_UNDECIDED, Undecided
from replica.filed import filed
from replica.kit import (
    Logged,
    Peer,
    StoredPeer,
    after,
    answer_of,
    asked_after,
    key_of,
    kinds,
    lie_twice,
    make,
    make_study,
    new_replica,
    run,
    say,
)


def follows(replica: Replica) -> Replica:
    """Another replica that has followed the same closed rounds."""
    other = new_replica(replica.study)
    other.catch_up(replica.closed_rounds())
    return other


def same_state(one: Replica, other: Replica) -> bool:
    mine, theirs = one._history, other._history
    return (mine.chain, mine.links, mine.restored, mine.tally, mine.quarantined) == (
        theirs.chain,
        theirs.links,
        theirs.restored,
        theirs.tally,
        theirs.quarantined,
    )


def vote(peer: Peer, decision: Decision) -> Logged:
    return peer.name, peer.replica.vote(peer.name, decision).pack(peer.key)


def with_question(clients: int = 4, rounds: int = 4) -> tuple[list[Peer], list[Logged]]:
    peers = make(clients, rounds)
    return peers, asked_after(peers, 1)


def test_a_key_that_is_replaced_within_a_round_is_followed() -> None:
    peers, log = with_question()
    new = key_of("peer3 again")
    change = Decision("key", "peer3", None, key_of("peer3").public.signer, new.public)
    first = [answer_of(peers[3]), answer_of(peers[0])]  # the answer with the old key came before
    log += [*first, *(vote(peer, change) for peer in peers[:3])]
    peers[3].key = new
    for peer in peers:
        peer.follow(log)
        assert peer.replica.keys["peer3"] == new.public
    run(peers, log)
    assert all(peer.replica.finished for peer in peers)
    other = follows(peers[1].replica)
    assert same_state(other, peers[1].replica)
    assert [len(one.notes) for one in other.closed_rounds()] == [0, 3, 0, 0]
    assert "unsigned" not in kinds(peers[0])


def test_votes_stay_for_later_rounds() -> None:
    peers, log = with_question()
    new = key_of("peer3 again")
    change = Decision("key", "peer3", None, key_of("peer3").public.signer, new.public)
    log += [vote(peers[0], change), vote(peers[1], change)]
    run(peers, log, lambda: any(peer.replica.closed >= 3 for peer in peers))
    peers[2].follow(log)
    log.append(vote(peers[2], change))
    for peer in peers:
        peer.follow(log)
    assert peers[0].replica.keys["peer3"] == new.public
    assert same_state(follows(peers[0].replica), follows(peers[1].replica))


def test_a_restored_ledger_goes_on_from_its_new_link() -> None:
    peers, log = with_question()
    lost = peers[0].replica.link("peer2")
    assert lost is not None
    back = Position(lost.sequence - 1, b"0" * 16)
    wrong = peers[2].replica.restored("peer2", Position(lost.sequence, b"1" * 16), back).pack(peers[2].key)
    assert peers[0].see("peer2", wrong) == ()
    declared = ("peer2", peers[2].replica.restored("peer2", lost, back).pack(peers[2].key))
    log.append(declared)
    peers[2].ledger.sequence = back.sequence
    run(peers, log)
    assert all(peer.replica.finished for peer in peers)
    assert kinds(peers[0]).count("restored") == 1
    assert same_state(follows(peers[0].replica), peers[0].replica)
    # Sent again, it changes nothing: the ledger has gone on.
    assert peers[0].replica.link("peer2") != back


def test_records_of_the_open_round_count_as_asked() -> None:
    """A ledger that was lost may have answered it: what it lacks of them is marked as spent after a restore."""
    peers, _ = with_question()
    asked = peers[0].replica.asked
    assert asked is not None
    length = sum(question.length for question in asked.questions("peer2"))
    assert peers[0].replica.records_asked("peer2") == 2 * length
    assert follows(peers[0].replica).records_asked("peer2") == length


def test_without_the_declaration_a_ledger_that_went_back_is_found() -> None:
    peers, log = with_question()
    peers[2].ledger.sequence = 0
    log.append(answer_of(peers[2]))
    for peer in peers:
        peer.follow(log)
        assert "it was restored from a backup" in peer.replica.quarantined["peer2"].reason
    readmit = Decision("readmit", "peer2", 2)
    log += [vote(peer, readmit) for peer in peers[:3]]
    for peer in peers:
        peer.follow(log)
        assert not peer.replica.quarantined
        assert "peer2" in peer.replica.missing
    log.append(log[-4])  # the same answer again is decided upon
    for peer in peers:
        peer.follow(log)
        assert not peer.replica.quarantined


def test_an_answer_that_came_in_quarantine_counts_after_it() -> None:
    peers, log = with_question(5)
    first, second = lie_twice(peers)
    log += [first, *(answer_of(peer) for peer in peers[:4])]
    for peer in peers:
        peer.follow(log)
    log += [second, *say(peers[0])]
    for peer in peers:
        peer.follow(log)
        assert peer.replica.closed == 2
        assert peer.replica.quarantined["peer4"].round == 2
    log += [answer_of(peer) for peer in peers]
    log += [vote(peer, Decision("readmit", "peer4", 2)) for peer in peers[:4]]
    for peer in peers:
        peer.follow(log)
        assert peer.replica.closed == 3
        assert None not in peer.replica.closed_rounds()[2].answers
    assert same_state(follows(peers[0].replica), peers[0].replica)


@pytest.mark.parametrize(
    "decision",
    [
        Decision("abort", "peer0"),
        Decision("readmit", "peer0"),
        Decision("readmit", None, 1),
        Decision("readmit", "stranger", 1),
        Decision("key", "peer0", None, key_of("peer0").public.signer),
    ],
)
def test_a_vote_that_names_other_things_is_refused(decision: Decision) -> None:
    peers, _ = with_question()
    assert [one.kind for one in peers[1].see(*vote(peers[0], decision))] == ["refused"]


def test_an_aborted_run_stays_aborted_after_a_restart_and_in_a_new_log() -> None:
    study = make_study(4, 4, 1)
    peers = [StoredPeer(study, name) for name in study.clients]
    log = after(peers, 1)
    log += [vote(peer, Decision("abort")) for peer in peers[:3]]
    for peer in peers:
        peer.follow(log)
        peer.save()
        peer.restart()
        assert peer.replica.aborted
        assert peer.wants() == []
        peer.replica.new_epoch(1)
        assert peer.replica.aborted
        assert [one.kind for one in peer.log.journal.events()] == ["aborted"]
    assert isinstance(read_entry(log[-1][1], key_of(log[-1][0]).public.signer), Vote)


class Careless(Peer):
    """Reports ones only: impossible under randomized response, as soon as there are enough of them."""

    def answer(self) -> bytes | None:
        found = super().answer()
        asked = self.replica.asked
        if found is None or asked is None:
            return found
        questions = asked.questions(self.name)
        return self.signed(questions, [one.length for one in questions], self.ledger.given[questions[0].round][2])


def test_impossible_counts_wait_for_a_quorum_after_every_round() -> None:
    study = make_study(5, 3, 1, length=100)
    peers = [Peer(study, f"peer{k}") for k in range(4)] + [Careless(study, "peer4")]
    log = after(peers, 1)
    for number in (1, 2):
        for peer in peers:
            peer.follow(log)
            assert peer.replica.quarantined["peer4"].round == number
            assert "impossible" in peer.replica.quarantined["peer4"].reason
        run(peers, log)
        assert {peer.replica.closed for peer in peers} == {number}
        assert "peer4" in peers[0].replica.missing  # its answer came while it was in quarantine
        log += [vote(peer, Decision("readmit", "peer4", number)) for peer in peers[:4]]
        peers[0].follow(log)
        assert peers[0].replica.closed == number + 1
    assert None not in peers[0].replica.closed_rounds()[2].answers
    assert same_state(follows(peers[0].replica), peers[0].replica)


def test_a_decision_about_a_round_covers_what_is_found_in_it() -> None:
    """Two answers and impossible counts in one round: one decision lets it go on; it could not be taken twice."""
    study = make_study(5, 3, 1, length=100)
    peers = [Peer(study, f"peer{k}") for k in range(4)] + [Careless(study, "peer4")]
    log: list[Logged] = []
    log += say(peers[0])
    for peer in peers:
        peer.follow(log)
    liar = peers[4]
    first = answer_of(liar)
    second = (liar.name, Peer.answer(liar))
    assert second[1] is not None
    log += [first, (second[0], second[1]), *(answer_of(peer) for peer in peers[:4])]
    log += [vote(peer, Decision("readmit", "peer4", 1)) for peer in peers[:4]]
    for peer in peers:
        peer.follow(log)
        assert peer.replica.closed == 1
        assert not peer.replica.quarantined


def test_a_log_that_cannot_begin_can_be_aborted() -> None:
    """Three have signed different values in one slot, by files that were put back or by other accidents."""
    peers = filed(4, 6, 1)
    first, _, third, away = peers
    after(peers, 2)
    for number, peer in enumerate(peers[:3]):
        assert peer.log.claim(((4, f"{number:064}"),))
    for peer in peers:
        peer.renew(1)
    log = run(peers, [])
    for peer in peers:
        assert peer.replica.recovering
        assert "no place is left that a quorum can sign (`privatile peer vote --abort`)" in peer.replica.paused
    abort = Decision("abort")
    votes = [(peer.name, peer.replica.vote(peer.name, abort).pack(peer.key)) for peer in (first, third, away)]
    log += votes[:2]
    for peer in peers:
        peer.follow(log)
        assert not peer.replica.aborted
        assert peer.replica.has_voted(first.name, abort)
        assert not peer.replica.has_voted(away.name, abort)
        assert peer.replica.undecided == [Undecided("abort", None, (first.name, third.name))]
    log += [votes[0], votes[2]]
    for peer in peers:
        peer.follow(log)
        assert peer.replica.aborted
    third.save()
    third.restart()
    assert third.replica.aborted


@pytest.mark.parametrize("closed", [True, False])
def test_a_vote_to_abort_from_before_the_log_was_lost_still_counts(closed: bool) -> None:
    """With one of three away nobody could otherwise end a run whose log does not begin: one vote is cast already.

    Whoever has voted says it again, for those who have not read it in the lost log.
    """
    peers = filed(3, 6, 0)
    first, second, third = peers
    log = after(peers, 2)
    abort = Decision("abort")
    log.append((first.name, first.replica.vote(first.name, abort).pack(first.key)))
    for peer in peers if closed else (first, second):
        peer.follow(log)
    if closed:
        run(peers, log, lambda: first.replica.closed >= 4)
    for peer in peers:
        peer.renew(1)
    new: list[Logged] = [(second.name, second.replica.vote(second.name, abort).pack(second.key))]
    third.follow(new)
    assert third.replica.aborted is closed
    assert not third.replica.has_voted(first.name, abort)
    new += say(first)
    for peer in peers:
        peer.follow(new)
        assert peer.replica.aborted
        peer.save()
        peer.restart()
        assert peer.replica.aborted


def test_what_liars_vote_for_is_shown_up_to_a_limit_and_keeps_no_other_vote_away() -> None:
    """Any number of keys can be voted for; a vote to abort, and what most have voted for, is still seen."""
    replica = filed(4, 3, 1)[0].replica
    before = replica.keys["peer1"].signer
    replica._history.tally = tally = Tally.of(3, replica.keys)
    for _ in range(3 * MOST_UNDECIDED):
        tally.add("peer0", Decision("key", "peer1", before=before, keys=KeyPair.generate().public))
    wanted = Decision("key", "peer1", before=before, keys=KeyPair.generate().public)
    for name in ("peer2", "peer3"):
        tally.add(name, wanted)
    tally.add("peer2", Decision("abort"))
    tally.add("peer0", Decision("readmit", "peer3", 1))  # who is not in quarantine
    shown = replica.undecided
    assert len(shown) == MOST_UNDECIDED
    assert shown[:2] == [Undecided("key", "peer1", ("peer2", "peer3")), Undecided("abort", None, ("peer2",))]
    assert {one.action for one in shown} == {"key", "abort"}


def test_a_run_whose_end_finds_no_quorum_can_be_aborted() -> None:
    """A peer that was put back after the last round may have signed another one there: it does not sign the end."""
    study = make_study(2, 3, 0)
    peers = [StoredPeer(study, name) for name in study.clients]
    log = after(peers, 3)
    peers[0].log.forfeit(peers[0].replica.slot)
    run(peers, log)
    assert all(peer.replica.ended and not peer.replica.finished for peer in peers)
    log += [(peer.name, peer.replica.vote(peer.name, Decision("abort")).pack(peer.key)) for peer in peers]
    for peer in peers:
        peer.follow(log)
        assert peer.replica.aborted
        assert not peer.replica.finished
