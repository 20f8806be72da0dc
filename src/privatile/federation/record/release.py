"""The release record: what is published, signed, and how anybody checks it from the counts alone.

    body         study, budgets, estimand, estimate, interval, method, caveats, transcript digest, public keys
    signatures   the coordinator's over the body; every site's that countersigned it

Each count in the transcript carries its client's own signature, so a coordinator cannot invent answers, and each
client's ledger link, so a client cannot have answered from two books.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privatile import __version__
from privatile.core.messages import Answer
from privatile.errors import InputError, PrivatileError, StoreError
from privatile.federation.coordinator.journal import Journal
from privatile.federation.record.comparison import compare, program
from privatile.federation.setup.directory import Directory
from privatile.federation.setup.files import replace_file
from privatile.federation.study.study import FederationStudy
from privatile.federation.wire.keys import KeyPair, PublicKeys, verify
from privatile.federation.wire.messages import AnswerMessage, Link
from privatile.result.result import QuantileResult
from privatile.server.coordinator import Coordinator
from privatile.server.store import RunStore

FORMAT = 1
SOFTWARE = f"privatile {__version__}"


class VerificationFailed(PrivatileError):
    """A record does not hold up."""


def canonical(body: object) -> bytes:
    """The bytes that are signed: JSON, keys sorted, no blanks."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()


def transcript_digest(store: RunStore, journal: Journal) -> str:
    """SHA-256 over every round: what was asked, every count, every signature."""
    digest = hashlib.sha256()
    for stored in store.all_rounds():
        asked = [stored.level_index, stored.round, stored.query, stored.lengths, stored.ones]
        digest.update(canonical(asked) + b"\n")
    for row in store.query(
        "SELECT round, client, sequence, hash, signer, signature FROM evidence ORDER BY round, client"
    ):
        digest.update(canonical(row) + b"\n")
    return digest.hexdigest()


def release(directory: Directory, *, unfinished: bool = False) -> dict[str, Any]:
    """The signed record of a folder's run."""
    if not directory.store_file.exists():
        raise StoreError(f"{directory.store_file}: the run has not begun; there is nothing to release.")
    store = RunStore.open(directory.store_file, read_only=True)
    try:
        journal, coordinator = Journal(store), Coordinator(store)
        study = directory.study()
        if journal.study[1] != study.digest:
            raise StoreError(f"{directory.store_file} holds a run of another version of the study.")
        if store.finished is None and not unfinished:
            raise InputError(
                f"the run is not finished: {coordinator.done} of {coordinator.planned} rounds. To release it as it "
                "stands, with that said in the record, use --unfinished."
            )
        key = directory.key()
        body = {
            "privatile_release": FORMAT,
            "software": SOFTWARE,
            "program": program(),
            "study": study.to_dict(),
            "study_hash": study.digest,
            "run": store.run,
            "finished": store.finished is not None,
            "results": [result.to_dict() for result in coordinator.results()],
            "spent": _spent(study, store),
            "transcript": {"rounds": coordinator.done, "digest": transcript_digest(store, journal)},
            "coordinator": key.public.to_dict(),
            "clients": _signers(store, directory),
            "events": _events(journal),
        }
    finally:
        store.close()
    signature = base64.b64encode(key.sign(canonical(body))).decode()
    return {"body": body, "signatures": {"coordinator": signature, "clients": {}}}


def _spent(study: FederationStudy, store: RunStore) -> dict[str, Any]:
    totals = store.client_totals()
    return {
        name: {
            "epsilon": agreement.mechanism.epsilon,
            "records": totals[name].answered,
            "silent_rounds": totals[name].silent,
        }
        for name, agreement in study.clients.items()
    }


def _signers(store: RunStore, directory: Directory) -> dict[str, list[str]]:
    """The keys that signed a client's counts, and the one it has now: a key that came last may still countersign."""
    found = {name: {keys.signer} for name, keys in directory.roster().clients.items()}
    for client, signer in store.query("SELECT DISTINCT client, signer FROM evidence"):
        found.setdefault(client, set()).add(signer)
    return {client: sorted(signers) for client, signers in sorted(found.items())}


def _events(journal: Journal) -> list[list[Any]]:
    return [[event.kind, event.client, event.round] for event in journal.events()]


