"""A proposed question that is off is refused; one that another processor has computed is not."""

from __future__ import annotations

import math

import msgspec

from privatile.core.scale import units_inside
from privatile.estimator.plan import slack
from privatile_leaderless.entries import Proposal
from replica.kit import (
    Logged,
    Peer,
    after,
    make,
    one_history,
    read,
    run,
)


def test_an_off_question_is_refused_and_the_next_valid_one_counts() -> None:
    peers = make(4, 3)
    after(peers, 1)
    true = peers[1].replica.proposal("peer1")
    ask = true.asks[0]
    wrong = {
        "question": msgspec.structs.replace(ask, query=ask.query + 0.5, sent=ask.sent + 0.5),
        "units": msgspec.structs.replace(ask, sent=ask.sent + 0.01),
        "lengths": msgspec.structs.replace(ask, lengths=(1, *ask.lengths[1:])),
        "step": msgspec.structs.replace(ask, step=ask.step * 2 + 1),
        "level": msgspec.structs.replace(ask, level=1),
        "end": None,
    }
    for one in wrong.values():
        off = msgspec.structs.replace(true, asks=() if one is None else (one,)).pack(peers[1].key)
        found = peers[0].see("peer1", off)
        assert [(each.kind, each.client, each.payloads) for each in found] == [("refused", "peer1", (off,))]
        assert peers[0].replica.asked is None
    unchanged = peers[0].replica.proposal("peer0").asks
    assert unchanged == true.asks
    assert [one.kind for one in peers[0].see("peer1", true.pack(peers[1].key))] == ["proposed"]
    # The first valid one is the question; a later one changes nothing.
    near = msgspec.structs.replace(ask, query=math.nextafter(ask.query, math.inf))
    later = msgspec.structs.replace(true, sender="peer2", asks=(near,)).pack(peers[2].key)
    assert peers[0].see("peer2", later) == ()
    assert peers[0].replica.asks == true.asks


class OtherProcessor(Peer):
    """Computes every question a few last bits off."""

    def wants(self, *, proposes: bool = True) -> list[bytes]:
        if self.replica.asked is None and not self.replica.ended:
            for track in self.replica.tracks:
                if track.ask is not None:
                    query = track.ask.query
                    for _ in range(3):
                        query = math.nextafter(query, math.inf)
                    track.ask = track.ask._replace(query=query, sent=math.nextafter(track.ask.sent, math.inf))
        return super().wants(proposes=proposes)


def test_a_peer_on_another_processor_agrees_and_is_agreed_with() -> None:
    study = make(4, 20, design="auto", length=8)[0].study
    peers: list[Peer] = [
        OtherProcessor(study, "peer0"),
        *(Peer(study, f"peer{k}") for k in (1, 2)),
        OtherProcessor(study, "peer3"),
    ]
    log: list[Logged] = []
    run(peers, log)
    assert all(peer.replica.finished for peer in peers)
    assert len({peer.replica.head for peer in peers}) == 1
    proposers = {sender for sender, payload in log if isinstance(read((sender, payload)), Proposal)}
    assert "peer0" in proposers
    plain = make(4, 20, design="auto", length=8)
    run(plain, [])
    assert plain[1].replica.chain != peers[1].replica.chain  # the bits did differ
    assert not any(one.kind == "refused" for peer in peers for one in peer.happenings)


def test_a_question_on_the_edge_of_the_tolerance_stops_the_run_and_splits_nothing() -> None:
    """What a liar can do that knows the last bits of two processors: some accept its question, and others refuse it."""
    peers = make(5, 4)
    log = after(peers, 2)
    (track,) = peers[0].replica.tracks
    assert track.ask is not None
    allowed = slack(track.plan) * track.plan.standard_error(track.state, track.ask)
    true = peers[4].replica.proposal("peer4")
    for peer, bits in zip(peers, (0.4, 0.4, -0.4, -0.4, 0.0), strict=True):
        for own in peer.replica.tracks:
            assert own.ask is not None
            query = own.ask.query + bits * allowed
            own.ask = own.ask._replace(query=query, sent=units_inside(own.plan.scale, query))
    query = true.asks[0].query + 1.2 * allowed
    edge = msgspec.structs.replace(true.asks[0], query=query, sent=units_inside(track.plan.scale, query))
    log.append(("peer4", msgspec.structs.replace(true, asks=(edge,)).pack(peers[4].key)))
    for peer in peers[:4]:
        peer.is_late = True
    run(peers[:4], log)
    assert [bool([one for one in peer.happenings if one.kind == "refused"]) for peer in peers[:4]] == [
        False,
        False,
        True,
        True,
    ]
    assert [peer.replica.closed for peer in peers[:4]] == [2] * 4
    assert all("2 of 4 answers" in peer.replica.paused for peer in peers[:4])
    assert one_history(peers)
