"""A lost log: where the next one begins, what is dropped, what is sent again, who catches up."""

from __future__ import annotations

import itertools
import sqlite3
from pathlib import Path

import msgspec
import pytest

from privatile.errors import ProtocolError, StoreError
from privatile.federation.record.document import transcript_digest
from privatile.federation.replica import recovery
from privatile.federation.replica.chain import payload_digest, signed_value
from privatile.federation.replica.entries import Checkpoint, Decision, Note, Relay
from privatile.federation.replica.peer_log import LogEntry, PeerLog
from privatile.federation.replica.replica import TWO_ANSWERS
from privatile.federation.wire.keys import PublicKeys
from privatile.federation.wire.messages import Link
from privatile.server.run_file import RunStore
from tests.federation.replica.kit import (
    ROSTER,
    Logged,
    Peer,
    StoredPeer,
    after,
    key_of,
    kinds,
    make,
    make_study,
    new_replica,
    run,
)
from tests.federation.replica.test_attacks import answer_of, lie_twice, one_history, read, say, two_faces


def renew(peers: list[Peer], epoch: int = 1) -> list[Logged]:
    """The log is gone; a new and empty one."""
    for peer in peers:
        peer.replica.new_epoch(epoch)
        peer.read = 0
    return []


def ledgers_agree(peers: list[Peer]) -> bool:
    """Every count of every closed round is the one that its peer's ledger holds."""
    return all(
        (record.accepted[peer.name].ones, record.accepted[peer.name].ledger) == peer.ledger.given[number][1:]
        for number, record in enumerate(peers[0].replica._history.records, 1)
        for peer in peers
        if peer.name in record.accepted
    )


def test_a_log_that_has_not_begun_says_whose_checkpoint_it_lacks() -> None:
    peers = make(4, 4, tolerate=1)
    after(peers, 2)
    assert not peers[0].replica.paused
    log = renew(peers)
    assert "begins when 3 have signed the same checkpoint; 0 have" in peers[0].replica.paused
    for peer in peers[:2]:
        log += say(peer)
    for peer in peers[:2]:
        peer.follow(log)
        assert "2 have; none came from peer2, peer3: `privatile peer recover` there" in peer.replica.paused
    run(peers, log, lambda: peers[0].replica.closed == 3)
    assert not peers[0].replica.paused


def test_a_new_log_goes_on_with_the_same_question_and_the_same_answers() -> None:
    peers = make(5, 4)
    log = after(peers, 2)
    log += say(peers[1])
    for peer in peers:
        peer.follow(log)
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


def test_rounds_that_only_liars_or_few_have_closed_are_dropped() -> None:
    peers = make(5, 4)
    log = after(peers, 2)
    log += say(peers[1])
    for peer in peers:
        peer.follow(log)
    answers = [answer_of(peer) for peer in peers]
    votes = [(peer.name, peer.replica.close_vote(peer.name).pack(peer.key)) for peer in peers[:2]]
    # One has read far enough to close the round, without the last answer; nobody else has.
    peers[0].follow([*log, *answers[:4], *votes])
    assert peers[0].replica.closed == 3
    dropped = peers[0].replica.chain
    log = renew(peers)
    run(peers, log)
    # What it has signed about that round in its checkpoint keeps it from answering the next one, and only that.
    assert [peer.replica.missing for peer in peers[1:]] == [["peer0"]] * 4
    for peer in peers:
        peer.is_late = True
    run(peers, log)
    assert all(peer.replica.finished for peer in peers)
    assert peers[0].replica._history.chains[3] != dropped
    assert ledgers_agree(peers)


def test_a_complete_round_that_one_peer_relays_is_taken() -> None:
    peers = make(5, 4)
    log = after(peers, 2)
    log += say(peers[1])
    for peer in peers:
        peer.follow(log)
    answers = [answer_of(peer) for peer in peers]
    for peer in peers[:2]:
        peer.follow([*log, *answers])
        assert peer.replica.closed == 3
    kept = peers[0].replica.chain
    log = renew(peers)
    run(peers, log)
    assert all(peer.replica.finished for peer in peers)
    assert peers[4].replica._history.chains[3] == kept
    assert any(isinstance(read(entry), Relay) for entry in log)


