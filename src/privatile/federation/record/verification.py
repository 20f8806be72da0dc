"""Checking a release record: its signatures and, with the run's file, everything that follows from the counts.

A body may hold anything: it was written by somebody else. Only the form that `read_record` checks is relied on.
"""

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from privatile.core.extensions import of_study
from privatile.core.messages import Answer
from privatile.core.words import counted
from privatile.errors import InputError
from privatile.federation.coordinator.journal import Journal
from privatile.federation.record.checks import Checks
from privatile.federation.record.common_checks import (
    check_end,
    check_recomputed,
    check_study_and_signature,
    named_keys,
    part,
    run_of_record,
)
from privatile.federation.record.countersignature import (
    MOST_NAMED,
    Statement,
    body_digest,
    named_rounds,
    read_statement,
    statement_lines,
)
from privatile.federation.record.document import (
    canonical,
    ended,
    events,
    is_signed,
    spent,
)
from privatile.federation.record.silence import check_ledgers, check_silence, check_unspent, flag_ledger_gaps
from privatile.federation.record.transcript import Exchanges, exchanges
from privatile.federation.study.study import FederationStudy
from privatile.federation.wire.messages import AnswerMessage, Link, question_digest
from privatile.server.run_file import RunStore

Statements = dict[str, Statement]
"""What clients have signed about a record, by client."""


def verify_record(record: dict[str, Any], transcript: Path | None = None) -> Checks:
    """Check a record by itself and, given the run's file, recompute it from the counts alone."""
    checks = Checks()
    body = record["body"]
    extension = of_study(body.get("study"))
    try:
        study = FederationStudy.from_dict(body["study"])
        checks.add("the study is well formed", True)
    except (InputError, KeyError) as error:
        checks.add("the study is well formed", False, str(error))
        return checks
    if extension is not None:
        extension.verify(checks, record, study, transcript)
        return checks
    check_study_and_signature(checks, record, study, "coordinator")
    check_end(checks, body, study.spec, "coordinator")
    statements = check_countersignatures(checks, record, study)
    if transcript is None and body.get("finished") is not True:
        checks.flagged.append(
            "the run is unfinished, and the coordinator chose when to release it. Of its intervals only the anytime "
            "interval is valid at such a time; the others hold at the planned end"
        )
    with file_of_record(checks, body, study, transcript) as store:
        if store is not None:
            _check_run(checks, body, study, store, statements)
    checks.not_checked.append(
        "that the coordinator's key belongs to the people named: compare its fingerprint with them"
    )
    checks.not_checked += left_to_people(body, study)
    return checks


@contextlib.contextmanager
def file_of_record(
    checks: Checks, body: dict[str, Any], study: FederationStudy, transcript: Path | None
) -> Iterator[RunStore | None]:
    """The run's file of a federation's record; without one, or where it is not that, what cannot be checked is said."""
    if transcript is None:
        checks.not_checked += [
            "the estimate against the counts: give the run's file with --transcript",
            "the clients' signatures of questions and counts: they are in the run's file",
        ]
        yield None
        return
    with run_of_record(checks, body, study, study.spec.digest, transcript) as store:
        yield store


def _signers(body: dict[str, Any], client: str) -> set[str]:
    """The keys that may have signed a count."""
    keys = named_keys(body, client)
    return {one.signer for one in (*([keys.current] if keys.current else []), *keys.replaced)}


def left_to_people(body: dict[str, Any], study: FederationStudy) -> list[str]:
    """What no record of a federation shows: whose keys these are, and whether reports are randomized."""
    told = []
    for client in sorted(study.clients):
        keys = named_keys(body, client)
        if keys.current is not None:
            told.append(
                f"that key {keys.current.fingerprint} is that of client {client}: compare the fingerprint with them"
            )
        told += [
            f"that key {old.fingerprint} was that of client {client} before it was replaced: ask them"
            for old in keys.replaced
        ]
    return [*told, "that a client's reports are randomized as agreed: `privatile audit` measures that at the site"]


def check_countersignatures(checks: Checks, record: dict[str, Any], study: FederationStudy) -> Statements:
    """Only a client of the study may countersign, with the key it has now and a complete statement.

    Gives the statements of those that have.
    """
    body, signatures = record["body"], record["signatures"]["clients"]
    statements: Statements = {}
    strangers = sorted(set(part(body, "clients")) - set(study.clients))
    checks.add("it names keys of the study's clients only", not strangers, ", ".join(strangers))
    for client, entry in sorted(signatures.items()):
        why = _why_not_countersigned(body, study, client, entry if isinstance(entry, dict) else {})
        if checks.add(f"client {client} has countersigned it", not why, why):
            statements[client] = msgspec.convert(entry["statement"], Statement)
            checks.flagged += statement_lines(statements[client])
    missing = sorted(set(study.clients) - set(signatures))
    if missing:
        checks.not_checked.append(f"countersignatures of {', '.join(missing)}: they have not given any")
    return statements


def _why_not_countersigned(body: dict[str, Any], study: FederationStudy, client: str, entry: dict[str, Any]) -> str:
    """Why an entry is not a client's countersignature of this record; empty where it is."""
    if client not in study.clients:
        return "it is no client of the study"
    keys, signer, plain = named_keys(body, client), entry.get("signer"), entry.get("statement")
    if keys.current is None or signer != keys.current.signer:
        replaced = signer in [old.signer for old in keys.replaced]
        return "its key was replaced and may not countersign" if replaced else "its key is not the one the record names"
    statement = read_statement(plain)
    if statement is None:
        return "the statement is not complete, or of another format"
    if not is_signed(canonical(plain), signer, entry.get("signature")):
        return "the signature is not that of its key"
    if (statement.client, statement.record) != (client, body_digest(body)):
        return "the statement is about another record"
    return ""


