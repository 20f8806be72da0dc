"""The release record of a federation's run: made, checked and countersigned with what its study and journal say.

The body of a record holds study, budgets, results, the digest of the transcript, public keys and events. The
coordinator signs it, and sites may countersign (`privatile.records`).
"""

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from privatile.client.ledger.ledger import Ledger
from privatile.core.extensions import of_study
from privatile.core.messages import Answer, Position
from privatile.core.text import counted
from privatile.errors import InputError, StoreError
from privatile.federation.coordinator.journal import Journal
from privatile.federation.setup.folder import Directory
from privatile.federation.study import FederationStudy, name_in_ledger
from privatile.federation.wire import RoundAnswers
from privatile.records import countersignature as signing
from privatile.records.countersignature import (
    ClientKeys,
    Countersignature,
    check_countersignatures,
    left_to_people,
    named_keys,
    named_rounds,
)
from privatile.records.keys import KeyPair
from privatile.records.record import (
    Evidence,
    Exchange,
    Exchanges,
    ended,
    evidence,
    exchanges,
    run_facts,
    spent,
    transcript_digest,
)
from privatile.records.signing import signed_record
from privatile.records.verification import (
    Checks,
    StudyRules,
    check_end,
    check_evidence,
    check_links,
    check_recomputed,
    check_signature,
    check_silence,
    check_study,
    named,
    part,
    run_of_record,
)
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore
from privatile.run.state import is_aborted

UNFINISHED = (
    "the run is unfinished, and the coordinator chose when to release it. Of its intervals only the anytime interval "
    "is valid at such a time; the others hold at the planned end"
)


def rules_of(study: FederationStudy) -> StudyRules:
    """What a record is checked against."""
    return StudyRules(
        study.digest,
        study.run,
        study.spec,
        "coordinator",
        tuple(study.clients),
        None if study.is_open else study.patience,
        study.quorum if study.extension is None and not study.is_open else None,
    )


def release(directory: Directory, *, unfinished: bool = False) -> dict[str, Any]:
    """The signed record of a folder's run."""
    with released_file(directory) as store:
        journal, coordinator = Journal(store), Coordinator(store)
        study = directory.study()
        if store.finished is None and not unfinished:
            rounds = f"{coordinator.done} of {coordinator.planned} rounds" if coordinator.planned else "it is open"
            state = "was aborted" if is_aborted(store) else "is not finished"
            raise InputError(
                f"the run {state}: {rounds}. To release it as it is, with that said in the record, use --unfinished."
            )
        if study.is_open and not coordinator.has_interval:
            raise InputError("the run has no interval yet, and so nothing to release: too few have answered.")
        key = directory.key()
        body = {
            **run_facts(study.digest, store, coordinator.results()),
            "study": study.to_dict(),
            "spent": spent(coordinator),
            "transcript": {
                "rounds": coordinator.done,
                "digest": transcript_digest(store),
                "until": max([ended(store), *(event.at for event in journal.events())]),
            },
            "coordinator": msgspec.to_builtins(key.public),
            "clients": _client_keys(study, store, directory),
            "events": _events(journal),
        }
        if study.is_open:
            body["ended_by"] = store.why_ended
    return signed_record(body, key)


@contextlib.contextmanager
def released_file(directory: Directory) -> Iterator[RunStore]:
    """The run's file of a folder, as it stands; refused where it is not a run of the folder's study."""
    if not directory.store_file.exists():
        raise StoreError(f"{directory.store_file}: the run has not begun; there is nothing to release.")
    with RunStore.frozen(directory.store_file) as store:
        if Journal(store).study_digest != directory.study().digest:
            raise StoreError(f"{directory.store_file} holds a run of another version of the study.")
        yield store


def _events(journal: Journal) -> list[list[Any]]:
    """What happened in the run, without times and texts."""
    return [[event.kind, event.client, event.round] for event in journal.events()]


def _client_keys(study: FederationStudy, store: RunStore, directory: Directory) -> dict[str, Any]:
    """The key that every client has now, and the older ones that signed its counts."""
    roster = directory.roster()
    used = set(store.query("SELECT DISTINCT client, signer FROM evidence"))
    found = {
        client: ClientKeys(
            roster.clients.get(client),
            [old.keys for old in roster.revoked if old.client == client and (client, old.keys.signer) in used],
        )
        for client in sorted(study.clients)
    }
    plain: dict[str, Any] = msgspec.to_builtins(found)
    return plain


def countersign(record: dict[str, Any], client: str, key: KeyPair, transcript: Path, ledger: Ledger) -> dict[str, Any]:
    """The record with a site's signed statement about it, from its own ledger.

    `transcript` is the run's file that the record names: check both with `verify_record` first.
    """
    study = FederationStudy.from_dict(record["body"]["study"])
    ledger.verify()  # what somebody has edited without the key is not what this site has answered
    with RunStore.frozen(transcript) as store:
        name = name_in_ledger(study.clients, client) if client in study.clients else client
        given, lost = ledger.answers(store.run, name), ledger.lost_through(store.run, name)
        return signing.countersign(record, rules_of(study), client, key, store, given, lost)


