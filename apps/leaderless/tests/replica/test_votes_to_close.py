"""A round that was closed without somebody carries the votes that closed it: whoever follows it checks them."""

from __future__ import annotations

import msgspec
import pytest

from privatile.errors import ProtocolError, StoreError
from privatile_leaderless.entries import CloseVote, Note, Relay
from privatile_leaderless.stored import closed_rounds
from replica.kit import (
    ROSTER,
    Peer,
    answer_of,
    asked_after,
    close_votes,
    key_of,
    make,
    new_replica,
    read,
    run,
    stored,
)
from replica.test_recovery import renew


def lacking_an_answer() -> tuple[Peer, Relay]:
    """A peer after round 2 in a new log, and round 3 as it was closed without the fifth."""
    peers = make(5, 4)
    log = asked_after(peers, 2, 1)
    log += [*[answer_of(peer) for peer in peers][:4], *close_votes(peers[:2])]
    peers[0].follow(log)
    renew(peers)
    return peers[3], next(iter(peers[0].replica.relays("peer0", 2)))


def test_a_round_that_lacks_an_answer_is_followed_with_its_votes() -> None:
    reader, true = lacking_an_answer()
    assert [vote.sender for vote in true.closed.votes] == ["peer0", "peer1"]
    reader.see("peer0", true.pack(key_of("peer0")))
    assert reader.replica.closed == 3
    assert reader.replica.closed_rounds()[2] == true.closed


def forged_votes(true: Relay) -> dict[str, list[CloseVote]]:
    """What a liar may write instead of the two votes."""
    first, second = (read((vote.sender, vote.payload.encode())) for vote in true.closed.votes)

    def changed(**fields: object) -> CloseVote:
        made: CloseVote = msgspec.structs.replace(first, **fields)
        return made

    return {
        "too few": [first],
        "none": [],
        "one twice": [first, first],
        "more than it takes": [first, second, changed(sender="peer2")],
        "of two logs": [changed(epoch=1), second],
        "another round": [changed(round=2), second],
        "another question": [changed(question="0" * 64), second],
        "another history": [changed(chain="0" * 64), second],
        "another run": [changed(run="elsewhere"), second],
        "another study": [changed(study="0" * 64), second],
    }


@pytest.mark.parametrize("wrong", [*forged_votes(lacking_an_answer()[1]), "another's key", "no vote"])
def test_a_round_with_forged_votes_to_close_is_not_followed(wrong: str) -> None:
    """A liar alone could leave out an answer that had come in time."""
    reader, true = lacking_an_answer()
    if wrong == "another's key":
        texts = [
            (vote.sender, read((vote.sender, vote.payload.encode())).pack(key_of("peer4")).decode())
            for vote in true.closed.votes
        ]
    elif wrong == "no vote":
        texts = [("peer0", true.closed.answers[0] or ""), ("peer1", true.closed.answers[1] or "")]
    else:
        texts = [(vote.sender, vote.pack(key_of(vote.sender)).decode()) for vote in forged_votes(true)[wrong]]
    closed = msgspec.structs.replace(true.closed, votes=tuple(Note(*one) for one in texts))
    happened = reader.see("peer4", Relay(true.study, true.run, "peer4", 1, closed).pack(key_of("peer4")))
    assert [one.kind for one in happened] == ["relayed", "refused"]
    assert reader.replica.closed == 2
    # What a liar relays first does not keep out what is true.
    reader.see("peer0", true.pack(key_of("peer0")))
    assert reader.replica.closed == 3


def test_a_complete_round_has_no_votes() -> None:
    """Nobody can make two texts of one round: others would keep both."""
    peers = make(4, 4)
    log = asked_after(peers, 2, 1)
    vote = Note("peer3", close_votes(peers[3:])[0][1].decode())
    log += [answer_of(peer) for peer in peers]
    peers[0].follow(log)
    renew(peers)
    true = next(iter(peers[0].replica.relays("peer0", 2)))
    assert true.closed.votes == ()
    made = msgspec.structs.replace(true, closed=msgspec.structs.replace(true.closed, votes=(vote,)))
    peers[1].see("peer0", made.pack(peers[0].key))
    assert peers[1].replica.closed == 2


@pytest.mark.parametrize(
    "change",
    [
        "",
        "DELETE FROM peer_votes WHERE place = 0",
        "DELETE FROM peer_votes",
        "UPDATE peer_votes SET sender = 'peer2' WHERE place = 0",
        "UPDATE peer_votes SET payload = (SELECT payload FROM peer_votes WHERE place = 1) WHERE place = 0",
        "UPDATE peer_votes SET round = 1",
    ],
)
def test_a_file_has_them_and_says_no_other_thing_about_them(change: str) -> None:
    peers = stored(4, 4, 1)
    log = asked_after(peers, 1)
    log += [*[answer_of(peer) for peer in peers[:3]], *close_votes(peers[:2])]
    run(peers, log)
    writer = peers[0]
    writer.save()
    assert writer.replica.finished
    assert [len(one.votes) for one in writer.replica.closed_rounds()] == [0, 2, 0, 0]
    if change:
        writer.store.execute([(change, ())])
    reader = new_replica(writer.study)
    if change:
        with pytest.raises(StoreError, match="vote"):
            writer.restart()
        with pytest.raises(ProtocolError, match="vote"):
            reader.catch_up(list(closed_rounds(writer.store, writer.study, ROSTER)))
    else:
        writer.restart()
        assert reader.catch_up(list(closed_rounds(writer.store, writer.study, ROSTER))) == 4
        assert reader.chain == writer.replica.chain
