"""What a peer tells its operator: numbers of silent peers, and which happenings reach the log and the journal."""

from typing import get_args

from privatile.federation.peer.notes import BY_CLIENT, PEER_METRICS, QUIET, PeerNotes
from privatile.federation.replica.happenings import Happening, Kind
from privatile.federation.replica.peer_log import JOURNALED
from tests.federation.replica.kit import StoredPeer, after, make, make_study, run


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
    notes.happened("peer1", (Happening("closed", 1, None, "as it was relayed"),))
    assert notes.metrics.value("silent") == 0
    notes.happened("peer1", (Happening("closed", 2, None, "without peer3"),))
    assert notes.metrics.value("silent") == 1
    # A round behind which the replica has gone back.
    notes.happened("peer1", (Happening("closed", 99, None, ""),))
    assert notes.metrics.value("silent") == 1


def test_every_kind_of_happening_has_its_place() -> None:
    kinds = set(get_args(Kind))
    assert set(JOURNALED) <= kinds
    assert kinds >= QUIET
    assert not QUIET & set(JOURNALED)  # what is kept in the file is told in the log, too
    assert kinds - QUIET - set(JOURNALED) == {"unsigned", "vote", "ended"}  # told, not kept
    assert {name.replace("_", " ") for name in BY_CLIENT} <= kinds
    assert {one.name for one in PEER_METRICS} >= BY_CLIENT


def test_the_end_is_told_with_the_number_of_rounds() -> None:
    peers = make(4, 3)
    run(peers, [])
    found = {one.kind: one.round for one in peers[0].happenings}
    assert [found[kind] for kind in ("ended", "final", "finished")] == [3, 3, 3]
