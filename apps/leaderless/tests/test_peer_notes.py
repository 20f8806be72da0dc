"""What a peer tells its operator: numbers of silent peers, and which happenings reach the log and the journal."""

import logging
import re
import time
from typing import get_args

import pytest

from privatile.federation.coordinator.journal import ROWS_PER_CLIENT
from privatile_leaderless.notes import BY_CLIENT, PEER_METRICS, QUIET, UNTOLD, PeerNotes
from privatile_leaderless.peer_file import EVIDENCE_ONLY, JOURNALED
from privatile_leaderless.standing import Kind, LogEffect
from replica.kit import StoredPeer, after, make, make_study, run


def test_silent_peers_are_counted_from_the_round_and_not_from_its_words() -> None:
    study = make_study(4, 3)
    peers = [StoredPeer(study, name) for name in study.clients]
    log = after(peers, 1)
    for peer in peers[:3]:
        peer.is_late = True
    run(peers[:3], log, lambda: peers[0].replica.closed == 2)
    reader = peers[0]
    reader.follow(log)
    notes = PeerNotes(study, reader.replica, reader.log.journal)
    answered, silent = reader.replica.closed_rounds()[:2]
    assert None not in answered.answers
    assert silent.answers.count(None) == 1
    # Words alone are not counted: a round that another peer relayed has all its answers.
    notes.happened("peer1", (LogEffect("closed", 1, None, "as it was relayed"),))
    assert notes.metrics.value("silent") == 0
    notes.happened("peer1", (LogEffect("closed", 2, None, "without peer3"),))
    assert notes.metrics.value("silent") == 1
    # A round behind which the replica has gone back.
    notes.happened("peer1", (LogEffect("closed", 99, None, ""),))
    assert notes.metrics.value("silent") == 1


def test_who_is_silent_is_told_in_the_log_once_and_once_that_they_answer_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    study = make_study(4, 12)
    peers = [StoredPeer(study, name) for name in study.clients]
    log = after(peers, 1)
    reader, absent = peers[0], peers[3]
    notes = PeerNotes(study, reader.replica, reader.log.journal)
    told: list[list[tuple[str, str]]] = []

    def play(rounds: int, who: list[StoredPeer]) -> None:
        """Some rounds more; the log's lines since, after several looks at each."""
        for peer in who:
            peer.is_late = len(who) < len(peers)
        for number in range(reader.replica.closed + 1, reader.replica.closed + rounds + 1):
            run(who, log, lambda number=number: reader.replica.closed >= number)  # type: ignore[misc]
            reader.follow(log)
            reader.save()
            for name in {sender for sender, _ in log}:
                notes.happened(name, (LogEffect("counted", number, name),))
            notes.tick(time.time())
            notes.tick(time.time())
        told.append([(one.getMessage(), one.__dict__["facts"].get("client")) for one in caplog.records])
        caplog.clear()

    with caplog.at_level(logging.INFO, logger="privatile.leaderless"):
        play(1, peers)
        play(3, peers[:3])
        (alarm,) = notes.alarms()
        assert (alarm.kind, alarm.client) == ("silent", "peer3")
        assert re.search(r"; last entry in the log \S+ s ago$", alarm.text)  # it may be there all the same
        absent.follow(log)
        play(2, peers)
        assert notes.alarms() == []
        play(1, peers[:3])
    assert told == [[], [("silent", "peer3")], [("no longer silent", "peer3")], [("silent", "peer3")]]


def test_every_kind_of_happening_has_its_place() -> None:
    kinds = set(get_args(Kind))
    assert set(JOURNALED) <= kinds
    assert kinds >= QUIET
    assert not QUIET & set(JOURNALED)  # an event is told in the log, too, but for these
    assert set(JOURNALED) >= UNTOLD
    assert set(EVIDENCE_ONLY) <= QUIET
    assert kinds - QUIET - set(JOURNALED) == {"vote", "ended"}  # told, not kept
    assert {"proposed", "counted", "closed", "committed", "final", "checkpoint"} <= QUIET
    assert {name.replace("_", " ") for name in BY_CLIENT} <= kinds
    assert {one.name for one in PEER_METRICS} >= BY_CLIENT


def test_the_end_is_told_with_the_number_of_rounds() -> None:
    peers = make(4, 3)
    run(peers, [])
    found = {one.kind: one.round for one in peers[0].happenings}
    assert [found[kind] for kind in ("ended", "final", "finished")] == [3, 3, 3]


def test_an_old_lie_that_is_replayed_in_many_rounds_leaves_room_for_the_next() -> None:
    reader = StoredPeer(make_study(4, 3), "peer0")
    notes = PeerNotes(reader.study, reader.replica, reader.log.journal)
    kept = [
        notes.happened("peer1", (LogEffect("refused", number, "peer1", "a lie", (b"old",)),))
        for number in range(3 * ROWS_PER_CLIENT)
    ]
    assert [len(one) for one in kept] == [1, *[0] * (len(kept) - 1)]
    assert notes.happened("peer1", (LogEffect("refused", 99, "peer1", "a lie", (b"new",)),))