def write_record(record: dict[str, Any], path: Path) -> None:
    """Write a record in one piece."""
    replace_file(path, json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_record(path: Path) -> dict[str, Any]:
    """Read a record; only its form is checked here."""
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except (OSError, ValueError, RecursionError):
        raise InputError(f"{path}: cannot be read as a release record.") from None
    good = (
        isinstance(record, dict)
        and set(record) == {"body", "signatures"}
        and isinstance(record["body"], dict)
        and record["body"].get("privatile_release") == FORMAT
        and isinstance(record["signatures"], dict)
        and isinstance(record["signatures"].get("clients"), dict)
    )
    if not good:
        raise InputError(f"{path}: is not a release record of this version of privatile.")
    return record


def countersign(record: dict[str, Any], client: str, key: KeyPair) -> dict[str, Any]:
    """A site's signature under the body, beside the coordinator's."""
    if client not in record["body"]["study"]["clients"]:
        raise InputError(f"the record's study has no client {client!r}.")
    signature = base64.b64encode(key.sign(canonical(record["body"]))).decode()
    signatures = record["signatures"]
    signed = {**signatures["clients"], client: {"signer": key.public.signer, "signature": signature}}
    return {"body": record["body"], "signatures": {**signatures, "clients": signed}}


@dataclass(frozen=True)
class Checked:
    """What was looked at, what held, what could not be looked at."""

    held: tuple[str, ...]
    failed: tuple[str, ...]
    not_checked: tuple[str, ...]

    def to_text(self) -> str:
        """One line a check."""
        lines = [f"holds        {text}" for text in self.held]
        lines += [f"FAILS        {text}" for text in self.failed]
        return "\n".join(lines + [f"not checked  {text}" for text in self.not_checked])


class _Checks:
    def __init__(self) -> None:
        self.held: list[str] = []
        self.failed: list[str] = []
        self.not_checked: list[str] = []

    def say(self, text: str, holds: bool, why: str = "") -> bool:
        (self.held if holds else self.failed).append(text if holds or not why else f"{text}: {why}")
        return holds


def verify_record(record: dict[str, Any], transcript: Path | None = None) -> Checked:
    """Check a record by itself and, given the run's file, recompute it from the counts alone."""
    checks = _Checks()
    body = record["body"]
    try:
        study = FederationStudy.from_dict(body["study"])
        checks.say("the study is well formed", True)
    except (InputError, KeyError) as error:
        checks.say("the study is well formed", False, str(error))
        return _done(checks)
    checks.say("the study's hash is that of the study", body.get("study_hash") == study.digest)
    checks.say("the run is the study's", body.get("run") == study.run)
    try:
        coordinator = PublicKeys.from_dict(body.get("coordinator"))
        signed = _verified(coordinator.signer, body, record["signatures"].get("coordinator"))
        checks.say(f"the coordinator has signed it (key {coordinator.fingerprint})", signed)
    except InputError as error:
        checks.say("the coordinator has signed it", False, str(error))
    _check_countersignatures(checks, record)
    if transcript is None:
        checks.not_checked += [
            "the estimate against the counts: give the run's file with --transcript",
            "the clients' signatures under their counts: they are in the run's file",
        ]
    else:
        _check_transcript(checks, body, study, transcript)
    checks.not_checked.append("that the keys belong to the people named: compare fingerprints with them")
    checks.not_checked.append(
        "that a client's reports are randomized as agreed: `privatile audit` measures that at the site"
    )
    return _done(checks)


def _part(body: dict[str, Any], key: str) -> dict[str, Any]:
    """A part of a body that may hold anything."""
    part = body.get(key)
    return part if isinstance(part, dict) else {}


def _keys(body: dict[str, Any], client: str) -> list[Any]:
    keys = _part(body, "clients").get(client)
    return keys if isinstance(keys, list) else []


def _done(checks: _Checks) -> Checked:
    return Checked(tuple(checks.held), tuple(checks.failed), tuple(checks.not_checked))


def _verified(signer: str, body: object, signature: object) -> bool:
    try:
        raw = base64.b64decode(str(signature), validate=True)
        return verify(signer, canonical(body), raw)
    except (binascii.Error, ValueError):
        return False


def _check_countersignatures(checks: _Checks, record: dict[str, Any]) -> None:
    signatures = record["signatures"]["clients"]
    for client, entry in sorted(signatures.items()):
        known = _keys(record["body"], client)
        named = isinstance(entry, dict) and entry.get("signer") in known
        good = named and _verified(entry["signer"], record["body"], entry.get("signature"))
        why = "the signature is not that of its key" if named else "its key is none of those the record names"
        checks.say(f"client {client} has countersigned it", good, why)
    missing = sorted(set(record["body"]["study"]["clients"]) - set(signatures))
    if missing:
        checks.not_checked.append(f"countersignatures of {', '.join(missing)}: they have not given any")


def _check_transcript(checks: _Checks, body: dict[str, Any], study: FederationStudy, path: Path) -> None:
    try:
        store = RunStore.open(path, read_only=True)
    except StoreError as error:
        checks.say("the run's file can be read", False, str(error))
        return
    try:
        journal = Journal(store)
        same = store.run == study.run and store.spec.digest == study.spec.digest
        if not checks.say("the run's file is of this study", same):
            return
        digest = transcript_digest(store, journal)
        checks.say("the run's file is the one the record names", digest == _part(body, "transcript").get("digest"))
        _check_evidence(checks, body, study, store)
        try:
            coordinator = Coordinator(store)
            results = coordinator.results()
        except PrivatileError as error:
            checks.say("the counts replay", False, str(error))
            return
        _check_results(checks, body, results)
        checks.say("what was spent is what the counts say", _spent(study, store) == body.get("spent"))
        ended = (store.finished is not None, coordinator.done)
        told = (body.get("finished"), _part(body, "transcript").get("rounds"))
        checks.say("it ended as the record says, after as many rounds", ended == told)
        # What happened after the release stands in the file alone.
        events, seen = body.get("events"), _events(journal)
        same = isinstance(events, list) and seen[: len(events)] == events
        checks.say("the events are those of the run's file", same)
    finally:
        store.close()


def _check_evidence(checks: _Checks, body: dict[str, Any], study: FederationStudy, store: RunStore) -> None:
    """Every count against its client's signature, every client's ledger against its own past."""
    evidence: dict[tuple[int, str], tuple[int, str, str, str]] = {
        (row[0], row[1]): row[2:]
        for row in store.query("SELECT round, client, sequence, hash, signer, signature FROM evidence")
    }
    counts: dict[tuple[int, str], list[tuple[float, int]]] = {}
    plans = [store.spec.plan(level_index) for level_index in range(len(store.spec.levels))]
    for stored in store.all_rounds():
        plan = plans[stored.level_index]
        for holder, ones in zip(plan.clients, stored.ones, strict=True):
            if ones is not None:
                asked = holder.level if plan.local_level == "own" else plan.level
                counts.setdefault((stored.round, holder.name), []).append((asked, ones))
    unsigned = [key for key in counts if key not in evidence]
    checks.say("every count has its client's signature", not unsigned, f"{len(unsigned)} have none")
    checks.say("no signature is left over", set(evidence) <= set(counts))
    bad = 0
    for (number, client), told in counts.items():
        if (number, client) not in evidence:
            continue
        sequence, head, signer, signature = evidence[number, client]
        answers = tuple(Answer(study.run, number, client, level, ones) for level, ones in told)
        signed = AnswerMessage.of(study.digest, answers, Link(sequence, head)).text()
        try:
            good = signer in _keys(body, client) and verify(signer, signed, base64.b64decode(signature, validate=True))
        except (binascii.Error, ValueError):
            good = False
        bad += not good
    checks.say(f"all {len(counts):,} signatures of clients hold", not bad, f"{bad} do not")
    events = body["events"] if isinstance(body.get("events"), list) else []
    declared = [event[1:2] for event in events if isinstance(event, list) and event[:1] == ["restored"]]
    restored = {client for client in study.clients if [client] in declared}
    broken = []
    for client in study.clients:
        line = [evidence[key][0] for key in sorted(evidence) if key[1] == client]
        if client not in restored and any(two <= one for one, two in itertools.pairwise(line)):
            broken.append(client)
    checks.say("every client's ledger only went forward", not broken, ", ".join(broken))
    if restored:
        checks.not_checked.append(f"the ledgers of {', '.join(sorted(restored))} across their declared restore")


def _named(software: object) -> str:
    if not isinstance(software, str) or not software.isprintable() or len(software) > 80:
        return "an unnamed program"
    return f"another build of {software}" if software == SOFTWARE else software


def _check_results(checks: _Checks, body: dict[str, Any], results: tuple[QuantileResult, ...]) -> None:
    maker = "" if body.get("program") == program() else _named(body.get("software"))
    # Before a study could have several levels, a record held the one result by itself.
    told = [body["result"]] if "result" in body and "results" not in body else body.get("results")
    if not isinstance(told, list) or len(told) != len(results) or not all(isinstance(one, dict) for one in told):
        checks.say("the record has one result a level", False)
        return
    for one, result in zip(told, results, strict=True):
        _check_result(checks, one, result, f" at level {result.level:g}" if len(results) > 1 else "", maker)


def _check_result(checks: _Checks, told: dict[str, Any], result: QuantileResult, where: str, maker: str) -> None:
    """`maker` names the other program that made the record; empty where it was this one."""
    mine = json.loads(canonical(result.to_dict()))
    found = compare(told, mine)
    why = f"this program's differs; check it with the one that made it, {maker}" if maker else ""
    checks.say(f"the estimate{where} is the one the counts give, to the last bit", found.estimate, why)
    checks.say(f"the interval{where} is the one the counts give", found.interval, why)
    checks.say(
        f"budgets, weights, levels and numbers of records{where} are those of the run",
        not found.settings,
        ", ".join(found.settings),
    )
    words = f"estimand, method, caveats and all else it says{where}"
    if not found.words or not maker:
        checks.say(f"{words} are those of the run", not found.words, ", ".join(found.words))
        return
    checks.not_checked.append(
        f"{words}: {maker} made the record, and this program words differently: {', '.join(found.words)}"
    )
    if "estimand" in found.words:
        checks.not_checked.append(f"the estimand{where}; this program calls it: {mine['estimand']}")
    checks.not_checked += [
        f"a caveat{where} that the record lacks and this program adds: {one}" for one in found.untold
    ]
