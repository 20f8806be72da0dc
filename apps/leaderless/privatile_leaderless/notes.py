"""What a peer tells its operator: events in the journal and the log, metrics, the round that waits."""

import collections
import logging
import time
from typing import Any, get_args

from prometheus_client import Counter, Gauge

from privatile.core.text import counted
from privatile.federation.coordinator.journal import Journal, PendingNotes
from privatile.federation.monitoring import RUN_METRICS, Metric, Metrics, Progress, facts
from privatile.federation.study import FederationStudy
from privatile.run.state import Alarm, all_kinds, event_tone, log_level, silent_rounds
from privatile_leaderless import extension
from privatile_leaderless.peer_file import EVIDENCE_ONLY, JOURNALED
from privatile_leaderless.replica import Replica
from privatile_leaderless.standing import Kind, LogEffect

log = logging.getLogger("privatile.leaderless")

PEER_METRICS = (
    *RUN_METRICS,
    Metric(Gauge, "connected", "Whether a server of the cluster is connected."),
    Metric(Gauge, "epoch", "The number of the log: 0, and one more after every loss of it."),
    Metric(Gauge, "position", "The last entry of the log that was applied."),
    Metric(Gauge, "round", "The last round that is closed."),
    Metric(Gauge, "committed", "The last round that a quorum has signed."),
    Metric(Counter, "unsigned", "Entries without a valid signature of the peer they name: skipped.", "client"),
    Metric(Counter, "refused", "Signed entries that were malformed, or proposed a question that is off.", "client"),
    Metric(Counter, "other_history", "Signed entries that belong to another history than this peer's.", "client"),
    Metric(Counter, "two_answers", "Different answers of one peer to one round.", "client"),
    Metric(Counter, "entries", "Entries of the log that were applied."),
    Metric(Counter, "published", "Entries that this peer has published."),
)

BY_CLIENT = frozenset({"counted", "unsigned", "refused", "other_history", "two_answers"})
"""What is counted by client."""

UNTOLD = frozenset({"closed without"})
"""What is an event, and no line in the log: the alarm `silent` is one."""

QUIET = frozenset(get_args(Kind)) - frozenset(JOURNALED) - {"vote", "ended"}
"""What is neither: it happens in every round, or for every peer. What is in the file: `JOURNALED`, `EVIDENCE_ONLY`; a
vote and the end are told, and not kept."""

WORDS = {
    "ended": "the last round is closed; now all sign the end",
    "finished": "a quorum has signed the end",
    "begun": "the new log begins after this round",
    "behind": "the new log begins after this round, and this peer lacks rounds before: take over another "
    "organization's file with `privatile peer catch-up DIR --from RUN.DB`",
}


MISSED = ("silent", "waiting")
"""Alarms without events: the log tells when they appear and when they go. The others are events, and told as such."""


