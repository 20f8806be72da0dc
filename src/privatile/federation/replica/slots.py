"""What a peer has signed: one chain value and one question per slot, for ever (`chain`)."""

from collections.abc import Mapping
from typing import NamedTuple

FORFEITED = ""
"""The chain value of a slot in which nothing may be signed: its peer cannot know what it has signed there before."""


class SlotValue(NamedTuple):
    """What was signed in a slot."""

    chain: str
    asks: str = ""
    """The question that was answered, as text; empty where none was."""


class Slots:
    """The rule by itself, in memory. Whoever signs writes the slot to the disk first (`PeerLog.claim`).

    >>> slots = Slots({})
    >>> slots.claim(3, "a", "q"), slots.claim(3, "a", "q"), slots.claim(3, "a", "other"), slots.claim(3, "b")
    (True, True, False, False)
    >>> slots.claim(5, "c"), slots.claim(4, "d"), slots.claim(3, "a", "q")
    (True, False, True)
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

    def claim(self, slot: int, chain: str, asks: str = "") -> bool:
        """Take a slot where that is allowed; whether it was."""
        if not self.allows(slot, chain, asks):
            return False
        before = self._signed.get(slot)
        self._signed[slot] = SlotValue(chain, asks or (before.asks if before else ""))
        self.highest = max(self.highest, slot)
        return True

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
