"""Whatever a peer signs: nothing breaks a replica, and what is not an entry in its one form changes nothing."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import msgspec
import pytest

from privatile.core.messages import Position
from privatile.errors import ProtocolError
from privatile_leaderless.entries import Note, asks_digest, read_entry
from replica.kit import Peer, answer_of, asked_after, key_of, make, new_replica, read
from tests.federation.mutations import DROPPED, places, with_value

VALUES: tuple[Any, ...] = (
    None,
    -1,
    0,
    1,
    2**53,
    1e308,
    -0.0,
    "",
    "x",
    "\u00e9" * 9,
    "f" * 64,
    [],
    {},
    [[]],
    True,
    DROPPED,
)


def signed(body: bytes, name: str) -> bytes:
    return body + b"\n" + base64.b64encode(key_of(name).sign(body))


def every_entry() -> tuple[list[Peer], list[bytes]]:
    """One entry of each kind, of one peer, in the third round."""
    peers = make(4, 4)
    log = asked_after(peers, 2, 1)
    replica = peers[1].replica
    found = [log[-1][1], answer_of(peers[1])[1], replica.close_vote("peer1").pack(key_of("peer1"))]
    found.append(replica.vote("peer1").pack(key_of("peer1")))
    link = replica.link("peer1")
    assert link is not None
    found.append(replica.restored("peer1", link, Position(1, b"0" * 16)).pack(key_of("peer1")))
    found.append(replica.final("peer1").pack(key_of("peer1")))
    checkpoint = msgspec.structs.replace(replica.checkpoint("peer1"), epoch=1, asks=replica.asks)
    stand = replica.stand("peer1", peers[1].slots, replica.asks)
    vote = Note("peer1", found[2].decode())
    closed = msgspec.structs.replace(replica.closed_rounds()[1], votes=(vote,))
    found.append(checkpoint.pack(key_of("peer1")))
    found.append(msgspec.structs.replace(stand, epoch=1, last=closed).pack(key_of("peer1")))
    return peers, found


def test_every_field_of_every_entry_may_be_wrong() -> None:
    peers, entries = every_entry()
    chance, tried = random.Random(1), 0
    rounds = peers[0].replica.closed_rounds()
    states = [peers[0].replica, new_replica(peers[0].study), new_replica(peers[0].study), new_replica(peers[0].study)]
    states[1].catch_up(rounds)
    states[2].catch_up(rounds[:1])
    states[2].new_epoch(1)
    before = [(replica.chain, replica.committed) for replica in (states[0], states[1])]
    for payload in entries:
        text = payload.rpartition(b"\n")[0].decode()
        for path in places(json.loads(text)):
            for value in chance.sample(VALUES, 2):
                changed = json.dumps(json.loads(with_value(text, path, value)), sort_keys=True, separators=(",", ":"))
                if changed != text:
                    for replica in states:
                        replica.apply("peer1", signed(changed.encode(), "peer1"))
                    tried += 1
    assert tried > 200
    assert [(replica.chain, replica.committed) for replica in (states[0], states[1])] == before


def test_another_text_of_the_same_entry_is_refused() -> None:
    peers, entries = every_entry()
    for payload in entries:
        body = payload.rpartition(b"\n")[0]
        assert read_entry(payload, key_of("peer1").public.signer)
        for other in (json.dumps(json.loads(body)), body.decode().replace(":", ": ", 1), body.decode() + " "):
            with pytest.raises(ProtocolError):
                read_entry(signed(other.encode(), "peer1"), key_of("peer1").public.signer)
    assert peers[0].replica.apply("peer1", signed(b"{}", "peer1"))[0].kind == "refused"


def test_a_replica_takes_every_entry_of_another_state_of_the_run() -> None:
    """Nothing here raises, whatever comes when."""
    peers, entries = every_entry()
    chance = random.Random(2)
    everything = [("peer1", one) for one in entries]
    for name in ("peer0", "peer2", "peer3"):
        for one in entries:
            entry: Any = read(("peer1", one))
            field = "client" if hasattr(entry, "client") else "sender"
            everything.append((name, msgspec.structs.replace(entry, **{field: name}).pack(key_of(name))))
    for _ in range(15):
        replica = new_replica(peers[0].study)
        for _ in range(40):
            replica.apply(*chance.choice(everything))
            if chance.random() < 0.05:
                replica.new_epoch(replica.epoch + 1)


def test_the_question_of_a_vote_covers_every_bit() -> None:
    _, entries = every_entry()
    proposal: Any = read(("peer1", entries[0]))
    (ask,) = proposal.asks
    others = [
        msgspec.structs.replace(ask, **{name: value})
        for name, value in (("query", ask.query + 1e-12), ("sent", ask.sent + 1e-12), ("stage", "x"), ("level", 1))
    ]
    assert len({asks_digest((one,)) for one in (ask, *others)}) == 5
    negative = msgspec.structs.replace(ask, step=-0.0)
    assert asks_digest((negative,)) == asks_digest((msgspec.structs.replace(ask, step=0.0),))


def test_a_signature_has_one_text() -> None:
    """Otherwise the log's operator, without a key, could show two groups the same answer with two digests."""
    peers = make(4, 3)
    asked_after(peers, 1)
    name, payload = answer_of(peers[1])
    body, _, tail = payload.rpartition(b"\n")
    others = []
    for last in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/":
        text = tail[:-3] + bytes([last]) + tail[-2:]
        if text != tail and base64.b64decode(text, validate=True) == base64.b64decode(tail):
            others.append(body + b"\n" + text)
    assert len(others) == 15
    for other in others:
        assert [one.kind for one in peers[0].see(name, other)] == ["unsigned"]
    assert "counted" in [one.kind for one in peers[0].see(name, payload)]