def verify_record(record: dict[str, Any], transcript: Path | None = None) -> Checks:
    """Check a record by itself and, given the run's file, recompute it from the counts alone."""
    checks, body = Checks(), record["body"]
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
    rules = rules_of(study)
    check_study(checks, body, rules)
    check_signature(checks, record, rules)
    check_end(checks, body, rules)
    statements = check_countersignatures(checks, record, rules.clients)
    if body.get("finished") is not True:
        checks.flagged.append(UNFINISHED)
    with run_of_record(checks, body, rules, transcript) as store:
        if store is not None:
            _check_run(checks, body, study, store, statements)
    checks.not_checked.append(
        "that the coordinator's key belongs to the people named: compare its fingerprint with them"
    )
    checks.not_checked += left_to_people(body, rules.clients)
    return checks


def _check_run(
    checks: Checks,
    body: dict[str, Any],
    study: FederationStudy,
    store: RunStore,
    statements: Mapping[str, Countersignature],
) -> None:
    told, exchanged = part(body, "transcript"), exchanges(store)
    _check_evidence(checks, body, study, exchanged, evidence(store))
    check_silence(checks, rules_of(study), exchanged, statements)
    found = check_recomputed(checks, body, store)
    if found is None:
        return
    coordinator = found.coordinator
    checks.add("what was spent is what the counts say", spent(coordinator) == body.get("spent"))
    end = (store.finished is not None, coordinator.done, store.why_ended)
    said = (body.get("finished"), told.get("rounds"), body.get("ended_by"))
    checks.add("it ended as the record says, after as many rounds", end == said)
    if study.is_open:
        beyond = [name for name, one in study.clients.items() if coordinator.asked[name] > one.records]
        checks.add("no client was asked for more records than it agreed to", not beyond, ", ".join(beyond))
    why = _events_differ(body.get("events"), told.get("until"), coordinator.done, store)
    checks.add("the events are those of the run's file", not why, why)
    _flag_uncounted(checks, exchanged, statements, store)


def _check_evidence(
    checks: Checks,
    body: dict[str, Any],
    study: FederationStudy,
    exchanged: Exchanges,
    found: Mapping[tuple[int, str], Evidence],
) -> None:
    """Check every count against its client's signature, and every client's ledger against its own past."""

    def text_of(client: str, exchange: Exchange, one: Evidence) -> bytes:
        position = Position(one.sequence, bytes.fromhex(one.hash))
        answers = [
            Answer(question, client, ones, position)
            for question, ones in zip(exchange.questions, exchange.ones, strict=True)
            if ones is not None
        ]
        return RoundAnswers.of(study.digest, answers).text()

    keys = {client: named_keys(body, client) for client in study.clients}
    check_evidence(checks, exchanged, found, {client: one.signers for client, one in keys.items()}, text_of)
    for client, one in keys.items():
        used = {row.signer for (_, name), row in found.items() if name == client}
        if used and one.current is not None and one.current.signer not in used:
            checks.flagged.append(
                f"client {client}'s present key {one.current.fingerprint} has signed none of its counts: by the record "
                "it came after them. Compare the fingerprint with the client before you trust its countersignature"
            )
    listed = body["events"] if isinstance(body.get("events"), list) else []
    declared = [event[1:2] for event in listed if isinstance(event, list) and event[:1] == ["restored"]]
    restored = [client for client in study.clients if [client] in declared]
    check_links(checks, exchanged, {key: one.sequence for key, one in found.items()}, restored)


def _events_differ(listed: object, until: object, done: int, store: RunStore) -> str:
    """Why these are not the events up to the release; what happened after it is in the file alone."""
    journal = Journal(store)
    if not isinstance(listed, list) or _events(journal)[: len(listed)] != listed:
        return "they differ"
    if not isinstance(until, int | float) or not ended(store) <= until:
        return "the record does not say until when, or a time before its last round"
    left_out = [
        event
        for event in itertools.islice(journal.events(), len(listed), None)
        if event.at <= until or (event.round is not None and event.round <= done)
    ]
    return f"left out: {counted(len(left_out), 'event')} from before the release" if left_out else ""


def _flag_uncounted(
    checks: Checks, exchanged: Exchanges, statements: Mapping[str, Countersignature], store: RunStore
) -> None:
    """Say which answers of silent clients the coordinator's own file knows of, and which only their sites."""
    known: dict[str, dict[int, set[str]]] = {}
    for one in Journal(store).uncounted():
        if (one.round, one.client) in exchanged and exchanged[one.round, one.client].is_silent:
            known.setdefault(one.client, {}).setdefault(one.round, set()).add(one.outcome)
    for client, found in sorted(known.items()):
        outcomes = sorted({f"{outcome:.20}" for each in found.values() for outcome in each})
        checks.flagged.append(
            f"the coordinator's file says: not counted: {counted(len(found), 'answer')} of client "
            f"{client} that came ({named_rounds(sorted(found))}): {named(outcomes)}"
        )
    for client, statement in sorted(statements.items()):
        unknown = [number for number in statement.not_counted if number not in known.get(client, ())]
        if unknown:
            checks.flagged.append(
                f"client {client} says that it answered {named_rounds(unknown)}, and the coordinator's file knows "
                "nothing of it: lost with a crash or on the way, or kept out of the file"
            )
