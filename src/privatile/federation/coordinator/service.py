"""The coordinator's service: ask a round, collect answers until quorum or deadline, step, write, again.

How other commands reach a running coordinator: small files in a folder, read every second, and SIGTERM.

Files survive a crash of either side; a request is removed when it is read.

A coordinator's metrics, and what is wrong with its run.

Rules that look at a run's counts: when a round may be closed, and whose counts are impossible. Pure functions.

How the rounds of a run are asked, closed and ended: by agreed numbers, or by whoever comes (an open study).

A round of an open study closes when enough have answered, when every client has, or when its time is up; the pure rule
is `server.open_rounds`. It sees numbers of records and times, never an answer.

The coordinator's service: ask a round, collect answers until quorum or deadline, step, write, ask the next.

The round itself is `server.coordinator`, and which answers count is `AnswerIntake`; this service owns the connection,
the clock, the journal and the run's file. A restart continues from what was written: a round is in the run's file
before anybody is asked, so asking again, here or on another machine, is asking the same question.
"""

import asyncio
import contextlib
import logging
import math
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import nats.errors

from privatile.core.messages import Question
from privatile.errors import BrokerError, NotSigned, ProtocolError, RunPaused, StoreError
from privatile.federation.connection import Backoff, CoordinatorPort, connected
from privatile.federation.coordinator.intake import OTHER_VERSION, TWO_HOLDERS, AnswerIntake
from privatile.federation.coordinator.journal import Journal, PendingNotes
from privatile.federation.monitoring import COORDINATOR_METRICS, Metrics, Progress, facts
from privatile.federation.setup.broker import EmbeddedBroker
from privatile.federation.study import Arrivals, FederationStudy, shared_out
from privatile.federation.wire import AskMessage, Notice, State
from privatile.records.keys import KeyPair
from privatile.run.coordinator import Coordinator, Track, has_interval
from privatile.run.rounds import (
    IMPOSSIBLE_SHARE,
    Ending,
    OpenRound,
    Phase,
    Present,
    RoundRule,
    advance,
    impossible_clients,
    must_wait_for,
)
from privatile.run.run_file import Statement
from privatile.run.state import KINDS, Alarm, silent_rounds


