"""What a peer's file holds after each attack: its kind, whose entry it was and in which round, and the entry itself."""

from __future__ import annotations

import msgspec
import pytest

from privatile.federation.coordinator.journal import ROWS_PER_CLIENT
from privatile_leaderless.entries import Final
from privatile_leaderless.peer_file import MAX_EVIDENCE
from replica.filed import ATTACKS, FiledPeer, events, evidence, filed
from replica.kit import (
    Peer,
    after,
    answer_of,
    asked_after,
    checkpoints,
    close_votes,
    lie_twice,
    read,
    run,
    say,
    stands,
    two_faces,
)


def test_an_honest_run_leaves_none_of_it() -> None:
    peers = filed()
    run(peers, [])
    for peer in peers:
        assert peer.replica.finished
        assert events(peer) == set()
        assert evidence(peer) == {}
        assert {one.kind for one in peer.log.journal.events()} == {"finished"}
        assert peer.store.query("SELECT * FROM peer_unsigned") == []


# -- forks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [1, 3], ids=["in mid-run", "at the last round"])
def test_a_forked_log(rounds: int) -> None:
    """Three and a liar see one log, the fourth and the liar another; then the fourth sees that of the three."""
    peers = filed()
    log = after(peers, rounds)
    logs = [list(log), list(log)]
    groups: list[list[FiledPeer]] = [peers[:3], peers[3:4]]
    for group, own, face in zip(groups, logs, two_faces(peers, "peer4", log), strict=True):
        for peer in [*group, face]:
            peer.is_late = True
        run([*group, face], own)
    lost, honest, number = peers[3], peers[0], rounds + 1
    assert honest.replica.finished
    lost.read = len(log)
    lost.follow(logs[0])
    # Each log has closed the round without somebody, whose answer stood in the other one or came later there.
    assert ("closed without", "peer3", number) in events(honest)
    assert ("closed without", "peer0", number) in events(lost)
    assert ("astray", None, number + 1) in events(lost)
    found = evidence(lost)
    others = {client for kind, client, at in found if (kind, at) == ("other history", number + 1)}
    assert others == {"peer0", "peer1", "peer2", "peer4"}
    assert {client for kind, client, at in found if (kind, at) == ("close vote", number)} >= {"peer3", "peer4"}
    for (kind, client, _), payloads in found.items():
        for payload in payloads:
            assert kind in ATTACKS
            assert read((str(client), payload)).sender == client  # each is signed by whom it is about


def test_two_closing_sets_and_the_votes_behind_them() -> None:
    peers = filed()
    log = asked_after(peers, 2, 2)
    answers, votes = [answer_of(peer) for peer in peers], close_votes(peers[:2])
    whole, short = [*log, *answers], [*log, *answers[1:], *votes]
    for peer in peers[:2]:
        peer.follow(short)
    for peer in peers[2:]:
        peer.follow(whole)
    assert peers[0].replica.chain != peers[2].replica.chain
    assert events(peers[0]) == {("closed without", "peer0", 3)}
    (said,) = [one.text for one in peers[0].log.journal.events() if one.kind == "closed without"]
    assert said == "by the votes of peer0, peer1"
    assert evidence(peers[0]) == {("close vote", name, 3): {payload} for name, payload in votes}
    question = say(peers[0])
    peers[0].see(*question[0])
    strange = answer_of(peers[0])
    for entry in (*question, strange):
        peers[3].see(*entry)
    assert events(peers[3]) == {("other history", "peer0", 4)}
    assert evidence(peers[3]) == {("other history", "peer0", 4): {question[0][1], strange[1]}}


@pytest.mark.parametrize("begun", [False, True])
def test_a_fork_in_recovery(begun: bool) -> None:
    """A liar has signed a checkpoint of another history, which is shown before the log has begun, or after."""
    peers = filed(4, 4)
    log = after(peers, 2)
    liar = two_faces(peers, "peer3", log)[0]
    for one in (*peers[:3], liar):
        one.renew() if isinstance(one, FiledPeer) else one.replica.new_epoch(1)
        one.read = 0
    true = liar.replica.checkpoint("peer3")
    forged = ("peer3", msgspec.structs.replace(true, chain="f" * 64).pack(liar.key))
    new = stands(peers[:3])
    signed = checkpoints(peers[:3], new)
    new += [*signed, forged] if begun else [forged, *signed]
    for peer in peers[:3]:
        peer.follow(new)
        assert not peer.replica.recovering
        assert events(peer) == {("other history", "peer3", 2)}
        assert evidence(peer) == {("other history", "peer3", 2): {forged[1]}}


def test_a_deleted_log_begins_again_with_an_event() -> None:
    """That the log is gone is noticed where it is read: test_deleted_log.py."""
    peers = filed(4, 4)
    after(peers, 2)
    for peer in peers:
        peer.renew()
    run(peers, [])
    for peer in peers:
        assert events(peer) == set()
        found = [(one.kind, one.round) for one in peer.log.journal.events()]
        assert found == [("begun", 2), ("finished", 4)]


