"""Votes to abort and restored ledgers belong to the round in which they come: whoever follows it sees the same."""

from __future__ import annotations

import msgspec
import pytest

from privatile.core.messages import LARGEST_LENGTH, Position
from privatile.core.text import canonical_json
from privatile.errors import InputError
from privatile_leaderless import history, quorums
from privatile_leaderless.entries import MAX_ENTRY_BYTES, CloseVote, Note, Restored, Vote
from privatile_leaderless.history import MAX_NOTES
from privatile_leaderless.quorums import NOTE_BYTES
from privatile_leaderless.replica import Replica
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
    make,
    make_study,
    new_replica,
    run,
    say,
    stored,
)


def follows(replica: Replica) -> Replica:
    """Another replica that has followed the same closed rounds."""
    other = new_replica(replica.study)
    other.catch_up(replica.closed_rounds())
    return other


def same_state(one: Replica, other: Replica) -> bool:
    mine, theirs = one._history, other._history
    return (mine.chain, mine.links, mine.restored, mine.abort_voters, mine.quarantined) == (
        theirs.chain,
        theirs.links,
        theirs.restored,
        theirs.abort_voters,
        theirs.quarantined,
    )


def vote(peer: Peer) -> Logged:
    return peer.name, peer.replica.vote(peer.name).pack(peer.key)


def restores(peer: Peer, times: int) -> list[Logged]:
    """A peer says again and again that its ledger was restored."""
    lost, found = peer.replica.link(peer.name), []
    for number in range(times):
        assert lost is not None
        link = Position(number, number.to_bytes(16, "big"))
        found.append((peer.name, peer.replica.restored(peer.name, lost, link).pack(peer.key)))
        lost = link
    return found


def with_question(clients: int = 4, rounds: int = 4) -> tuple[list[Peer], list[Logged]]:
    peers = make(clients, rounds)
    return peers, asked_after(peers, 1)


# -- votes to abort ----------------------------------------------------------------------------------------------------


def test_votes_stay_for_later_rounds() -> None:
    peers, log = with_question()
    log += [vote(peers[0]), vote(peers[0]), vote(peers[1])]
    run(peers, log, lambda: any(peer.replica.closed >= 3 for peer in peers))
    for peer in peers:
        peer.follow(log)
        assert peer.replica.abort_voters == {"peer0", "peer1"}
        assert not peer.replica.aborted
        assert same_state(follows(peer.replica), peer.replica)
    log.append(vote(peers[2]))
    for peer in peers:
        peer.follow(log)
        assert peer.replica.aborted


def test_an_aborted_run_stays_aborted_after_a_restart_and_in_a_new_log() -> None:
    peers = stored()
    log = after(peers, 1)
    log += [vote(peer) for peer in peers[:3]]
    for peer in peers:
        peer.follow(log)
        peer.save()
        peer.restart()
        assert peer.replica.aborted
        assert peer.wants() == []
        peer.replica.new_epoch(1)
        assert peer.replica.aborted
        assert [one.kind for one in peer.log.journal.events()] == ["aborted"]


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
        assert "no place is left that a quorum can sign" in peer.replica.paused
    votes = [vote(peer) for peer in (first, third, away)]
    log += votes[:2]
    for peer in peers:
        peer.follow(log)
        assert not peer.replica.aborted
        assert peer.replica.abort_voters == {first.name, third.name}
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
    log.append(vote(first))
    for peer in peers if closed else (first, second):
        peer.follow(log)
    if closed:
        run(peers, log, lambda: first.replica.closed >= 4)
    for peer in peers:
        peer.renew(1)
    new: list[Logged] = [vote(second)]
    third.follow(new)
    assert third.replica.aborted is closed
    assert not third.replica.has_voted(first.name)
    new += say(first)
    for peer in peers:
        peer.follow(new)
        assert peer.replica.aborted
        peer.save()
        peer.restart()
        assert peer.replica.aborted


def test_a_run_whose_end_finds_no_quorum_can_be_aborted() -> None:
    """A peer that was put back after the last round may have signed another one there: it does not sign the end."""
    peers = stored(2, 3, 0)
    log = after(peers, 3)
    peers[0].log.forfeit(peers[0].replica.slot)
    run(peers, log)
    assert all(peer.replica.ended and not peer.replica.finished for peer in peers)
    log += [vote(peer) for peer in peers]
    for peer in peers:
        peer.follow(log)
        assert peer.replica.aborted
        assert not peer.replica.finished


# -- restored ledgers --------------------------------------------------------------------------------------------------


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


