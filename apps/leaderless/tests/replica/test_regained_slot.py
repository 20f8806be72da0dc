"""A peer whose file was put back, and for whom alone the round waits."""

from __future__ import annotations

from replica.kit import StoredPeer, after, make_study, run


def test_a_round_that_waits_for_a_restored_peer_goes_on_once_a_quorum_of_others_has_signed() -> None:
    study = make_study(4, 4, 1, patience=1)
    peers = [StoredPeer(study, name) for name in study.clients]
    log = after(peers, 1)
    back, others = peers[3], peers[:3]
    for peer in others:
        peer.is_late = True
    run(others, log)  # round 2 is closed without it, round 3 waits for it
    slot = others[0].replica.slot
    assert (slot, others[0].replica.missing) == (3, [back.name])
    assert "silent" in others[0].replica.paused
    back.restart()
    back.log.forfeit(slot)  # what it has signed in this round is not known
    answers = [
        place for place, (_, payload) in enumerate(log) if b'"peer answer"' in payload and b'"round":3,' in payload
    ]
    back.follow(log[: answers[1] + 1])
    assert not back.replica.vouched(back.name)  # two others are no quorum of four with one liar
    back.follow(log)
    assert back.replica.paused
    assert back.replica.vouched(back.name)
    assert back.wants() == []  # forfeited
    assert back.log.regain(slot)
    assert not back.log.regain(slot - 1)
    assert back.claim(((slot, back.replica.chain),), "asks")
    assert not back.claim(((slot, "0" * 64),))
    assert not back.log.regain(slot)
    for peer in others:
        peer.is_late = False
    run(peers, log)
    assert all(peer.replica.finished for peer in peers)
    assert back.replica.closed_rounds()[slot - 1].answers[3] is not None
