"""Peers without a network: a log is a list of entries, every peer reads what it is shown of it."""

from __future__ import annotations

import copy
import hashlib
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import nkeys  # type: ignore[import-untyped]
import numpy as np

from privatile.core.messages import Answer, Position, Question
from privatile.core.text import canonical_json
from privatile.federation.study import ClientAgreement, FederationStudy
from privatile.federation.wire import RoundAnswers
from privatile.records.keys import KeyPair, PublicKeys
from privatile.run.run_file import RunStore
from privatile_leaderless.chain import Claims, Slots
from privatile_leaderless.entries import AnyEntry, Checkpoint, LevelAsk, plain_ask, read_entry
from privatile_leaderless.peer_file import LogEntry, PeerLog
from privatile_leaderless.replica import Replica
from privatile_leaderless.standing import LogEffect

ROSTER = "a" * 64
Logged = tuple[str, bytes]


@lru_cache
def key_of(name: str) -> KeyPair:
    raw = hashlib.sha256(name.encode()).digest()
    return KeyPair(bytes(nkeys.encode_seed(raw, nkeys.PREFIX_BYTE_USER)))


def make_study(clients: int = 5, rounds: int = 4, tolerate: int | None = 1, **settings: Any) -> FederationStudy:
    names = [f"peer{k}" for k in range(clients)]
    length = settings.pop("length", 4)
    defaults: dict[str, Any] = {
        "identity": "0123456789ab",
        "title": "A test",
        "asked_by": "the tests",
        "value": "x",
        "levels": (0.5,),
        "range": (0.0, 100.0),
        "rounds": rounds,
        "patience": 20,
        "design": "rounds",
        "extra": {} if tolerate is None else {"tolerate": tolerate},
        "clients": settings.pop(
            "agreements", {name: ClientAgreement(1.0, 1.0 / clients, rounds * length) for name in names}
        ),
    }
    return FederationStudy(**{**defaults, **settings})


def drawn(client: str, question: Question) -> int:
    """A count that depends on client and question only: the same however often and wherever it is asked."""
    seed = f"{client} {question.round} {question.level!r} {question.query!r}".encode()
    draws = np.random.default_rng(list(hashlib.sha256(seed).digest()[:8]))
    return int(draws.binomial(question.length, 0.2 + 0.6 * min(1.0, max(0.0, question.query / 100.0))))


def asks_text(asks: Sequence[LevelAsk]) -> str:
    return canonical_json([plain_ask(one) for one in asks])


@dataclass
class Ledger:
    """Counts that were drawn, for ever: a question of a round is answered once."""

    client: str
    given: dict[int, tuple[tuple[Question, ...], tuple[int, ...], Position]] = field(default_factory=dict)
    sequence: int = 0

    def answer(self, questions: tuple[Question, ...]) -> tuple[tuple[int, ...], Position] | None:
        number = questions[0].round
        if number not in self.given:
            if any(later > number for later in self.given):
                return None
            self.sequence += len(questions)
            link = Position(self.sequence, hashlib.sha256(f"{self.client}{self.sequence}".encode()).digest()[:16])
            self.given[number] = (questions, tuple(drawn(self.client, one) for one in questions), link)
        asked, counts, link = self.given[number]
        return (counts, link) if asked == questions else None