@dataclass(frozen=True)
class Control:
    """The folder of requests."""

    folder: Path

    def request(self, action: str, client: str = "") -> None:
        """Ask for `abort`, for `close`, or to `readmit` a client."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.folder / (f"{action}.{client}" if client else action)).touch()

    def take(self) -> list[tuple[str, str]]:
        """Remove every request and give its action and client."""
        try:
            names = sorted(os.listdir(self.folder))  # noqa: PTH208  (the cheapest way to list a folder)
        except FileNotFoundError:
            return []
        found = []
        for name in names:
            (self.folder / name).unlink(missing_ok=True)
            action, _, client = name.partition(".")
            found.append((action, client))
        return found


log = logging.getLogger("privatile.federation.coordinator")


class Measures:
    """The metrics of one run: those that cost something are computed when somebody asks for them."""

    def __init__(self, study: FederationStudy, coordinator: Coordinator, journal: Journal) -> None:
        self._coordinator = coordinator
        self._journal = journal
        self._progress = Progress(log, coordinator.planned, coordinator.done, time.monotonic())
        self._measured = -1
        """The round whose estimate is in the metrics."""
        labels = {"client": [*study.clients], "level": [f"{level:g}" for level in study.levels], "kind": KINDS}
        self.metrics = Metrics("privatile", COORDINATOR_METRICS, labels, self._measure)
        self.metrics.set("deadline_seconds", study.deadline)
        self.metrics.set("rounds_planned", coordinator.planned)
        self.metrics.set("round", coordinator.done)
        self.metrics.set("quarantined", len(journal.quarantined()))
        for client, at in journal.heard().items():
            self.metrics.set("heard", at, client=client)

    def count_round(self, number: int) -> None:
        """This round is closed."""
        self.metrics.set("round", number)
        self.metrics.add("rounds")
        if number != self._coordinator.planned:
            self._progress.tell(number, time.monotonic())

    def alarms(self) -> list[Alarm]:
        """What is wrong with the run now, the worst first."""
        return self._journal.alarms(silent_rounds(self._coordinator.tracks))

    def _measure(self) -> None:
        kinds = Counter(alarm.kind for alarm in self.alarms())
        for kind in KINDS:
            self.metrics.set("alarms", kinds[kind], kind=kind)
        done = self._coordinator.done
        if done == self._measured or not has_interval(self._coordinator.tracks):
            return
        self._measured = done
        for result in self._coordinator.results():
            low, high = result.shown.first.low, result.shown.first.high
            estimate = result.estimate if result.located else math.nan
            values = {"estimate": estimate, "interval_low": low, "interval_high": high, "width": high - low}
            for name, value in values.items():
                self.metrics.set(name, value, level=f"{result.level:g}")


class Closing(NamedTuple):
    """Whether a round may be closed now; if not, why the run has to pause (empty while it only waits)."""

    allowed: bool
    pause: str = ""


def may_close(intake: AnswerIntake, study: FederationStudy, tracks: Sequence[Track], *, late: bool) -> Closing:
    """Close at once when every client has answered, else at the quorum or, when it is `late`, at the deadline.

    The run goes on without silent clients as far as the study's patience allows.
    """
    missing = intake.missing
    if pause := quarantine_pause(intake):
        return Closing(False, pause)
    if not missing:
        return Closing(True)
    if len(intake.answers) < study.quorum and not late:
        return Closing(False)
    absence = must_wait_for(missing, tracks, study.patience)
    if absence:
        return Closing(False, absence if late else "")
    if not intake.answers:
        return Closing(False, "no client answered within the deadline")
    return Closing(True)


def quarantine_pause(intake: AnswerIntake) -> str:
    """Why the run pauses until the organizer has decided about a client; empty where there is none to decide about."""
    if not intake.quarantined:
        return ""
    names = ", ".join(sorted(intake.quarantined))
    return f"quarantined: {names}. Decide with `privatile federation resume` or `abort`"


LONGEST_GRACE = 10.0
"""Seconds, at most, that a round waits for answers under way once it closes: a late one is spent and not counted."""


class Rounds:
    """Every client was asked beforehand for a number of records."""

    def __init__(self, study: FederationStudy, coordinator: Coordinator) -> None:
        self.study, self.coordinator = study, coordinator

    def questions(self) -> dict[str, tuple[Question, ...]]:
        """What every client is asked next; empty when the run is over."""
        return self.coordinator.questions()

    def closing(self, intake: AnswerIntake, *, late: bool) -> Closing:
        """Whether the round may be closed; `late`: its deadline is over."""
        return may_close(intake, self.study, self.coordinator.tracks, late=late)

    def accept(self, intake: AnswerIntake, evidence: Sequence[Statement]) -> None:
        """Give the counts of the round to the run, in one transaction with the evidence."""
        self.coordinator.accept(intake.counts(), evidence, intake.unspent)

    def finish(self) -> str:
        """Mark the run as complete; what happened, in words."""
        self.coordinator.finish()
        return f"all {self.coordinator.done} rounds are done"

    def end(self) -> None:
        """Let the run end after the open round, by command; nothing here, where it has a number of rounds."""


class OpenRounds(Rounds):
    """Records arrive over weeks: a round is as long as it becomes."""

    def __init__(self, study: FederationStudy, coordinator: Coordinator, arrivals: Arrivals) -> None:
        super().__init__(study, coordinator)
        grace = min(LONGEST_GRACE, study.deadline / 10.0)
        self._rule = RoundRule(arrivals.round_answers, study.deadline, grace, arrivals.ends_at, arrivals.end_answers)
        self._since = self._opened_at()
        self._draining: OpenRound | None = None
        """The open round, once it only waits for answers that are under way."""
        self._ending: Ending = ""

    def _opened_at(self) -> float:
        """When the open round began, by the run's file: with the end of the last one. A restart changes nothing."""
        ((last,),) = self.coordinator.store.query("SELECT max(at) FROM rounds")
        return float(last or self.coordinator.store.created)

    def _round(self, came: int) -> OpenRound:
        before = sum(self.coordinator.asked.values())
        return OpenRound(self.coordinator.done + 1, Phase.OPEN, self._since, came, before, self._ending)

    @property
    def _used_up(self) -> list[str]:
        """Clients that have given all records they agreed to: no question counts without them."""
        asked = self.coordinator.asked
        return [name for name, agreement in self.study.clients.items() if asked[name] >= agreement.records]

    def questions(self) -> dict[str, tuple[Question, ...]]:
        """The question that stands, with the number of records that may take part at every client."""
        if self._ending or self._used_up:
            return {}
        asked, clients = self.coordinator.asked, self.study.clients
        lengths = shared_out(
            self._rule.planned(self._round(0)),
            {name: agreement.weight for name, agreement in clients.items()},
            {name: agreement.records - asked[name] for name, agreement in clients.items()},
        )
        return {
            name: tuple(one.of(lengths[name]) for one in questions)
            for name, questions in self.coordinator.questions().items()
        }

    def closing(self, intake: AnswerIntake, *, late: bool) -> Closing:
        """Whether the round may be closed, by the number that came and the clock; the deadline is the rule's own."""
        if pause := quarantine_pause(intake):
            return Closing(False, pause)
        came = sum(map(sum, intake.lengths()))
        state = self._round(came)
        if self._draining is not None:  # the command to end may have come since
            state = replace(self._draining, came=came, ending=self._ending)
        found = advance(self._rule, state, time.time(), Present(len(intake.missing), complete=not intake.missing))
        self._draining = found if found.phase is Phase.DRAINING else None
        self._ending = found.ending
        return Closing(found.phase is Phase.CLOSING)

    def accept(self, intake: AnswerIntake, evidence: Sequence[Statement]) -> None:
        """Give counts and lengths of the round to the run; with nobody's answer there is nothing to give."""
        self._draining = None
        if intake.answers:
            self.coordinator.accept(intake.counts(), evidence, lengths=intake.lengths())
            self._since = time.time()

    def finish(self) -> str:
        """End the run; what ended it, in words."""
        used_up, over = self._used_up, self.coordinator.rounds() is None
        self.coordinator.finish(None if over else "date" if self._ending == "date" else "command")
        why = self.coordinator.store.why_ended
        if why == "command" and used_up:
            return f"{', '.join(used_up)} has given all records that it agreed to, and nothing counts without it"
        return f"the run ended by {why} after {self.coordinator.done} rounds"

    def end(self) -> None:
        """Let the run end after the open round, by command."""
        self._ending = self._ending or "command"