def test_a_round_that_lacks_an_answer_takes_more_than_f_relays() -> None:
    peers = make(5, 4)
    log = after(peers, 2)
    log += say(peers[1])
    for peer in peers:
        peer.follow(log)
    answers = [answer_of(peer) for peer in peers]
    votes = [(peer.name, peer.replica.close_vote(peer.name).pack(peer.key)) for peer in peers[:2]]
    for peer in peers[:2]:
        peer.follow([*log, *answers[:4], *votes])
    renew(peers)
    relays = [
        (peer.name, next(iter(peer.replica.relays(peer.name, 2))).pack(peer.key)) for peer in (peers[0], peers[1])
    ]
    peers[3].see(*relays[0])
    peers[3].see(*relays[0])
    assert peers[3].replica.closed == 2
    peers[3].see(*relays[1])
    assert peers[3].replica.closed == 3
    assert peers[3].replica.chain == peers[0].replica.chain


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
    log = after(peers, 2)
    log += say(peers[1])
    for peer in peers:
        peer.follow(log)
    for peer in peers[:4]:
        answer_of(peer)  # signs slot 3: round 2 may be committed somewhere
    behind = Peer(peers[0].study, "peer4")  # the fifth has only read the first round
    behind.follow(after(make(5, 4), 1))
    behind.ledger, behind.slots = peers[4].ledger, peers[4].slots
    assert behind.replica.closed == 1
    peers[4] = behind
    assert not any(peer.claim(2, peer.replica._history.chains[1]) for peer in peers[:4])
    run(peers, renew(peers))
    assert one_history(peers)
    assert all(peer.replica.finished for peer in peers)
    assert [one.round for one in peers[0].happenings if one.kind == "begun"] == [2]
    assert "behind" in kinds(behind) or "relayed" in kinds(behind)


def test_a_relayed_round_must_lead_to_what_a_quorum_has_signed() -> None:
    peers = make(5, 4)
    log = after(peers, 3)
    renew(peers)
    checkpoints = [entry for peer in peers for entry in say(peer)][:4]
    late = Peer(peers[0].study, "peer4")
    late.follow(log[:1])
    late.replica.new_epoch(1)
    for entry in checkpoints:
        late.see(*entry)
    assert late.replica.behind == 3
    true = list(peers[0].replica.relays("peer0", 0))
    for relay in true:
        closed = msgspec.structs.replace(relay.closed, answers=(None, *relay.closed.answers[1:]))
        late.see("peer0", msgspec.structs.replace(relay, closed=closed).pack(peers[0].key))
    assert late.replica.behind == 3
    for relay in reversed(true):
        late.see("peer0", relay.pack(peers[0].key))
    assert not late.replica.recovering
    assert late.replica.chain == peers[0].replica.chain
    assert late.replica.committed == 3


def test_what_comes_while_a_peer_is_behind_is_applied_when_it_has_caught_up() -> None:
    peers = make(5, 4)
    log = after(peers, 2)
    late = Peer(peers[0].study, "peer4")
    late.follow(log[:3])
    late.ledger, late.slots = peers[4].ledger, peers[4].slots
    present = peers[:4]
    new = renew(present)
    renew([late])
    for peer in present:
        peer.is_late = True
    run(present, new)  # they go on without it
    assert present[0].replica.finished
    late.follow(new)
    assert late.replica.behind == 2
    for relay in present[0].replica.relays("peer0", 0):
        late.see("peer0", relay.pack(present[0].key))
    assert late.replica.finished
    assert late.replica.head == present[0].replica.head


