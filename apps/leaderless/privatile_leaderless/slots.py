"""What a peer has signed: one chain value and one question per slot, for ever (`chain`)."""

from collections.abc import Mapping
from typing import NamedTuple

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
        """Whether the highest slot is forfeited: higher ones may be signed and forgotten (`Standing.is_furthest`)."""
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

        Only where q *other* peers have signed the same value there (`Standing.vouched`). Then no other value can be
        committed in it: two quorums have more than f peers in common, one of them honest and not this one, and it has
        signed once. So whatever this peer has signed there and forgotten helps no other history.
        """
        if self._signed.get(slot) != SlotValue(FORFEITED):
            return False
        del self._signed[slot]
        return True
