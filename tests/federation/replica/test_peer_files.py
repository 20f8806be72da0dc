"""A peer's own file: restarts, older copies, catching up with another's, evidence."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from privatile.errors import ProtocolError, StoreError
from privatile.federation.record.document import transcript_digest
from privatile.federation.replica.chain import payload_digest, signed_value
from privatile.federation.replica.entries import Decision, Note
from privatile.federation.replica.peer_log import LogEntry, PeerLog
from privatile.federation.replica.replica import TWO_ANSWERS
from privatile.federation.replica.unread import Unread
from privatile.federation.wire.keys import KeyPair, PublicKeys
from privatile.federation.wire.messages import Link
from privatile.server.run_file import RunStore
from tests.federation.replica.kit import (
    ROSTER,
    Logged,
    Peer,
    StoredPeer,
    after,
    answer_of,
    asked_after,
    close_votes,
    key_of,
    lie_twice,
    make,
    make_study,
    new_replica,
    read,
    run,
    say,
)
from tests.federation.replica.test_decisions import same_state


def key_votes(peers: Sequence[Peer], client: str, new: KeyPair) -> list[Logged]:
    """Votes of these peers for a new key of another one."""
    change = Decision("key", client, None, key_of(client).public.signer, new.public)
    return [(peer.name, peer.replica.vote(peer.name, change).pack(peer.key)) for peer in peers]


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
        log = [entry for peer in peers for entry in say(peer)]  # checkpoints
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
    knows = StoredPeer.from_copy(liar, liar.store.to_bytes())
    knows.follow([*log, last])
    assert (peers[1].replica.closed, knows.replica.closed) == (1, 2)
    true = knows.replica.proposal("peer3")
    near = msgspec.structs.replace(true.asks[0], query=math.nextafter(true.asks[0].query, math.inf))
    early = [
        msgspec.structs.replace(true, asks=(near,)),
        knows.replica.vote("peer3", Decision("readmit", "peer0", 7)),
        knows.replica.restored("peer3", knows.replica.link("peer3") or Link(0, ""), Link(90, "f" * 32)),
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
    log += say(peers[1])
    for peer in peers:
        peer.follow(log)
    log += [answer_of(peer) for peer in peers[:3]]
    live, again = peers[1:3]
    for peer in (live, again):
        peer.follow(log)
        peer.save()
    assert live.replica.committed == 2
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
    log = [entry for peer in peers[:3] for entry in say(peer)]  # just enough checkpoints
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
    log += say(peers[1])
    for peer in peers:
        peer.follow(log)
    log += [answer_of(peer) for peer in peers[:3]]
    live, again = peers[1:3]
    for peer in (live, again):
        peer.follow(log)
        peer.save()
    assert live.replica.committed == 2
    again.replica, again.read = again.log.read_again(keys_of(live)), 0
    again.follow([("peer0", late), *log[1:]] if stolen else log)
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
