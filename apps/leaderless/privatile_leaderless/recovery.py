"""A new log after a lost one: where it begins, and the rounds that some peers lack.

Every peer says first where it stands and what it has signed last (`Stand`), and relays the rounds that others lack.
From that follows, for all who read the log, the same place: the earliest that q of those who have spoken can still
sign, at the first moment at which there is one; before the first round all must have spoken. There they sign a
checkpoint, and nobody signs one elsewhere. At q checkpoints the log has begun. Rounds beyond it are dropped: they are
not committed, and what was answered there stays spent.

**Why there is a place**, where all are honest, have their files and are up:

1. In the first log all have signed along one history.
2. Later, take the last log in which a place was chosen. There q peers had said that they can sign it.
3. Since then these q have signed only that place and rounds that follow it: whoever has spoken in a log signs nothing
   in an earlier one, and in this one nothing else was chosen.
4. A log closes each round once, so all that they have signed since belongs to one history.
5. Whoever of them has signed furthest has the closed round before that signature in its file. It names that place in
   the next log. The others have signed less of the same history, so all q can sign there.
6. All choose the same place: where a round is closed, q have signed the slot before it, so fewer than q can sign
   another value in that slot or below.

Nobody has to be believed. The choice is a matter of going on only: what counts are q checkpoints, and the rule of slots
(`chain`). A place that is named must be one that honest peers close, by the answers and votes in it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from privatile.records.keys import PublicKeys
from privatile_leaderless.chain import closed_chain, end_chain
from privatile_leaderless.entries import Checkpoint, ClosedRound, LevelAsk, Stand
from privatile_leaderless.slots import Claims

MOST_BYTES = 64 << 20
"""Of one peer's relayed rounds, some 20,000 rounds of five peers: a liar cannot fill others' memory. As much again of
its entries that wait for these rounds, and of what lies under its name and is signed with no key that is known."""

MOST_AFTER = 5
"""Different rounds of one peer that may follow one place: an honest one relays what it has closed, and what it has gone
over to since."""

MOST_REFUSED = 3
"""Rounds of one peer that are tried in vain in one log, each at the price of following the run again from its first
round: an honest one relays none. Later ones of it are followed only where somebody else relays the same."""

ENTRY_BYTES = 200
"""What an entry costs besides its payload, about."""

MOST_STANDS = 10
"""Of one peer that count in one log: it says again where it stands on every new connection."""


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
        """Slots and chain values that a signature over it takes (`Standing.claims`)."""
        before = (self.round + 1, self.chain)
        return (before, (self.slot, end_chain(self.chain, self.round))) if self.ended else (before,)


class Said(NamedTuple):
    """What a peer has said: where it stands, and what it has signed last."""

    sender: str
    signer: str
    """The key that it has signed this with."""
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

    named: Said
    """The first who stands there."""
    asks: tuple[LevelAsk, ...]
    """The next question, where some have answered it."""
    signers: tuple[tuple[str, str], ...]
    """Who can sign there, and with which key."""

    @property
    def place(self) -> Place:
        """The place."""
        return self.named.place


def choices(said: Sequence[Said], quorum: int) -> Iterator[Choice]:
    """Places that so many of these peers can still sign, the earliest first.

    >>> first, second = (Place(1, name, False) for name in ("a", "b"))
    >>> at = lambda name, place, slot, chain: Said(name, "", place, None, slot, chain, (), b"")
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
            signers = tuple((one.sender, one.signer) for one in said if one.can_sign(place, asks))
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
    """What is said, relayed and signed in a log that has not begun, or not here."""

    epoch: int
    quorum: int
    peers: int
    choice: Choice | None = None
    """Where it is to begin, by what was said."""
    target: Target | None = None
    waiting: list[tuple[int, str, bytes]] = field(default_factory=list)
    """Entries that come while the target is not reached, but relayed rounds: place, sender, payload."""
    is_anew: bool = False
    """Whether these are read again because the way to a target was followed: no other history is followed then."""
    begins: int = 0
    """How many of them come before the target is known: they count for nobody."""
    abort_votes: set[str] = field(default_factory=set)
    """Who has voted to abort in this log: one that cannot begin, or not go on, can still be given up."""
    abort_before: frozenset[str] = frozenset()
    """Who had before, as far as was read here; whoever is up says it again, for those who have read less."""
    keys_at: dict[str, dict[str, PublicKeys]] = field(default_factory=dict)
    """Keys after rounds that were followed, by their chain value."""
    _said: list[Said] = field(default_factory=list)
    """In the log's order."""
    _refused: set[tuple[Place, ClosedRound | None] | ClosedRound] = field(default_factory=set)
    """Places and rounds that are not what honest peers close."""
    _in_vain: Counter[str] = field(default_factory=Counter)
    """How many of them each peer has relayed."""
    _checkpoints: dict[Place, dict[str, tuple[Checkpoint, bytes]]] = field(default_factory=dict)
    _relays: dict[str, dict[ClosedRound, set[str]]] = field(default_factory=dict)
    """Rounds and who has relayed them, by the chain value after them. Of one that lacks answers there may be several,
    with other votes; of each peer the first."""
    _after: dict[str, list[str]] = field(default_factory=dict)
    """Their chain values, by the one before."""
    _bytes: Counter[str] = field(default_factory=Counter)
    """What is kept of each peer."""
    _places_after: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many different rounds of each peer are kept after each place."""
    _waiting_bytes: Counter[tuple[str, bool]] = field(default_factory=Counter)

    def anew(self) -> "Recovery":
        """The same log read from its first entry, with the rounds that were relayed in it; what is chosen stays so."""
        kept = Recovery(self.epoch, self.quorum, self.peers, self.choice, is_anew=self.target is not None)
        kept._relays, kept._after, kept.abort_before = self._relays, self._after, self.abort_before
        kept._bytes, kept._places_after = self._bytes, self._places_after
        kept._refused, kept._in_vain = self._refused, self._in_vain
        return kept

    def hear(self, entry: Stand, payload: bytes, signer: str, place: Place) -> None:
        """Take what a peer has said about where it stands, signed with this key; again, it changes nothing."""
        said = Said(entry.sender, signer, place, entry.last, entry.slot, entry.chain, entry.asks, payload)
        before = [one for one in self._said if one.sender == entry.sender]
        if before[-1:] != [said] and len(before) < MOST_STANDS:
            self._said.append(said)

    def highest_slots(self, keys: Mapping[str, PublicKeys]) -> dict[str, int]:
        """The highest slot that each peer has named with the key that it has now."""
        found: dict[str, int] = {}
        for one in self._said:
            if keys[one.sender].signer == one.signer:
                found[one.sender] = max(found.get(one.sender, 0), one.place.slot, one.slot)
        return found

    def candidates(self) -> Iterator[Choice]:
        """Where the log may begin, in order: places that q could sign, as the log was read, the earliest first.

        The first of them at which a replica can stand is the choice. It cannot where it lacks rounds before it, where
        honest peers do not close it so, or where those who can sign have another key. Who lacks rounds chooses when it
        has them, and so the same. Before the first round all must have spoken: it takes everybody's answer.
        """
        found: dict[str, Said] = {}
        for one in tuple(self._said):
            found[one.sender] = one
            for choice in choices(tuple(found.values()), self.quorum) if len(found) >= self.quorum else ():
                refused = (choice.place, choice.named.last) in self._refused
                if not refused and (choice.place.slot > 1 or len(found) == self.peers):
                    yield choice

    def refuse(self, choice: Choice) -> None:
        """Never choose this: honest peers do not close it so."""
        self._refused.add((choice.place, choice.named.last))

    def refuse_rounds(self, rounds: Sequence[ClosedRound], clients: Sequence[str]) -> None:
        """Never follow these: honest peers do not close them so."""
        for closed in rounds:
            if closed not in self._refused:
                self._refused.add(closed)
                self._in_vain.update(self._relays.get(closed_chain(closed, clients), {}).get(closed, ()))

    def wait(self, place: int, sender: str, payload: bytes, *, signed: bool) -> bool:
        """Keep an entry until the target is reached; False where there is no room for more of its sender."""
        size, of = len(payload) + ENTRY_BYTES, (sender, signed)
        if self._waiting_bytes[of] + size > MOST_BYTES:
            return False
        self._waiting_bytes[of] += size
        self.waiting.append((place, sender, payload))
        return True

    def checkpoint(self, entry: Checkpoint, payload: bytes) -> Target | None:
        """Count a checkpoint; q of them are the target."""
        place = Place(entry.round, entry.chain, entry.ended)
        found = self._checkpoints.setdefault(place, {})
        found.setdefault(entry.sender, (entry, payload))
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
        came = {one.sender for one in self._said}
        lacking = ""
        if away := ", ".join(name for name in clients if name not in came):
            lacking = f"; nothing came from {away}: `privatile peer recover` there, then `privatile peer run`"
        if self.choice is not None:
            place, can = self.choice.place, {name for name, _ in self.choice.signers}
            signed = self._checkpoints.get(place, {})
            if awaited := ", ".join(name for name in clients if name in can and name not in signed):
                lacking += f"; awaited from {awaited}"
            begins = f"log {self.epoch} begins after round {place.round:,} when {self.quorum} sign that"
            return f"{begins}; {len(signed)} have{lacking}"
        if lacking:
            needed = (
                f"log {self.epoch} begins when {self.quorum} that can sign the same place have said where they stand"
            )
            return f"{needed}; {len(came)} have said it{lacking}"
        return (
            f"log {self.epoch} cannot begin here: all have said where they stand, and this peer lacks rounds before "
            "(`privatile peer catch-up`), or no place is left that a quorum can sign (`privatile peer vote --abort`)"
        )

    def relay(self, sender: str, closed: ClosedRound, size: int, clients: Sequence[str]) -> bool:
        """Keep a round that somebody has relayed, in so many bytes; whether it says anything new."""
        if not _is_sized(closed, len(clients)):
            return False
        value = closed_chain(closed, clients)
        found = self._relays.get(value, {})
        if closed in found:
            is_new = sender not in found[closed]
            found[closed].add(sender)
            return is_new
        if any(sender in senders for senders in found.values()) or not self._keeps(sender, closed.before, size):
            return False
        if not found:
            self._after.setdefault(closed.before, []).append(value)
        self._relays.setdefault(value, {})[closed] = {sender}
        return True

    def _keeps(self, sender: str, before: str, size: int) -> bool:
        """Whether there is room for one more round of a peer after this place; it is counted."""
        size += ENTRY_BYTES
        if self._bytes[sender] + size > MOST_BYTES or self._places_after[sender, before] >= MOST_AFTER:
            return False
        self._bytes[sender] += size
        self._places_after[sender, before] += 1
        return True

    def following(self, chain: str) -> Iterator[tuple[str, list[ClosedRound]]]:
        """Rounds that may follow this chain value before the log has begun: the value after each, and all its texts.

        Not those that were tried in vain, nor those only from who has relayed such.
        """
        for value in tuple(self._after.get(chain, ())):
            texts = [
                closed
                for closed, senders in self._relays[value].items()
                if closed not in self._refused and any(self._in_vain[sender] < MOST_REFUSED for sender in senders)
            ]
            if texts:
                yield value, texts

    def path(self, known: Mapping[str, int]) -> list[list[ClosedRound]] | None:
        """The relayed rounds from one that is `known` to the target, in order, each in all its texts.

        None while one is missing.
        """
        if self.target is None:
            return None
        path: list[list[ClosedRound]] = []
        value = self.target.chain
        while value not in known:
            found = [closed for closed in self._relays.get(value, {}) if closed not in self._refused]
            if not found:
                return None
            path.append(found)
            value = found[0].before
        return path[::-1]


def _is_sized(closed: ClosedRound, peers: int) -> bool:
    """Whether its lists are as long as those of a round of so many peers: in memory they take more than as text."""
    answers, asks, unspent = closed.answers, closed.asks, closed.unspent
    return (
        len(answers) == peers
        and len(unspent) == len(asks)
        and all(len(row) <= peers for row in unspent)
        and all(len(one.lengths) == peers for one in asks)
        and len(closed.votes) <= peers
    )