class Peer:
    """An honest peer: what it publishes, given what it has read."""

    def __init__(self, study: FederationStudy, name: str) -> None:
        self.study, self.name, self.key = study, name, key_of(name)
        self.slots, self.ledger = Slots({}), Ledger(name)
        self.replica = new_replica(study)
        self.read = 0
        self.happenings: list[LogEffect] = []
        self.is_late = False
        self.answered: dict[int, tuple[LevelAsk, ...]] = {}
        self.votes: list[AnyEntry] = []
        self.stood: dict[int, bytes] = {}

    def see(self, sender: str, payload: bytes) -> tuple[LogEffect, ...]:
        found = self.replica.apply(sender, payload)
        self.happenings += found
        return found

    def follow(self, log: Sequence[Logged]) -> None:
        while self.read < len(log):
            self.see(*log[self.read])
            self.read += 1

    def claim(self, claims: Claims, asks: str = "") -> bool:
        return self.slots.claim(claims, asks)

    def wants(self, *, proposes: bool = True) -> list[bytes]:
        """What it would write now: the next thing that is due."""
        replica, found = self.replica, []
        found += [vote.pack(self.key) for vote in self.votes]
        if replica.aborts_again(self.name):
            found.append(replica.vote(self.name).pack(self.key))
        if replica.recovering:
            found.append(self.stand())
            if replica.begins_at is not None and self.claim(replica.claims):
                found.append(replica.checkpoint(self.name).pack(self.key))
        elif replica.ended:
            if not replica.finished and self.claim(replica.claims):
                found.append(replica.final(self.name).pack(self.key))
        elif replica.round is not None and replica.asked is None:
            if proposes:
                found.append(replica.proposal(self.name).pack(self.key))
        elif replica.round is not None and self.name in replica.missing:
            answer = self.answer()
            found += [answer] if answer is not None else []
        if self.is_late and replica.asked is not None and self.name not in replica.close_votes:
            found.append(replica.close_vote(self.name).pack(self.key))
        return found

    def stand(self) -> bytes:
        """Where it stood when it began to read this log."""
        if self.replica.epoch not in self.stood:
            said = self.replica.stand(self.name, self.slots, self.asked_in(self.slots.highest))
            self.stood[self.replica.epoch] = said.pack(self.key)
        return self.stood[self.replica.epoch]

    def asked_in(self, slot: int) -> tuple[LevelAsk, ...]:
        return self.answered.get(slot, ())

    def answer(self) -> bytes | None:
        replica = self.replica
        assert replica.asked is not None
        questions = replica.asked.questions(self.name)
        if not self.claim(replica.claims, asks_text(replica.asks)):
            return None
        given = self.ledger.answer(questions)
        if given is None:
            return None
        self.answered[replica.slot] = replica.asks
        counts, link = given
        return self.signed(questions, counts, link)

    def signed(self, questions: tuple[Question, ...], counts: Sequence[int], link: Position) -> bytes:
        answers = [Answer(one, self.name, n, link) for one, n in zip(questions, counts, strict=True)]
        return self.replica.answer(RoundAnswers.of(self.study.digest, answers)).pack(self.key)


class StoredPeer(Peer):
    """A peer whose state lies in a file: it may be killed at any time and comes back with what was written."""

    def __init__(self, study: FederationStudy, name: str) -> None:
        super().__init__(study, name)
        self.store = RunStore.create(":memory:", study.run, study.spec)
        self.restart()

    @classmethod
    def from_copy(cls, peer: StoredPeer, copy: bytes) -> StoredPeer:
        """The same organization with an older copy of its file; its ledger is as it was."""
        made = cls(peer.study, peer.name)
        connection = sqlite3.connect(":memory:")
        connection.deserialize(copy)
        made.store, made.ledger = RunStore(connection, ":memory:"), peer.ledger
        made.restart()
        return made

    def restart(self) -> None:
        """Kill and start again."""
        self.log = PeerLog.of(self.store, self.study, ROSTER)
        self.replica = self.log.replica({name: key_of(name).public for name in self.study.clients})
        self.slots = self.log.slots
        self.unwritten: list[LogEntry] = []
        self.read = 0 if self.log.last is None else self.log.last[0]
        self.stood = {}
        self.news: list[LogEffect] = []

    def see(self, sender: str, payload: bytes) -> tuple[LogEffect, ...]:
        found = super().see(sender, payload)
        self.news += found
        self.unwritten.append(LogEntry(self.read + 1, sender, payload))
        return found

    def claim(self, claims: Claims, asks: str = "") -> bool:
        question = self.replica.asks if asks else ()
        found = self.log.claim(claims, question, self.unwritten, self.replica, self.news)
        self.unwritten, self.news = [], []
        return found

    def save(self) -> None:
        self.log.save(self.unwritten, self.replica, self.news)
        self.unwritten, self.news = [], []

    def asked_in(self, slot: int) -> tuple[LevelAsk, ...]:
        return self.log.answered(slot)

    def take_over(self, other: StoredPeer) -> bool:
        """Stop, catch up with another one's file, and start again; whether anything was new."""
        self.save()
        other.save()
        before = self.replica.committed
        self.log.catch_up(self.log.replica(keys_of(self)), other.store)
        self.restart()
        return self.replica.committed > before


def new_replica(study: FederationStudy, epoch: int = 0) -> Replica:
    return Replica(study, {name: key_of(name).public for name in study.clients}, ROSTER, epoch)


