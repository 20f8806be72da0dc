"""Making the release record of a run."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from privatile.errors import InputError, StoreError
from privatile.federation.coordinator.journal import Journal
from privatile.federation.record.comparison import program
from privatile.federation.record.document import FORMAT, SOFTWARE, canonical, sign
from privatile.federation.setup.directory import Directory
from privatile.federation.study.study import FederationStudy
from privatile.server.coordinator import Coordinator
from privatile.server.store import RunStore


def release(directory: Directory, *, unfinished: bool = False) -> dict[str, Any]:
    """The signed record of a folder's run."""
    if not directory.store_file.exists():
        raise StoreError(f"{directory.store_file}: the run has not begun; there is nothing to release.")
    with RunStore.open(directory.store_file, read_only=True) as store:
        journal, coordinator = Journal(store), Coordinator(store)
        study = directory.study()
        if journal.study_digest != study.digest:
            raise StoreError(f"{directory.store_file} holds a run of another version of the study.")
        if store.finished is None and not unfinished:
            raise InputError(
                f"the run is not finished: {coordinator.done} of {coordinator.planned} rounds. To release it as it "
                "is, with that said in the record, use --unfinished."
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
            "spent": spent(study, store),
            "transcript": {"rounds": coordinator.done, "digest": transcript_digest(store)},
            "coordinator": msgspec.to_builtins(key.public),
            "clients": _signers(store, directory),
            "events": events(journal),
        }
    return {"body": body, "signatures": {"coordinator": sign(body, key), "clients": {}}}


def transcript_digest(store: RunStore) -> str:
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


def events(journal: Journal) -> list[list[Any]]:
    """What happened in the run, without times and texts."""
    return [[event.kind, event.client, event.round] for event in journal.events()]


def _signers(store: RunStore, directory: Directory) -> dict[str, list[str]]:
    """The keys that signed a client's counts, and the one it has now: a key that came last may still countersign."""
    found = {name: {keys.signer} for name, keys in directory.roster().clients.items()}
    for client, signer in store.query("SELECT DISTINCT client, signer FROM evidence"):
        found.setdefault(client, set()).add(signer)
    return {client: sorted(signers) for client, signers in sorted(found.items())}