def test_a_liar_that_writes_without_end_fills_no_memory_of_a_peer_that_is_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Signed or not; what others write meanwhile is kept, and so is the room for it where rounds are relayed."""
    monkeypatch.setattr(recovery, "MOST_BYTES", 20_000)
    peers = make(5, 4)
    log = after(peers, 2)
    late = Peer(peers[0].study, "peer4")
    late.follow(log[:3])
    new = renew([*peers[:4], late])
    for peer in peers[:4]:
        peer.is_late = True
        new += say(peer)
    vote = peers[3].replica.vote("peer3", Decision("abort")).pack(peers[3].key)
    new += [entry for number in range(100) for entry in (("peer3", b"%d" % number), ("peer3", vote))]
    late.follow(new)
    kept = late.replica._recovery
    assert kept is not None
    assert late.replica.behind == 2
    assert 10 < len(kept.waiting) < 100
    assert {one.client for one in late.happenings if one.kind == "refused"} == {"peer3"}
    run(peers[:4], new)
    assert peers[0].replica.finished
    late.follow(new)
    others = [sender for _, sender, _ in kept.waiting if sender != "peer3"]
    assert len(others) > 10
    for relay in peers[0].replica.relays("peer0", 0):
        late.see("peer0", relay.pack(peers[0].key))
    assert not late.replica.recovering
    # What the liar wrote later is lost here: this peer is led along no other history, and catches up.
    late.replica.catch_up(peers[0].replica.closed_rounds(), peers[0].replica.proof)
    assert late.replica.finished
    assert late.replica.head == peers[0].replica.head


def test_a_log_that_is_lost_at_the_very_end_ends_the_same() -> None:
    for signed in (0, 2, 5):
        peers = make(5, 3)
        log = after(peers, 3)
        log += say(peers[0])
        for peer in peers:
            peer.follow(log)
            assert peer.replica.ended
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


# -- a peer's own file -------------------------------------------------------------------------------------------------


def stored(clients: int = 4, rounds: int = 4, tolerate: int = 1) -> list[StoredPeer]:
    study = make_study(clients, rounds, tolerate)
    return [StoredPeer(study, name) for name in study.clients]


def test_a_restored_peer_signs_nothing_in_the_open_round() -> None:
    peers = stored()
    log = after(peers, 1)
    old = peers[3]
    old.save()
    copy = old.store.to_bytes()
    run(peers, log, lambda: getattr(read(log[-1]), "round", 0) == 3)
    for peer in peers:
        peer.follow(log)
    answer_of(old)  # signed, and not in the log that is shown
    own = [entry for entry in log if entry[0] == "peer3" and signed_value(read(entry)) is not None]
    assert old.log.knows(read(own[-1]))
    back = StoredPeer.from_copy(old, copy)
    back.log.store.execute([("UPDATE peer SET restored = 1", ())])
    back.restart()
    marks = [back.log.restored]
    back.follow(log)
    assert not back.log.knows(read(own[-1]))
    slot = back.replica.slot
    back.log.forfeit(slot)
    back.restart()
    back.follow(log)
    assert [*marks, back.log.restored] == [True, False]
    assert back.wants() == []
    assert not back.claim(slot, back.replica.chain, "again")
    assert not back.claim(slot - 1, "0" * 64)
    others: list[Peer] = [*peers[:3], back]
    for other in others[:2]:
        other.follow(log)
        log += [one for one in say(other) if one not in log]
        log.append((other.name, other.replica.close_vote(other.name).pack(other.key)))
    run(others, log)
    assert all(other.replica.finished for other in others)
    assert back.replica.closed_rounds()[slot - 1].answers[3] is None
    assert back.replica.closed_rounds()[-1].answers[3] is not None


def test_a_restart_gives_the_same_replica_and_asks_for_the_same_entry() -> None:
    peers = stored()
    log: list[Logged] = []
    for step in range(200):
        peer = peers[step % 4]
        peer.follow(log)
        news = [(peer.name, one) for one in peer.wants()]
        log += [one for one in news if one not in log]
        if step % 3 == 0:
            peer.save()
            before = (peer.replica.head, peer.replica.committed, peer.replica.missing, peer.replica.asks, peer.read)
            peer.restart()
            now = (peer.replica.head, peer.replica.committed, peer.replica.missing, peer.replica.asks, peer.read)
            assert now == before
        if all(one.replica.finished for one in peers):
            break
    for peer in peers:
        peer.follow(log)
        peer.save()
        assert peer.store.finished is not None
        kept = peer.store.query("SELECT count(*) FROM peer_entries")[0][0]
        assert kept < len(log) / 2


def test_catching_up_with_a_file_takes_what_is_proven_and_no_more() -> None:
    peers = stored()
    log: list[Logged] = []
    run(peers, log)
    for peer in peers:
        peer.save()
    late = StoredPeer(peers[0].study, "peer3")
    from_other = list(peers[0].replica.closed_rounds())
    assert late.replica.catch_up(from_other[:2]) == 2
    assert (late.replica.closed, late.replica.committed) == (2, 1)  # the last one has no proof yet
    assert late.replica.catch_up(from_other, peers[0].replica.proof) == 2
    assert late.replica.finished
    late.save()
    assert late.store.query("SELECT * FROM peer_chain") == peers[0].store.query("SELECT * FROM peer_chain")
    late.restart()
    assert late.replica.finished
    few = dict(list(peers[0].replica.proof.items())[:2])
    other = new_replica(peers[0].study)
    other.catch_up(from_other, few)
    assert (other.committed, other.finished) == (3, False)


@pytest.mark.parametrize("field", ["answers", "asks", "unspent", "notes", "before"])
def test_an_altered_round_of_a_file_is_refused(field: str) -> None:
    peers = make(4, 3)
    after(peers, 2)
    true = peers[0].replica.closed_rounds()
    first = true[0]
    ask = first.asks[0]
    changes = {
        "answers": (first.answers[1], first.answers[0], *first.answers[2:]),
        "asks": (msgspec.structs.replace(ask, query=ask.query + 0.5),),
        "unspent": ((0,),),
        "notes": (Note("peer0", "{}\nAAAA"),),
        "before": "0" * 64,
    }
    wrong = msgspec.structs.replace(first, **{field: changes[field]})
    replica = new_replica(peers[0].study)
    with pytest.raises(ProtocolError):
        replica.catch_up([wrong])
    assert replica.closed == 0
    assert replica.catch_up(true) == 2
    assert replica.chain == peers[0].replica.chain


def on_disk(path: Path, peer: Peer, log: list[Logged]) -> PeerLog:
    """A peer's file that has read this log."""
    made = PeerLog.open(path, peer.study, ROSTER)
    replica = made.replica(keys_of(peer))
    entries = [LogEntry(place, *entry) for place, entry in enumerate(log, 1)]
    happenings = [one for entry in log for one in replica.apply(*entry)]
    made.save(entries, replica, happenings)
    return made


