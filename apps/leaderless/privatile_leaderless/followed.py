"""The history of a run without a coordinator, followed from its file as every peer follows it from the log.

Everything that a chain value is made of is in the run's file, so each round is written down again as it was closed
(`replica.stored`) and followed by the same code as in the run (`replica.history`): question, signatures over everything
before, quorum and patience. A file in which anything was altered, left out or put in gives another chain value there,
and no signature after it holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from privatile.errors import PrivatileError, ProtocolError
from privatile.federation.study import FederationStudy
from privatile.records.countersignature import ClientKeys
from privatile.records.keys import PublicKeys
from privatile.run.run_file import RunStore, StoredRound
from privatile_leaderless.chain import end_chain, first_chain, signed_value
from privatile_leaderless.entries import read_entry
from privatile_leaderless.history import History, RoundRecord
from privatile_leaderless.stored import closed_rounds

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


def follow_file(study: FederationStudy, keys: Mapping[str, PublicKeys], roster: str, store: RunStore) -> Followed:
    """Follow every round of a run's file; `keys` and `roster`, its digest, are those before the first round."""
    rows = store.query("SELECT round, client, sequence, hash, signer, signature FROM evidence")
    history = History(study, keys, first_chain(study.digest, study.run, roster))
    found = Followed(history, {(row[0], row[1]): row[2:] for row in rows})
    kept: dict[int, list[StoredRound]] = {}
    for stored in store.all_rounds():
        kept.setdefault(stored.round, []).append(stored)
    rounds = closed_rounds(store, study, roster)
    for number in sorted(kept):
        before, readmitted = dict(history.tally.keys), set(history.tally.readmitted)
        try:
            record = history.follow(next(rounds))
        except PrivatileError as error:
            found.broken = f"round {number:,}: {error}"
            break
        if not _same(record, kept[number], found.evidence):
            found.broken = f"round {number:,}: its counts are not those that were signed"
            break
        _add_decisions(found, number, before, readmitted)
    rest = "SELECT round FROM peer_notes UNION SELECT round FROM peer_votes"
    ((over,),) = store.query(f"SELECT min(round) FROM ({rest}) WHERE round > ?", (history.closed,))
    if over is not None and not found.broken:
        found.broken = f"votes or restored ledgers of round {over:,}, which is not there"
    found.finals = _finals(study, history, store)
    return found


def _same(record: RoundRecord, kept: list[StoredRound], evidence: Evidence) -> bool:
    """Whether a round that was followed is what the file says, its counts and signers included."""

    def counted(stored: StoredRound) -> tuple[object, ...]:
        return stored.level_index, stored.ask, tuple(stored.ones), tuple(stored.unspent)

    signers = {client: evidence[record.closed.round, client][2] for client in record.accepted}
    same = sorted(map(counted, record.stored), key=str) == sorted(map(counted, kept), key=str)
    return same and signers == {client: one.signer for client, one in record.accepted.items()}


def _add_decisions(
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
    end = (history.closed + 2, end_chain(history.chain, history.closed))
    signed = []
    for client, payload in store.query("SELECT client, payload FROM peer_proof ORDER BY client"):
        keys = history.tally.keys.get(client)
        try:
            entry = None if keys is None else read_entry(payload.encode(), keys.signer)
        except ProtocolError:
            continue
        if entry is not None and (entry.study, entry.run, entry.sender) == (study.digest, study.run, client):
            signed += [client] if signed_value(entry) == end else []
    return signed
