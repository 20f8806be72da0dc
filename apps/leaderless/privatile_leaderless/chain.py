"""The chain value: one hash for a study, a roster and everything that was asked, answered and decided so far.

    chain_0 = SHA-256 of {format, study, run, roster}
    chain_t = SHA-256 of {chain_{t-1}, round t: question, digests of the signed answers, unspent, notes}
    the end = SHA-256 of {chain_t, "the run is over"}

No position in the log and no time is part of it. All of it is in a run's file, so whoever holds that file computes the
same values and checks every signature over them.

A signature over chain_t is one of *slot* t + 1: an answer to round t + 1, a checkpoint of round t. The end takes the
place of a round: a final after t rounds, or a checkpoint of the end, is one of slot t + 2. It takes slot t + 1 for
chain_t as well, as whoever had answered a round there has done (`ReplicaView.claims`). A peer writes (slot, chain) to
its disk before it signs, signs one chain value per slot for ever, and nothing new in a slot below its highest.

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
from typing import NamedTuple

from privatile.core.text import canonical_json, text_digest
from privatile_leaderless.entries import (
    AnyEntry,
    Checkpoint,
    ClosedRound,
    Final,
    PeerAnswer,
    plain_ask,
)

FORMAT = 2
"""Of what the log holds: programs with different ones have no chain value in common."""


def first_chain(study: str, run: str, roster: str) -> str:
    """The value before the first round; `study` and `roster` are digests.

    >>> first_chain("0" * 64, "r", "1" * 64) == first_chain("0" * 64, "r", "2" * 64)
    False
    """
    return text_digest(
        canonical_json({"kind": "begin", "format": FORMAT, "study": study, "run": run, "roster": roster})
    )


def end_chain(before: str, rounds: int) -> str:
    """The value after the end: what a final signs."""
    return text_digest(canonical_json({"kind": "end", "before": before, "rounds": rounds}))


def payload_digest(payload: bytes) -> str:
    """SHA-256 of a signed payload, its signature included."""
    return hashlib.sha256(payload).hexdigest()


def closed_chain(closed: ClosedRound, clients: Sequence[str]) -> str:
    """The value after a closed round: of every answer and note it holds the digest, so the counts are part of it.

    Answers stand in the study's order, None for a silent client, and notes in the log's.
    """
    body = {
        "kind": "round",
        "before": closed.before,
        "round": closed.round,
        "asks": [plain_ask(one) for one in closed.asks],
        "answers": [
            [client, None if payload is None else payload_digest(payload.encode())]
            for client, payload in zip(clients, closed.answers, strict=True)
        ],
        "unspent": [list(row) for row in closed.unspent],
        "notes": [[note.sender, payload_digest(note.payload.encode())] for note in closed.notes],
    }
    return text_digest(canonical_json(body))


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


FORFEITED = ""
"""The chain value of a slot in which nothing may be signed: its peer cannot know what it has signed there before."""


Claims = tuple[tuple[int, str], ...]
"""Slots and the chain values that are signed there."""


class SlotValue(NamedTuple):
    """What was signed in a slot."""

    chain: str
    asks: str = ""
    """The question that was answered, as text; empty where none was."""


class Slots:
    """The rule by itself, in memory. Whoever signs writes the slot to the disk first (`PeerLog.claim`).

    >>> slots = Slots({})
    >>> [slots.claim(((3, chain),), asks) for chain, asks in (("a", "q"), ("a", "q"), ("a", "other"), ("b", ""))]
    [True, True, False, False]
    >>> slots.claim(((5, "c"),)), slots.claim(((4, "d"),)), slots.claim(((3, "a"),), "q")
    (True, False, True)
    >>> slots.claim(((5, "e"), (6, "the end of e"))), slots.claim(((5, "c"), (6, "the end of c")))
    (False, True)
    """

    def __init__(self, signed: Mapping[int, SlotValue]) -> None:
        self._signed = dict(signed)
        self.highest = max(signed, default=0)
        """The highest slot in which something was signed."""

    def __getitem__(self, slot: int) -> SlotValue | None:
        return self._signed.get(slot)

    @property
    def is_doubtful(self) -> bool:
        """Whether the highest slot is forfeited: higher ones may be signed and forgotten.

        `ReplicaView.is_furthest` asks for it.
        """
        return self._signed.get(self.highest) == SlotValue(FORFEITED)

    def allows(self, slot: int, chain: str, asks: str = "") -> bool:
        """Whether this chain value, with an answer to this question or none, may be signed in this slot.

        Below the highest slot only an answer may be sent again, as it was.
        """
        before = self._signed.get(slot)
        if before is not None and asks and before == SlotValue(chain, asks):
            return True
        if slot < self.highest:
            return False
        return before is None or (before.chain == chain and (not asks or not before.asks))

    def holds(self, slot: int, chain: str) -> bool:
        """Whether this chain value is the one of this slot already."""
        before = self._signed.get(slot)
        return before is not None and before.chain == chain

    def new_among(self, claims: Claims, asks: str = "") -> Claims | None:
        """Of what a signature takes, slots in rising order, that which is new; None where it is not allowed.

        `asks` belongs to the last one. What was signed may be signed again.
        """
        *before, (slot, chain) = claims
        if not self.allows(slot, chain, asks):
            return None
        if self.holds(slot, chain) and (not asks or self._signed[slot].asks == asks):
            return ()
        if not all(self.holds(*one) or self.allows(*one) for one in before):
            return None
        return (*(one for one in before if not self.holds(*one)), (slot, chain))

    def claim(self, claims: Claims, asks: str = "") -> bool:
        """Take slots where that is allowed, all of them or none; whether it was."""
        new = self.new_among(claims, asks)
        for slot, chain in new or ():
            before = self._signed.get(slot)
            own = asks if slot == claims[-1][0] else ""
            self._signed[slot] = SlotValue(chain, own or (before.asks if before else ""))
            self.highest = max(self.highest, slot)
        return new is not None

    def forfeit(self, slot: int) -> None:
        """Sign nothing in this slot and below."""
        self._signed[slot] = SlotValue(FORFEITED)
        self.highest = max(self.highest, slot)

    def regain(self, slot: int) -> bool:
        """Let a forfeited slot be claimed after all; whether it was one.

        Only where q *other* peers have signed the same value there (`ReplicaView.vouched`). Then no other value can be
        committed in it: two quorums have more than f peers in common, one of them honest and not this one, and it has
        signed once. So whatever this peer has signed there and forgotten helps no other history.
        """
        if self._signed.get(slot) != SlotValue(FORFEITED):
            return False
        del self._signed[slot]
        return True