def run(
    peers: Sequence[Peer], log: list[Logged], until: Callable[[], bool] | None = None, *, steps: int = 500
) -> list[Logged]:
    """Let peers read the log and write to it, one after another, until nobody has anything new to say."""
    written = set(log)
    for _ in range(steps):
        news = False
        for peer in peers:
            peer.follow(log)
            for payload in peer.wants():
                if (peer.name, payload) not in written:
                    written.add((peer.name, payload))
                    log.append((peer.name, payload))
                    news = True
                    if until is not None and until():
                        return log
        if not news:
            break
    for peer in peers:
        peer.follow(log)
    return log


def after(peers: Sequence[Peer], rounds: int) -> list[Logged]:
    """A log up to the entry that closes this round, or ends the run; all have read it."""
    log: list[Logged] = []
    reader = Peer(peers[0].study, peers[0].name)

    def reached() -> bool:
        reader.follow(log)
        return reader.replica.closed >= rounds

    run(peers, log, reached)
    for peer in peers:
        peer.follow(log)
    return log


def make(clients: int = 5, rounds: int = 4, tolerate: int = 1, **settings: Any) -> list[Peer]:
    study = make_study(clients, rounds, tolerate, **settings)
    return [Peer(study, name) for name in study.clients]


def kinds(peer: Peer) -> list[str]:
    return [one.kind for one in peer.happenings]


def asked_after(peers: Sequence[Peer], rounds: int, by: int = 0) -> list[Logged]:
    """A log up to the question that this peer asks after so many rounds; all have read it."""
    log = after(peers, rounds)
    log += say(peers[by])
    for peer in peers:
        peer.follow(log)
    return log


def close_votes(peers: Sequence[Peer]) -> list[Logged]:
    """Votes of these peers to close the open round."""
    return [(peer.name, peer.replica.close_vote(peer.name).pack(peer.key)) for peer in peers]


def say(peer: Peer) -> list[Logged]:
    """What it would write now, as entries of the log."""
    return [(peer.name, payload) for payload in peer.wants()]


def stands(peers: Sequence[Peer]) -> list[Logged]:
    """The new log of these peers after all have said where they stand, and read that."""
    log = [entry for peer in peers for entry in say(peer)]
    for peer in peers:
        peer.follow(log)
    return log


def checkpoints(peers: Sequence[Peer], log: Sequence[Logged]) -> list[Logged]:
    """What these peers sign then."""
    found = [entry for peer in peers for entry in say(peer) if entry not in log]
    assert [type(read(entry)) for entry in found] == [Checkpoint] * len(peers)
    return found


def answer_of(peer: Peer) -> Logged:
    payload = peer.answer()
    assert payload is not None
    return peer.name, payload


def read(entry: Logged) -> Any:
    return read_entry(entry[1], key_of(entry[0]).public.signer)


class TwoFaced(Peer):
    """A liar: signs in every log that it is shown."""

    def claim(self, claims: Claims, asks: str = "") -> bool:
        return True


def two_faces(peers: Sequence[Peer], name: str, log: list[Logged]) -> list[Peer]:
    """The same liar twice, once for each log."""
    faces: list[Peer] = [TwoFaced(peers[0].study, name) for _ in (0, 1)]
    for face in faces:
        face.ledger = copy.deepcopy(next(peer.ledger for peer in peers if peer.name == name))
        face.follow(log)
    return faces


def one_history(peers: Sequence[Peer]) -> bool:
    """Whether no two of these have committed different rounds."""
    chains = [peer.replica._history.chains[: peer.replica.committed + 1] for peer in peers]
    longest = max(chains, key=len)
    return all(longest[: len(one)] == one for one in chains)


def lie_twice(peers: Sequence[Peer]) -> tuple[Logged, Logged]:
    """Two answers of the last peer to the open round."""
    liar = peers[-1]
    assert liar.replica.asked is not None
    questions = liar.replica.asked.questions(liar.name)
    first = answer_of(liar)
    counts, link = liar.ledger.given[questions[0].round][1:]
    second = liar.signed(questions, [questions[0].length - counts[0] + (2 * counts[0] == questions[0].length)], link)
    assert first[1] != second
    return first, (liar.name, second)


def stored(clients: int = 4, rounds: int = 4, tolerate: int = 1) -> list[StoredPeer]:
    study = make_study(clients, rounds, tolerate)
    return [StoredPeer(study, name) for name in study.clients]


def keys_of(peer: Peer) -> dict[str, PublicKeys]:
    """The keys of the roster."""
    return {name: key_of(name).public for name in peer.study.clients}
