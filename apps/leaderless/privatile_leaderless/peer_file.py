"""A peer's own file: the committed rounds, which everybody reads, and what it takes to go on after a restart.

The rounds, their evidence and their events lie in the tables of every federation; so status, report, release and
`verify` read a peer's file as they read a coordinator's. Besides:

peer           the roster's digest, the number of the log (epoch), the last entry read of it; whether the file was put
               back from a backup
peer_entries   entries since the last committed round was closed: the replica is rebuilt by applying them again
peer_slots     what this peer has signed, written before it is signed (`slots`)
peer_chain     the chain value after every round
peer_notes     votes and restored ledgers that took effect, by round
peer_votes     votes to close a round that lacks answers
peer_proof     the signed entries that commit the last round, or the end
peer_evidence  signed entries that were refused, belong to another history or prove a lie; votes to close a round; of
               entries without their sender's signature the first in a round
peer_unsigned  how many of these were read, by round and by the peer they name ('' where the study has no such peer)
peer_abort     who has voted to abort the run

All that belongs together becomes durable together: entries, the rounds they commit, and the slot that is signed next.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from privatile.core.text import canonical_json
from privatile.errors import ProtocolError, StoreError
from privatile.federation.coordinator.journal import Journal
from privatile.federation.study import FederationStudy
from privatile.records.keys import PublicKeys
from privatile.run.run_file import RunStore, Statement
from privatile_leaderless import TABLES
from privatile_leaderless.chain import Claims, Slots, SlotValue, payload_digest, signed_value
from privatile_leaderless.entries import AnyEntry, LevelAsk
from privatile_leaderless.history import RoundRecord, closed_rounds
from privatile_leaderless.replica import Replica
from privatile_leaderless.standing import LogEffect

JOURNALED = (
    "unsigned",
    "refused",
    "other history",
    "astray",
    "two answers",
    "quarantined",
    "restored",
    "aborted",
    "closed without",
    "begun",
    "behind",
    "finished",
)
"""Happenings that are written to the run's events, with the entry that brought them about."""

EVIDENCE_ONLY = ("close vote",)
"""Happenings whose entry is kept, and that are no event: one per peer in a round whose deadline is over."""

MAX_EVIDENCE = 10
"""Payloads kept of one peer, round and kind; twice as many where they sign a chain value.

So votes and questions, which sign none, leave room for as many that do, however many of them come first.
"""

MAX_UNSIGNED = 1
"""The same, of those without a signature: anybody can write them, and they prove nothing about a peer."""

_ASKS: msgspec.json.Decoder[tuple[LevelAsk, ...]] = msgspec.json.Decoder(tuple[LevelAsk, ...])


class LogEntry(NamedTuple):
    """An entry as it lies in the log."""

    position: int
    sender: str
    payload: bytes


class _Kept(NamedTuple):
    """The row of the table `peer`."""

    roster: str
    epoch: int
    position: int
    last: str
    restored: int