class PeerNotes:
    """The journal, the metrics and the log lines of one peer."""

    def __init__(self, study: FederationStudy, replica: Replica, journal: Journal) -> None:
        self._journal = journal
        self._replica = replica
        self._study = study
        self._pending = PendingNotes(journal)
        self._paused = ""
        self._closed_at = time.monotonic()
        self._progress = Progress(log, study.rounds, replica.committed, self._closed_at)
        self._told: dict[str, tuple[str, str | None, int | None]] = {}
        self._noted: set[tuple[str, str | None, tuple[bytes, ...]]] = set()
        """What was kept with its evidence: the same entries, written again by anybody in any round, must not use up
        its room."""
        self._shown: set[tuple[str, str | None, int]] = set()
        """Lies of which the first signed entries were kept, by kind, peer and round."""
        self._missed: dict[tuple[str, str | None], bool] = {}
        """Alarms of `MISSED` at the last look, and whether the log has told them."""
        # One that began under an earlier process ends under this one.
        self._conditions = {kind for kind in ("no broker", "log lost") if journal.lasts(kind)}
        labels = {"client": [*study.clients], "kind": all_kinds(extension)}
        self.metrics = Metrics("privatile", PEER_METRICS, labels, self._measure)
        self.metrics.set("deadline_seconds", study.deadline)
        self.metrics.set("rounds_planned", study.rounds)

    def alarms(self) -> list[Alarm]:
        """What is wrong with the run now, the worst first."""
        return self._journal.alarms(silent_rounds(self._replica.tracks))

    def _measure(self) -> None:
        kinds = collections.Counter(alarm.kind for alarm in self.alarms())
        for kind in all_kinds(extension):
            self.metrics.set("alarms", kinds[kind], kind=kind)
        replica = self._replica
        for name, value in (
            ("round", replica.closed),
            ("committed", replica.committed),
            ("epoch", replica.epoch),
            ("quarantined", len(replica.quarantined)),
        ):
            self.metrics.set(name, value)

    def happened(self, sender: str, happenings: tuple[LogEffect, ...]) -> list[LogEffect]:
        """Count what an entry has brought about; gives what is worth keeping: no peer may fill this one's disk."""
        self.metrics.add("entries")
        kept = []
        for one in happenings:
            name = one.kind.replace(" ", "_")
            if name in BY_CLIENT and one.client in self._study.clients:
                self.metrics.add(name, client=str(one.client))
            if one.kind == "closed":
                self.metrics.add("rounds")
                self.metrics.set("round_seconds", time.monotonic() - self._closed_at)
                self._closed_at = time.monotonic()
                self.metrics.add("silent", self._silent(one.round))
                if log.isEnabledFor(logging.DEBUG):
                    log.debug("round", extra=facts(round=one.round, reason=one.text or None))
            if one.kind in EVIDENCE_ONLY:
                kept.append(one)
            elif one.kind in QUIET:
                continue
            elif (lie := (one.kind, one.client, one.payloads)) not in self._noted and self._is_kept(one):
                if one.payloads:
                    self._noted.add(lie)
                kept.append(one._replace(text=one.text or WORDS.get(one.kind, one.kind)))
                if one.kind not in UNTOLD:
                    _log(*kept[-1][:4])
            elif one.kind == "unsigned":
                kept.append(one._replace(payloads=()))  # its number is kept
        if happenings and happenings[0].kind != "unsigned":
            self._pending.hear(sender)
        return kept

    def _is_kept(self, one: LogEffect) -> bool:
        """Whether it is written, with its evidence: thinned out, but the first lie of a peer in a round always is.

        These are at most as many as there are rounds, like the counts. What signs a chain value is thinned out apart
        from what signs none.
        """
        worth = self._pending.worth_a_row(f"{one.kind}, signed" if one.signs else one.kind, one.client or "")
        lie = (one.kind, one.client, one.round)
        if not one.signs or lie in self._shown:
            return worth
        self._shown.add(lie)
        return True

    def _silent(self, number: int) -> int:
        """Peers without an answer in a closed round; 0 where the replica has gone back behind it meanwhile."""
        return sum(closed.answers.count(None) for closed in self._replica.closed_rounds(number - 1)[:1])

    def event(self, kind: str, text: str, client: str | None = None, number: int | None = None) -> None:
        """Write an event to the journal and the log; of a round, the same one only once in a row."""
        if number is not None and self._told.get(kind) == (text, client, number):
            return
        self._told[kind] = (text, client, number)
        self._journal.note(kind, text, client, number)
        _log(kind, number, client, text)

    def begins(self, kind: str, text: str) -> None:
        """A condition begins, such as `no broker`: an event, once."""
        if kind not in self._conditions:
            self._conditions.add(kind)
            self.event(kind, text)

    def ends(self, kind: str, event: str, text: str) -> None:
        """It is over."""
        if kind in self._conditions:
            self._conditions.discard(kind)
            self.event(event, text)

    def tick(self, opened: float) -> None:
        """Once per second: who was heard, who is awaited, whether the run is paused."""
        for client, at in self._pending.write({}).items():
            self.metrics.set("heard", at, client=client)
        replica = self._replica
        if time.time() - opened >= 1.0:
            self._pending.write_awaited(replica.closed + 1, opened, replica.missing)
        paused = replica.paused
        if paused and paused != self._paused:
            missing = "entries" if replica.recovering else "answers"
            self.event("paused", f"{paused}. The run continues by itself when the missing {missing} come.")
        elif self._paused and not paused:
            self.event("resumed", f"after {counted(replica.closed, 'closed round')}")
        self._paused = paused
        self.metrics.set("paused", bool(paused))
        if not replica.finished:
            self._progress.tell(replica.committed, time.monotonic())
        self._tell_missed()

    def _tell_missed(self) -> None:
        """Say in the log who is missed since the last look, and who is no longer: once each, however many rounds."""
        before, self._missed = self._missed, {}
        for alarm in self.alarms():
            if alarm.kind in MISSED:
                key = (alarm.kind, alarm.client)
                self._missed[key] = before.get(key, False)
                if key not in before and self._pending.worth_a_row(alarm.kind, alarm.client or ""):
                    self._missed[key] = True
                    _log(alarm.kind, None, alarm.client, alarm.text)
        if self._replica.finished or self._replica.aborted:
            return  # nobody is missed any more, whoever came
        for (kind, client), told in before.items():
            if told and (kind, client) not in self._missed:
                log.info(f"no longer {kind}", extra=facts(client=client, round=self._replica.closed))

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether the run makes progress, and how far it is."""
        connected, alarms, replica = bool(self.metrics.value("connected")), self.alarms(), self._replica
        details = {
            "run": self._study.run,
            "round": replica.closed,
            "committed": replica.committed,
            "rounds": self._study.rounds,
            "connected": connected,
            "paused": replica.paused or None,
            "waiting_for": replica.missing[:100],
            "quarantined": sorted(replica.quarantined),
            "alarms": [alarm._asdict() for alarm in alarms[:100]],
        }
        return connected and not alarms, details


def _log(kind: str, number: int | None, client: str | None, text: str) -> None:
    log.log(log_level(event_tone(kind, extension)), kind, extra=facts(reason=text, client=client, round=number))