def keys_of(peer: Peer) -> dict[str, PublicKeys]:
    return {name: key_of(name).public for name in peer.study.clients}


def test_files_on_a_disk_are_opened_again_and_caught_up_with(tmp_path: Path) -> None:
    peers = make(4, 3)
    log = run(peers, [])
    whole = on_disk(tmp_path / "whole.db", peers[0], log)
    whole.close()
    part = on_disk(tmp_path / "part.db", peers[1], log[:8])
    assert part.last == (8, payload_digest(log[7][1]))
    part.close()
    part = PeerLog.open(tmp_path / "part.db", peers[1].study, ROSTER)
    replica = part.replica(keys_of(peers[1]))
    assert part.last == (8, payload_digest(log[7][1]))
    assert part.catch_up(replica, tmp_path / "whole.db") == 3 - replica_closed(log[:8], peers[1])
    assert replica.finished
    part.close()
    with RunStore.frozen(tmp_path / "part.db") as one, RunStore.frozen(tmp_path / "whole.db") as other:
        assert transcript_digest(one) == transcript_digest(other)
        assert one.finished is not None
    with pytest.raises(StoreError, match="another roster"):
        PeerLog.open(tmp_path / "part.db", peers[1].study, "b" * 64)
    with pytest.raises(StoreError, match="another study"):
        PeerLog.open(tmp_path / "part.db", make_study(4, 2, 1), ROSTER)


