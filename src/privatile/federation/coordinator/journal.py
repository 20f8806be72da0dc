"""What a federation's run keeps beside its counts, in the same file and the same transactions.

federation   the study behind the run and its digest
evidence     ledger link and signature of every counted answer: the transcript can be checked answer by answer
links        the last link seen of each client's ledger
late_links   the same by answers that came too late to count, and the round in which the ledger was last restored
events       what happened and when: pauses, refusals, quarantines, keys; never a record's value
heard        when each client last sent anything with a valid signature
awaited      the clients that the open round waits for, once it has been open for a moment, and since when
quarantined  clients whose answers do not count until the organizer decides
uncounted    signed answers of silent clients that did not count, and why: one row per round, client and outcome

What goes to the journal once per tick: each write waits for the disk, and no client may fill it.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from privatile.core.messages import Position
from privatile.errors import StoreError
from privatile.federation.coordinator.intake import LateLink, Verdict
from privatile.federation.wire import RoundAnswers, Signed
from privatile.run.run_file import RunStore, Statement
from privatile.run.state import (
    Alarm,
    Event,
    awaiting,
    is_aborted,
    is_lasting,
    last_events,
    read_alarms,
)
from privatile.run.tables import FEDERATION


class Uncounted(NamedTuple):
    """Signed answers of one client to one round that did not count: `outcome` is the intake's word for it."""

    round: int
    client: str
    outcome: str
    reason: str
    """Of the first of them."""
    at: float
    """When the first of them came."""
    times: int


class Journal:
    """The federation's own tables in a run's file."""

    def __init__(self, store: RunStore) -> None:
        self._store = store

    @classmethod
    def open(cls, store: RunStore, study_text: str, digest: str) -> "Journal":
        """Prepare the tables of a run's file, or refuse the file of another study."""
        journal = cls(store)
        store.execute([(statement, ()) for statement in FEDERATION])
        if not store.query("SELECT digest FROM federation"):
            store.execute([("INSERT INTO federation VALUES (?, ?)", (study_text, digest))])
        elif journal.study_digest != digest:
            raise StoreError(f"{store.path} holds a run of another study. Move the file away and begin again.")
        return journal

    @property
    def study_digest(self) -> str:
        """The digest of the study behind the run."""
        kept = self._store.query("SELECT digest FROM federation")
        if not kept:
            raise StoreError(f"{self._store.path} holds a run, but not of a federation.")
        return str(kept[0][0])

    def evidence_rows(self, number: int, answers: Mapping[str, Signed[RoundAnswers]]) -> list[Statement]:
        """The statements that store a round's evidence, for the transaction of the round."""
        rows: list[Statement] = []
        for client, answer in answers.items():
            ledger = answer.body.ledger
            row = (number, client, ledger.sequence, ledger.head.hex(), answer.signer, answer.signature)
            rows += [("INSERT INTO evidence VALUES (?, ?, ?, ?, ?, ?)", row), _link_row(client, ledger)]
        return rows

    def links(self) -> dict[str, Position]:
        """The last link seen of each client's ledger."""
        rows = self._store.query("SELECT client, sequence, hash FROM links")
        return {client: Position(sequence, bytes.fromhex(head)) for client, sequence, head in rows}

    def relink(self, client: str, link: Position, number: int) -> None:
        """Continue from this link: the site has declared in this round that its ledger was restored."""
        self._store.execute([_link_row(client, link), _late_row(client, LateLink(None, number))])

    def late_links(self) -> dict[str, LateLink]:
        """How far each client's ledger has come by answers that were too late to count."""
        rows = self._store.query("SELECT client, sequence, hash, since FROM late_links")
        return {
            row[0]: LateLink(None if row[1] is None else Position(row[1], bytes.fromhex(row[2])), row[3])
            for row in rows
        }

    def set_late_links(self, found: Mapping[str, LateLink]) -> None:
        """Store how far they have come now: one row per client."""
        self._store.execute([_late_row(*each) for each in found.items()])

    def note(self, kind: str, text: str, client: str | None = None, number: int | None = None) -> None:
        """Store an event."""
        self._store.execute([("INSERT INTO events VALUES (?, ?, ?, ?, ?)", (time.time(), kind, client, number, text))])

    def events(self, last: int = 1_000_000) -> tuple[Event, ...]:
        """The last events, oldest first."""
        return last_events(self._store, last)

    def aborted(self) -> bool:
        """Whether the run was ended for good."""
        return is_aborted(self._store)

    def stopped(self) -> bool:
        """Whether the coordinator was stopped, and has not been started again."""
        return is_lasting(self._store, "stopped")

    def lasts(self, kind: str) -> bool:
        """Whether a condition such as `no broker` has begun and not ended."""
        return is_lasting(self._store, kind)

    def hear(self, times: Mapping[str, float]) -> None:
        """Store when clients were last heard."""
        self._store.execute([("INSERT OR REPLACE INTO heard VALUES (?, ?)", each) for each in times.items()])

    def heard(self) -> dict[str, float]:
        """When each client was last heard; a client that never was is left out."""
        return dict(self._store.query("SELECT client, at FROM heard"))

    def set_awaited(self, number: int, since: float, clients: Sequence[str]) -> None:
        """Store whose answers the open round lacks, and since when it is asked."""
        self._store.execute(awaiting(number, since, clients))

    def alarms(self, silent: Mapping[str, int]) -> list[Alarm]:
        """What is wrong with the run now; `silent` as in `read_alarms`."""
        return read_alarms(self._store, silent)

    def add_uncounted(self, found: Iterable[Uncounted]) -> None:
        """Store answers that did not count; one that came again only raises its number.

        An answer that came again after it had been counted is left out: its client was not silent.
        """
        statement = (
            "INSERT INTO uncounted SELECT ?, ?, ?, ?, ?, ? WHERE NOT EXISTS"
            " (SELECT 1 FROM evidence WHERE round = ? AND client = ?)"
            " ON CONFLICT (round, client, outcome) DO UPDATE SET times = times + excluded.times"
        )
        self._store.execute([(statement, (*one, one.round, one.client)) for one in found])

    def uncounted(self) -> list[Uncounted]:
        """Answers of silent clients that arrived and did not count, by round and client."""
        rows = self._store.query(
            "SELECT * FROM uncounted u WHERE NOT EXISTS"
            " (SELECT 1 FROM evidence e WHERE e.round = u.round AND e.client = u.client)"
            " ORDER BY round, client, outcome"
        )
        return [Uncounted(*row) for row in rows]

    def quarantine(self, client: str, reason: str) -> None:
        """Count no answer of this client until the organizer decides."""
        self._store.execute([("INSERT OR REPLACE INTO quarantined VALUES (?, ?)", (client, reason))])

    def readmit(self, client: str) -> None:
        """Count the client's answers again: the organizer has decided."""
        self._store.execute([("DELETE FROM quarantined WHERE client = ?", (client,))])

    def quarantined(self) -> dict[str, str]:
        """Reasons by client."""
        return dict(self._store.query("SELECT client, reason FROM quarantined"))


