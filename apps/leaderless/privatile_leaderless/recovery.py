"""A new log after a lost one: where it begins.

Every peer says first where it stands, with the last round that it has closed, and what it has signed last
(`PositionReport`). From that follows, for all who read the log, the same place: the earliest that q of those who have
spoken can still sign, at the first moment at which there is one; before the first round all must have spoken. There
they sign a checkpoint, and nobody signs one elsewhere. At q checkpoints the log has begun. Rounds beyond it are
dropped: they are not committed, and what was answered there stays spent. A peer that lacks more than the last round
before that place takes them over from another one's file, and reads the log again from its first entry.

**Why there is a place**, where all are honest, have their files and are up:

1. In the first log all have signed along one history.
2. Later, take the last log in which a place was chosen. There q peers had said that they can sign it.
3. Since then these q have signed only that place and rounds that follow it: whoever has spoken in a log signs nothing
   in an earlier one, and in this one nothing else was chosen.
4. A log closes each round once, so all that they have signed since belongs to one history.
5. Whoever of them has signed furthest has the closed round before that signature, and names it, whole, in the next log
   (`PeerPosition.last`). The others have signed less of the same history, so all q can sign there.
6. All can go there. Whoever has closed a round has q answers to it, which commit the rounds before (`Replica._sign`):
   one closed round at most is not committed, and so not in a file. That one is named, and the file of whoever names it
   has all others, with what proves the last of them (`Replica.catch_up`).
7. All choose the same place: where a round is closed, q have signed the slot before it, so fewer than q can sign
   another value in that slot or below. Who lacks rounds chooses when it has them: it reads the log from its beginning.

Nobody has to be believed. The choice is a matter of going on only: what counts are q checkpoints, and the rule of slots
(`chain`). A place that is named must be one that honest peers close, by the answers and votes in it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from privatile_leaderless.chain import Claims, end_chain
from privatile_leaderless.entries import Checkpoint, ClosedRound, LevelAsk, PositionReport

MAX_STANDS = 10
"""Of one peer that count in one log: it says again where it stands on every new connection. As many different places
count in its checkpoints: a liar fills nobody's memory."""


class Place(NamedTuple):
    """A place in a history."""

    round: int
    chain: str
    ended: bool

    @property
    def slot(self) -> int:
        """Where a signature over it belongs."""
        return self.round + 1 + self.ended

    @property
    def claims(self) -> Claims:
        """Slots and chain values that a signature over it takes (`ReplicaView.claims`)."""
        before = (self.round + 1, self.chain)
        return (before, (self.slot, end_chain(self.chain, self.round))) if self.ended else (before,)


class PeerPosition(NamedTuple):
    """What a peer has said: where it stands, and what it has signed last."""

    sender: str
    place: Place
    last: ClosedRound | None
    slot: int
    chain: str | None
    asks: tuple[LevelAsk, ...]
    payload: bytes

    def can_sign(self, place: Place, asks: tuple[LevelAsk, ...] = ()) -> bool:
        """Whether it can sign this place, and then answer this question (`Slots`)."""
        if self.slot > place.slot or any(self.slot == slot and self.chain != chain for slot, chain in place.claims):
            return False
        return self.slot < place.slot or not self.asks or self.asks == asks


class Choice(NamedTuple):
    """Where a new log is to begin."""

    named: PeerPosition
    """The first who stands there."""
    asks: tuple[LevelAsk, ...]
    """The next question, where some have answered it."""
    signers: tuple[str, ...]
    """Who can sign there."""

    @property
    def place(self) -> Place:
        """The place."""
        return self.named.place


def choices(said: Sequence[PeerPosition], quorum: int) -> Iterator[Choice]:
    """Places that so many of these peers can still sign, the earliest first.

    >>> first, second = (Place(1, name, False) for name in ("a", "b"))
    >>> at = lambda name, place, slot, chain: PeerPosition(name, place, None, slot, chain, (), b"")
    >>> one, two = at("one", first, 2, "a"), at("two", second, 2, "b")
    >>> [choice.place.chain for choice in choices([one, two, at("three", Place(0, "o", False), 1, "o")], 2)]
    ['a', 'b']
    >>> [choice.place.chain for choice in choices([one, two], 2)]
    []
    """
    named_by = Counter(one.place for one in said)
    named = {(one.place, one.last): one for one in reversed(said)}
    for first in sorted(named.values(), key=lambda one: (one.place.slot, -named_by[one.place], one.place.chain)):
        place = first.place
        answered = Counter(one.asks for one in said if one.asks and (one.slot, one.chain) == place.claims[-1])
        for asks in [asks for asks, _ in answered.most_common()] or [()]:
            signers = tuple(one.sender for one in said if one.can_sign(place, asks))
            if len(signers) >= quorum:
                yield Choice(first, asks, signers)


