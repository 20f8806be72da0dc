"""The coordinator's service: ask a round once, collect until quorum or deadline, step, persist, ask the next.

The round itself is `server.coordinator`; here it is only carried. What was persisted is where a restart goes on: the
question of a round is a pure function of the counts before it, so asking it again is asking the same question.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import nats.errors
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig

from privatile.errors import BrokerError, RunPaused
from privatile.federation.coordinator.answer_intake import AnswerIntake
from privatile.federation.coordinator.collection import Collection
from privatile.federation.coordinator.control import Control
from privatile.federation.coordinator.journal import Journal
from privatile.federation.monitoring import Metrics
from privatile.federation.setup.broker import EmbeddedBroker
from privatile.federation.study.study import FederationStudy
from privatile.federation.wire import subjects
from privatile.federation.wire.connection import Backoff, Connection, Msg, connected
from privatile.federation.wire.keys import KeyPair
from privatile.federation.wire.messages import AskMessage, Notice, State
from privatile.server.coordinator import Coordinator

log = logging.getLogger("privatile.federation.coordinator")

End = Literal["finished", "stopped", "aborted"]

TICK = 1.0
"""Seconds between looks at requests and at the roster."""


STREAM_BYTES = 64 << 20
"""What the broker keeps of each stream: a thousand rounds of a hundred clients, of which only the last matters."""


class CoordinatorService:
    """One run of one study over a broker."""

    def __init__(
        self,
        study: FederationStudy,
        key: KeyPair,
        coordinator: Coordinator,
        journal: Journal,
        *,
        urls: Sequence[str],
        authority: str,
        signers: Callable[[], Mapping[str, str]],
        broker: EmbeddedBroker | None = None,
        control: Control | None = None,
        metrics: Metrics | None = None,
        exit_when_paused: bool = False,
        replicas: int = 1,
        backoff: Backoff | None = None,
    ) -> None:
        self.study = study
        self.metrics = metrics or Metrics("privatile")
        self._digest = study.digest
        self._key = key
        self._coordinator = coordinator
        self._journal = journal
        self._urls = urls
        self._authority = authority
        self._load_signers = signers
        self._broker = broker
        self._control = control
        self._exit_when_paused = exit_when_paused
        self._replicas = replicas
        self._backoff = backoff or Backoff(longest=2.0)
        self._reception = AnswerIntake(study, coordinator, journal, self.metrics, signers())
        self._collection: Collection | None = None
        self._payload = b""
        self._paused_for = ""
        self._next_look = 0.0
        self._changed = asyncio.Event()
        self._stop = asyncio.Event()
        self._abort = False
        self._end: End | None = None

    # -- for people and programs beside the loop -----------------------------------------------------------------

    def stop(self) -> None:
        """Persist what is done, tell the clients, return."""
        self._stop.set()
        self._changed.set()

    @property
    def pending(self) -> AskMessage | None:
        """The round that is being asked."""
        if self._collection is None:
            return None
        return AskMessage.of(self._digest, self._collection.questions)

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether the run is under way, and where it stands."""
        done, planned = self._coordinator.done, self._coordinator.planned
        missing = [] if self._collection is None else self._collection.missing[:100]
        facts = {
            "run": self._coordinator.run,
            "round": done,
            "rounds": planned,
            "connected": bool(self.metrics.value("connected")),
            "paused": self._paused_for or None,
            "waiting_for": missing,
            "quarantined": sorted(self._reception.quarantined),
        }
        return bool(facts["connected"]) and not self._paused_for, facts

    # -- connecting ----------------------------------------------------------------------------------------------

    async def run(self) -> End:
        """Carry the run to its end, or until somebody stops it."""
        if self._journal.aborted():
            self._abort = True
            self._stop.set()
        while self._end is None:
            try:
                async with connected("coordinator", self._urls, self._key, self._authority) as connection:
                    await self._prepare(connection)
                    self._backoff.reset()
                    self.metrics.set("connected", 1)
                    log.info("connected", extra={"facts": {"broker": ", ".join(self._urls)}})
                    await self._session(connection)
            except (BrokerError, nats.errors.Error, TimeoutError) as error:
                reason = str(error) or type(error).__name__
                log.warning("no broker", extra={"facts": {"reason": reason}})
            self.metrics.set("connected", 0)
            if self._end is None and self._stop.is_set():
                self._end = "stopped"
            if self._end is None:
                await self._recover()
        return self._end

    async def _recover(self) -> None:
        self.metrics.add("reconnects")
        if self._broker is not None and not self._broker.alive():
            log.warning("the embedded broker is gone; starting it again")
            try:
                await asyncio.to_thread(self._broker.start)
            except BrokerError as error:
                log.error("the broker does not start", extra={"facts": {"reason": str(error)}})
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), self._backoff.next())

    async def _prepare(self, connection: Connection) -> None:
        identity, nc = self.study.identity, connection.nc
        js = nc.jetstream(timeout=5)
        for name, subject in (
            (subjects.ask_stream(identity), subjects.ask_subject(identity)),
            (subjects.answer_stream(identity), subjects.answer_subject(identity, "*")),
        ):
            config = StreamConfig(
                name=name,
                subjects=[subject],
                retention=RetentionPolicy.LIMITS,
                storage=StorageType.FILE,
                discard=DiscardPolicy.OLD,
                # By size alone: a limit of one message a subject would cost a deletion a message.
                max_bytes=STREAM_BYTES,
                num_replicas=self._replicas,
                allow_direct=True,
            )
            await js.add_stream(config)

        async def on_answer(message: Msg) -> None:
            self._on_answer(message.subject.rpartition(".")[2], message.data)

        async def on_hello(message: Msg) -> None:
            await self._on_hello(connection, message.subject.rpartition(".")[2], message.data)

        # A thousand clients answer within milliseconds of each other: the buffers must hold a round of the largest.
        for subject, callback in (
            (subjects.answer_subject(identity, "*"), on_answer),
            (subjects.hello_subject(identity, "*"), on_hello),
        ):
            await nc.subscribe(subject, cb=callback, pending_msgs_limit=1_000_000, pending_bytes_limit=1 << 30)

    # -- rounds --------------------------------------------------------------------------------------------------

    async def _session(self, connection: Connection) -> None:
        watcher = asyncio.create_task(self._watch(connection))
        try:
            first = True
            while self._end is None and not connection.lost.is_set():
                if self._stop.is_set():
                    await self._say_goodbye(connection)
                    return
                if self._collection is None and not self._open_round():
                    await self._finish(connection)
                    return
                await self._publish(connection, self._payload)
                if first:
                    await self._read_mailbox(connection)
                    first = False
                await self._collect(connection)
        finally:
            watcher.cancel()
            self._reception.keep_heard()

    async def _watch(self, connection: Connection) -> None:
        await connection.lost.wait()
        self._changed.set()

    def _open_round(self) -> bool:
        rounds = self._coordinator.rounds()
        if rounds is None:
            return False
        names = [client.name for client in self._coordinator.tracks[0].plan.clients]
        questions = {name: tuple(one.questions[k] for one in rounds) for k, name in enumerate(names)}
        self._collection = Collection(self._digest, questions, self._reception.signers, self._reception.links)
        self._payload = AskMessage.of(self._digest, questions).pack(self._key)
        for name in names:
            self._reception.asked[name] += sum(question.length for question in questions[name])
        return True

    async def _publish(self, connection: Connection, payload: bytes) -> None:
        """Publish to the stream and wait until it is on the disk; say so where the broker cannot keep it."""
        subject = subjects.ask_subject(self.study.identity)
        try:
            reply = await connection.nc.request(subject, payload, timeout=5.0)
        except (nats.errors.Error, TimeoutError) as error:
            if not connection.lost.is_set():
                log.warning("the broker did not confirm a question", extra={"facts": {"reason": type(error).__name__}})
            return
        kept = json.loads(reply.data)
        if "error" in kept:
            reason = str(kept["error"].get("description", "no reason given"))
            self._reception.event("broker", f"the broker could not store a question: {reason}. Is its disk full?")

    async def _read_mailbox(self, connection: Connection) -> None:
        """Answers that came in while no coordinator listened."""
        stream = subjects.answer_stream(self.study.identity)
        if self._collection is None:
            return

        async def look(client: str) -> None:
            payload = await connection.last(stream, subjects.answer_subject(self.study.identity, client))
            if payload is not None:
                self._on_answer(client, payload, from_mailbox=True)

        missing = self._collection.missing
        for start in range(0, len(missing), 100):
            await asyncio.gather(*(look(client) for client in missing[start : start + 100]))

    async def _collect(self, connection: Connection) -> None:
        """Wait until the round may be closed, then step and persist."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.study.deadline
        began = loop.time()
        while not self._may_close(late=loop.time() >= deadline):
            if connection.lost.is_set():
                return
            if self._stop.is_set():
                await self._say_goodbye(connection)
                return
            self._changed.clear()
            # Timers that set the event are far cheaper, round for round, than a wait with a timeout.
            wake = loop.call_at(
                min(loop.time() + TICK, deadline if loop.time() < deadline else math.inf), self._changed.set
            )
            await self._changed.wait()
            wake.cancel()
            self._look_around()
        self._close_round()
        self.metrics.set("round_seconds", loop.time() - began)
        if self._stop.is_set():
            await self._say_goodbye(connection)

    def _may_close(self, *, late: bool) -> bool:
        collection = self._collection
        if collection is None:
            return False
        missing = collection.missing
        if self._reception.quarantined:
            names = ", ".join(sorted(self._reception.quarantined))
            self._pause(f"quarantined: {names}. Decide with `privatile federation resume` or `abort`")
            return False
        if not missing:
            return True
        enough = len(collection.answers) >= self.study.quorum
        if not enough and not late:
            return False
        absent = self._cannot_stand_in(missing)
        if absent:
            if late:
                self._pause(absent)
            return False
        if not collection.answers:
            self._pause("no client answered within the deadline")
            return False
        return True

    def _cannot_stand_in(self, missing: Sequence[str]) -> str:
        """Why the last means of silent clients cannot stand in for them; empty when they can."""
        gone = set(missing)
        for track in self._coordinator.tracks:
            if track.ask is None:
                continue
            for client, used in zip(track.plan.clients, track.state.used, strict=True):
                if client.name not in gone:
                    continue
                if not used:
                    return f"client {client.name} has never answered: the first round needs every client"
                if used - 1 >= self.study.patience:
                    return f"client {client.name} has been silent for {used - 1} rounds"
        return ""

    def _pause(self, reason: str) -> None:
        if reason == self._paused_for:
            return
        self._paused_for = reason
        self.metrics.set("paused", 1)
        self._reception.event("paused", f"{reason}. The run goes on by itself when the missing answers come.")
        if self._exit_when_paused:
            raise RunPaused(f"the run is paused: {reason}. Start it again with `privatile serve` to go on.")

    def _close_round(self) -> None:
        collection = self._collection
        if collection is None:
            return
        names = list(collection.questions)
        counts = [
            [collection.answers[name].ones[place] if name in collection.answers else None for name in names]
            for place in range(len(collection.questions[names[0]]))
        ]
        self._coordinator.accept(counts, self._journal.evidence_rows(collection.round, collection.answers))
        for name, accepted in collection.answers.items():
            self._reception.links[name] = accepted.ledger
        if self._paused_for:
            self._paused_for = ""
            self.metrics.set("paused", 0)
            self._reception.event("resumed", f"round {collection.round} is complete")
        silent = collection.missing
        self._collection = None
        self.metrics.set("round", self._coordinator.done)
        self.metrics.add("rounds")
        if silent:
            self.metrics.add("silent", len(silent))
            log.info("silent", extra={"facts": {"round": collection.round, "clients": ", ".join(silent[:20])}})
        log.debug("round", extra={"facts": {"round": collection.round, "answers": len(collection.answers)}})
        self._reception.look_for_lies()

    async def _finish(self, connection: Connection) -> None:
        if not self._coordinator.store.finished:
            self._coordinator.finish()
            self._reception.event("finished", f"all {self._coordinator.done} rounds are done")
        await self._notice(connection, "finished", "the study is complete; thank you")
        self._end = "finished"

    async def _say_goodbye(self, connection: Connection) -> None:
        if self._abort:
            self._reception.event("aborted", "the run was aborted; what was answered stays spent")
            await self._notice(connection, "aborted", "the organizer has aborted this run")
            self._end = "aborted"
        else:
            await self._notice(connection, "stopped", "the coordinator was stopped and will be back")
            self._end = "stopped"

    async def _notice(self, connection: Connection, state: State, reason: str) -> None:
        await self._publish(connection, Notice(self._digest, self._coordinator.run, state, reason).pack(self._key))

    # -- what comes in -------------------------------------------------------------------------------------------

    def _on_answer(self, client: str, payload: bytes, *, from_mailbox: bool = False) -> None:
        collection = self._collection
        self._reception.take(collection, client, payload, from_mailbox=from_mailbox)
        enough = collection is not None and len(collection.answers) >= self.study.quorum
        if enough or self._reception.quarantined:
            self._changed.set()

    async def _on_hello(self, connection: Connection, client: str, payload: bytes) -> None:
        welcome = self._reception.greet(self._collection, client, payload, time.time())
        if welcome is not None:
            subject = subjects.welcome_subject(self.study.identity, client)
            with contextlib.suppress(nats.errors.Error):
                await connection.nc.publish(subject, welcome.pack(self._key))

    # -- beside the rounds ---------------------------------------------------------------------------------------

    def _look_around(self) -> None:
        """Requests of other commands, and keys that were admitted, rotated or revoked."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + TICK
        self._reception.refresh(self._load_signers())
        self._reception.keep_heard()
        for action, client in self._control.take() if self._control is not None else []:
            if action == "abort":
                self._abort = True
                self.stop()
            elif action == "readmit":
                self._reception.readmit(client)