def _check_run(
    checks: Checks, body: dict[str, Any], study: FederationStudy, store: RunStore, statements: Statements
) -> None:
    told = part(body, "transcript")
    exchanged = exchanges(store)
    _check_evidence(checks, body, study, exchanged, store)
    check_silence(checks, study, exchanged, statements)
    found = check_recomputed(checks, body, store)
    if found is None:
        return
    coordinator, results = found
    checks.flagged += [
        f"{caveat.text} The coordinator chose when to release it"
        for result in results
        for caveat in result.caveats
        if caveat.code == "unfinished"
    ]
    checks.add("what was spent is what the counts say", spent(study, store) == body.get("spent"))
    end = (store.finished is not None, coordinator.done, store.why_ended)
    said = (body.get("finished"), told.get("rounds"), body.get("ended_by"))
    checks.add("it ended as the record says, after as many rounds", end == said)
    if study.is_open:
        beyond = [name for name, one in study.clients.items() if coordinator.asked[name] > one.records]
        checks.add("no client was asked for more records than it agreed to", not beyond, ", ".join(beyond))
    why = _events_differ(body.get("events"), told.get("until"), coordinator.done, store)
    checks.add("the events are those of the run's file", not why, why)
    _flag_uncounted(checks, exchanged, statements, store)


def _events_differ(listed: object, until: object, done: int, store: RunStore) -> str:
    """Why these are not the events up to the release; what happened after it is in the file alone."""
    journal = Journal(store)
    if not isinstance(listed, list) or events(journal)[: len(listed)] != listed:
        return "they differ"
    if not isinstance(until, int | float) or not ended(store) <= until:
        return "the record does not say until when, or a time before its last round"
    left_out = [
        event
        for event in itertools.islice(journal.events(), len(listed), None)
        if event.at <= until or (event.round is not None and event.round <= done)
    ]
    return f"left out: {counted(len(left_out), 'event')} from before the release" if left_out else ""


def _flag_uncounted(checks: Checks, exchanged: Exchanges, statements: Statements, store: RunStore) -> None:
    """Say which answers of silent clients the coordinator's own file knows of, and which only their sites."""
    came: dict[str, dict[int, set[str]]] = {}
    for one in Journal(store).uncounted():
        if (one.round, one.client) in exchanged and exchanged[one.round, one.client].is_silent:
            came.setdefault(one.client, {}).setdefault(one.round, set()).add(one.outcome)
    for client, found in sorted(came.items()):
        outcomes = sorted({f"{outcome:.20}" for each in found.values() for outcome in each})
        checks.flagged.append(
            f"the coordinator's file says: not counted: {counted(len(found), 'answer')} of client "
            f"{client} that came ({named_rounds(sorted(found))}): {', '.join(outcomes[:MOST_NAMED])}"
        )
    for client, statement in sorted(statements.items()):
        unknown = [number for number in statement.not_counted if number not in came.get(client, ())]
        if unknown:
            checks.flagged.append(
                f"client {client} says that it answered {named_rounds(unknown)}, and the coordinator's file knows "
                "nothing of it: lost with a crash or on the way, or kept out of the file"
            )


def _check_evidence(
    checks: Checks, body: dict[str, Any], study: FederationStudy, exchanged: Exchanges, store: RunStore
) -> None:
    """Check every count against its client's signature, and every client's ledger against its own past."""
    evidence: dict[tuple[int, str], tuple[int, str, str, str]] = {
        (row[0], row[1]): row[2:]
        for row in store.query("SELECT round, client, sequence, hash, signer, signature FROM evidence")
    }
    counts = {key: exchange for key, exchange in exchanged.items() if not exchange.is_silent}
    unsigned = [key for key in counts if key not in evidence]
    checks.add("every count has its client's signature", not unsigned, f"without one: {len(unsigned):,}")
    checks.add("no signature is left over", set(evidence) <= set(counts))
    bad = 0
    signers = {client: _signers(body, client) for client in study.clients}
    for number, client in counts.keys() & evidence.keys():
        sequence, head, signer, signature = evidence[number, client]
        questions, counted, _ = counts[number, client]
        answers = [
            Answer(study.run, number, client, question.level, ones)
            for question, ones in zip(questions, counted, strict=True)
            if ones is not None
        ]
        asked = question_digest(study.digest, questions)
        lengths = [question.length for question in questions] if study.is_open else None
        signed = AnswerMessage.of(study.digest, asked, answers, Link(sequence, head), lengths).text()
        bad += not (signer in signers[client] and is_signed(signed, signer, signature))
    what = "its question, its counts and how many took part" if study.is_open else "its question and its counts"
    text = f"all {len(counts):,} signatures of clients hold, each for {what}"
    checks.add(text, not bad, f"broken: {bad:,}")
    links = {key: Link(row[0], row[1]) for key, row in evidence.items()}
    check_unspent(checks, exchanged, links)
    flag_ledger_gaps(checks, exchanged, links)
    for client in study.clients:
        used = {row[2] for (_, name), row in evidence.items() if name == client}
        current = named_keys(body, client).current
        if used and current is not None and current.signer not in used:
            checks.flagged.append(
                f"client {client}'s present key {current.fingerprint} has signed none of its counts: by the record it "
                "came after them. Compare the fingerprint with the client before you trust its countersignature"
            )
    listed = body["events"] if isinstance(body.get("events"), list) else []
    declared = [event[1:2] for event in listed if isinstance(event, list) and event[:1] == ["restored"]]
    restored = {client for client in study.clients if [client] in declared}
    check_ledgers(checks, study.clients, links, restored)