class PeerLog:
    """The file of one peer; used from one thread."""

    def __init__(self, store: RunStore, study: FederationStudy, journal: Journal, kept: _Kept, slots: Slots) -> None:
        """Use `open`."""
        self.store = store
        self.study = study
        self.journal = journal
        self._roster, self.epoch, self._position, self._last, restored = kept
        self.restored = bool(restored)
        """Whether this is an older copy of the file: what was signed since is not known (`forfeit`)."""
        self.slots = slots
        self._places: list[int] = []
        """Where the entries that were applied lie in the table."""
        self._epochs: list[int] = []
        self._written = 0
        """Committed rounds in the file."""

    @classmethod
    def open(cls, path: Path, study: FederationStudy, roster: str, *, durable: bool = True) -> Self:
        """Open a peer's file, or begin one; `roster` is the digest of the roster."""
        if path.exists() and not RunStore.is_blank(path):
            store = RunStore.open(path, durable=durable)
        else:
            path.unlink(missing_ok=True)
            store = RunStore.create(path, study.run, study.spec, durable=durable)
        try:
            return cls.of(store, study, roster)
        except StoreError:
            store.close()
            raise

    @classmethod
    def of(cls, store: RunStore, study: FederationStudy, roster: str) -> Self:
        """A peer's part of a run's file that is open; it begins where there is none."""
        journal = Journal.open(store, study.canonical, study.digest)
        store.execute([(statement, ()) for statement in TABLES])
        if not store.query("SELECT 1 FROM peer"):
            store.execute([("INSERT INTO peer VALUES (?, 0, 0, 0, '', 0)", (roster,))])
        kept = _Kept(*store.query("SELECT roster, epoch, position, last, restored FROM peer")[0])
        if kept.roster != roster:
            raise StoreError(f"{store.path} was begun with another roster. Every organization must have the same one.")
        signed = store.query("SELECT slot, chain, asks FROM peer_slots")
        slots = Slots({slot: SlotValue(chain, asks) for slot, chain, asks in signed})
        return cls(store, study, journal, kept, slots)

    def close(self) -> None:
        """Close the file."""
        self.store.close()

    @property
    def last(self) -> tuple[int, str] | None:
        """Position and digest (`payload_digest`) of the last entry that was read of the present log."""
        return (self._position, self._last) if self._position else None

    # -- the replica ---------------------------------------------------------------------------------------------

    def replica(self, keys: Mapping[str, PublicKeys]) -> Replica:
        """The replica as it was: the committed rounds, and the entries since. `keys` are those of the roster."""
        ((base,),) = self.store.query("SELECT base FROM peer")
        replica = Replica(self.study, keys, self._roster, base)
        proof = _proof(self.store)
        try:
            rounds = list(closed_rounds(self.store, self.study, self._roster))
            replica.catch_up(rounds, proof)
        except ProtocolError as error:
            raise self.store.unreadable(str(error)) from None
        replica.committed, replica.proof = len(rounds), proof  # the file has no others
        self._written = len(rounds)
        self._places, self._epochs = [], []
        rows = self.store.query("SELECT place, epoch, sender, payload FROM peer_entries ORDER BY place")
        for place, epoch, sender, payload in rows:
            if epoch > replica.epoch:
                replica.new_epoch(epoch)
            replica.apply(sender, payload)
            self._places.append(place)
            self._epochs.append(epoch)
        if self.epoch > replica.epoch:
            replica.new_epoch(self.epoch)
        return replica

    def catch_up(self, replica: Replica, other: RunStore) -> None:
        """Follow the committed rounds of another peer's file and write them here, for the next start of this peer.

        Where some are new, the log is read from its first entry again. What was read of it is forgotten: a round that
        was closed here and not committed is either one of them or will never be.
        """
        if Journal(other).study_digest != self.study.digest:
            raise StoreError(f"{other.path} holds a run of another version of the study.")
        before = replica.committed
        try:
            rounds = list(closed_rounds(other, self.study, self._roster))
            replica.catch_up(rounds, _proof(other))
        except ProtocolError as error:
            raise StoreError(f"{other.path} is not the file of an honest peer of this run: {error}") from None
        forget: list[Statement] = [
            ("DELETE FROM peer_entries", ()),
            # A later log begins with where peers stand.
            ("UPDATE peer SET base = max(0, epoch - 1), position = 0, last = ''", ()),
        ]
        self._write((), replica, (), forget if replica.committed > before else [])

    # -- writing -------------------------------------------------------------------------------------------------

    def save(self, entries: Sequence[LogEntry], replica: Replica, happenings: Iterable[LogEffect] = ()) -> None:
        """Write entries that `replica` has applied, in their order, and the rounds that are committed now."""
        self._write(entries, replica, happenings, [])

    def claim(
        self,
        claims: Claims,
        asks: tuple[LevelAsk, ...] = (),
        entries: Sequence[LogEntry] = (),
        replica: Replica | None = None,
        happenings: Iterable[LogEffect] = (),
    ) -> bool:
        """Whether this peer may sign these chain values in these slots; they are on the disk when this returns.

        `asks` is the question, where an answer to it is signed. With `replica`, entries are written as `save` does, in
        the same transaction.
        """
        text = canonical_json(msgspec.to_builtins(asks)) if asks else ""
        rows: list[Statement] = [
            (
                "INSERT OR REPLACE INTO peer_slots VALUES (?, ?, ?)",
                (slot, chain, text if slot == claims[-1][0] else ""),
            )
            for slot, chain in self.slots.new_among(claims, text) or ()
        ]
        if replica is not None:
            self._write(entries, replica, happenings, rows)
        elif rows:
            self.store.execute(rows)
        return self.slots.claim(claims, text)

    def answered(self, slot: int) -> tuple[LevelAsk, ...]:
        """The question that this peer has answered in a slot; empty where it has answered none."""
        signed = self.slots[slot]
        try:
            return () if signed is None or not signed.asks else _ASKS.decode(signed.asks)
        except msgspec.DecodeError:
            raise self.store.unreadable(f"what it says was answered in slot {slot} is no question.") from None

    def unknown_slot(self, entry: AnyEntry) -> int:
        """The slot of an entry with this peer's signature that it does not remember; 0 where it does.

        Where it does not, the file is an older copy: what else was signed is not known, and `forfeit` is due.
        """
        value = signed_value(entry)
        return 0 if value is None or self.slots.holds(*value) else value[0]

    def forfeit(self, slot: int) -> None:
        """Sign nothing in this slot and below: the file was put back from a backup, and the log is open there."""
        self.store.execute(
            [
                ("INSERT OR REPLACE INTO peer_slots VALUES (?, '', '')", (slot,)),
                ("UPDATE peer SET restored = 0", ()),
            ]
        )
        self.slots.forfeit(slot)
        self.restored = False

    def regain(self, slot: int) -> bool:
        """Let a forfeited slot be claimed after all (`Slots.regain` says when); whether it was one."""
        return self.slots.regain(slot)

    def begin_epoch(self, epoch: int) -> None:
        """The log is lost: read another, from its first entry on."""
        if epoch <= self.epoch:
            raise StoreError(f"{self.store.path} reads log {self.epoch}; a new one has a higher number.")
        self.store.execute([("UPDATE peer SET epoch = ?, position = 0, last = ''", (epoch,))])
        self.epoch, self._position, self._last = epoch, 0, ""

    def _write(
        self,
        entries: Sequence[LogEntry],
        replica: Replica,
        happenings: Iterable[LogEffect],
        also: Sequence[Statement],
    ) -> None:
        statements: list[Statement] = []
        first = (self._places[-1] if self._places else self._highest_place()) + 1
        for place, entry in enumerate(entries, first):
            row = (place, self.epoch, entry.sender, entry.payload)
            statements.append(("INSERT INTO peer_entries VALUES (?, ?, ?, ?)", row))
        for happening in happenings:
            statements += _happened(happening)
        if entries:
            last = (entries[-1].position, payload_digest(entries[-1].payload))
            statements.append(("UPDATE peer SET position = ?, last = ?", last))
        records = replica.committed_rounds(self._written)
        finishes = replica.finished and self.store.finished is None
        if records or finishes:
            statements += self._committed(records, replica)
            statements += self._settled(replica, first)
        if entries:
            statements += [*_quarantined(replica), *_abort_voters(replica)]
        statements += also
        stored = [one for record in records for one in record.stored]
        if finishes:
            self.store.finish(rounds=stored, also=statements)
        elif statements:
            self.store.append(stored, statements)
        self._places += range(first, first + len(entries))
        self._epochs += [self.epoch] * len(entries)
        self._written += len(records)
        if entries:
            self._position, self._last = last

    def _highest_place(self) -> int:
        ((place,),) = self.store.query("SELECT coalesce(max(place), 0) FROM peer_entries")
        return int(place)

    def _settled(self, replica: Replica, first: int) -> list[Statement]:
        """Forget entries that the committed rounds stand for; `first` is the place of the first one that is new."""
        last = replica.settled_at.get(replica.committed, 0) - 1
        if last < 0:
            return []
        known = len(self._places)
        place, epoch = (self._places[last], self._epochs[last]) if last < known else (first + last - known, self.epoch)
        return [
            ("DELETE FROM peer_entries WHERE place <= ?", (place,)),
            ("UPDATE peer SET base = ?", (epoch,)),
        ]

    def _committed(self, records: Sequence[RoundRecord], replica: Replica) -> list[Statement]:
        found: list[Statement] = []
        for record in records:
            number = record.closed.round
            found += self.journal.evidence_rows(number, record.accepted)
            found.append(("INSERT INTO peer_chain VALUES (?, ?)", (number, record.chain)))
            for place, note in enumerate(record.closed.notes):
                found.append(("INSERT INTO peer_notes VALUES (?, ?, ?, ?)", (number, place, note.sender, note.payload)))
            for place, vote in enumerate(record.closed.votes):
                found.append(("INSERT INTO peer_votes VALUES (?, ?, ?, ?)", (number, place, vote.sender, vote.payload)))
        found.append(("DELETE FROM peer_proof", ()))
        for client, payload in replica.proof.items():
            found.append(("INSERT INTO peer_proof VALUES (?, ?)", (client, payload.decode("ascii"))))
        return found