def _late_row(client: str, late: LateLink) -> Statement:
    sequence, head = (None, None) if late.link is None else (late.link.sequence, late.link.head.hex())
    return "INSERT OR REPLACE INTO late_links VALUES (?, ?, ?, ?)", (client, sequence, head, late.since)


def _link_row(client: str, link: Position) -> Statement:
    return "INSERT OR REPLACE INTO links VALUES (?, ?, ?)", (client, link.sequence, link.head.hex())


ROWS_PER_CLIENT = 20
"""Events of one kind that one client may cause before they are thinned out."""


class PendingNotes:
    """Who was heard, what did not count and who is awaited, since this was last written to the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._late_links = journal.late_links()
        """As the journal has them."""
        self._heard: dict[str, float] = {}
        self._uncounted: dict[tuple[int, str, str], Uncounted] = {}
        self._caused: Counter[tuple[str, str]] = Counter()
        """Events that a client has caused, by kind and client."""
        self._awaited: tuple[int, float, tuple[str, ...]] | None = None
        """As the journal has them: a round, since when it is asked, and the clients that have not answered it."""

    def hear(self, client: str) -> None:
        """A client has just sent something with a valid signature."""
        self._heard[client] = time.time()

    def note_uncounted(self, client: str, verdict: Verdict, rounds_begun: int) -> None:
        """Keep that an answer came and did not count: one row per round, client and outcome."""
        number = verdict.round
        if number is None or not 1 <= number <= rounds_begun:
            return
        key = (number, client, verdict.outcome)
        before = self._uncounted.get(key, Uncounted(*key, verdict.reason, time.time(), 0))
        self._uncounted[key] = before._replace(times=before.times + 1)

    def worth_a_row(self, kind: str, client: str) -> bool:
        """Whether what a client has caused again is written: always at first, then only the 1st, 2nd, 4th, 8th …

        No client may fill the coordinator's disk; the metrics count every one.
        """
        self._caused[kind, client] += 1
        count = self._caused[kind, client]
        return count <= ROWS_PER_CLIENT or count & (count - 1) == 0

    def write_awaited(self, number: int, since: float, missing: Sequence[str]) -> None:
        """Whose answers an open round lacks, where that has changed: the dashboard and `status` read it."""
        awaited = (number, since, tuple(missing))
        if awaited != self._awaited:
            with contextlib.suppress(StoreError):  # as below
                self._journal.set_awaited(number, since, missing)
                self._awaited = awaited

    def write(self, late_links: Mapping[str, LateLink]) -> dict[str, float]:
        """Write the rest, and give who was heard when."""
        heard, self._heard = self._heard, {}
        uncounted, self._uncounted = self._uncounted, {}
        late = {client: one for client, one in late_links.items() if self._late_links.get(client) != one}
        with contextlib.suppress(StoreError):  # a full disk is reported by what matters: a round or an event
            if heard:
                self._journal.hear(heard)
            if uncounted:
                self._journal.add_uncounted(uncounted.values())
            if late:
                self._journal.set_late_links(late)
                self._late_links.update(late)
        return heard

    def relinked(self, client: str, late: LateLink) -> None:
        """The journal has just been given this link, with a restored ledger."""
        self._late_links[client] = late
