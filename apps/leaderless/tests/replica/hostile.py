"""Random histories: two logs, peers that are moved between them, liars in both, entries lost, repeated and reordered.

Every peer sees some sequence of validly signed entries that the operator of the log chooses; liars sign whatever helps.
What is compared with: a plain dictionary of committed chain values, and the honest peers' ledgers.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol
from unittest.mock import patch

import msgspec

from privatile.core.messages import Question
from privatile.estimator.spec import RunSpec
from privatile.federation.study import FederationStudy
from privatile_leaderless import history as history_module
from privatile_leaderless import replica as replica_module
from privatile_leaderless.chain import Claims, signed_value
from privatile_leaderless.entries import read_entry
from replica.kit import Ledger, Logged, Peer, StoredPeer, make_study, new_replica

STEPS = 130
SHAPES = ((4, 1), (5, 1), (3, 0), (4, 0))
STUDIES = {shape: make_study(shape[0], 4, shape[1], patience=2) for shape in SHAPES}


class Wrong(AssertionError):
    """The invariant that is broken."""


class LyingLedger(Ledger):
    """Draws again for every log."""

    def answer(self, questions: tuple[Question, ...]) -> Any:
        self.given.pop(questions[0].round, None)
        found = super().answer(questions)
        return found and (tuple(max(0, one - self.shift) for one in found[0]), found[1])

    shift = 0


class Liar(Peer):
    """A peer in one of the logs that signs whatever is asked of it there."""

    def __init__(self, study: FederationStudy, name: str, view: int, chance: random.Random) -> None:
        super().__init__(study, name)
        self.view, self.chance = view, chance
        self.ledger = LyingLedger(name)
        self.ledger.shift = view

    def claim(self, claims: Claims, asks: str = "") -> bool:
        return True

    def wants(self, *, proposes: bool = True) -> list[bytes]:
        self.is_late = self.chance.random() < 0.5
        found = super().wants(proposes=proposes)
        replica = self.replica
        if replica.round is not None and replica.asked is None and self.chance.random() < 0.2:
            true = replica.proposal(self.name)
            off = [msgspec.structs.replace(one, query=one.query + 1.0, sent=one.sent + 1.0) for one in true.asks]
            found.append(msgspec.structs.replace(true, asks=tuple(off)).pack(self.key))
        if replica.recovering and self.chance.random() < 0.3 and replica.closed:
            replica.new_epoch(replica.epoch + 1)  # its own replica is worth nothing: it follows no log for long
        return found


class Honest(Peer):
    """A peer that is killed now and then. Its slots, its ledger and the number of its log are on its disk; of the
    entries it may lose more than a real one does (`PeerLog` writes them with the slot): then it reads what it is shown.
    """

    def __init__(self, study: FederationStudy, name: str) -> None:
        super().__init__(study, name)
        self.view = self.epoch = self.saved = 0
        self.seen: list[Logged | int] = []
        self.taken: list[Any] = []

    def see(self, sender: str, payload: bytes) -> Any:
        self.seen.append((sender, payload))
        return super().see(sender, payload)

    def renew(self, epoch: int) -> None:
        self.seen.append(epoch)
        self.saved = len(self.seen)
        self.epoch, self.read = epoch, 0
        self.replica.new_epoch(epoch)

    def kill(self, chance: random.Random) -> None:
        lost = len(self.seen) - chance.randint(self.saved, len(self.seen))
        self.seen = self.seen[: len(self.seen) - lost]
        self.read = max(0, self.read - lost)
        self.begin()

    def begin(self) -> None:
        self.replica = new_replica(self.study)
        if self.taken:
            self.replica.catch_up(*self.taken)
        for one in self.seen:
            self.replica.new_epoch(one) if isinstance(one, int) else self.replica.apply(*one)

    def take_over(self, other: Honest) -> bool:
        """Go on with the committed rounds of another one, and read the log from its first entry."""
        theirs = other.replica
        if theirs.committed <= self.replica.committed:
            return False
        self.taken = [[one.closed for one in theirs.committed_rounds()], theirs.proof]
        self.seen = [self.epoch] if self.epoch else []
        self.saved, self.read = len(self.seen), 0
        self.begin()
        return True


class Stored(StoredPeer):
    """The same with a real file: what is lost in a kill was not in it yet."""

    def __init__(self, study: FederationStudy, name: str) -> None:
        super().__init__(study, name)
        self.view = self.epoch = 0

    def renew(self, epoch: int) -> None:
        self.save()
        self.log.begin_epoch(epoch)
        self.replica.new_epoch(epoch)
        self.epoch, self.read = epoch, 0

    def kill(self, chance: random.Random) -> None:
        if chance.random() < 0.3:
            self.save()
        self.restart()


@dataclass
class World:
    """One history."""

    seed: int
    peer: type[Honest] | type[Stored] = Honest
    committed: dict[int, str] = field(default_factory=dict)
    closed: dict[int, set[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        shape = self.chance.choice(SHAPES)
        self.study = STUDIES[shape]
        names = list(self.study.clients)
        lying = self.chance.sample(names, shape[1])
        self.honest: list[Any] = [self.peer(self.study, name) for name in names if name not in lying]
        self.liars = [Liar(self.study, name, view, self.chance) for name in lying for view in (0, 1)]
        self.logs: dict[tuple[int, int], list[Logged]] = {}
        self.pool: list[Logged] = []
        self.signed: dict[tuple[str, int], str] = {}
        self.forks = self.chance.random() < 0.8
        self.forked = False

    def fork(self) -> None:
        """From here on the operator keeps two logs, and shows every peer one of them. (Round 1 needs all answers.)"""
        for peer in self.honest:
            peer.view = self.chance.randint(0, 1)
        for (epoch, view), entries in list(self.logs.items()):
            if view == 0:
                self.logs[epoch, 1] = list(entries)
        for liar in self.liars:
            liar.read = 0
            liar.replica = new_replica(self.study)

    def log(self, epoch: int, view: int) -> list[Logged]:
        return self.logs.setdefault((epoch, view), [])

    def play(self) -> None:
        chance = self.chance
        for _ in range(STEPS):
            event = chance.random()
            if (
                self.forks
                and not self.forked
                and chance.random() < 0.3
                and any(one.replica.closed for one in self.honest)
            ):
                self.forked = True
                self.fork()
            peer = chance.choice(self.honest)
            if event < 0.02 and self.forked:
                peer.view = 1 - peer.view
                peer.read = min(peer.read, len(self.log(peer.epoch, peer.view)))
                peer.read = chance.choice((peer.read, 0))
            elif event < 0.05:
                peer.kill(chance)
                self.counts["restarts"] += 1
            elif event < 0.055:
                peer.renew(peer.epoch + 1)
                self.counts["logs lost"] += 1
            elif event < 0.07:
                newest = max(one.epoch for one in self.honest)
                for one in self.honest:
                    if one.epoch < newest:
                        one.renew(newest)
            elif event < 0.12 and self.pool:  # a replay, perhaps of another log
                self.log(peer.epoch, chance.randint(0, 1)).append(chance.choice(self.pool[-40:]))
            elif event < 0.35 and self.liars:
                self.act_as(chance.choice(self.liars))
            else:
                self.turn(peer)
        for peer in self.honest:
            self.check(peer)
        self.counts["forked rounds"] = sum(len(found) > 1 for found in self.closed.values())

    def act_as(self, liar: Liar) -> None:
        epoch = max(one.epoch for one in self.honest)
        if liar.replica.epoch != epoch:
            liar.replica = self.honest[0].replica if self.chance.random() < 0.5 else liar.replica
            fresh = new_replica(self.study)
            fresh.catch_up(liar.replica.closed_rounds())
            liar.replica = fresh
            if epoch:
                fresh.new_epoch(epoch)
            liar.read = 0
        log = self.log(epoch, liar.view)
        liar.read = min(liar.read, len(log))
        liar.follow(log)
        self.publish(liar, log)

    def turn(self, peer: Honest | Stored) -> None:
        log = self.log(peer.epoch, peer.view)
        before = peer.replica.closed
        for _ in range(self.chance.randint(1, 12)):
            if peer.read < len(log):
                entry = log[peer.read]
                peer.see(*entry)
                peer.read += 1
        if peer.replica.astray or peer.replica.behind is not None:
            self.counts["files asked for"] += 1
            self.counts["files taken over"] += peer.take_over(self.chance.choice(self.honest))
        if peer.replica.closed > before:
            self.closed.setdefault(peer.replica.closed, set()).add(peer.replica.chain)
        self.check(peer)
        peer.is_late = self.chance.random() < 0.3
        self.publish(peer, log)

    def publish(self, peer: Peer, log: list[Logged]) -> None:
        for payload in peer.wants(proposes=self.chance.random() < 0.5):
            if isinstance(peer, Honest | Stored):
                self.look_at(peer, payload)
            self.pool.append((peer.name, payload))
            if self.chance.random() < 0.95 and (peer.name, payload) not in log[-30:]:
                log.append((peer.name, payload))

    def look_at(self, peer: Honest | Stored, payload: bytes) -> None:
        """An honest peer signs one chain value per slot."""
        value = signed_value(read_entry(payload, peer.key.public.signer))
        if (
            value is not None
            and not isinstance(peer, WithoutSlots)
            and self.signed.setdefault((peer.name, value[0]), value[1]) != value[1]
        ):
            raise Wrong(f"{peer.name} has signed two values in slot {value[0]}")

    def check(self, peer: Honest | Stored) -> None:
        replica = peer.replica
        for record in replica.committed_rounds():
            number = record.closed.round
            if self.committed.setdefault(number, record.chain) != record.chain:
                raise Wrong(f"round {number} was committed with two chain values")
            self.counts["rounds"] = len(self.committed)
            for one in self.honest:
                accepted = record.accepted.get(one.name)
                if accepted is not None:
                    _, counts, link = one.ledger.given[number]
                    if (accepted.body.ones, accepted.body.ledger) != (counts, link):
                        raise Wrong(f"the count of {one.name} in round {number} is not that of its ledger")
        for one in self.honest:
            if one.name in replica.quarantined:
                raise Wrong(f"{one.name} is honest, and in quarantine: {replica.quarantined[one.name].reason}")
        if replica.finished:
            self.counts["finished"] = 1
            if self.committed.setdefault(-1, replica.head) != replica.head:
                raise Wrong("two ends were committed")


class WithoutSlots(Honest):
    """Signs again whatever it is shown."""

    def claim(self, claims: Claims, asks: str = "") -> bool:
        return True


class Played(Protocol):
    """A random history."""

    counts: Counter[str]

    def play(self) -> None: ...


def play_each(make: Callable[[int], Played], seeds: Iterable[int]) -> Counter[str]:
    """Play histories; raises Wrong with the seed of the first that breaks an invariant."""
    total: Counter[str] = Counter()
    for seed in seeds:
        world = make(seed)
        try:
            world.play()
        except Wrong as error:
            raise Wrong(f"seed {seed}: {error}") from None
        total += world.counts
        total["histories"] += 1
    return total


def play_many(seeds: Iterable[int], peer: type[Honest] | type[Stored] = Honest) -> Counter[str]:
    """Two logs and liars."""
    return play_each(lambda seed: World(seed, peer=peer), seeds)


@contextmanager
def remembered() -> Iterator[None]:
    """Check every signature once, though several peers read it: histories take a third of the time."""
    read = lru_cache(maxsize=4096)(read_entry)
    as_text, as_spec = lru_cache(maxsize=16)(RunSpec.to_json), lru_cache(maxsize=16)(RunSpec.from_json)
    with (
        patch.object(replica_module, "read_entry", read),
        patch.object(history_module, "read_entry", read),
        patch.object(RunSpec, "to_json", lambda spec: as_text(spec)),
        patch.object(RunSpec, "from_json", as_spec),
    ):
        yield