# -- liars ---------------------------------------------------------------------------------------------------------


def test_an_early_vote_of_a_lone_liar() -> None:
    peers = filed(4, 3)
    log = asked_after(peers, 1)
    vote = close_votes(peers[2:3])
    run(peers, [*log, *vote])
    for peer in (peers[0], peers[3]):
        assert peer.replica.finished
        assert None not in peer.replica.closed_rounds()[1].answers  # it has changed nothing
        assert evidence(peer) == {("close vote", "peer2", 2): {vote[0][1]}}
        assert events(peer) == set()


def test_two_answers() -> None:
    peers = filed()
    log = asked_after(peers, 1)
    first, second = lie_twice(peers)
    for peer in peers[:4]:
        peer.follow([*log, first, second])
        assert events(peer) == {("two answers", "peer4", 2), ("quarantined", "peer4", 2)}
        assert evidence(peer) == {("two answers", "peer4", 2): {first[1], second[1]}}


def test_two_answers_to_a_round_that_was_closed_without_their_sender() -> None:
    """Both are kept, and nobody waits: who is started again knows no late answer, and must not differ from others."""
    peers = filed()
    log = asked_after(peers, 1)
    one, other = lie_twice(peers)
    log += [*(answer_of(peer) for peer in peers[:4]), *close_votes(peers[:2])]
    for peer in peers[:4]:
        peer.follow(log)
        assert peer.replica.closed == 2
        for entry in (one, one, other):
            peer.see(*entry)
        assert evidence(peer)["two answers", "peer4", 2] == {one[1], other[1]}
        assert ("two answers", "peer4", 2) in events(peer)
        assert peer.replica.quarantined == {}


def test_a_withheld_answer() -> None:
    peers = filed(5, 6, patience=2)
    log = after(peers, 1)
    present = peers[:4]
    for peer in present:
        peer.is_late = True
    run(present, log)
    for peer in present:
        assert events(peer) == {("closed without", "peer4", 2), ("closed without", "peer4", 3)}
        voters = {(client, number) for kind, client, number in evidence(peer) if kind == "close vote"}
        assert {number for _, number in voters} == {2, 3, 4}  # patience is over in the fourth
        assert all(client != "peer4" for client, _ in voters)
        assert min(sum(at == number for _, at in voters) for number in (2, 3)) >= 2


def test_an_off_question() -> None:
    peers = filed(4, 3)
    after(peers, 1)
    true = peers[1].replica.proposal("peer1")
    ask = msgspec.structs.replace(true.asks[0], query=true.asks[0].query + 0.5, sent=true.asks[0].sent + 0.5)
    off = msgspec.structs.replace(true, asks=(ask,)).pack(peers[1].key)
    for peer in peers:
        peer.see("peer1", off)
        assert events(peer) == {("refused", "peer1", 2)}
        assert evidence(peer) == {("refused", "peer1", 2): {off}}


# -- what is not signed, and what is repeated ------------------------------------------------------------------------


def test_a_forged_signature_is_kept_once_in_a_round_and_counted() -> None:
    peers = filed(4, 3)
    log = asked_after(peers, 1)
    true = answer_of(peers[1])
    forged = [("peer1", true[1][:-4] + f"{number:03}=".encode()) for number in range(50)]
    stranger = ("somebody", true[1])
    run(peers, [*log, *forged, stranger, true])
    for peer in peers:
        assert peer.replica.finished  # it has changed nothing
        assert events(peer) == {("unsigned", "peer1", 2), ("unsigned", None, 2)}
        kept = {("unsigned", "peer1", 2): {forged[0][1]}, ("unsigned", "", 2): {stranger[1]}}
        assert evidence(peer) == kept
        counted = peer.store.query("SELECT round, client, times FROM peer_unsigned ORDER BY client")
        assert counted == [(2, "", 1), (2, "peer1", 50)]


def test_a_replay_leaves_what_the_first_entry_has_left() -> None:
    """It cannot be told from a peer that publishes until it sees its entry: so nothing may come of it."""
    peers = filed(4, 3)
    log = run(peers, [])
    plain, again = (FiledPeer(peers[0].study, "peer0") for _ in (0, 1))
    plain.follow(log)
    shown = [one for place, entry in enumerate(log) for one in (entry, *log[: place + 1 : 2])]
    again.follow(shown)
    assert len(shown) > 2 * len(log)
    assert again.replica.head == plain.replica.head
    assert again.replica.finished
    assert events(again) == events(plain) == set()
    assert evidence(again) == evidence(plain) == {}
    for table in ("rounds", "evidence", "links", "peer_chain", "peer_notes", "peer_proof"):
        columns = "level, round, ones, unspent" if table == "rounds" else "*"
        query = f"SELECT {columns} FROM {table} ORDER BY 1, 2"
        assert again.store.query(query) == plain.store.query(query), table


