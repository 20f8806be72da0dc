"""A liar, or an accident, in a log that has not begun: nobody crashes, waits for ever, or works without end."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from privatile_leaderless.chain import closed_chain, end_chain
from privatile_leaderless.entries import ClosedRound, Note
from privatile_leaderless.history import History
from privatile_leaderless.recovery import MAX_STANDS, PeerPosition, Place
from replica.kit import (
    Logged,
    Peer,
    StoredPeer,
    after,
    answer_of,
    asked_after,
    checkpoints,
    make_study,
    one_history,
    run,
    say,
    stored,
)
from replica.lost_logs import Machine
from replica.test_last_round import renew


def to_the_end(peers: Sequence[Peer], log: list[Logged]) -> None:
    for late in (False, True):
        for peer in peers:
            peer.is_late = late
        run(peers, log)


def one_ahead() -> list[StoredPeer]:
    """The third has read all answers to round 3 and has answered round 4; for the others round 3 is open."""
    peers = stored(4, 6, 1)
    log = asked_after(peers, 2, 1)
    log += [answer_of(peer) for peer in peers]
    third = peers[2]
    third.follow(log)
    third.see("peer2", third.replica.proposal("peer2").pack(third.key))
    third.read += 1
    answer_of(third)
    assert [peer.replica.closed for peer in peers] == [2, 2, 3, 2]
    renew(peers)
    return peers


def test_who_says_that_the_run_was_over_earlier_moves_nobody_and_leaves_its_word_as_evidence() -> None:
    peers = one_ahead()
    liar, honest = peers[3], peers[:3]
    true = liar.replica.stand("peer3", liar.slots, ())
    chain = liar.replica.chain
    false = msgspec.structs.replace(true, ended=True, slot=4, chain=end_chain(chain, 2)).pack(liar.key)
    log: list[Logged] = [("peer3", false), *say(peers[0]), *say(peers[1])]
    third = peers[2]
    third.follow(log)
    assert third.replica.closed == 3
    (refused,) = [one for one in third.happenings if one.kind == "refused"]
    assert (refused.client, refused.payloads) == ("peer3", (false,))
    to_the_end(honest, log)
    assert all(peer.replica.finished for peer in honest)


def test_who_speaks_and_does_not_sign_stops_one_log_and_no_later_one() -> None:
    """The third gives way to the choice of the others, and is the only one who knows what it has signed."""
    peers = one_ahead()
    honest = peers[:3]
    log = [*say(peers[3]), *say(peers[0]), *say(peers[1])]
    run(honest, log)
    assert [peer.replica.closed for peer in honest] == [2, 2, 2]
    assert "2 have; awaited from peer3" in honest[0].replica.paused
    honest[2].save()
    honest[2].restart()
    renew(honest, 2)
    log = []
    to_the_end(honest, log)
    assert all(peer.replica.finished for peer in honest)
    assert [one.round for one in honest[0].happenings if one.kind == "begun"] == [3]
    renew(peers[3:], 2)
    run(peers, log)
    assert peers[3].replica.finished
    assert one_history(peers)


def test_before_the_first_round_a_new_log_waits_for_everybody() -> None:
    """It takes everybody's answer to one question, and the one who speaks last may have answered one already."""
    study = stored(4, 4, 1)[0].study
    peers = [Machine(study, name) for name in study.clients]
    last = peers[3]
    last.see("peer3", last.proposes())
    last.read = 1
    answer_of(last)
    for peer in peers:
        peer.renew(1)
    log = run(peers[:3], [])
    assert all(peer.replica.begins_at is None for peer in peers[:3])
    log += say(last)
    for peer in peers:
        peer.follow(log)
    log += checkpoints(peers, log)
    run(peers, log)
    assert all(peer.replica.finished for peer in peers)