def rounds_of(study: FederationStudy, coordinator: Coordinator) -> Rounds:
    """The way in which this study's rounds are asked."""
    return Rounds(study, coordinator) if study.arrivals is None else OpenRounds(study, coordinator, study.arrivals)


End = Literal["finished", "stopped", "aborted"]

GOOD_NEWS = ("finished", "resumed", "broker back", "started", "stopped")
"""Events that nobody has to act on."""

TICK = 1.0
"""Seconds between two checks of requests, of the roster and of the question that the broker keeps."""


@dataclass(eq=False, repr=False)
class CoordinatorService:
    """One run of one study over a broker."""

    study: FederationStudy
    key: KeyPair
    coordinator: Coordinator
    journal: Journal
    _: KW_ONLY
    urls: Sequence[str]
    authority: str
    signers: Callable[[], Mapping[str, str]]
    """Gives the clients' signing keys as they are now."""
    broker: EmbeddedBroker | None = None
    control: Control | None = None
    exit_when_paused: bool = False
    replicas: int = 1
    backoff: Backoff = field(default_factory=lambda: Backoff(longest=2.0))

    def __post_init__(self) -> None:
        self._measures = Measures(self.study, self.coordinator, self.journal)
        self.metrics = self._measures.metrics
        self._rounds = rounds_of(self.study, self.coordinator)
        self._intake = AnswerIntake(
            self.study.digest,
            self.signers(),
            self.journal.links(),
            self.journal.quarantined(),
            self.coordinator.asked,
            self.journal.late_links(),
            open_ended=self.study.is_open,
        )
        self._notes = PendingNotes(self.journal)
        self._ask = b""
        """The open round's questions, signed."""
        self._published = b""
        """What the broker should keep: the last question that was published."""
        self._paused_for = ""
        self._catching_up = False
        """Whether answers that came while no coordinator listened are still to be read."""
        self._broker_lost = False
        self._opened = 0.0
        """When the open round was first asked by this process, in seconds since 1970."""
        self._next_check = 0.0
        self._changed = asyncio.Event()
        self._stop = asyncio.Event()
        self._abort = False
        self._end: End | None = None

    # -- for people and programs outside the loop ----------------------------------------------------------------

    def stop(self) -> None:
        """Keep what is done, tell the clients, return."""
        self._stop.set()
        self._changed.set()

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether the run makes progress, and how far it is."""
        connected, alarms = bool(self.metrics.value("connected")), self._measures.alarms()
        details = {
            "run": self.coordinator.run,
            "round": self.coordinator.done,
            "rounds": self.coordinator.planned,
            "connected": connected,
            "paused": self._paused_for or None,
            "waiting_for": self._intake.missing[:100],
            "quarantined": sorted(self._intake.quarantined),
            "alarms": [alarm._asdict() for alarm in alarms[:100]],
        }
        return connected and not alarms, details

    # -- connecting ----------------------------------------------------------------------------------------------

    async def run(self) -> End:
        """Ask rounds until the run ends or somebody stops it."""
        if self.journal.aborted():
            self._abort = True
            self._stop.set()
        if self.journal.stopped():
            self._record_event("started", "the coordinator continues the run")
        while self._end is None:
            try:
                async with connected(
                    "coordinator", self.urls, self.key, self.authority, self._changed.set
                ) as connection:
                    port, self._catching_up = CoordinatorPort(connection, self.study.identity), True
                    await port.open(self._on_answer, self._on_hello, replicas=self.replicas)
                    self.backoff.reset()
                    self.metrics.set("connected", 1)
                    if self._broker_lost:
                        self._broker_lost = False
                        self._record_event("broker back", "the broker is connected again")
                    log.info("connected", extra=facts(broker=", ".join(self.urls)))
                    await self._session(port)
            except (BrokerError, nats.errors.Error, TimeoutError) as error:
                reason = str(error) or type(error).__name__
                if not self._broker_lost:
                    self._broker_lost = True
                    self._record_event("no broker", f"{reason} The coordinator keeps trying.")
                else:
                    log.warning("no broker", extra=facts(reason=reason))
            self.metrics.set("connected", 0)
            if self._end is None and self._stop.is_set():
                self._end = "stopped"
            if self._end is None:
                await self._recover()
        if self._end == "stopped":
            with contextlib.suppress(StoreError):  # a full disk must not make a failure of a stop
                self._record_event("stopped", "the coordinator was stopped; `privatile serve` continues the run")
        return self._end

    async def _recover(self) -> None:
        self.metrics.add("reconnects")
        if self.broker is not None and self.broker.process_id is None:
            log.warning("the embedded broker is gone; starting it again")
            try:
                await asyncio.to_thread(self.broker.start)
            except BrokerError as error:
                log.error("the broker does not start", extra=facts(reason=str(error)))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), self.backoff.next())

    # -- rounds --------------------------------------------------------------------------------------------------

    async def _session(self, port: CoordinatorPort) -> None:
        if not self._stop.is_set() and (self._intake.is_open or self._open_round()):
            await self._read_stored_answers(port)
        self._catching_up = False
        guard = asyncio.create_task(self._guard_question(port))
        guard.add_done_callback(lambda _: self._changed.set())
        try:
            while self._end is None and not port.lost.is_set():
                if self._stop.is_set():
                    await self._say_goodbye(port)
                    return
                if not self._intake.is_open and not self._open_round():
                    await self._finish(port)
                    return
                await self._publish(port, self._ask)
                self._published = self._ask
                await self._collect(port, guard)
        finally:
            guard.cancel()
            self._write_heard_and_uncounted()

    async def _guard_question(self, port: CoordinatorPort) -> None:
        """Publish the open question again where the broker keeps anything else: clients look it up there."""
        while True:
            await asyncio.sleep(TICK)
            expected = self._published
            try:
                kept = await port.stored_question()
            except BrokerError:
                continue  # slow, or just being lost: that says nothing about what it keeps
            if expected != self._published or kept in (expected, self._ask) or not self._intake.is_open:
                continue  # as it should be, or a new round has just begun
            self.metrics.add("restored_questions")
            await self._publish(port, expected)
            if self._notes.worth_a_row("question", ""):
                self._record_event("question", "the broker kept another message than the open question: restored")

    def _open_round(self) -> bool:
        questions = self._rounds.questions()
        if questions:
            self._intake.open(questions)
            self._opened = time.time()
            self._ask = AskMessage.of(self.study.digest, questions).pack(self.key)
        return bool(questions)

    async def _publish(self, port: CoordinatorPort, payload: bytes) -> None:
        reason = await port.ask(payload)
        if reason:
            self._record_event("broker", f"the broker could not store a question: {reason}. Is its disk full?")

    async def _read_stored_answers(self, port: CoordinatorPort) -> None:
        """Take the answers that came in while no coordinator listened."""

        async def read(client: str) -> None:
            payload = await port.stored_answer(client)
            if payload is not None:
                self._on_answer(client, payload, from_storage=True)

        missing = self._intake.missing
        for start in range(0, len(missing), 100):
            await asyncio.gather(*(read(client) for client in missing[start : start + 100]))

    async def _collect(self, port: CoordinatorPort, guard: "asyncio.Task[None]") -> None:
        """Wait until the round may be closed, then close it; less when the connection is lost or the service stops.

        An error that ended the guard of the question (a full disk) is raised here: the run does not go on without it.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        deadline = began + self.study.deadline
        while not self._may_close(late=loop.time() >= deadline):
            if port.lost.is_set() or self._stop.is_set():
                return
            if guard.done():
                guard.result()
            self._changed.clear()
            # Timers that set the event are far cheaper, round for round, than a wait with a timeout.
            wake = loop.call_at(
                min(loop.time() + TICK, deadline if loop.time() < deadline else math.inf), self._changed.set
            )
            await self._changed.wait()
            wake.cancel()
            self._check_requests()
        self._close_round()
        self.metrics.set("round_seconds", loop.time() - began)

    def _may_close(self, *, late: bool) -> bool:
        closing = self._rounds.closing(self._intake, late=late)
        if closing.pause and closing.pause != self._paused_for:
            self._pause(closing.pause)
        return closing.allowed

    def _pause(self, reason: str) -> None:
        self._paused_for = reason
        self.metrics.set("paused", 1)
        self._record_event("paused", f"{reason}. The run continues by itself when the missing answers come.")
        if self.exit_when_paused:
            raise RunPaused(f"the run is paused: {reason}. Start it again with `privatile serve` to continue.")

    def _close_round(self) -> None:
        number = self.coordinator.done + 1
        answers, silent = self._intake.answers, self._intake.missing
        self._rounds.accept(self._intake, self.journal.evidence_rows(number, answers))
        self._intake.close(self.coordinator.asked)
        if self.coordinator.done < number:  # an open run that ends while nobody has answered
            return
        if self._paused_for:
            self._paused_for = ""
            self.metrics.set("paused", 0)
            self._record_event("resumed", f"round {number} is complete")
        self._measures.count_round(number)
        if silent:
            self.metrics.add("silent", len(silent))
            log.info("silent", extra=facts(round=number, clients=", ".join(silent[:20])))
        log.debug("round", extra=facts(round=number, answers=len(answers)))
        for client in impossible_clients(self.coordinator.tracks):
            if self._intake.quarantine(client, IMPOSSIBLE_SHARE):
                self._record_quarantine(client, IMPOSSIBLE_SHARE)

    async def _finish(self, port: CoordinatorPort) -> None:
        if not self.coordinator.store.finished:
            self._record_event("finished", self._rounds.finish())
        await self._notify(port, "finished", "the study is complete; thank you")
        self._end = "finished"

    async def _say_goodbye(self, port: CoordinatorPort) -> None:
        if self._abort:
            self._record_event("aborted", "the run was aborted; what was answered stays spent")
            await self._notify(port, "aborted", "the organizer has aborted this run")
            self._end = "aborted"
        else:
            await self._notify(port, "stopped", "the coordinator was stopped and will be back")
            self._end = "stopped"

    async def _notify(self, port: CoordinatorPort, state: State, reason: str) -> None:
        await self._publish(port, Notice(self.study.digest, self.coordinator.run, state, reason).pack(self.key))

    # -- what comes in -------------------------------------------------------------------------------------------

    def _on_answer(self, client: str, payload: bytes, *, from_storage: bool = False) -> None:
        verdict = self._intake.offer(client, payload, from_storage=from_storage)
        if verdict.outcome != "stale":
            self.metrics.add(verdict.outcome, client=client)
        if verdict.outcome in ("counted", "duplicate"):
            self._notes.hear(client)
        elif verdict.outcome in ("late", "ignored", "rejected", "forked"):
            self._notes.note_uncounted(client, verdict, self.coordinator.done + 1)
        if verdict.outcome in ("rejected", "ahead") and self._notes.worth_a_row(verdict.outcome, client):
            self._record_event(verdict.outcome, verdict.reason, client, self.coordinator.done + 1)
        if verdict.quarantine:
            self._record_quarantine(client, verdict.quarantine)
        if self._intake.quarantined or (self._intake.is_open and len(self._intake.answers) >= self.study.quorum):
            self._changed.set()

    async def _on_hello(self, port: CoordinatorPort, client: str, payload: bytes) -> None:
        if self._catching_up:
            return  # its ledger may be further on than is known here; it says hello again when it hears the question
        try:
            greeting = self._intake.greet(client, payload, self.coordinator.done, secrets.token_hex(16))
        except ProtocolError as error:
            self.metrics.add("rejected_hellos", client=client)
            if not self._notes.worth_a_row("hello", client):
                return
            if isinstance(error, NotSigned):  # anybody may have sent it
                log.warning("a hello was rejected", extra=facts(client=client, reason=str(error)))
            else:
                self._record_event("version", f"a hello of it cannot be read: {error}", client)
            return
        if greeting is None:
            return
        if greeting.fresh:
            self._notes.hear(client)
        if greeting.two_holders:
            self._record_event("two holders", TWO_HOLDERS, client)
        if greeting.restored is not None:
            self.journal.relink(client, greeting.restored, self.coordinator.done + 1)
            self._notes.relinked(client, self._intake.late_links[client])
            if self._notes.worth_a_row("restored", client):
                reason = "its ledger was restored; unaccounted records are marked as spent"
                self._record_event("restored", reason, client)
        if greeting.other_version and self._notes.worth_a_row("version", client):
            self._record_event("version", OTHER_VERSION, client)
        with contextlib.suppress(nats.errors.Error):
            await port.welcome(client, greeting.welcome.pack(self.key))

    # -- beside the rounds ---------------------------------------------------------------------------------------

    def _check_requests(self) -> None:
        """Carry out requests of other commands; use keys that were admitted, rotated or revoked."""
        if time.monotonic() < self._next_check:
            return
        self._next_check = time.monotonic() + TICK
        replaced, revoked = self._intake.replace_signers(self.signers())
        for client in replaced:
            self._record_event("rotated", "its key was replaced", client)
        for client in revoked:
            self._record_event("revoked", "its key was revoked", client)
        self._write_heard_and_uncounted()
        for action, client in self.control.take() if self.control is not None else []:
            if action == "abort":
                self._abort = True
                self.stop()
            elif action == "close":
                self._rounds.end()
            elif action == "readmit" and self._intake.readmit(client):
                self.journal.readmit(client)
                self.metrics.set("quarantined", len(self._intake.quarantined))
                self._record_event("readmitted", "the organizer has decided that its answers count again", client)

    def _write_heard_and_uncounted(self) -> None:
        """Write who was heard, who is awaited and what did not count: once per tick."""
        for client, at in self._notes.write(self._intake.late_links).items():
            self.metrics.set("heard", at, client=client)
        if self._intake.missing and time.time() - self._opened >= TICK:
            self._notes.write_awaited(self.coordinator.done + 1, self._opened, self._intake.missing)

    def _record_quarantine(self, client: str, reason: str) -> None:
        self.journal.quarantine(client, reason)
        self.metrics.set("quarantined", len(self._intake.quarantined))
        self._record_event("quarantined", reason, client, self.coordinator.done + 1)

    def _record_event(self, kind: str, text: str, client: str | None = None, number: int | None = None) -> None:
        """Write an event to the journal and the log."""
        self.journal.note(kind, text, client, number)
        level = logging.INFO if kind in GOOD_NEWS else logging.WARNING
        log.log(level, kind, extra=facts(reason=text, client=client, round=number))
