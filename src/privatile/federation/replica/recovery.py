"""A new log after a lost one: where peers stand, and the rounds that some of them lack.

Every peer writes a checkpoint of its last closed round, and relays the rounds that others lack. The log begins where q
peers have signed the same checkpoint. Rounds beyond it are dropped: they are not committed, and what was answered there
stays spent. Nobody has to be believed: q peers have signed the hash that every relayed round must lead to.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from privatile.federation.replica.chain import closed_chain
from privatile.federation.replica.entries import Checkpoint, ClosedRound, LevelAsk

MOST_RELAYS = 100_000
"""Relayed rounds that are kept in memory."""

MOST_BYTES = 64 << 20
"""Of one peer's relayed rounds, some 20,000 rounds of five peers: a liar cannot fill others' memory. As much again of
its entries that wait for these rounds, and of what lies under its name and is signed with no key that is known."""

ENTRY_BYTES = 200
"""What an entry costs besides its payload, about."""


class Place(NamedTuple):
    """A place in a history."""

    round: int
    chain: str
    ended: bool

    @property
    def slot(self) -> int:
        """Where a signature over it belongs."""
        return self.round + 1 + self.ended


class Target(NamedTuple):
    """Where a new log begins."""

    round: int
    chain: str
    ended: bool
    signed: Mapping[str, bytes]
    """The checkpoints of the quorum."""
    asks: tuple[tuple[LevelAsk, ...], ...]
    """Questions of the next round that these peers have answered, that of most of them first."""


@dataclass
class Recovery:
    """Checkpoints and relayed rounds of a log that has not begun, or not here."""

    epoch: int
    quorum: int
    tolerate: int
    target: Target | None = None
    waiting: list[tuple[int, str, bytes]] = field(default_factory=list)
    """Entries that come while the target is not reached, but relayed rounds: place, sender, payload."""
    is_anew: bool = False
    """Whether these are read again because the way to a target was followed: no other history is followed then."""
    begins: int = 0
    """How many of them come before the target is known: they count for nobody."""
    stands: dict[str, int] = field(default_factory=dict)
    """The highest slot of each peer's checkpoints, with the key that it has now."""
    abort_votes: set[str] = field(default_factory=set)
    """Who has voted to abort: a log that cannot begin, or not go on, can still be given up."""
    _checkpoints: dict[Place, dict[str, tuple[Checkpoint, bytes]]] = field(default_factory=dict)
    _relays: dict[str, ClosedRound] = field(default_factory=dict)
    _senders: dict[str, set[str]] = field(default_factory=dict)
    _bytes: Counter[str] = field(default_factory=Counter)
    """What is kept of each peer."""
    _waiting_bytes: Counter[tuple[str, bool]] = field(default_factory=Counter)

    def anew(self) -> "Recovery":
        """The same log read from its first entry, with the rounds that were relayed in it."""
        kept = Recovery(self.epoch, self.quorum, self.tolerate, is_anew=self.target is not None)
        kept._relays, kept._senders, kept._bytes = self._relays, self._senders, self._bytes
        return kept

    def wait(self, place: int, sender: str, payload: bytes, *, signed: bool) -> bool:
        """Keep an entry until the target is reached; False where there is no room for more of its sender."""
        size, of = len(payload) + ENTRY_BYTES, (sender, signed)
        if self._waiting_bytes[of] + size > MOST_BYTES:
            return False
        self._waiting_bytes[of] += size
        self.waiting.append((place, sender, payload))
        return True

    def checkpoint(self, entry: Checkpoint, payload: bytes, *, stands: bool) -> Target | None:
        """Count where a peer stands, or stood when it had another key; at the quorum, that is the target.

        Of a peer only the furthest checkpoint counts: one that has followed a relayed round has signed that round, and
        could not sign another in its place, if the log began before it.
        """
        place = Place(entry.round, entry.chain, entry.ended)
        if any(entry.sender in found and place.slot < other.slot for other, found in self._checkpoints.items()):
            return self.target
        for other, earlier in self._checkpoints.items():
            if other.slot < place.slot:
                earlier.pop(entry.sender, None)
        found = self._checkpoints.setdefault(place, {})
        found.setdefault(entry.sender, (entry, payload))
        if stands:
            self.stands[entry.sender] = max(self.stands.get(entry.sender, 0), place.slot)
        if self.target is None and len(found) >= self.quorum:
            named = Counter(one.asks for one, _ in found.values() if one.asks)
            signed = {sender: payload for sender, (_, payload) in found.items()}
            asks = tuple(asks for asks, _ in named.most_common())
            self.target = Target(entry.round, entry.chain, entry.ended, signed, asks)
            self.begins = len(self.waiting)
        return self.target

    def waits_for(self, clients: Sequence[str]) -> str:
        """In words, why the log has not begun here."""
        if self.target is not None:
            return (
                f"log {self.epoch} begins after round {self.target.round:,}, which this peer does not have: the others "
                "relay it, or take it over with `privatile peer catch-up`"
            )
        came = {sender for found in self._checkpoints.values() for sender in found}
        most = max((len(found) for found in self._checkpoints.values()), default=0)
        away = ", ".join(name for name in clients if name not in came)
        lacking = f"; none came from {away}: `privatile peer recover` there, then `privatile peer run`" if away else ""
        return f"log {self.epoch} begins when {self.quorum} have signed the same checkpoint; {most} have{lacking}"

    def relay(self, sender: str, closed: ClosedRound, clients: Sequence[str]) -> None:
        """Keep a round that somebody has relayed."""
        if len(closed.answers) == len(clients) and len(self._relays) < MOST_RELAYS:
            value = closed_chain(closed, clients)
            if value not in self._relays and not self._keeps(sender, _size(closed)):
                return
            self._relays[value] = closed
            self._senders.setdefault(value, set()).add(sender)

    def _keeps(self, sender: str, size: int) -> bool:
        """Whether there is room for so many bytes of a peer; they are counted."""
        if self._bytes[sender] + size > MOST_BYTES:
            return False
        self._bytes[sender] += size
        return True

    def following(self, chain: str) -> Iterator[ClosedRound]:
        """Rounds that may follow this chain value before the log has begun.

        One that lacks answers is believed if more than f peers relay it: a liar alone could leave out an answer.
        """
        for value, closed in list(self._relays.items()):
            complete = None not in closed.answers
            if closed.before == chain and (complete or len(self._senders[value]) > self.tolerate):
                yield closed

    def path(self, known: Mapping[str, int]) -> list[ClosedRound] | None:
        """The relayed rounds from one that is `known` to the target, in order; None while one is missing."""
        if self.target is None:
            return None
        found: list[ClosedRound] = []
        value = self.target.chain
        while value not in known:
            closed = self._relays.get(value)
            if closed is None:
                return None
            found.append(closed)
            value = closed.before
        return found[::-1]


def _size(closed: ClosedRound) -> int:
    lengths = sum(len(one.lengths) for one in closed.asks) + sum(map(len, closed.unspent))
    return sum(len(one or "") for one in closed.answers) + sum(len(one.payload) for one in closed.notes) + 8 * lengths