def _proof(store: RunStore) -> dict[str, bytes]:
    return {client: payload.encode() for client, payload in store.query("SELECT client, payload FROM peer_proof")}


def _happened(happening: LogEffect) -> list[Statement]:
    """What an event and its evidence become in the file; an unsigned entry without its payload is only counted."""
    kind, number, client, text, payloads, signs = happening
    found: list[Statement] = []
    if kind == "unsigned":
        found.append(
            (
                "INSERT INTO peer_unsigned VALUES (?, ?, 1)"
                " ON CONFLICT (round, client) DO UPDATE SET times = times + 1",
                (number, client or ""),
            )
        )
        if not payloads:
            return found
    if kind in JOURNALED:
        event = (time.time(), kind, client, number, text)
        # Whoever has recorded an entry may send it again, and a liar writes ever new ones: once in a round is enough.
        found.append(
            (
                "INSERT INTO events SELECT ?, ?, ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM events WHERE kind = ?"
                " AND client IS ? AND round = ? AND (? OR text = ?))",
                (*event, kind, client, number, bool(payloads), text),
            )
        )
    elif kind not in EVIDENCE_ONLY:
        return []
    most = MAX_UNSIGNED if kind == "unsigned" else MAX_EVIDENCE * (1 + signs)
    for payload in payloads:
        row = (number, client or "", kind, payload)
        found.append(
            (
                "INSERT OR IGNORE INTO peer_evidence SELECT ?, ?, ?, ? WHERE"
                " (SELECT count(*) FROM peer_evidence WHERE round = ? AND client = ? AND kind = ?) < ?",
                (*row, *row[:3], most),
            )
        )
    return found


def _quarantined(replica: Replica) -> list[Statement]:
    rows = [(client, one.reason) for client, one in replica.quarantined.items()]
    return [
        ("DELETE FROM quarantined", ()),
        *(("INSERT INTO quarantined VALUES (?, ?)", row) for row in rows),
    ]


def _abort_voters(replica: Replica) -> list[Statement]:
    rows = [(client,) for client in replica.study.clients if client in replica.abort_voters]
    return [("DELETE FROM peer_abort", ()), *(("INSERT INTO peer_abort VALUES (?)", row) for row in rows)]


def abort_voters(store: RunStore) -> tuple[str, ...]:
    """Who has voted to abort, by a peer's file; nobody before it is one."""
    if not store.query("SELECT 1 FROM sqlite_master WHERE name = 'peer_abort'"):
        return ()
    return tuple(client for (client,) in store.query("SELECT client FROM peer_abort"))
