"""Checking a release record: its signatures and, with the run's file, everything that follows from the counts.

A body may hold anything: it was written by somebody else. Only the form that `read_record` checks is relied on.
"""

import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from privatile.core.messages import Answer
from privatile.core.words import printable
from privatile.errors import InputError, PrivatileError, StoreError
from privatile.federation.coordinator.journal import Journal
from privatile.federation.record.comparison import SAME, differences, same_figures
from privatile.federation.record.countersignature import body_digest, told_by
from privatile.federation.record.document import SOFTWARE, canonical, events, is_signed, spent, transcript_digest
from privatile.federation.record.transcript import exchanges
from privatile.federation.study.study import FederationStudy
from privatile.federation.wire.keys import PublicKeys
from privatile.federation.wire.messages import AnswerMessage, Link, question_digest
from privatile.result.result import QuantileResult
from privatile.server.coordinator import Coordinator
from privatile.server.program import program
from privatile.server.run_file import RunStore


class VerificationFailed(PrivatileError):
    """A check of a record failed."""


@dataclass
class Checks:
    """What was checked and holds, what fails, what a site wants readers to know, and what could not be checked."""

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    flagged: list[str] = field(default_factory=list)
    """Holds, and yet says something that may have changed the result."""
    not_checked: list[str] = field(default_factory=list)

    def add(self, text: str, holds: bool, why: str = "") -> bool:
        """Note a check; `why` is added where it fails."""
        (self.passed if holds else self.failed).append(text if holds or not why else f"{text}: {why}")
        return holds

    def to_text(self) -> str:
        """One line per check."""
        kinds = {"holds": self.passed, "FAILS": self.failed, "FLAGGED": self.flagged, "not checked": self.not_checked}
        # A hostile record may be quoted in a text: nothing of it reaches the terminal but what can be printed.
        return "\n".join(f"{kind:<11}  {printable(text)}" for kind, texts in kinds.items() for text in texts)


def verify_record(record: dict[str, Any], transcript: Path | None = None) -> Checks:
    """Check a record by itself and, given the run's file, recompute it from the counts alone."""
    checks = Checks()
    body = record["body"]
    try:
        study = FederationStudy.from_dict(body["study"])
        checks.add("the study is well formed", True)
    except (InputError, KeyError) as error:
        checks.add("the study is well formed", False, str(error))
        return checks
    checks.add("the study's hash is that of the study", body.get("study_hash") == study.digest)
    checks.add("the run is the study's", body.get("run") == study.run)
    try:
        coordinator = msgspec.convert(body.get("coordinator"), PublicKeys)
        signed = is_signed(canonical(body), coordinator.signer, record["signatures"].get("coordinator"))
        checks.add(f"the coordinator has signed it (key {coordinator.fingerprint})", signed)
    except (InputError, msgspec.ValidationError) as error:
        checks.add("the coordinator has signed it", False, str(error))
    _check_countersignatures(checks, record)
    if transcript is None:
        checks.not_checked += [
            "the estimate against the counts: give the run's file with --transcript",
            "the clients' signatures of questions and counts: they are in the run's file",
        ]
    else:
        _check_transcript(checks, body, study, transcript)
    checks.not_checked += [
        "that the coordinator's key belongs to the people named: compare its fingerprint with them",
        *_fingerprints(body),
        "that a client's reports are randomized as agreed: `privatile audit` measures that at the site",
    ]
    return checks


def _part(body: dict[str, Any], key: str) -> dict[str, Any]:
    part = body.get(key)
    return part if isinstance(part, dict) else {}


def _keys(body: dict[str, Any], client: str) -> list[PublicKeys]:
    """The keys that the record names for a client."""
    try:
        return msgspec.convert(_part(body, "clients").get(client, []), list[PublicKeys])
    except (InputError, msgspec.ValidationError):
        return []


def _signers(body: dict[str, Any], client: str) -> set[str]:
    return {keys.signer for keys in _keys(body, client)}


def _fingerprints(body: dict[str, Any]) -> list[str]:
    return [
        f"that key {keys.fingerprint} is that of client {client}: compare the fingerprint with them"
        for client in sorted(_part(body, "clients"))
        for keys in _keys(body, client)
    ]


def _check_countersignatures(checks: Checks, record: dict[str, Any]) -> None:
    body, signatures = record["body"], record["signatures"]["clients"]
    for client, entry in sorted(signatures.items()):
        statement, signer = (entry.get("statement"), entry.get("signer")) if isinstance(entry, dict) else (None, None)
        known = isinstance(signer, str) and signer in _signers(body, client)
        if not (known and isinstance(statement, dict)):
            checks.add(f"client {client} has countersigned it", False, "its key is none of those the record names")
            continue
        signed = is_signed(canonical(statement), signer, entry.get("signature"))
        of_this = (statement.get("client"), statement.get("record")) == (client, body_digest(body))
        why = "the statement is about another record" if signed else "the signature is not that of its key"
        if checks.add(f"client {client} has countersigned it", signed and of_this, why):
            checks.flagged += told_by(client, statement)
    missing = sorted(set(body["study"]["clients"]) - set(signatures))
    if missing:
        checks.not_checked.append(f"countersignatures of {', '.join(missing)}: they have not given any")