def replica_closed(log: list[Logged], peer: Peer) -> int:
    reader = Peer(peer.study, peer.name)
    reader.follow(log)
    return reader.replica.closed


def test_a_file_that_tells_another_story_is_not_caught_up_with(tmp_path: Path) -> None:
    peers = make(4, 3)
    log = run(peers, [])
    on_disk(tmp_path / "false.db", peers[0], log).close()
    with sqlite3.connect(tmp_path / "false.db") as connection:
        connection.execute("UPDATE rounds SET ones = '[0, 0, 0, 0]' WHERE round = 2")
    fresh = PeerLog.open(tmp_path / "fresh.db", peers[1].study, ROSTER)
    replica = fresh.replica(keys_of(peers[1]))
    with pytest.raises(StoreError, match="not the file of an honest peer"):
        fresh.catch_up(replica, tmp_path / "false.db")
    assert replica.committed == 0
    fresh.close()


def test_evidence_is_in_the_file_with_what_it_proves(tmp_path: Path) -> None:
    peers = make(5, 3)
    log = after(peers, 1)
    log += say(peers[0])
    for peer in peers:
        peer.follow(log)
    first, second = lie_twice(peers, log)
    strange = msgspec.structs.replace(read(answer_of(peers[1])), chain="f" * 64).pack(peers[1].key)
    log += [first, second, ("peer1", strange), *[("peer1", strange)] * 30]
    made = on_disk(tmp_path / "run.db", peers[0], log)
    events = [(one.kind, one.client, one.round) for one in made.journal.events()]
    assert events == [("two answers", "peer4", 2), ("quarantined", "peer4", 2), ("other history", "peer1", 2)]
    rows = made.store.query("SELECT client, kind, payload FROM peer_evidence ORDER BY client")
    assert rows[0] == ("peer1", "other history", strange)
    assert {row[2] for row in rows[1:]} == {first[1], second[1]}
    assert made.journal.quarantined() == {"peer4": TWO_ANSWERS}
    made.close()


def test_votes_to_close_another_round_do_not_fill_the_journal() -> None:
    peers = [StoredPeer(make_study(4, 4, 1), f"peer{k}") for k in range(4)]
    log = after(peers, 1)
    log.append(("peer0", peers[0].replica.proposal("peer0").pack(peers[0].key)))
    liar = peers[3]
    liar.follow(log)
    vote = liar.replica.close_vote("peer3")
    for number in range(50):
        log.append(("peer3", msgspec.structs.replace(vote, chain=f"{number:064}").pack(liar.key)))
    peers[0].follow(log)
    peers[0].save()
    assert peers[0].store.query("SELECT client, count(*) FROM events WHERE kind = 'other history'") == [("peer3", 1)]


def test_a_liar_that_relays_without_end_fills_nobodys_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "MOST_BYTES", 20_000)
    peers = make(4, 3, 1)
    log = after(peers, 1)
    liar, (closed,) = peers[3], peers[3].replica.closed_rounds()
    for peer in peers:
        peer.replica.new_epoch(1)
    relay = Relay(liar.study.digest, liar.study.run, liar.name, 1, closed)
    for number in range(50):
        made = msgspec.structs.replace(closed, before=f"{number:064}", answers=("x" * 1000, None, None, None))
        log.append((liar.name, msgspec.structs.replace(relay, closed=made).pack(liar.key)))
    peers[0].follow(log)
    kept = peers[0].replica._recovery
    assert kept is not None
    assert 0 < len(kept._relays) < 21
    run(peers, log)
    assert all(peer.replica.finished for peer in peers[:3])


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
    lost = msgspec.json.decode(answer.rpartition(b"\n")[0])["ledger"]
    gone = liar.replica.restored(liar.name, Link(**lost), Link(90, "f" * 32)).pack(liar.key)
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