# -- nobody fills a disk ---------------------------------------------------------------------------------------------


def size(peer: Peer, *tables: str) -> int:
    assert isinstance(peer, FiledPeer)
    peer.save()
    return sum(peer.store.query(f"SELECT count(*) FROM {table}")[0][0] for table in tables)


def test_a_flood_does_not_fill_the_file() -> None:
    peers = filed(4, 200, length=1)
    log = after(peers, 1)
    reader, liar = peers[0], peers[3]
    # Long enough for the thinning of one kind to begin, in more rounds than are kept.
    for number in range(2, ROWS_PER_CLIENT + 10):
        log += say(peers[1])
        for peer in peers:
            peer.follow(log)
        vote = liar.replica.close_vote("peer3")
        others = [msgspec.structs.replace(vote, chain=f"{k:064}") for k in range(MAX_EVIDENCE + 5)]
        log += [("peer3", one.pack(liar.key)) for one in (vote, *others)]
        log += [(name, b"{}\nAAAA") for name in ("peer2", *(f"stranger{number}{k}" for k in range(5)))]
        log += [answer_of(peer) for peer in peers]
        for peer in peers:
            peer.follow(log)
        assert reader.replica.closed == number
    rounds = reader.replica.closed - 1
    assert size(reader, "events") <= 4 * (ROWS_PER_CLIENT + 10)
    kept = {kind: sum(len(one) for (other, *_), one in evidence(reader).items() if other == kind) for kind in ATTACKS}
    assert kept["close vote"] == rounds  # as many as there are rounds, like the counts
    assert 0 < kept["other history"] <= ROWS_PER_CLIENT + 10
    assert 0 < kept["unsigned"] <= 2 * (ROWS_PER_CLIENT + 10)
    ((counted,),) = reader.store.query("SELECT sum(times) FROM peer_unsigned")
    assert counted == 6 * rounds  # all of them
    assert size(reader, "peer_unsigned") == 2 * rounds


@pytest.mark.parametrize("junk", [0, MAX_EVIDENCE, 2 * ROWS_PER_CLIENT])
def test_votes_of_another_history_do_not_use_up_the_room_of_a_second_end(junk: int) -> None:
    peers = filed(4, 2)
    log = after(peers, 2)
    liar = peers[3]
    vote = liar.replica.vote("peer3")
    votes = [msgspec.structs.replace(vote, chain=f"{k:064}").pack(liar.key) for k in range(junk)]
    log += [("peer3", one) for one in votes]
    for peer in peers:
        peer.follow(log)
    log += say(peers[0])
    for peer in peers:
        peer.follow(log)
    other = msgspec.structs.replace(liar.replica.final("peer3"), chain="e" * 64).pack(liar.key)
    log.append(("peer3", other))
    run(peers, log)
    for peer in peers[:3]:
        assert peer.replica.finished
        assert evidence(peer) == {("other history", "peer3", 3): {*votes[:MAX_EVIDENCE], other}}


def test_a_flood_of_lies_does_not_fill_the_file() -> None:
    """Of every round the first is kept, of the rest as many as of any other kind."""
    peers = filed(4, 200, length=1)
    log = after(peers, 1)
    reader, liar = peers[0], peers[3]
    for number in range(2, 2 * ROWS_PER_CLIENT):
        log += say(peers[1])
        for peer in peers:
            peer.follow(log)
        end = Final(liar.study.digest, liar.study.run, "peer3", rounds=number, chain="e" * 64)
        ends = [msgspec.structs.replace(end, chain=f"{number:032}{k:032}") for k in range(MAX_EVIDENCE + 5)]
        log += [("peer3", one.pack(liar.key)) for one in ends]
        log += [answer_of(peer) for peer in peers]
        for peer in peers:
            peer.follow(log)
        assert evidence(reader)["other history", "peer3", number] >= {ends[0].pack(liar.key)}
    rounds = reader.replica.closed - 1
    assert size(reader, "peer_evidence") <= rounds + ROWS_PER_CLIENT + 10
    assert size(reader, "events") <= rounds + 10


def test_a_restart_writes_nothing_twice() -> None:
    peers = filed(4, 3)
    log = asked_after(peers, 1)
    peer, forged = peers[0], ("peer1", answer_of(peers[1])[1][:-4] + b"AAA=")
    peer.follow([*log, *close_votes(peers[2:3]), forged])
    before = (events(peer), evidence(peer), size(peer, "events", "peer_unsigned"))
    peer.restart()
    assert (events(peer), evidence(peer), size(peer, "events", "peer_unsigned")) == before
    assert before[0] == {("unsigned", "peer1", 2)}
