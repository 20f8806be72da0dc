"""A liar, or an accident, in a log that has not begun: nobody crashes, waits for ever, or works without end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pytest

from privatile.records.keys import KeyPair
from privatile_leaderless import recovery as recovery_module
from privatile_leaderless.chain import closed_chain, end_chain
from privatile_leaderless.entries import ClosedRound, Decision, Note, Relay, Stand, Vote
from privatile_leaderless.history import History
from privatile_leaderless.recovery import MOST_AFTER, MOST_REFUSED, Choice, Place, Recovery, Said
from replica.kit import (
    Logged,
    Peer,
    StoredPeer,
    after,
    answer_of,
    asked_after,
    checkpoints,
    close_votes,
    key_of,
    key_votes,
    make_study,
    one_history,
    read,
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


def with_and_without_votes(peers: Sequence[StoredPeer], log: Sequence[Logged], new: KeyPair) -> list[ClosedRound]:
    """Round 3 as a liar can make it: with the votes that replace its key, and without them. Both have all answers."""
    asked = [entry for entry in log if not isinstance(read(entry), Vote)]
    made = []
    for key, entries in ((new, log), (peers[3].key, asked)):
        liar = Peer(peers[3].study, "peer3")
        liar.ledger, liar.key = peers[3].ledger, key
        liar.follow(entries)
        payload = liar.answer()
        assert payload is not None
        liar.see("peer3", payload)
        assert liar.replica.closed == 3
        made += liar.replica.closed_rounds()[2:]
    return made


def test_two_stands_with_two_keys_of_a_round_made_twice_turn_nobody_in_circles() -> None:
    """Each is read with the key that the other has replaced."""
    peers = stored(4, 6, 1)
    honest, new = peers[:3], key_of("peer3 again")
    log = asked_after(peers, 2, 1)
    log += [answer_of(peer) for peer in honest]
    log += key_votes(honest, "peer3", new)
    for peer in peers:
        peer.follow(log)
    made = with_and_without_votes(peers, log, new)
    renew(peers)
    study, log = peers[0].study, []
    for last, key in zip(made, (peers[3].key, new), strict=True):
        said = Stand(study.digest, study.run, "peer3", 1, last, False, 4, closed_chain(last, tuple(study.clients)), ())
        log.append(("peer3", said.pack(key)))
    for peer in honest:
        peer.follow(log)
        log += say(peer)
    for peer in honest:
        peer.follow(log)
        peer.save()
        peer.restart()
    assert len({peer.replica.begins_at for peer in honest}) == 1
    to_the_end(honest, log)
    assert not any(peer.replica.recovering for peer in honest)


@pytest.mark.parametrize("junk", ["two rounds", "missed records", "votes"])
def test_a_liar_makes_others_follow_in_vain_a_few_times_only(junk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    peers = one_ahead()
    reader, liar, (true,) = peers[0], peers[3], peers[2].replica.closed_rounds(2)
    clients = tuple(reader.study.clients)
    tried: list[int] = []
    follow = History._follow

    def counted(history: History, closed: ClosedRound) -> object:
        tried.append(closed.round)
        return follow(history, closed)

    monkeypatch.setattr(History, "_follow", counted)
    first = reader.replica.closed_rounds()[1]
    for number in range(40):
        made = msgspec.structs.replace(true, unspent=((number % 4,) * (1 + number // 4),))
        if junk == "votes":
            made = msgspec.structs.replace(true, answers=(f"{number}", *true.answers[1:]))
        if junk == "two rounds":
            other = msgspec.structs.replace(first, answers=(f"{number}", None, None, None))
            made = msgspec.structs.replace(true, before=closed_chain(other, clients))
            reader.see("peer3", Relay(reader.study.digest, reader.study.run, "peer3", 1, other).pack(liar.key))
        reader.see("peer3", Relay(reader.study.digest, reader.study.run, "peer3", 1, made).pack(liar.key))
    assert 0 < len(tried) <= MOST_REFUSED * 8  # each is followed, and then what was there before
    # Nor does that keep out what others relay: the same round, which the liar has relayed last, or first.
    for name in ("peer3", "peer2"):
        reader.see(name, Relay(reader.study.digest, reader.study.run, name, 1, true).pack(key_of(name)))
        assert reader.replica.closed == (2 if name == "peer3" else 3)


def test_a_vote_to_close_with_a_key_that_was_replaced_twice_in_its_round_is_read_again() -> None:
    peers = stored(4, 5, 1)
    changed = peers[3]
    log = asked_after(peers, 1, 1)

    def show(entries: list[Logged]) -> None:
        log.extend(entries)
        for peer in peers:
            peer.follow(log)

    for number in (1, 2):
        before = changed.replica.keys["peer3"].signer
        decision = Decision("key", "peer3", None, before, key_of(f"peer3 {number}").public)
        show([(peer.name, peer.replica.vote(peer.name, decision).pack(peer.key)) for peer in peers[:3]])
        changed.key = key_of(f"peer3 {number}")
        if number == 1:
            show(close_votes([changed]))
    show([answer_of(peer) for peer in (peers[0], peers[1], changed)])
    show(close_votes(peers[:1]))
    assert [vote.sender for vote in peers[0].replica.closed_rounds()[1].votes] == ["peer3", "peer0"]
    run(peers, log)
    for peer in peers:
        peer.save()
        before_restart = peer.replica.chain
        peer.restart()
        assert (peer.replica.chain, peer.replica.finished) == (before_restart, True)


@pytest.mark.parametrize("away", [False, True])
def test_a_peer_with_a_new_key_and_an_older_file_takes_part_in_a_new_log(away: bool) -> None:
    """It stands where it had another key, and has only the new one; with one away, it is needed for the quorum."""
    peers = stored(4, 6, 1)
    others, lost = peers[:3], peers[3]
    log = after(peers, 1)
    log += say(peers[0])
    for peer in others:
        peer.follow(log)
        peer.is_late = True
    log += key_votes(others, "peer3", key_of("peer3 again"))
    lost.key = key_of("peer3 again")
    run(others, log, lambda: min(peer.replica.committed for peer in others) >= 3)
    for peer in others:
        peer.follow(log)
    assert lost.replica.closed == 1
    renew(peers)
    present = [*others[:2], lost] if away else peers
    to_the_end(present, [])
    assert all(peer.replica.finished for peer in present)


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


def test_a_round_that_a_liar_relays_with_other_votes_keeps_no_honest_one_out() -> None:
    """The chain value is the same. One alone is past the round in another history, and must leave that for two rounds:
    whoever brings the second has nothing to do with the votes of the first."""
    peers = [Peer(make_study(5, 8, 1), f"peer{number}") for number in range(5)]
    alone, others, liar = peers[0], peers[1:], peers[4]
    log = asked_after(peers, 2, 1)
    log += [*[answer_of(peer) for peer in peers][:4], *close_votes(peers[:2])]
    alone.follow(log)
    alone.claim(alone.replica.claims)
    log = lose(others, 1)
    for peer in others:
        peer.is_late = True
    run(others, log, lambda: others[0].replica.closed >= 4)
    for peer in others:
        peer.follow(log)
        peer.is_late = False
    first = others[0].replica.closed_rounds()[2]
    forged = msgspec.structs.replace(first, votes=first.votes[:1] * 2)
    log = lose(peers, 2)
    log.append(("peer4", Relay(liar.study.digest, liar.study.run, "peer4", 2, forged).pack(liar.key)))
    run(peers[:4], log)
    run(peers, log)
    assert all(peer.replica.finished for peer in peers)
    assert one_history(peers)


def lose(peers: Sequence[Peer], epoch: int) -> list[Logged]:
    for peer in peers:
        peer.replica.new_epoch(epoch)
        peer.read = 0
    return []


def test_checkpoints_of_a_liar_fill_nobodys_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery_module, "MOST_BYTES", 20_000)
    peers = one_ahead()
    liar, reader = peers[3], peers[0]
    true = liar.replica.checkpoint("peer3")
    for number in range(200):
        reader.see("peer3", msgspec.structs.replace(true, chain=f"{number:064}").pack(liar.key))
    kept = reader.replica._recovery
    assert kept is not None
    assert 0 < len(kept._checkpoints) < 50


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

    def said(slot: int, chain: str) -> Said:
        return Said("one", "", Place(2, "b" * 64, False), None, slot, chain, (), b"")

    assert said(3, "b" * 64).can_sign(place)
    assert said(4, "a" * 64).can_sign(place)
    assert said(5, end_chain("a" * 64, 3)).can_sign(place)
    assert not said(4, "c" * 64).can_sign(place)
    assert not said(5, end_chain("c" * 64, 3)).can_sign(place)
    assert not said(6, "a" * 64).can_sign(place)


def test_a_peer_that_comes_when_the_others_have_finished_gets_their_rounds() -> None:
    peers = stored(4, 4, 1)
    log = after(peers, 1)
    renew(peers)
    present, late = peers[:3], peers[3]
    log = []
    to_the_end(present, log)
    assert all(peer.replica.finished for peer in present)
    assert late.replica.closed == 1
    run(peers, log)
    assert late.replica.finished


def test_rounds_that_a_liar_relays_cost_each_the_same_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that may follow a place are looked at with every relay, and places are compared with whoever has spoken."""
    peers = stored(4, 6, 1)
    after(peers, 2)
    ahead = peers[1]
    renew(peers)
    reader, liar = peers[0], peers[3]
    assert (reader.replica.closed, reader.replica.committed) == (2, 1)
    recovery = reader.replica._recovery
    assert recovery is not None
    true = reader.replica.closed_rounds()
    looked: list[Recovery] = []
    candidates = Recovery.candidates

    def counted(one: Recovery) -> Iterator[Choice]:
        looked.append(one)
        return candidates(one)

    monkeypatch.setattr(Recovery, "candidates", counted)
    for place, before in ((2, true[1].before), (3, reader.replica.chain)):
        for number in range(40):
            closed = ClosedRound(before, place, true[0].asks, (None,) * 4, ((number % 4,) * (number // 4 % 4),), (), ())
            relay = Relay(reader.study.digest, reader.study.run, "peer3", 1, closed).pack(liar.key)
            reader.see("peer3", relay)
            reader.see("peer3", relay)
        assert len(list(recovery.following(before))) <= MOST_AFTER
    assert looked == []
    # The control: what an honest one relays is followed all the same.
    run(peers, [])
    assert all(peer.replica.finished for peer in peers)
    assert ahead.replica.chain == reader.replica.chain


def test_a_relayed_round_with_longer_lists_than_any_is_not_kept() -> None:
    """In memory they would take many times their bytes."""
    peers = stored(4, 6, 1)
    after(peers, 2)
    true = peers[0].replica.closed_rounds()[1]
    renew(peers)
    recovery = Recovery(1, 3, 4)
    names = tuple(peers[0].study.clients)
    longer = msgspec.structs.replace(true.asks[0], lengths=(1,) * 5)
    for wrong in (
        {"unspent": ((0,),) * 2},
        {"unspent": ((0,) * 5,)},
        {"asks": (longer,)},
        {"votes": (Note("peer0", "x"),) * 5},
        {"answers": (None,) * 5},
    ):
        assert not recovery.relay("peer3", msgspec.structs.replace(true, **wrong), 1, names)
    assert recovery.relay("peer3", true, 1, names)
