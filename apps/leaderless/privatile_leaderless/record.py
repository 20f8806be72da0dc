"""The record of a run without a coordinator: one body, signed by one organization after the other.

The first writes the body from its own file. Every other checks it against its own file and its own ledger and signs
the same bytes: numbers need only agree within the tolerances of `comparison`, since two machines differ in their last
bits. The record holds when as many have signed as the study needs (`quorums.signing`). No time is in it:
nobody signs a clock.

    body        as with a coordinator, with the roster and the chain value after the last round in place of the
                coordinator's key and the events
    signatures  peers: name -> signer and signature of the body; clients: name -> what its own ledger says (Statement)
"""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from privatile.client.ledger.ledger import Ledger
from privatile.core.text import counted
from privatile.errors import InputError, StoreError
from privatile.federation.operations.record import countersign, released_file, rules_of
from privatile.federation.study import FederationStudy
from privatile.records.countersignature import (
    ClientKeys,
    CountersignRefused,
    check_countersignatures,
    left_to_people,
)
from privatile.records.record import exchanges, run_facts, spent, transcript_digest
from privatile.records.signing import canonical, is_signed, sign
from privatile.records.verification import (
    Checks,
    check_links,
    check_recomputed,
    check_silence,
    check_study,
    part,
    rounds_held,
    run_of_record,
)
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore
from privatile.run.state import is_aborted
from privatile_leaderless import quorums
from privatile_leaderless.folder import PeerFolder
from privatile_leaderless.history import follow_file
from privatile_leaderless.roster import PeerRoster


def release_of_peers(folder: PeerFolder) -> dict[str, Any]:
    """The record of a peer's run, signed by this peer; the others add theirs (`sign_as_peer`)."""
    study, roster = folder.study(), folder.peers()
    with released_file(folder) as store:
        coordinator = Coordinator(store)
        found = follow_file(study, roster.keys, roster.digest, store)
        if found.broken:
            raise StoreError(
                f"{folder.store_file} was altered, or is damaged: {found.broken}. Restore it, or catch up."
            )
        if is_aborted(store):
            raise InputError(
                f"the run was aborted by the votes of the organizations, after {coordinator.done} of "
                f"{coordinator.planned} rounds: there is nothing to release. What was answered stays spent."
            )
        if store.finished is None:
            raise InputError(
                f"the run is not finished: {coordinator.done} of {coordinator.planned} rounds are committed. Without a "
                "coordinator nobody may choose when to release: a record needs the end that "
                f"{quorums.signing(study)} organizations have signed."
            )
        body = {
            **run_facts(study.digest, store, [replace(result, date=None) for result in coordinator.results()]),
            "study": study.to_dict(),
            "spent": spent(coordinator),
            "transcript": {
                "rounds": coordinator.done,
                "digest": transcript_digest(store),
                "chain": found.history.chain,
            },
            "roster": msgspec.to_builtins(roster),
            "clients": client_keys(roster),
        }
    return sign_as_peer({"body": body, "signatures": {"peers": {}, "clients": {}}}, folder)


def client_keys(roster: PeerRoster) -> dict[str, Any]:
    """The keys of all clients as a record names them: those of the roster."""
    return {client: msgspec.to_builtins(ClientKeys(keys, [])) for client, keys in sorted(roster.keys.items())}


def check_has_rounds(record: dict[str, Any], folder: PeerFolder) -> None:
    """Refuse to compare a record with the file of a peer that has not got as far: it was away at the end."""
    if record["body"].get("study_hash") != folder.study().digest:
        return  # which is said elsewhere
    with RunStore.frozen(folder.store_file) as store:
        held, told = rounds_held(record["body"], store)
        if held < told or store.finished is None:
            whole = f", {told:,} rounds" if held < told else ""
            raise InputError(
                f"{folder.client} has {held:,} rounds of the run, without its end, and the record is of the whole run"
                f"{whole}. First take over what it lacks: `privatile peer run`, or "
                f"`privatile peer catch-up {folder.path} --from RUN.DB` with another organization's file."
            )


def sign_as_peer(record: dict[str, Any], folder: PeerFolder) -> dict[str, Any]:
    """The record with this peer's signature of the body and its statement, after comparing both files.

    Check the record against the peer's own file with `verify_record` first: here only the ledger is compared with it.
    """
    client, key, body = folder.client, folder.key(), record["body"]
    if body.get("study_hash") != folder.study().digest or body.get("roster") != msgspec.to_builtins(folder.peers()):
        raise CountersignRefused(f"the record is of another study, or of another roster, than {folder.path}.")
    if folder.peers().keys[client] != key.public:
        raise InputError(f"the record names another key for {client} than this folder has; it is not signed.")
    with Ledger.open(folder.ledger_file, create=False, read_only=True) as ledger:
        stated = countersign(record, client, key, folder.store_file, ledger)
    entry = {"signer": key.public.signer, "signature": sign(body, key)}
    signatures = {**stated["signatures"], "peers": {**stated["signatures"]["peers"], client: entry}}
    return {"body": body, "signatures": signatures}


