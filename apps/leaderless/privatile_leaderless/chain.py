"""The chain value: one hash for a study, a roster and everything that was asked, answered and decided so far.

    chain_0 = SHA-256 of {study, run, roster}
    chain_t = SHA-256 of {chain_{t-1}, round t: question, digests of the signed answers, unspent, notes}
    the end = SHA-256 of {chain_t, "the run is over"}

No position in the log and no time is part of it. All of it is in a run's file, so whoever holds that file computes the
same values and checks every signature over them.

A signature over chain_t is one of *slot* t + 1: an answer to round t + 1, a checkpoint of round t. The end takes the
place of a round: a final after t rounds, or a checkpoint of the end, is one of slot t + 2. It takes slot t + 1 for
chain_t as well, as whoever had answered a round there has done (`Standing.claims`). A peer writes (slot, chain) to its
disk before it signs, signs one chain value per slot for ever, and nothing new in a slot below its highest.

**Why no two histories can both be committed.** A history of t rounds is committed when q > (K + f)/2 peers have signed
chain_t in slot t + 1. Suppose two histories that part somewhere are both committed, one with t rounds and one with
s >= t rounds. Where s = t, two quorums of q have more than f peers in common (2q - K > f), so at least one that is not
a liar has signed two values in one slot: it does not. Where s > t, a peer that is no liar has signed the longer one in
slot s + 1. It had closed round t + 1 of the longer history, and closing takes q answers to it, each of which signs that
history's first t rounds in slot t + 1. So q peers have signed two different values in slot t + 1, as before. Where the
longer one goes on from the other's end, its round t + 1 is committed by q signatures in slot t + 2, or has q answers to
the round after it there: those of the end are in that slot, too. And where one has ended after t rounds and another
history of t rounds is committed without an end, its q signers have taken slot t + 1, as those of the end have.

A new log changes nothing in this: whoever goes on from a checkpoint has q signatures over its chain value in its slot,
and whoever closes a round after it has q answers.

**Why a new log begins after what is committed.** It begins where q peers have signed checkpoints of round c. Had round
t > c been committed before, one peer that is no liar would be in both quorums: it has signed slot t + 1, and signs
nothing new in the lower slot c + 1.
"""

import hashlib
from collections.abc import Mapping, Sequence

from privatile.core.text import canonical_json, text_digest
from privatile_leaderless.entries import (
    AnyEntry,
    Checkpoint,
    ClosedRound,
    Final,
    LevelAsk,
    PeerAnswer,
    plain_ask,
)


def first_chain(study: str, run: str, roster: str) -> str:
    """The value before the first round; `study` and `roster` are digests.

    >>> first_chain("0" * 64, "r", "1" * 64) == first_chain("0" * 64, "r", "2" * 64)
    False
    """
    return text_digest(canonical_json({"kind": "begin", "study": study, "run": run, "roster": roster}))


def next_chain(
    before: str,
    number: int,
    asks: Sequence[LevelAsk],
    answers: Mapping[str, str | None],
    unspent: Sequence[Sequence[int]],
    notes: Sequence[tuple[str, str]],
) -> str:
    """The value after a round.

    `answers` has for every client, in the study's order, the digest of its payload (`payload_digest`), None for a
    silent one: the counts are part of what is hashed there. `unspent` is as a run's file holds it, per level that was
    asked (`StoredRound`). `notes` are senders and digests of payloads, in the log's order.
    """
    body = {
        "kind": "round",
        "before": before,
        "round": number,
        "asks": [plain_ask(one) for one in asks],
        "answers": [[client, digest] for client, digest in answers.items()],
        "unspent": [list(row) for row in unspent],
        "notes": [list(note) for note in notes],
    }
    return text_digest(canonical_json(body))


def end_chain(before: str, rounds: int) -> str:
    """The value after the end: what a final signs."""
    return text_digest(canonical_json({"kind": "end", "before": before, "rounds": rounds}))


def payload_digest(payload: bytes) -> str:
    """SHA-256 of a signed payload, its signature included."""
    return hashlib.sha256(payload).hexdigest()


def closed_chain(closed: ClosedRound, clients: Sequence[str]) -> str:
    """The value after a closed round."""
    answers = {
        client: None if payload is None else payload_digest(payload.encode())
        for client, payload in zip(clients, closed.answers, strict=True)
    }
    notes = [(note.sender, payload_digest(note.payload.encode())) for note in closed.notes]
    return next_chain(closed.before, closed.round, closed.asks, answers, closed.unspent, notes)


def signed_value(entry: AnyEntry) -> tuple[int, str] | None:
    """The slot of an entry and the chain value that it signs there; None for entries that sign none."""
    match entry:
        case PeerAnswer():
            return entry.round, entry.chain
        case Final():
            return entry.rounds + 2, entry.chain
        case Checkpoint(ended=True):
            return entry.round + 2, end_chain(entry.chain, entry.round)
        case Checkpoint():
            return entry.round + 1, entry.chain
    return None
