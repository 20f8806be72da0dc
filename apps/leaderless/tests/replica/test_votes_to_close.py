"""A round that was closed without somebody carries the votes that closed it: whoever follows it checks them."""

from __future__ import annotations

import msgspec
import pytest

from privatile.errors import ProtocolError, StoreError
from privatile_leaderless.entries import ClosedRound, CloseVote, Note
from privatile_leaderless.history import closed_rounds
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


def lacking_an_answer() -> tuple[Peer, ClosedRound]:
    """A peer after round 2, and round 3 as it was closed without the fifth."""
    peers = make(5, 4)
    log = asked_after(peers, 2, 1)
    log += [*[answer_of(peer) for peer in peers][:4], *close_votes(peers[:2])]
    peers[0].follow(log)
    return peers[3], peers[0].replica.closed_rounds()[2]


def test_a_round_that_lacks_an_answer_is_followed_with_its_votes() -> None:
    reader, true = lacking_an_answer()
    assert [vote.sender for vote in true.votes] == ["peer0", "peer1"]
    reader.replica.catch_up([true])
    assert reader.replica.closed_rounds()[2] == true


def forged_votes(true: ClosedRound) -> dict[str, list[CloseVote]]:
    """What a liar may write instead of the two votes."""
    first, second = (read((vote.sender, vote.payload.encode())) for vote in true.votes)

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
        votes = [(vote.sender, read((vote.sender, vote.payload.encode()))) for vote in true.votes]
        texts = [(sender, vote.pack(key_of("peer4")).decode()) for sender, vote in votes]
    elif wrong == "no vote":
        texts = [("peer0", true.answers[0] or ""), ("peer1", true.answers[1] or "")]
    else:
        texts = [(vote.sender, vote.pack(key_of(vote.sender)).decode()) for vote in forged_votes(true)[wrong]]
    with pytest.raises(ProtocolError, match="vote"):
        reader.replica.catch_up([msgspec.structs.replace(true, votes=tuple(Note(*one) for one in texts))])
    assert reader.replica.closed == 2
    reader.replica.catch_up([true])
    assert reader.replica.closed == 3


def test_a_complete_round_has_no_votes() -> None:
    """Nobody can make two texts of one round: others would keep both."""
    peers = make(4, 4)
    log = asked_after(peers, 2, 1)
    vote = Note("peer3", close_votes(peers[3:])[0][1].decode())
    log += [answer_of(peer) for peer in peers]
    peers[0].follow(log)
    true = peers[0].replica.closed_rounds()[2]
    assert true.votes == ()
    with pytest.raises(ProtocolError, match="votes of 0 peers"):
        peers[1].replica.catch_up([msgspec.structs.replace(true, votes=(vote,))])


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
        reader.catch_up(list(closed_rounds(writer.store, writer.study, ROSTER)))
        assert reader.chain == writer.replica.chain