def _check_transcript(checks: Checks, body: dict[str, Any], study: FederationStudy, path: Path) -> None:
    try:
        store = RunStore.open(path, read_only=True)
    except StoreError as error:
        checks.add("the run's file can be read", False, str(error))
        return
    with store:
        same = store.run == study.run and store.spec.digest == study.spec.digest
        if not checks.add("the run's file is of this study", same):
            return
        told = _part(body, "transcript")
        checks.add("the run's file is the one the record names", transcript_digest(store) == told.get("digest"))
        _check_evidence(checks, body, study, store)
        try:
            coordinator = Coordinator(store)
            results = coordinator.results()
        except PrivatileError as error:
            checks.add("the counts replay", False, str(error))
            return
        _check_results(checks, body, results)
        checks.add("what was spent is what the counts say", spent(study, store) == body.get("spent"))
        end = (store.finished is not None, coordinator.done)
        checks.add(
            "it ended as the record says, after as many rounds", end == (body.get("finished"), told.get("rounds"))
        )
        # What happened after the release is in the file alone.
        listed, found = body.get("events"), events(Journal(store))
        same = isinstance(listed, list) and found[: len(listed)] == listed
        checks.add("the events are those of the run's file", same)


def _check_evidence(checks: Checks, body: dict[str, Any], study: FederationStudy, store: RunStore) -> None:
    """Check every count against its client's signature, and every client's ledger against its own past."""
    evidence: dict[tuple[int, str], tuple[int, str, str, str]] = {
        (row[0], row[1]): row[2:]
        for row in store.query("SELECT round, client, sequence, hash, signer, signature FROM evidence")
    }
    counts = {key: exchange for key, exchange in exchanges(store).items() if not exchange.is_silent}
    unsigned = [key for key in counts if key not in evidence]
    checks.add("every count has its client's signature", not unsigned, f"{len(unsigned)} have none")
    checks.add("no signature is left over", set(evidence) <= set(counts))
    bad = 0
    signers = {client: _signers(body, client) for client in study.clients}
    for number, client in counts.keys() & evidence.keys():
        sequence, head, signer, signature = evidence[number, client]
        questions, counted = counts[number, client]
        answers = [
            Answer(study.run, number, client, question.level, ones)
            for question, ones in zip(questions, counted, strict=True)
            if ones is not None
        ]
        asked = question_digest(study.digest, questions)
        signed = AnswerMessage.of(study.digest, asked, answers, Link(sequence, head)).text()
        bad += not (signer in signers[client] and is_signed(signed, signer, signature))
    text = f"all {len(counts):,} signatures of clients hold, each for its question and its counts"
    checks.add(text, not bad, f"{bad} do not")
    listed = body["events"] if isinstance(body.get("events"), list) else []
    declared = [event[1:2] for event in listed if isinstance(event, list) and event[:1] == ["restored"]]
    restored = {client for client in study.clients if [client] in declared}
    broken = []
    for client in study.clients:
        sequences = [evidence[key][0] for key in sorted(evidence) if key[1] == client]
        if client not in restored and any(later <= earlier for earlier, later in itertools.pairwise(sequences)):
            broken.append(client)
    checks.add("every client's ledger only went forward", not broken, ", ".join(broken))
    if restored:
        checks.not_checked.append(f"the ledgers of {', '.join(sorted(restored))} across their declared restore")


def _check_results(checks: Checks, body: dict[str, Any], results: tuple[QuantileResult, ...]) -> None:
    maker = "" if body.get("program") == program() else _named(body.get("software"))
    # Before a study could have several levels, a record held the one result by itself.
    told = [body["result"]] if "result" in body and "results" not in body else body.get("results")
    if not isinstance(told, list) or len(told) != len(results) or not all(isinstance(one, dict) for one in told):
        checks.add("the record has one result per level", False)
        return
    for one, result in zip(told, results, strict=True):
        _check_result(checks, one, result, f" at level {result.level:g}" if len(results) > 1 else "", maker)


def _named(software: object) -> str:
    if not isinstance(software, str) or not software.isprintable() or len(software) > 80:
        return "an unnamed program"
    return f"another build of {software}" if software == SOFTWARE else software


def _check_result(checks: Checks, told: dict[str, Any], result: QuantileResult, where: str, maker: str) -> None:
    """`maker` names the other program that made the record; empty where it was this one."""
    mine = json.loads(canonical(result.to_dict()))
    settings, words = differences(told, mine)
    why = f"this program's differs; check it with the one that made it, {maker}" if maker else ""
    estimate, interval = told.get("estimate"), told.get("confidence_interval")
    # Another machine rounds otherwise; where nothing is known about the error, the range is the measure.
    inference, scale = result.inference, result.scale
    error = min(inference.error_scale * scale.slope(inference.center), scale.high - scale.low)
    given = f"the one the counts give, within {SAME:g} standard errors"
    checks.add(f"the estimate{where} is {given}", same_figures(estimate, mine["estimate"], error), why)
    checks.add(f"the interval{where} is {given}", same_figures(interval, mine["confidence_interval"], error), why)
    fixed = f"budgets, weights, levels and numbers of records{where} are those of the run"
    checks.add(fixed, not settings, ", ".join(settings))
    said = f"estimand, method, caveats and all else it says{where}"
    if not words or not maker:
        checks.add(f"{said} are those of the run", not words, ", ".join(words))
        return
    checks.not_checked.append(
        f"{said}: {maker} made the record, and this program words differently: {', '.join(words)}"
    )
    if "estimand" in words:
        checks.not_checked.append(f"the estimand{where}; this program calls it: {mine['estimand']}")
    caveats = told["caveats"] if isinstance(told.get("caveats"), list) else []
    known = [caveat.get("code") for caveat in caveats if isinstance(caveat, dict)]
    checks.not_checked += [
        f"a caveat{where} that the record lacks and this program adds: {caveat['text']}"
        for caveat in mine["caveats"]
        if caveat["code"] not in known
    ]
