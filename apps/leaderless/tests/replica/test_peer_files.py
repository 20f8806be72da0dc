"""A peer's own file: restarts, older copies, catching up with another's, evidence."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from privatile.errors import ProtocolError, StoreError
from privatile.records import transcript_digest
from privatile.run.run_file import RunStore
from privatile_leaderless.chain import payload_digest, signed_value
from privatile_leaderless.entries import Note
from privatile_leaderless.peer_file import LogEntry, PeerLog
from privatile_leaderless.replica import TWO_ANSWERS
from replica.kit import (
    ROSTER,
    Logged,
    Peer,
    StoredPeer,
    after,
    answer_of,
    asked_after,
    keys_of,
    lie_twice,
    make,
    make_study,
    new_replica,
    read,
    run,
    say,
    stored,
)
from tests.made_runs import copied


def test_a_restored_peer_signs_nothing_in_the_open_round() -> None:
    peers = stored()
    log = after(peers, 1)
    old = peers[3]
    old.save()
    copy = copied(old.store)
    run(peers, log, lambda: getattr(read(log[-1]), "round", 0) == 3)
    for peer in peers:
        peer.follow(log)
    answer_of(old)  # signed, and not in the log that is shown
    own = [entry for entry in log if entry[0] == "peer3" and signed_value(read(entry)) is not None]
    assert old.log.unknown_slot(read(own[-1])) == 0
    back = StoredPeer.from_copy(old, copy)
    back.log.store.execute([("UPDATE peer SET restored = 1", ())])
    back.restart()
    marks = [back.log.restored]
    back.follow(log)
    assert back.log.unknown_slot(read(own[-1])) > 0
    slot = back.replica.slot
    back.log.forfeit(slot)
    back.restart()
    back.follow(log)
    assert [*marks, back.log.restored] == [True, False]
    assert back.wants() == []
    assert not back.claim(((slot, back.replica.chain),), "again")
    assert not back.claim(((slot - 1, "0" * 64),))
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
    late.replica.catch_up(from_other[:2])
    assert (late.replica.closed, late.replica.committed) == (2, 1)  # the last one has no proof yet
    late.replica.catch_up(from_other, peers[0].replica.proof)
    assert late.replica.finished
    late.save()
    assert late.store.query("SELECT * FROM peer_chain") == peers[0].store.query("SELECT * FROM peer_chain")
    late.restart()
    assert late.replica.finished
    few = dict(list(peers[0].replica.proof.items())[:2])
    other = new_replica(peers[0].study)
    other.catch_up(from_other, few)
    assert (other.committed, other.finished) == (3, False)


@pytest.mark.parametrize("field", ["answers", "asks", "unspent", "notes", "votes", "before"])
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
        "votes": (Note("peer0", "{}\nAAAA"),),
        "before": "0" * 64,
    }
    wrong = msgspec.structs.replace(first, **{field: changes[field]})
    replica = new_replica(peers[0].study)
    with pytest.raises(ProtocolError):
        replica.catch_up([wrong])
    assert replica.closed == 0
    replica.catch_up(true)
    assert replica.chain == peers[0].replica.chain


def on_disk(path: Path, peer: Peer, log: list[Logged]) -> PeerLog:
    """A peer's file that has read this log."""
    made = PeerLog.open(path, peer.study, ROSTER)
    replica = made.replica(keys_of(peer))
    entries = [LogEntry(place, *entry) for place, entry in enumerate(log, 1)]
    happenings = [one for entry in log for one in replica.apply(*entry)]
    made.save(entries, replica, happenings)
    return made


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
    with RunStore.frozen(tmp_path / "whole.db") as whole_store:
        part.catch_up(replica, whole_store)
    assert replica.finished
    part.close()
    with RunStore.frozen(tmp_path / "part.db") as one, RunStore.frozen(tmp_path / "whole.db") as other:
        assert transcript_digest(one) == transcript_digest(other)
        assert one.finished is not None
    with pytest.raises(StoreError, match="another roster"):
        PeerLog.open(tmp_path / "part.db", peers[1].study, "b" * 64)
    with pytest.raises(StoreError, match="another study"):
        PeerLog.open(tmp_path / "part.db", make_study(4, 2, 1), ROSTER)


def test_a_file_that_tells_another_story_is_not_caught_up_with(tmp_path: Path) -> None:
    peers = make(4, 3)
    log = run(peers, [])
    on_disk(tmp_path / "false.db", peers[0], log).close()
    with sqlite3.connect(tmp_path / "false.db") as connection:
        connection.execute("UPDATE rounds SET ones = '[0, 0, 0, 0]' WHERE round = 2")
    fresh = PeerLog.open(tmp_path / "fresh.db", peers[1].study, ROSTER)
    replica = fresh.replica(keys_of(peers[1]))
    with (
        RunStore.frozen(tmp_path / "false.db") as false,
        pytest.raises(StoreError, match="not the file of an honest peer"),
    ):
        fresh.catch_up(replica, false)
    assert replica.committed == 0
    fresh.close()


def test_evidence_is_in_the_file_with_what_it_proves(tmp_path: Path) -> None:
    peers = make(5, 3)
    log = asked_after(peers, 1)
    first, second = lie_twice(peers)
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


def test_a_kill_between_two_transactions_leaves_no_finished_run_that_is_called_unfinished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = make_study(3, 2, 0)
    peers = [StoredPeer(study, name) for name in study.clients]
    log = after(peers, 2)
    run(peers[1:], log)
    killed = peers[0]
    killed.follow(log)
    assert killed.replica.finished
    written = RunStore.execute

    def once(store: RunStore, statements: Any) -> None:
        written(store, statements)
        if store is killed.store:
            raise StoreError("killed")

    monkeypatch.setattr(RunStore, "execute", once)
    with pytest.raises(StoreError, match="killed"):
        killed.save()
    monkeypatch.undo()
    again = StoredPeer.from_copy(killed, copied(killed.store))
    assert again.replica.finished
    assert again.store.finished is not None


def test_a_damaged_file_is_called_damaged() -> None:
    peer = stored(4)[0]
    after([peer, *stored(4)[1:]], 2)
    peer.save()
    peer.store.execute([("UPDATE peer_slots SET asks = 'no question'", ())])
    with pytest.raises(StoreError, match="does not replay"):
        StoredPeer.from_copy(peer, copied(peer.store)).stand()