class Target(NamedTuple):
    """Where a new log begins."""

    round: int
    chain: str
    ended: bool
    signed: Mapping[str, bytes]
    """The checkpoints of the quorum."""
    asks: tuple[tuple[LevelAsk, ...], ...]
    """Questions of the next round that the checkpoints name, that of most of them first."""


@dataclass
class Recovery:
    """What is said and signed in a log that has not begun, or not here."""

    epoch: int
    quorum: int
    peers: int
    abort_before: frozenset[str] = frozenset()
    """Who had voted to abort before, as far as was read here; whoever is up says it again, for those who have read
    less."""
    abort_votes: set[str] = field(default_factory=set)
    """Who has voted to abort in this log: one that cannot begin, or not go on, can still be given up."""
    choice: Choice | None = None
    """Where it is to begin, by what was said."""
    target: Target | None = None
    said: list[PeerPosition] = field(default_factory=list)
    """In the log's order."""
    _refused: set[tuple[Place, ClosedRound | None]] = field(default_factory=set)
    """Places that are not what honest peers close."""
    _checkpoints: dict[Place, dict[str, tuple[Checkpoint, bytes]]] = field(default_factory=dict)

    def hear(self, entry: PositionReport, payload: bytes, place: Place) -> None:
        """Take what a peer has said about where it stands; again, it changes nothing."""
        said = PeerPosition(entry.sender, place, entry.last, entry.slot, entry.chain, entry.asks, payload)
        before = [one for one in self.said if one.sender == entry.sender]
        if before[-1:] != [said] and len(before) < MAX_STANDS:
            self.said.append(said)

    def highest_slots(self) -> dict[str, int]:
        """The highest slot that each peer has named."""
        found: dict[str, int] = {}
        for one in self.said:
            found[one.sender] = max(found.get(one.sender, 0), one.place.slot, one.slot)
        return found

    def candidates(self) -> Iterator[Choice]:
        """Where the log may begin, in order: places that q could sign, as the log was read, the earliest first.

        The first of them at which a replica can stand is the choice. It cannot where it lacks rounds before the one
        that is named, or where honest peers do not close that so. Who lacks rounds takes them over from a file, reads
        the log again, and so chooses the same. Before the first round all must have spoken: it takes everybody's
        answer.
        """
        found: dict[str, PeerPosition] = {}
        for one in tuple(self.said):
            found[one.sender] = one
            for choice in choices(tuple(found.values()), self.quorum) if len(found) >= self.quorum else ():
                refused = (choice.place, choice.named.last) in self._refused
                if not refused and (choice.place.slot > 1 or len(found) == self.peers):
                    yield choice

    def refuse(self, choice: Choice) -> None:
        """Never choose this: honest peers do not close it so."""
        self._refused.add((choice.place, choice.named.last))

    def checkpoint(self, entry: Checkpoint, payload: bytes) -> Target | None:
        """Count a checkpoint; q of them are the target."""
        place, sender = Place(entry.round, entry.chain, entry.ended), entry.sender
        if sum(sender in senders for senders in self._checkpoints.values()) < MAX_STANDS:
            self._checkpoints.setdefault(place, {}).setdefault(sender, (entry, payload))
        found = self._checkpoints.get(place, {})
        if len(found) >= self.quorum:
            named = Counter(one.asks for one, _ in found.values() if one.asks)
            signed = {sender: payload for sender, (_, payload) in found.items()}
            asks = tuple(asks for asks, _ in named.most_common())
            self.target = Target(entry.round, entry.chain, entry.ended, signed, asks)
        return self.target

    def waits_for(self, clients: Sequence[str]) -> str:
        """In words, why the log has not begun here."""
        lacks = [choice.place.round for choice in self.candidates()] if self.choice is None else []
        if self.target is not None or lacks:
            number = lacks[0] if self.target is None else self.target.round
            return (
                f"log {self.epoch} begins after round {number:,}, and this peer lacks rounds before. Take over another "
                "organization's file: `privatile peer catch-up DIR --from RUN.DB`"
            )
        came = {one.sender for one in self.said}
        lacking = ""
        if away := ", ".join(name for name in clients if name not in came):
            lacking = f"; nothing came from {away}: `privatile peer recover` there, then `privatile peer run`"
        if self.choice is not None:
            place, can = self.choice.place, set(self.choice.signers)
            signed = self._checkpoints.get(place, {})
            if awaited := ", ".join(name for name in clients if name in can and name not in signed):
                lacking += f"; awaited from {awaited}"
            begins = f"log {self.epoch} begins after round {place.round:,} when {self.quorum} sign that"
            return f"{begins}; {len(signed)} have{lacking}"
        if lacking:
            needed = f"log {self.epoch} begins when {self.quorum} that can sign the same place have said where they"
            return f"{needed} stand; {len(came)} have said it{lacking}"
        return (
            f"log {self.epoch} cannot begin: all have said where they stand, and no place is left that a quorum can "
            "sign (`privatile peer vote --abort`)"
        )