def test_of_two_questions_that_were_answered_the_one_is_asked_again_that_a_quorum_can_answer() -> None:
    """Machines compute a question differently in its last bits. In one lost log one has answered, in another two."""
    study = make_study(4, 4, 1)
    peers = [Machine(study, name) for name in study.clients]
    first, second, third, free = peers
    log = after(peers, 1)
    one, other = [*log, ("peer0", first.proposes())], [*log, ("peer1", second.proposes())]
    for peer, shown in ((first, one), (second, other), (third, other)):
        peer.follow(shown)
        answer_of(peer)
    assert first.replica.asks != second.replica.asks
    asked = second.replica.asks
    for peer in peers:
        peer.renew(1)
    log = [*say(first), *say(second), *say(free), *say(third)]
    for peer in peers:
        peer.follow(log)
        assert peer.replica.begins_at is not None
        assert peer.replica.begins_at.asks == asked
    to_the_end(peers, log)
    assert all(peer.replica.finished for peer in peers)


def test_the_end_takes_two_slots_of_whoever_could_sign_it() -> None:
    """Who has signed another last round cannot sign the end of this one."""
    place = Place(3, "a" * 64, True)

    def said(slot: int, chain: str) -> PeerPosition:
        return PeerPosition("one", Place(2, "b" * 64, False), None, slot, chain, (), b"")

    assert said(3, "b" * 64).can_sign(place)
    assert said(4, "a" * 64).can_sign(place)
    assert said(5, end_chain("a" * 64, 3)).can_sign(place)
    assert not said(4, "c" * 64).can_sign(place)
    assert not said(5, end_chain("c" * 64, 3)).can_sign(place)
    assert not said(6, "a" * 64).can_sign(place)


@pytest.mark.parametrize("junk", ["missed records", "answers", "votes"])
def test_a_liar_makes_others_follow_in_vain_a_few_times_only(junk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    peers = one_ahead()
    reader, liar, (true,) = peers[0], peers[3], peers[2].replica.closed_rounds(2)
    clients, said = tuple(reader.study.clients), liar.replica.stand("peer3", liar.slots, ())
    tried: list[int] = []
    follow = History._follow

    def counted(history: History, closed: ClosedRound) -> object:
        tried.append(closed.round)
        return follow(history, closed)

    monkeypatch.setattr(History, "_follow", counted)
    for peer in peers[:2]:
        reader.see(*say(peer)[0])
    for number in range(60):
        made = {
            "missed records": msgspec.structs.replace(true, unspent=((number % 4,) * (1 + number // 20),)),
            "answers": msgspec.structs.replace(true, answers=(f"{number}", *true.answers[1:])),
            "votes": msgspec.structs.replace(true, votes=(Note("peer3", f"{number}"),)),
        }[junk]
        lie = msgspec.structs.replace(said, last=made, slot=4, chain=closed_chain(made, clients))
        reader.see("peer3", lie.pack(liar.key))
    assert 0 < len(tried) <= 8 * MAX_STANDS  # each is followed, and then what was there before
    reader.see(*say(peers[2])[0])  # nor does that keep out what others say
    assert reader.replica.closed_rounds(2) == [true]


def test_checkpoints_of_a_liar_fill_nobodys_memory() -> None:
    peers = one_ahead()
    liar, reader = peers[3], peers[0]
    true = liar.replica.checkpoint("peer3")
    for number in range(200):
        reader.see("peer3", msgspec.structs.replace(true, chain=f"{number:064}").pack(liar.key))
    kept = reader.replica._recovery
    assert kept is not None
    assert len(kept._checkpoints) == MAX_STANDS


def test_a_round_with_longer_lists_than_any_is_no_place_where_anybody_stands() -> None:
    """In memory they would take many times their bytes."""
    peers = stored(4, 6, 1)
    after(peers, 2)
    true = peers[0].replica.closed_rounds()[1]
    longer = msgspec.structs.replace(true.asks[0], lengths=(1,) * 5)
    for wrong in (
        {"unspent": ((0,),) * 2},
        {"unspent": ((0,) * 5,)},
        {"asks": (longer,)},
        {"votes": (Note("peer0", "x"),) * 5},
        {"answers": (None,) * 5},
    ):
        assert not msgspec.structs.replace(true, **wrong).fits(4)
    assert true.fits(4)
