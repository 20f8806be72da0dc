"""The release record of a run: how it is made, its bytes, its signatures."""

import base64
import binascii
import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from privatile import __version__
from privatile.core.words import short
from privatile.errors import InputError, StoreError
from privatile.federation.coordinator.journal import Journal
from privatile.federation.record.comparison import recorded_facts
from privatile.federation.setup.directory import Directory
from privatile.federation.setup.files import read_json, replace_file
from privatile.federation.study.study import FederationStudy
from privatile.federation.wire.keys import KeyPair, PublicKeys, verify
from privatile.result.result import QuantileResult
from privatile.server.alarms import is_aborted
from privatile.server.coordinator import Coordinator, has_interval
from privatile.server.program import program
from privatile.server.run_file import RunStore

FORMAT = 3
"""3: two intervals, and what is declared about the values."""

SOFTWARE = f"privatile {__version__}"


def canonical(body: object) -> bytes:
    """The bytes that are signed: JSON, keys sorted, no blanks."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()


def sign(body: object, key: KeyPair) -> str:
    """A signature of a body, in base64."""
    return base64.b64encode(key.sign(canonical(body))).decode()


def is_signed(content: bytes, signer: object, signature: object) -> bool:
    """Whether a base64 signature, which may be anything, is the signer's over these bytes."""
    try:
        return verify(str(signer), content, base64.b64decode(str(signature), validate=True))
    except (binascii.Error, ValueError):
        return False


def write_record(record: dict[str, Any], path: Path) -> None:
    """Write a record, all or nothing."""
    replace_file(path, json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_record(path: Path) -> dict[str, Any]:
    """Read a record; only its form is checked here."""
    what = "a release record of this version of privatile"
    record = read_json(path, dict[str, dict[str, Any]], what)
    form = set(record) == {"body", "signatures"} and isinstance(record["signatures"].get("clients"), dict)
    found = record["body"].get("privatile_release") if form else None
    if type(found) is int and found != FORMAT:
        raise InputError(
            f"{path}: is a release record of format {short(found)}; this privatile reads format {FORMAT}. Read it with "
            "the one that made it."
        )
    if found != FORMAT:
        raise InputError(f"{path}: is not {what}.")
    return record


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
        if study.is_open and not has_interval(coordinator.tracks):
            raise InputError("the run has no interval yet, and so nothing to release: too few have answered.")
        key = directory.key()
        body = {
            **run_facts(study, store, coordinator.results()),
            "transcript": {
                "rounds": coordinator.done,
                "digest": transcript_digest(store),
                "until": max([ended(store), *(event.at for event in journal.events())]),
            },
            "coordinator": msgspec.to_builtins(key.public),
            "clients": _client_keys(study, store, directory),
            "events": events(journal),
        }
        if study.is_open:
            body["ended_by"] = store.why_ended
    return {"body": body, "signatures": {"coordinator": sign(body, key), "clients": {}}}


@contextlib.contextmanager
def released_file(directory: Directory) -> Iterator[RunStore]:
    """The run's file of a folder, as it stands; refused where it is not a run of the folder's study."""
    if not directory.store_file.exists():
        raise StoreError(f"{directory.store_file}: the run has not begun; there is nothing to release.")
    with RunStore.frozen(directory.store_file) as store:
        if Journal(store).study_digest != directory.study().digest:
            raise StoreError(f"{directory.store_file} holds a run of another version of the study.")
        yield store


def run_facts(study: FederationStudy, store: RunStore, results: Iterable[QuantileResult]) -> dict[str, Any]:
    """What every record of a federation says of its run."""
    return {
        "privatile_release": FORMAT,
        "software": SOFTWARE,
        "program": program(),
        "study": study.to_dict(),
        "study_hash": study.digest,
        "run": store.run,
        "finished": store.finished is not None,
        "results": [recorded_facts(result) for result in results],
        "spent": spent(study, store),
    }


def transcript_digest(store: RunStore) -> str:
    """SHA-256 over every round: what was asked, every count, every signature."""
    digest = hashlib.sha256()
    for stored in store.all_rounds():
        digest.update(canonical([stored.level_index, stored.round, stored.ask, stored.ones, stored.unspent]) + b"\n")
    for row in store.query(
        "SELECT round, client, sequence, hash, signer, signature FROM evidence ORDER BY round, client"
    ):
        digest.update(canonical(row) + b"\n")
    return digest.hexdigest()


def spent(study: FederationStudy, store: RunStore) -> dict[str, Any]:
    """What every client has spent, by the counts."""
    totals = store.client_totals()
    return {
        name: {
            "epsilon": agreement.mechanism.epsilon,
            "records": totals[name].answered,
            "silent_rounds": totals[name].silent,
        }
        for name, agreement in study.clients.items()
    }


def ended(store: RunStore) -> float:
    """When the last round was written, or the run was finished: no record of all its rounds is from before."""
    ((last,),) = store.query("SELECT max(at) FROM rounds")
    return max(store.created, store.finished or 0.0, last or 0.0)


def events(journal: Journal) -> list[list[Any]]:
    """What happened in the run, without times and texts."""
    return [[event.kind, event.client, event.round] for event in journal.events()]


class ClientKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of one client: the one it has now, and those before it."""

    current: PublicKeys | None
    """May countersign; None where it was revoked and no other admitted."""
    replaced: list[PublicKeys]
    """Keys that signed counts while they were current. They may have been stolen: they countersign nothing."""


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
