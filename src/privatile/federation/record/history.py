"""The history of a run without a coordinator, replayed from its file: chain values, signatures, keys.

Everything that a chain value is made of is in the run's file: questions, counts, the evidence of every answer, and the
votes and restored ledgers that took effect in a round. So each answer's bytes can be written down again, with the chain
value that its client has signed; a file in which anything was altered, left out or put in gives other chain values from
there on, and no signature after it holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from privatile.core.messages import Answer
from privatile.errors import ProtocolError
from privatile.federation.record.document import ClientKeys, is_signed
from privatile.federation.record.transcript import Exchange, exchanges
from privatile.federation.replica.chain import end_chain, first_chain, next_chain, payload_digest
from privatile.federation.replica.entries import Final, LevelAsk, PeerAnswer, Restored, Vote, read_entry
from privatile.federation.study.study import FederationStudy
from privatile.federation.wire.keys import PublicKeys
from privatile.federation.wire.messages import AnswerMessage, Link, question_digest
from privatile.server.run_file import RunStore, StoredRound

Evidence = dict[tuple[int, str], tuple[int, str, str, str]]
"""Entry, hash, signer and signature of every counted answer, by round and client."""


@dataclass
class Decided:
    """What votes have decided up to a place in the history."""

    quorum: int
    keys: dict[str, PublicKeys]
    replaced: dict[str, list[PublicKeys]] = field(default_factory=dict)
    restored: set[str] = field(default_factory=set)
    decisions: list[list[object]] = field(default_factory=list)
    """Round, action and client of each, in order."""
    aborted: bool = False
    _votes: dict[str, set[str]] = field(default_factory=dict)

    def take(self, number: int, sender: str, payload: str) -> bool:
        """Apply a vote or a restored ledger of a round; whether it is one that its sender has signed."""
        try:
            entry = read_entry(payload.encode(), self.keys[sender].signer)
        except (ProtocolError, KeyError):
            return False
        if not isinstance(entry, Vote | Restored) or entry.sender != sender:
            return False
        if isinstance(entry, Restored):
            self.restored.add(sender)
            return True
        decision = entry.decision
        voters = self._votes.setdefault(decision.digest, set())
        voters.add(sender)
        if len(voters) < self.quorum:
            return True
        self.decisions.append([number, decision.action, decision.client])
        del self._votes[decision.digest]
        present = self.keys.get(decision.client or "")
        if decision.action == "key" and decision.client and present and decision.keys is not None:
            if present.signer != decision.before:  # an older decision, shown again
                return False
            self.replaced.setdefault(decision.client, []).append(present)
            self.keys[decision.client] = decision.keys
        self.aborted = self.aborted or decision.action == "abort"
        return True

    def client_keys(self, evidence: Evidence) -> dict[str, ClientKeys]:
        """The key that every client has in the end, and the older ones that signed its counts."""
        used = {(client, row[2]) for (_, client), row in evidence.items()}
        return {
            client: ClientKeys(keys, [old for old in self.replaced.get(client, ()) if (client, old.signer) in used])
            for client, keys in sorted(self.keys.items())
        }


@dataclass
class History:
    """A run's file as its chain values tell it."""

    chain: str
    """After the last round."""
    rounds: int
    decided: Decided
    evidence: Evidence
    unsigned: int = 0
    """Answers whose signature does not hold for this question, these counts and this history."""
    short: list[int] = field(default_factory=list)
    """Rounds with fewer answers than the quorum."""
    foreign: int = 0
    """Votes and restored ledgers that their senders have not signed, or that belong to no round."""
    finals: list[str] = field(default_factory=list)
    """Who has signed the end of this history."""


def recorded_answer(study: FederationStudy, number: int, client: str, exchange: Exchange, link: Link) -> AnswerMessage:
    """A client's answer as the file tells it."""
    answers = [
        Answer(study.run, number, client, question.level, ones)
        for question, ones in zip(exchange.questions, exchange.ones, strict=True)
        if ones is not None
    ]
    return AnswerMessage.of(study.digest, question_digest(study.digest, exchange.questions), answers, link)


def read_evidence(store: RunStore) -> Evidence:
    """The evidence of every counted answer."""
    rows = store.query("SELECT round, client, sequence, hash, signer, signature FROM evidence")
    return {(row[0], row[1]): row[2:] for row in rows}


def replay_history(study: FederationStudy, keys: Mapping[str, PublicKeys], roster: str, store: RunStore) -> History:
    """Compute every chain value again and check every signature over it; `roster` is the roster's digest."""
    evidence, exchanged = read_evidence(store), exchanges(store)
    rounds: dict[int, list[StoredRound]] = {}
    for stored in store.all_rounds():
        rounds.setdefault(stored.round, []).append(stored)
    notes: dict[int, list[tuple[str, str]]] = {}
    for number, sender, payload in store.query("SELECT round, sender, payload FROM peer_notes ORDER BY round, place"):
        notes.setdefault(number, []).append((sender, payload))
    start = first_chain(study.digest, study.run, roster)
    found = History(start, len(rounds), Decided(study.signing_quorum, dict(keys)), evidence)
    found.foreign = sum(len(some) for number, some in notes.items() if number not in rounds)
    for number in sorted(rounds):
        signers = {client: {one.signer} for client, one in found.decided.keys.items()}
        own = notes.get(number, [])
        found.foreign += sum(not found.decided.take(number, *note) for note in own)
        for client, one in found.decided.keys.items():
            signers[client].add(one.signer)
        answers: dict[str, str | None] = dict.fromkeys(study.clients)
        for client in study.clients:
            row, exchange = evidence.get((number, client)), exchanged[number, client]
            if row is None or exchange.is_silent:
                continue
            message = recorded_answer(study, number, client, exchange, Link(*row[:2]))
            signed = PeerAnswer.after(found.chain, message).text()
            found.unsigned += not (row[2] in signers[client] and is_signed(signed, *row[2:]))
            answers[client] = payload_digest(signed + b"\n" + row[3].encode())
        if sum(digest is not None for digest in answers.values()) < study.signing_quorum:
            found.short.append(number)
        levels = sorted(rounds[number], key=lambda stored: stored.level_index)
        found.chain = next_chain(
            found.chain,
            number,
            [LevelAsk.of(stored.level_index, stored.ask) for stored in levels],
            answers,
            [sorted(stored.unspent) for stored in levels],
            [(sender, payload_digest(payload.encode())) for sender, payload in own],
        )
    found.finals = _finals(study, found, store)
    return found


def _finals(study: FederationStudy, found: History, store: RunStore) -> list[str]:
    """Who has signed that the run is over after this history."""
    end = Final(study.digest, study.run, "", found.rounds, end_chain(found.chain, found.rounds))
    signed = []
    for client, payload in store.query("SELECT client, payload FROM peer_proof ORDER BY client"):
        try:
            entry = read_entry(payload.encode(), found.decided.keys[client].signer)
        except (ProtocolError, KeyError):
            continue
        if isinstance(entry, Final) and (entry.sender, entry.rounds, entry.chain) == (client, end.rounds, end.chain):
            signed.append(client)
    return signed
