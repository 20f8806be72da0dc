"""The history of a run without a coordinator, followed from its file as every peer follows it from the log.

Everything that a chain value is made of is in the run's file: questions, counts, the evidence of every answer, and the
votes and restored ledgers that took effect in a round. So each round can be written down again as it was closed and is
followed by the same code as in the run (`replica.history`): question, signatures over everything before, quorum and
patience. A file in which anything was altered, left out or put in gives another chain value there, and no signature
after it holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from privatile.core.messages import Answer
from privatile.errors import PrivatileError, ProtocolError
from privatile.federation.record.document import ClientKeys
from privatile.federation.record.transcript import Exchange, Exchanges
from privatile.federation.replica.chain import end_chain, first_chain
from privatile.federation.replica.entries import Checkpoint, ClosedRound, Final, LevelAsk, Note, PeerAnswer, read_entry
from privatile.federation.replica.history import History
from privatile.federation.study.study import FederationStudy
from privatile.federation.wire.keys import PublicKeys
from privatile.federation.wire.messages import AnswerMessage, Link, question_digest
from privatile.server.run_file import RunStore, StoredRound

Evidence = dict[tuple[int, str], tuple[int, str, str, str]]
"""Entry, hash, signer and signature of every counted answer, by round and client."""


@dataclass
class Followed:
    """A run's file as far as its rounds follow one another."""

    history: History
    evidence: Evidence
    broken: str = ""
    """Which round does not follow, and why; empty where all do."""
    replaced: dict[str, list[PublicKeys]] = field(default_factory=dict)
    """Keys that votes have replaced, by client."""
    decisions: list[list[object]] = field(default_factory=list)
    """Round, action and client of what was decided, in order."""
    finals: list[str] = field(default_factory=list)
    """Who has signed the end of this history."""

    @property
    def client_keys(self) -> dict[str, ClientKeys]:
        """The key that every client has in the end, and the older ones that signed its counts."""
        used = {(client, row[2]) for (_, client), row in self.evidence.items()}
        return {
            client: ClientKeys(keys, [old for old in self.replaced.get(client, ()) if (client, old.signer) in used])
            for client, keys in sorted(self.history.tally.keys.items())
        }


def follow_file(
    study: FederationStudy, keys: Mapping[str, PublicKeys], roster: str, store: RunStore, exchanged: Exchanges
) -> Followed:
    """Follow every round of a run's file; `keys` and `roster`, its digest, are those before the first round."""
    rows = store.query("SELECT round, client, sequence, hash, signer, signature FROM evidence")
    evidence: Evidence = {(row[0], row[1]): row[2:] for row in rows}
    history = History(study, keys, first_chain(study.digest, study.run, roster))
    found = Followed(history, evidence)
    rounds: dict[int, list[StoredRound]] = {}
    for stored in store.all_rounds():
        rounds.setdefault(stored.round, []).append(stored)
    notes: dict[int, list[Note]] = {}
    for number, sender, payload in store.query("SELECT round, sender, payload FROM peer_notes ORDER BY round, place"):
        notes.setdefault(number, []).append(Note(sender, payload))
    if over := notes.keys() - rounds.keys():
        found.broken = f"votes or restored ledgers of round {min(over):,}, which is not there"
    for number in sorted(rounds):
        levels = sorted(rounds[number], key=lambda stored: stored.level_index)
        closed = ClosedRound(
            history.chain,
            number,
            tuple(LevelAsk.of(stored.level_index, stored.ask) for stored in levels),
            tuple(_payload(study, history.chain, number, name, evidence, exchanged) for name in study.clients),
            tuple(tuple(stored.unspent) for stored in levels),
            tuple(notes.get(number, ())),
        )
        before, readmitted = dict(history.tally.keys), set(history.tally.readmitted)
        try:
            record = history.follow(closed)
        except PrivatileError as error:
            found.broken = found.broken or f"round {number:,}: {error}"
            break
        signers = {client: evidence[number, client][2] for client in record.accepted}
        same = [_counted(one) for one in record.stored] == [_counted(one) for one in levels]
        if not same or signers != {client: one.signer for client, one in record.accepted.items()}:
            found.broken = found.broken or f"round {number:,}: its counts are not those that were signed"
            break
        _note_decisions(found, number, before, readmitted)
    found.finals = _finals(study, history, store)
    return found


def _counted(stored: StoredRound) -> tuple[object, ...]:
    return stored.level_index, stored.ask, tuple(stored.ones), tuple(stored.unspent)


def _payload(
    study: FederationStudy, chain: str, number: int, client: str, evidence: Evidence, exchanged: Exchanges
) -> str | None:
    """A client's signed answer as the file tells it, after the history with this chain value; None of a silent one."""
    row, exchange = evidence.get((number, client)), exchanged[number, client]
    if row is None or exchange.is_silent:
        return None
    signed = PeerAnswer.after(chain, _recorded_answer(study, number, client, exchange, Link(*row[:2]))).text()
    return f"{signed.decode()}\n{row[3]}"


def _recorded_answer(study: FederationStudy, number: int, client: str, exchange: Exchange, link: Link) -> AnswerMessage:
    answers = [
        Answer(study.run, number, client, question.level, ones)
        for question, ones in zip(exchange.questions, exchange.ones, strict=True)
        if ones is not None
    ]
    return AnswerMessage.of(study.digest, question_digest(study.digest, exchange.questions), answers, link)


def _note_decisions(
    found: Followed, number: int, before: Mapping[str, PublicKeys], readmitted: set[tuple[str, int]]
) -> None:
    """Add what was decided in a round to what was found."""
    tally = found.history.tally
    for client, keys in before.items():
        if tally.keys[client] != keys:
            found.replaced.setdefault(client, []).append(keys)
            found.decisions.append([number, "key", client])
    found.decisions += [[number, "readmit", client] for client, _ in sorted(tally.readmitted - readmitted)]


def _finals(study: FederationStudy, history: History, store: RunStore) -> list[str]:
    """Who has signed that the run is over after this history: with a final, or in a new log with a checkpoint."""
    finals = Final(study.digest, study.run, "", history.closed, end_chain(history.chain, history.closed))
    signed = []
    for client, payload in store.query("SELECT client, payload FROM peer_proof ORDER BY client"):
        keys = history.tally.keys.get(client)
        try:
            entry = None if keys is None else read_entry(payload.encode(), keys.signer)
        except ProtocolError:
            continue
        if isinstance(entry, Checkpoint) and entry.ended and entry.chain == history.chain:
            entry = msgspec.structs.replace(finals, sender=entry.sender, study=entry.study, rounds=entry.round)
        if isinstance(entry, Final) and entry == msgspec.structs.replace(finals, sender=client):
            signed.append(client)
    return signed
