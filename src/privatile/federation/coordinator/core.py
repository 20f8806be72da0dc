"""A run without connection, clock or task: questions out, payloads in, and the rule that closes a round.

The round itself is `run.coordinator`, when it closes `run.rounds`, which answers count `AnswerIntake`. A round is in
the run's file before anybody is asked, so asking again, here or on another machine, is asking the same question.
"""

import logging
import math
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from privatile.core.messages import Question
from privatile.errors import NotSigned, ProtocolError
from privatile.federation.coordinator.intake import OTHER_VERSION, TWO_HOLDERS, AnswerIntake, Verdict
from privatile.federation.coordinator.journal import Journal, PendingNotes
from privatile.federation.monitoring import COORDINATOR_METRICS, Metrics, Progress, facts
from privatile.federation.study import FederationStudy, shared_out
from privatile.federation.wire import Notice, RoundQuestions, State
from privatile.records.keys import KeyPair
from privatile.run.coordinator import Coordinator, LevelRun
from privatile.run.rounds import (
    IMPOSSIBLE_SHARE,
    OpenRound,
    Phase,
    Present,
    RoundRule,
    advance,
    impossible_clients,
    must_wait_for,
    wakes_at,
)
from privatile.run.state import KINDS, event_tone, log_level, silent_rounds

log = logging.getLogger("privatile.federation.coordinator")

End = Literal["finished", "stopped", "aborted"]

MAX_GRACE = 10.0
"""Seconds that an open round waits for answers under way once it closes: a late one is spent and not counted."""


SETTLED = 1.0
"""Seconds that a round is open before it is written whose answers it lacks."""


def round_rule(study: FederationStudy) -> RoundRule:
    """What the study says about its rounds and its end."""
    if study.arrivals is None:
        return RoundRule(study.quorum, study.deadline, agreed=True)
    grace, arrivals = min(MAX_GRACE, study.deadline / 10.0), study.arrivals
    return RoundRule(arrivals.round_answers, study.deadline, grace, arrivals.ends_at, arrivals.end_answers)


def present(study: FederationStudy, intake: AnswerIntake, tracks: Sequence[LevelRun]) -> Present:
    """Who is waited for, by the answers that have come."""
    missing, held, absent = intake.missing, "", ""
    if intake.quarantined:
        names = ", ".join(sorted(intake.quarantined))
        held = f"quarantined: {names}. Decide with `privatile federation resume` or `abort`"
    if not study.is_open:
        absent = must_wait_for(missing, tracks, study.patience)
    return Present(len(missing), not missing, held, absent)