def read_roster_of(body: dict[str, Any], study: FederationStudy) -> PeerRoster | None:
    """The roster that a record names; None where it is not one of all clients of its study, and of no others."""
    try:
        roster = msgspec.convert(body.get("roster"), PeerRoster)
    except (InputError, msgspec.ValidationError):
        return None
    signers = {keys.signer for keys in roster.keys.values()}
    fits = roster.study == study.digest and roster.keys.keys() == study.clients.keys()
    fits = fits and len(signers) == len(study.clients)  # one key under two names would count twice
    return roster if fits else None


def verify(
    checks: Checks, record: dict[str, Any], study: FederationStudy, transcript: Path | None, *, complete: bool = True
) -> None:
    """Check a record and, given a run's file, recompute it from the counts alone.

    A record is `complete` with the signatures of a quorum; it is checked before, too, by those who are about to sign.
    """
    body, rules = record["body"], rules_of(study)
    check_study(checks, body, rules)
    check_peers(checks, record, study, complete=complete)
    checks.add("the run is finished", body.get("finished") is True)
    statements = check_countersignatures(checks, record, rules.clients)
    with run_of_record(checks, body, rules, transcript) as store:
        if store is not None:
            check_peer_run(checks, body, study, store, statements)
    checks.not_checked += left_to_people(body, rules.clients)


def check_peers(checks: Checks, record: dict[str, Any], study: FederationStudy, *, complete: bool) -> None:
    """Check who has signed a record's body; `complete` asks for as many as the study needs."""
    body = record["body"]
    roster = read_roster_of(body, study)
    text = "the roster has every client of the study, and nobody else, each with a key of its own"
    if not checks.add(text, roster is not None) or roster is None:
        return
    checks.not_checked.append(f"that roster {roster.fingerprint} is the one that all organizations compared: ask them")
    checks.add("the keys of the clients are those of the roster", body.get("clients") == client_keys(roster))
    entries = part(record["signatures"], "peers")
    strangers = sorted(set(entries) - set(study.clients))
    checks.add("it is signed by clients of the study only", not strangers, ", ".join(strangers))
    signed = []
    for client in study.clients:
        if client not in entries:
            continue
        entry, keys = part(entries, client), roster.keys[client]
        holds = entry.get("signer") == keys.signer
        holds = holds and is_signed(canonical(body), entry.get("signer"), entry.get("signature"))
        if checks.add(f"{client} has signed it (key {keys.fingerprint})", holds):
            signed.append(client)
    if complete:
        text = (
            f"at least {quorums.signing(study):,} of {len(study.clients):,} organizations have signed the same record"
        )
        checks.add(text, len(signed) >= quorums.signing(study), f"signed by {len(signed):,}")
    unsigned = [client for client in study.clients if client not in signed]
    if unsigned:
        checks.not_checked.append(f"the record by {', '.join(unsigned)}: they have not signed it")


def check_peer_run(
    checks: Checks, body: dict[str, Any], study: FederationStudy, store: RunStore, stated: Collection[str]
) -> None:
    """Check a record of peers against a peer's file: signatures, chain, quorums, the end, and every number."""
    roster = read_roster_of(body, study)
    if roster is None:
        return
    exchanged = exchanges(store)
    followed = follow_file(study, roster.keys, roster.digest, store)
    evidence, answered = followed.evidence, {key for key, one in exchanged.items() if not one.is_silent}
    missing, over = answered - evidence.keys(), evidence.keys() - answered
    checks.add("every count has its client's signature", not missing, f"without one: {len(missing):,}")
    checks.add("no signature is left over", not over)
    quorum = quorums.signing(study)
    text = (
        f"all {len(answered):,} signatures of clients hold, each for its question, its counts and all that was before, "
        f"and every round has at least {quorum:,} answers"
    )
    checks.add(text, not followed.broken, followed.broken)
    told = part(body, "transcript")
    checks.add("the chain value is that of the run's file", told.get("chain") == followed.history.chain)
    ended = f"at least {quorum:,} organizations have signed that the run is over after this history"
    checks.add(ended, len(followed.finals) >= quorum, f"signed by {len(followed.finals):,}")
    voters = counted(quorums.closing(study), "organization")
    closed_by = f"the votes of at least {voters} to close a round"
    check_silence(checks, rules_of(study), exchanged, stated, closed_by=closed_by)
    check_links(checks, exchanged, {key: row[0] for key, row in evidence.items()}, followed.history.restored)
    found = check_recomputed(checks, body, store, dated=False)
    if found is None:
        return
    checks.add("what was spent is what the counts say", spent(found.coordinator) == body.get("spent"))
    end = (store.finished is not None, found.coordinator.done)
    checks.add("it ended as the record says, after as many rounds", end == (True, told.get("rounds")))
    checks.add("it was not aborted", not followed.history.aborted)