def test_a_ledger_is_not_restored_while_its_answer_stands_in_the_round() -> None:
    """Its link would come back with the answer; and whoever follows the round takes the declaration first."""
    peers, log = with_question()
    log += [answer_of(peers[3]), *restores(peers[3], 1), *(answer_of(peer) for peer in peers[:3])]
    for peer in peers:
        peer.follow(log)
        assert peer.replica.closed == 2
        assert peer.replica.closed_rounds()[1].notes == ()
        assert same_state(follows(peer.replica), peer.replica)


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


# -- quarantine --------------------------------------------------------------------------------------------------------


class Careless(Peer):
    """Reports ones only: impossible under randomized response, as soon as there are enough of them."""

    def answer(self) -> bytes | None:
        found = super().answer()
        asked = self.replica.asked
        if found is None or asked is None:
            return found
        questions = asked.questions(self.name)
        return self.signed(questions, [one.length for one in questions], self.ledger.given[questions[0].round][2])


def test_after_impossible_counts_no_round_closes_any_more() -> None:
    study = make_study(5, 3, 1, length=100)
    peers = [Peer(study, f"peer{k}") for k in range(4)] + [Careless(study, "peer4")]
    log = after(peers, 1)
    for peer in peers:
        peer.is_late = True
    run(peers, log)
    for peer in peers:
        assert peer.replica.closed == 1
        assert peer.replica.quarantined["peer4"].round == 1
        assert "impossible" in peer.replica.quarantined["peer4"].reason
        assert peer.replica.paused.startswith("quarantined: peer4. No round closes any more. Vote to abort")
        assert same_state(follows(peer.replica), peer.replica)


# -- room in a round ---------------------------------------------------------------------------------------------------


def test_one_peer_cannot_fill_a_round_and_its_vote_to_abort_still_counts() -> None:
    peers, log = with_question()
    log += restores(peers[3], MAX_NOTES + 4)
    log.append(vote(peers[3]))
    for peer in peers:
        peer.follow(log)
        assert kinds(peer).count("restored") == MAX_NOTES
        assert peer.replica.abort_voters == {"peer3"}


def test_what_finds_no_room_in_a_round_does_not_count_and_votes_to_abort_always_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So a closed round fits into an entry, and liars do not keep others from giving up."""
    peers = make(4, 4, 1)
    log = asked_after(peers, 1)
    monkeypatch.setattr(history, "MAX_ENTRY_BYTES", quorums.closed_round_bytes(peers[0].study) + 3 * NOTE_BYTES)
    log += [*restores(peers[3], MAX_NOTES), vote(peers[0]), *(answer_of(peer) for peer in peers[:3])]
    log += [(peer.name, peer.replica.close_vote(peer.name).pack(peer.key)) for peer in peers[:2]]
    for peer in peers:
        peer.follow(log)
        assert peer.replica.closed == 2
        assert 3 <= len(peer.replica.closed_rounds()[1].notes) < 8
        assert peer.replica.abort_voters == {"peer0"}
        assert same_state(follows(peer.replica), peer.replica)


def test_a_study_has_room_for_a_quorum_of_votes_in_every_round() -> None:
    name = "n" * 40
    longest = [
        Vote("f" * 64, "r" * 60, name, LARGEST_LENGTH, "f" * 64),
        Restored("f" * 64, "r" * 60, name, LARGEST_LENGTH, "f" * 64, *2 * (Position(LARGEST_LENGTH, b"f" * 16),)),
        CloseVote("f" * 64, "r" * 60, name, LARGEST_LENGTH, LARGEST_LENGTH, "f" * 64, "f" * 64),
    ]
    for one in longest:
        note = Note(name, one.pack(key_of("x")).decode())
        assert len(canonical_json(msgspec.to_builtins(note))) < NOTE_BYTES
    with pytest.raises(InputError, match=r"a closed round of 600 clients would take about [\d,]+ bytes"):
        make_study(600, 3, 199)
    fits = make_study(460, 3, 153)
    assert quorums.closed_round_bytes(fits) + quorums.signing(fits) * NOTE_BYTES <= MAX_ENTRY_BYTES


def test_a_restart_keeps_a_vote_in_the_open_round() -> None:
    peers = stored()
    log = asked_after(peers, 1)
    log.append(vote(peers[0]))
    reader: StoredPeer = peers[1]
    reader.follow(log)
    reader.save()
    reader.restart()
    assert reader.replica.abort_voters == {"peer0"}
    assert reader.store.query("SELECT client FROM peer_abort") == [("peer0",)]