class CoordinatorCore:
    """One run of one study."""

    def __init__(
        self,
        study: FederationStudy,
        key: KeyPair,
        coordinator: Coordinator,
        journal: Journal,
        signers: Mapping[str, str],
    ) -> None:
        """`signers` are the clients' signing keys as they are now."""
        self.study, self.coordinator, self.journal = study, coordinator, journal
        self.intake = AnswerIntake(
            study.digest,
            signers,
            journal.links(),
            journal.quarantined(),
            coordinator.asked,
            journal.late_links(),
            open_ended=study.is_open,
        )
        self.aborting = journal.aborted()
        self.catching_up = False
        """Whether answers that came while no coordinator listened are still to be read: nobody is welcomed before."""
        self.paused = ""
        """Why the run is paused; empty where it goes on."""
        self._key = key
        self.asked = b""
        """The last questions, signed."""
        self._opened = 0.0
        self._notes = PendingNotes(journal)
        self._progress: Progress | None = None
        self._rule = round_rule(study)
        ((last,),) = coordinator.store.query("SELECT max(at) FROM rounds")
        self._round = OpenRound(0, Phase.OPEN, 0.0, 0, 0)
        # Of an open study a round begins with the end of the last one, by the run's file: a restart changes nothing.
        self._next_round(float(last or coordinator.store.created))
        labels = {"client": [*study.clients], "level": [f"{level:g}" for level in study.levels], "kind": KINDS}
        self.metrics = Metrics("privatile", COORDINATOR_METRICS, labels, self._measure)
        self._measured = -1
        """The round whose estimate is in the metrics."""
        gauges = {"deadline_seconds": study.deadline, "rounds_planned": coordinator.planned, "round": coordinator.done}
        for name, value in {**gauges, "quarantined": len(self.intake.quarantined)}.items():
            self.metrics.set(name, value)
        for client, at in journal.heard().items():
            self.metrics.set("heard", at, client=client)

    # -- rounds --------------------------------------------------------------------------------------------------

    def question(self, now: float) -> bytes:
        """The open round's questions, signed, and in the run's file; empty when the run is over.

        `now` is in seconds since 1970.
        """
        if not self.intake.is_open and (questions := self._questions()):
            self.intake.open(questions)
            self._opened = now
            self.asked = RoundQuestions.of(self.study.digest, questions).pack(self._key)
        return self.asked if self.intake.is_open else b""

    def _questions(self) -> dict[str, tuple[Question, ...]]:
        """What every client is asked next; of an open study with the number of records that may take part."""
        clients = self.study.clients
        if not self.study.is_open:
            return self.coordinator.questions()
        if self._round.ending or self._used_up:
            return {}
        asked = self.coordinator.asked
        lengths = shared_out(
            self._rule.planned(self._round),
            {name: agreement.weight for name, agreement in clients.items()},
            {name: agreement.records - asked[name] for name, agreement in clients.items()},
        )
        return {
            name: tuple(one.of(lengths[name]) for one in questions)
            for name, questions in self.coordinator.questions().items()
        }

    @property
    def _used_up(self) -> list[str]:
        """Clients of an open study that have given all records they agreed to: no question counts without them."""
        asked = self.coordinator.asked
        return [name for name, agreement in self.study.clients.items() if asked[name] >= agreement.records]

    def _next_round(self, now: float) -> None:
        before = sum(self.coordinator.asked.values())
        self._round = OpenRound(self.coordinator.done + 1, Phase.OPEN, now, 0, before, self._round.ending)

    def begin(self, now: float) -> None:
        """Wait for answers from now on: with agreed records the deadline begins anew with every connection."""
        if self._progress is None:
            self._progress = Progress(log, self.coordinator.planned, self.coordinator.done, now)
        if not self.study.is_open:
            self._round = replace(self._round, since=now)

    def look(self, now: float) -> float:
        """Close the open round if its time has come; when the clock alone may change that next.

        `now` is in seconds since 1970 in an open study. In any other it is that of `begin`: a clock that only goes on
        while this process does, since clients come back after the coordinator.
        """
        came = sum(map(sum, self.intake.lengths())) if self.study.is_open else len(self.intake.answers)
        there = present(self.study, self.intake, self.coordinator.tracks)
        self._round = advance(self._rule, replace(self._round, came=came), now, there)
        if self._round.paused and self._round.paused != self.paused:
            self.paused = self._round.paused
            self.metrics.set("paused", 1)
            self.record("paused", f"{self.paused}. The run continues by itself when the missing answers come.")
        if self._round.phase is Phase.CLOSING:
            self._close(now)
        return wakes_at(self._rule, self._round)

    def _close(self, now: float) -> None:
        number, silent = self._round.number, self.intake.missing
        answers = dict(self.intake.answers)
        if answers:  # an open run may end while nobody has answered
            open_ended = self.study.is_open
            self.coordinator.accept(
                self.intake.counts(),
                self.journal.evidence_rows(number, answers),
                () if open_ended else self.intake.unspent,
                lengths=self.intake.lengths() if open_ended else None,
            )
        self.intake.close(self.coordinator.asked)
        self._next_round(now if answers else self._round.since)
        if not answers:
            return
        if self.paused:
            self.paused = ""
            self.metrics.set("paused", 0)
            self.record("resumed", f"round {number} is complete")
        self.metrics.set("round", number)
        self.metrics.add("rounds")
        if self._progress is not None and number != self.coordinator.planned:
            self._progress.tell(number, now)
        if silent:
            self.metrics.add("silent", len(silent))
            log.info("silent", extra=facts(round=number, clients=", ".join(silent[:20])))
        log.debug("round", extra=facts(round=number, answers=len(answers)))
        for client in impossible_clients(self.coordinator.tracks):
            if self.intake.quarantine(client, IMPOSSIBLE_SHARE):
                self._quarantined(client, IMPOSSIBLE_SHARE)

    def end(self, *, stopped: bool) -> tuple[End, bytes]:
        """How the run ends now, and the notice that tells the clients."""
        if not stopped:
            if not self.coordinator.store.finished:
                self.record("finished", self._finish())
            return "finished", self._notice("finished", "the study is complete; thank you")
        if self.aborting:
            self.record("aborted", "the run was aborted; what was answered stays spent")
            return "aborted", self._notice("aborted", "the organizer has aborted this run")
        return "stopped", self._notice("stopped", "the coordinator was stopped and will be back")

    def _finish(self) -> str:
        """Mark the run as complete; what happened, in words."""
        done = self.coordinator.done
        if not self.study.is_open:
            self.coordinator.finish()
            return f"all {done} rounds are done"
        used_up, over = self._used_up, self.coordinator.rounds() is None
        self.coordinator.finish(None if over else "date" if self._round.ending == "date" else "command")
        why = self.coordinator.store.why_ended
        if why == "command" and used_up:
            return f"{', '.join(used_up)} has given all records that it agreed to, and nothing counts without it"
        return f"the run ended by {why} after {done} rounds"

    def _notice(self, state: State, reason: str) -> bytes:
        return Notice(self.study.digest, self.coordinator.run, state, reason).pack(self._key)

    # -- what comes in -------------------------------------------------------------------------------------------

    def take(self, client: str, payload: bytes, *, stored: bool = False) -> Verdict:
        """Judge what came on a client's answer subject; `stored`: the broker has kept it."""
        verdict, number = self.intake.offer(client, payload, from_storage=stored), self.coordinator.done + 1
        outcome = verdict.outcome
        if outcome != "stale":
            self.metrics.add(outcome, client=client)
        if outcome in ("counted", "duplicate"):
            self._notes.hear(client)
        elif outcome in ("late", "ignored", "rejected", "forked"):
            self._notes.note_uncounted(client, verdict, number)
        if outcome in ("rejected", "ahead") and self._notes.worth_a_row(outcome, client):
            self.record(outcome, verdict.reason, client, number)
        if verdict.quarantine:
            self._quarantined(client, verdict.quarantine)
        return verdict

    @property
    def may_close_early(self) -> bool:
        """Whether a round may close, or has to pause, before the clock says anything."""
        intake = self.intake
        return bool(intake.quarantined) or (intake.is_open and len(intake.answers) >= self.study.quorum)

    def greet(self, client: str, payload: bytes) -> bytes | None:
        """The reply to a hello; None where there is none."""
        if self.catching_up:
            return None  # its ledger may be further on than is known here; it says hello again when it hears a question
        try:
            greeting = self.intake.greet(client, payload, self.coordinator.done, secrets.token_hex(16))
        except ProtocolError as error:
            self.metrics.add("rejected_hellos", client=client)
            if isinstance(error, NotSigned):  # anybody may have sent it
                if self._notes.worth_a_row("hello", client):
                    log.warning("a hello was rejected", extra=facts(client=client, reason=str(error)))
            else:
                self.record_some("version", f"a hello of it cannot be read: {error}", client)
            return None
        if greeting is None:
            return None
        if greeting.fresh:
            self._notes.hear(client)
        if greeting.two_holders:
            self.record("two holders", TWO_HOLDERS, client)
        if greeting.restored is not None:
            self.journal.relink(client, greeting.restored, self.coordinator.done + 1)
            self._notes.relinked(client, self.intake.late_links[client])
            self.record_some("restored", "its ledger was restored; unaccounted records are marked as spent", client)
        if greeting.other_version:
            self.record_some("version", OTHER_VERSION, client)
        return greeting.welcome.pack(self._key)

    def request(self, action: str, client: str = "") -> None:
        """Carry out what another command asks for: `abort`, `close`, or to `readmit` a client."""
        if action == "abort":
            self.aborting = True
        elif action == "close" and self.study.is_open:
            self._round = replace(self._round, ending=self._round.ending or "command")
        elif action == "readmit" and self.intake.readmit(client):
            self.journal.readmit(client)
            self.metrics.set("quarantined", len(self.intake.quarantined))
            self.record("readmitted", "the organizer has decided that its answers count again", client)

    def use_keys(self, signers: Mapping[str, str]) -> None:
        """Use these signing keys from now on: some may have been admitted, replaced or revoked."""
        replaced, revoked = self.intake.replace_signers(signers)
        for client in replaced:
            self.record("rotated", "its key was replaced", client)
        for client in revoked:
            self.record("revoked", "its key was revoked", client)

    # -- the journal and what people see -------------------------------------------------------------------------

    def write_notes(self, now: float) -> None:
        """Write who was heard, who is awaited and what did not count, once per tick; `now` in seconds since 1970."""
        for client, at in self._notes.write(self.intake.late_links).items():
            self.metrics.set("heard", at, client=client)
        if self.intake.missing and now - self._opened >= SETTLED:
            self._notes.write_awaited(self.coordinator.done + 1, self._opened, self.intake.missing)

    def _quarantined(self, client: str, reason: str) -> None:
        self.journal.quarantine(client, reason)
        self.metrics.set("quarantined", len(self.intake.quarantined))
        self.record("quarantined", reason, client, self.coordinator.done + 1)

    def record(self, kind: str, text: str, client: str | None = None, number: int | None = None) -> None:
        """Write an event to the journal and the log."""
        self.journal.note(kind, text, client, number)
        log.log(log_level(event_tone(kind)), kind, extra=facts(reason=text, client=client, round=number))

    def record_some(self, kind: str, text: str, client: str | None = None) -> None:
        """The same for what others can cause again and again: not every one is written."""
        if self._notes.worth_a_row(kind, client or ""):
            self.record(kind, text, client)

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether the run makes progress, and how far it is."""
        connected, alarms = bool(self.metrics.value("connected")), self._alarms()
        return connected and not alarms, {
            "run": self.coordinator.run,
            "round": self.coordinator.done,
            "rounds": self.coordinator.planned,
            "connected": connected,
            "paused": self.paused or None,
            "waiting_for": self.intake.missing[:100],
            "quarantined": sorted(self.intake.quarantined),
            "alarms": [alarm._asdict() for alarm in alarms[:100]],
        }

    def _alarms(self) -> list[Any]:
        return self.journal.alarms(silent_rounds(self.coordinator.tracks))

    def _measure(self) -> None:
        """Compute what costs something, when somebody asks for the metrics."""
        kinds = Counter(alarm.kind for alarm in self._alarms())
        for kind in KINDS:
            self.metrics.set("alarms", kinds[kind], kind=kind)
        done = self.coordinator.done
        if done == self._measured or not self.coordinator.has_interval:
            return
        self._measured = done
        for result in self.coordinator.results():
            low, high = result.shown.first.low, result.shown.first.high
            estimate = result.estimate if result.located else math.nan
            values = {"estimate": estimate, "interval_low": low, "interval_high": high, "width": high - low}
            for name, value in values.items():
                self.metrics.set(name, value, level=f"{result.level:g}")
