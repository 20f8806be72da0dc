"""What a record says of a run, from the run's file alone: results, what was spent, the digest of the transcript.

The transcript is what the run's file says was asked of every client, and answered. Each count in a federation's file
carries its client's own signature, so a coordinator cannot invent answers; the signature holds for the question too, so
it cannot record another question than it asked; and for the ledger's link, so a client cannot answer from two ledgers.

A result is recorded as numbers and codes: every one of them is computed again by whoever checks the record. Wording is
not in it.
"""

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple

from privatile.core.messages import Question
from privatile.records.signing import FORMAT, SOFTWARE, canonical
from privatile.result.result import QuantileResult
from privatile.run.coordinator import Coordinator, stored_questions
from privatile.run.run_file import RunStore
from privatile.run.tables import program

WORDING = {"sentence", "estimand", "contradiction", "explanation"}
"""Facts of a result that are texts. What is estimated is recorded by its fields: level, target, weights, column."""

EVIDENCE = "SELECT round, client, sequence, hash, signer, signature FROM evidence ORDER BY round, client"


class Exchange(NamedTuple):
    """What one client was asked in one round, per level as it was sent, and its counts."""

    questions: tuple[Question, ...]
    ones: tuple[int | None, ...]
    unspent: bool = False
    """Whether records of rounds that the client had missed before were counted as not asked."""

    @property
    def is_silent(self) -> bool:
        """Whether no count of this client entered the round."""
        return all(count is None for count in self.ones)


Exchanges = dict[tuple[int, str], Exchange]
"""Exchanges by round and client."""


class Evidence(NamedTuple):
    """What a client has signed with its counts of one round: where its ledger stood, by which key."""

    sequence: int
    hash: str
    signer: str
    signature: str


def exchanges(store: RunStore) -> Exchanges:
    """All exchanges, by round and client."""
    names = [client.name for client in store.spec.clients]
    found: Exchanges = {}
    for stored, questions in stored_questions(store):
        for k, (name, question, ones) in enumerate(zip(names, questions, stored.ones, strict=True)):
            before = found.get((stored.round, name), Exchange((), ()))
            unspent = before.unspent or k in stored.unspent
            found[stored.round, name] = Exchange((*before.questions, question), (*before.ones, ones), unspent)
    return found


def evidence(store: RunStore) -> dict[tuple[int, str], Evidence]:
    """The signature of every counted answer, by round and client."""
    return {(number, client): Evidence(*rest) for number, client, *rest in store.query(EVIDENCE)}


def transcript_digest(store: RunStore) -> str:
    """SHA-256 over every round: what was asked, every count, every signature."""
    digest = hashlib.sha256()
    for stored in store.all_rounds():
        digest.update(canonical([stored.level_index, stored.round, stored.ask, stored.ones, stored.unspent]) + b"\n")
    for row in store.query(EVIDENCE):
        digest.update(canonical(row) + b"\n")
    return digest.hexdigest()


def recorded_facts(result: QuantileResult) -> dict[str, Any]:
    """The numbers and codes of a result."""
    facts = {key: value for key, value in result.facts().items() if key not in WORDING}
    facts["caveats"] = [caveat.code for caveat in result.caveats]
    facts["contradicted"] = bool(result.contradiction)
    facts["condition"], facts["anytime_condition"] = result.condition, result.anytime_condition
    if (other := result.other) is not None:
        low, high = other.interval
        facts["other_interval"] = {"low": low, "high": high, "method": other.method, "condition": other.condition}
    if facts.get("series"):
        facts["series"] = [{key: week[key] for key in week if key != "condition"} for week in facts["series"]]
    return facts


def run_facts(study_digest: str, store: RunStore, results: Iterable[QuantileResult]) -> dict[str, Any]:
    """What every record says of its run."""
    return {
        "privatile_release": FORMAT,
        "software": SOFTWARE,
        "program": program(),
        "study_hash": study_digest,
        "run": store.run,
        "finished": store.finished is not None,
        "results": [recorded_facts(result) for result in results],
    }


def spent(coordinator: Coordinator) -> dict[str, Any]:
    """What every client has spent, by the counts."""
    totals = coordinator.clients
    return {
        client.name: {
            "epsilon": client.mechanism.epsilon,
            "records": totals[client.name].answered,
            "silent_rounds": totals[client.name].silent,
        }
        for client in coordinator.spec.clients
    }


def ended(store: RunStore) -> float:
    """When the last round was written, or the run was finished: no record of all its rounds is from before."""
    ((last,),) = store.query("SELECT max(at) FROM rounds")
    return max(store.created, store.finished or 0.0, last or 0.0)
