"""The client's service: connect outward, say hello, answer what the site's limits and ledger allow, for months.

Whatever is lost on the way is asked again, and a question that is asked again gets the stored count. So every failure
of the network, of the broker or of this process has the same remedy: connect, say hello, look up the last question.
"""

import asyncio
import contextlib
import logging
import math
import secrets
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, TypeVar

import nats.errors

from privatile.errors import BrokerError, Equivocation, LedgerError, PrivatileError, ProtocolError, SiteRefusal
from privatile.federation import wire as subjects
from privatile.federation import wire as wire
from privatile.federation.connection import Backoff, Connection, Msg, connected
from privatile.federation.monitoring import CLIENT_METRICS, Metrics, facts
from privatile.federation.setup.invitation import Invitation
from privatile.federation.site.limits import SiteLimits, check_questions
from privatile.federation.site.responder import SiteResponder
from privatile.federation.wire import AskMessage, Hello, Link, Notice, Welcome
from privatile.records.keys import KeyPair

log = logging.getLogger("privatile.federation.client")

T = TypeVar("T")
End = Literal["finished", "aborted", "stopped"]

HEARTBEAT = 15.0
"""Seconds between hellos of an idle client; also how long a question can stay unseen after a lost message."""

SILENCE_SECONDS = 5.0
"""How long a coordinator may be silent before the client says that it waits for one."""

CHALLENGE_SECONDS = 1.0
"""Seconds between two replies to hellos that another process may have sent: a flood of old ones costs little."""

KEPT_NONCES = 16
"""Own hellos that may still be echoed."""

NO_COORDINATOR = (
    "the broker answers, but no coordinator of this study does. It may not have been started yet (privatile serve), "
    "the invitation may be of another study, or the coordinator may run another version of privatile: ask the "
    "organizer. This client goes on by itself as soon as there is one"
)

AT_ONCE = 20_000
"""Records answered without the worker thread: under a millisecond of work, less than the thread would cost."""


@dataclass(eq=False, repr=False)
class ClientService:
    """One client of one study."""

    invitation: Invitation
    key: KeyPair
    limits: SiteLimits
    responder: SiteResponder
    _: KW_ONLY
    restored: bool = False
    """The site says that its ledger was restored from a backup."""
    heartbeat: float = HEARTBEAT
    backoff: Backoff = field(default_factory=Backoff)

    def __post_init__(self) -> None:
        self.study = self.invitation.study
        self.client = self.invitation.client
        self.metrics = Metrics("privatile_client", CLIENT_METRICS)
        self._instance = secrets.token_hex(16)
        self._nonces: deque[str] = deque(maxlen=KEPT_NONCES)
        """Of the last hellos: who echoes one of them is there now."""
        self._last_welcome: str | None = None
        """The nonce of the last welcome."""
        self._challenged_at = -math.inf
        self._restored: Link | None = None
        self._stop = asyncio.Event()
        self._end: End | None = None
        self._failure: PrivatileError | None = None
        self._welcomed = False
        self._outdated = False
        """The coordinator runs another version of the study, and this one has asked nothing."""
        self._refused = 0
        self._answering = asyncio.Lock()
        self._wake = asyncio.Event()
        # The ledger's work is done in one thread, so that a large cohort does not delay heartbeats.
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="responder")

    def stop(self) -> None:
        """Finish the current answer and return."""
        self._stop.set()
        self._wake.set()

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether the client is connected and welcomed."""
        connected = bool(self.metrics.value("connected"))
        number = int(self.metrics.value("round"))
        details = {"client": self.client, "connected": connected, "welcomed": self._welcomed, "round": number}
        return connected and self._welcomed, details

    @property
    def _over(self) -> bool:
        return self._end is not None or self._failure is not None or self._stop.is_set()

    async def run(self) -> End:
        """Serve until the study ends or somebody stops this client; refusals of limits or ledger are raised."""
        try:
            while not self._over:
                try:
                    async with connected(
                        self.client, self.invitation.brokers, self.key, self.invitation.authority, self._wake.set
                    ) as connection:
                        self.backoff.reset()
                        log.info("connected", extra=facts(client=self.client))
                        self.metrics.set("connected", 1)
                        await self._session(connection)
                except (BrokerError, nats.errors.Error) as error:  # the latter: lost before the first subscription
                    reason = str(error) or type(error).__name__
                    log.warning("no connection", extra=facts(client=self.client, reason=reason))
                self.metrics.set("connected", 0)
                if not self._over:
                    self.metrics.add("reconnects")
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._stop.wait(), self.backoff.next())
            if self._end is not None or self._outdated:
                await self._release()
        finally:
            self._worker.shutdown(wait=True)
        if self._failure is not None:
            raise self._failure
        return self._end or "stopped"

    async def _release(self) -> None:
        try:
            await self._in_worker(self.responder.account.release)
        except LedgerError as error:
            # The study is over all the same; `privatile ledger release` does it later.
            log.warning("records stay reserved", extra=facts(client=self.client, reason=str(error)))

    async def _session(self, connection: Connection) -> None:
        identity, nc = self.study.identity, connection.nc
        self._welcomed = False
        skipped: bytes | None = None

        async def on_ask(message: Msg) -> None:
            # Only the newest question matters: rounds that are closed count no more answers. What the coordinator
            # has not signed is no question, and must not hide the one before it.
            nonlocal skipped
            if questions.pending_msgs:
                skipped = message.data if self._is_ask(message.data) else skipped
                return
            newest = message.data if skipped is None or self._is_ask(message.data) else skipped
            skipped = None
            await self._on_ask(connection, newest)

        async def on_welcome(message: Msg) -> None:
            await self._on_welcome(connection, message.data)

        async def on_hello(message: Msg) -> None:
            await self._on_own_hello(connection, message.data)

        await nc.subscribe(subjects.welcome_subject(identity, self.client), cb=on_welcome)
        await nc.subscribe(subjects.hello_subject(identity, self.client), cb=on_hello)
        questions = await nc.subscribe(subjects.ask_subject(identity), cb=on_ask)
        await self._say_hello(connection)
        settled, waits_from = False, asyncio.get_running_loop().time() + SILENCE_SECONDS
        while not (self._over or connection.lost.is_set()):
            try:
                # Until the coordinator has replied, say hello again soon: it may not have been there. Look up the
                # question soon as well, once: a new subscription may miss what is published in its first moment.
                await asyncio.wait_for(self._wake.wait(), self.heartbeat if settled else min(2.0, self.heartbeat))
            except TimeoutError:
                settled = self._welcomed
                if not self._welcomed and asyncio.get_running_loop().time() >= waits_from:
                    waits_from = math.inf
                    log.warning("waiting", extra=facts(client=self.client, reason=NO_COORDINATOR))
                await self._say_hello(connection)
                if self._welcomed and not await self._look_up(connection):
                    return  # a working broker would give the question that it keeps: this connection is dead
            self._wake.clear()

    async def _look_up(self, connection: Connection) -> bool:
        """Answer the last question that the broker keeps; False where it gives none."""
        identity = self.study.identity
        payload = await connection.last(subjects.ask_stream(identity), subjects.ask_subject(identity))
        if payload is not None:
            await self._on_ask(connection, payload)
        return payload is not None

    async def _in_worker(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    # -- hello and welcome ---------------------------------------------------------------------------------------

    async def _say_hello(self, connection: Connection, echo: str | None = None) -> None:
        """`echo` is the nonce of another process's hello; without it, that of the last welcome."""
        link = await self._in_worker(self.responder.link)
        nonce = secrets.token_hex(16)
        self._nonces.append(nonce)
        echo = echo or self._last_welcome
        hello = Hello(self.study.digest, self.client, self._instance, link, self._restored, nonce, echo)
        with contextlib.suppress(Exception):  # a connection that is just being lost: the next one says hello again
            await connection.nc.publish(subjects.hello_subject(self.study.identity, self.client), hello.pack(self.key))

    async def _on_own_hello(self, connection: Connection, payload: bytes) -> None:
        """Stop where another process uses this client's key, now: it has signed a nonce of this one.

        Any other hello may have been recorded earlier. The reply to it holds a new nonce; a live holder signs it.
        """
        try:
            message = wire.read_message(payload, self.key.public.signer, wire.LARGEST_ANSWER)
        except ProtocolError:
            return
        if not isinstance(message, Hello) or message.study != self.study.digest or message.instance == self._instance:
            return
        if message.echo not in self._nonces:
            now = asyncio.get_running_loop().time()
            if now >= self._challenged_at + CHALLENGE_SECONDS:
                self._challenged_at = now
                await self._say_hello(connection, echo=message.nonce)
            return
        # Let the other hear us too, so that both stop; this one stops in any case.
        await self._say_hello(connection, echo=message.nonce)
        with contextlib.suppress(Exception):
            await connection.nc.flush(2)
        self._fail(
            SiteRefusal(
                f"another process is answering with the key of client {self.client}: two live holders of one key. Both "
                "stop. Find the other one (a copied folder, a service left running), remove it, then start one again."
            )
        )

    async def _on_welcome(self, connection: Connection, payload: bytes) -> None:
        try:
            message = wire.read_message(payload, self.invitation.coordinator.signer, wire.LARGEST_ANSWER)
        except ProtocolError as error:
            self._refuse("a welcome", str(error))
            return
        if not isinstance(message, Welcome) or message.client != self.client or message.instance != self._instance:
            return
        if message.echo not in self._nonces:
            return  # not the reply to a hello of a moment ago
        self._last_welcome = message.nonce
        if message.study != self.study.digest:
            self._outdated = not await self._in_worker(lambda: self.responder.account.state().asked)
            self._fail(
                SiteRefusal(
                    "the coordinator runs another version of this study than the invitation's. Ask for the new "
                    "invitation, read it, and join with that. "
                    + ("What was reserved for this version is free again." if self._outdated else "")
                )
            )
            return
        if message.refusal:
            self._fail(SiteRefusal(f"the coordinator refuses client {self.client}: {message.refusal}"))
            return
        try:
            await self._in_worker(lambda: self._check_past(message))
        except LedgerError as error:
            self._fail(error)
            return
        if self._restored is not None and message.ledger == self._restored:
            # The coordinator has not yet heard which past was lost: say it.
            await self._say_hello(connection)
            return
        if not self._welcomed:
            self._welcomed = True
            self.metrics.set("welcomed", 1)
            log.info("welcomed", extra=facts(client=self.client, round=message.round))
            await self._say_hello(connection)  # with the nonce of the welcome: now the coordinator knows it is no echo
            await self._look_up(connection)

    def _check_past(self, message: Welcome) -> None:
        """Compare what the coordinator says was asked with the ledger; what a restored one lacks is marked as spent."""
        if message.ledger is not None and message.ledger == self._restored:
            return
        first = self.restored and self._restored is None
        if self.responder.check_past(message.ledger, message.records, message.round, restored=first):
            self._restored = message.ledger
            log.warning(
                "restored ledger: unaccounted records are marked as spent",
                extra=facts(client=self.client, round=message.round),
            )

    # -- questions -----------------------------------------------------------------------------------------------

    def _is_ask(self, payload: bytes) -> bool:
        """Whether this is a question or notice that the coordinator has signed for this study."""
        try:
            message = wire.read_message(payload, self.invitation.coordinator.signer, wire.LARGEST_ASK)
        except ProtocolError:
            return False
        return isinstance(message, AskMessage | Notice) and message.study == self.study.digest

    async def _on_ask(self, connection: Connection, payload: bytes) -> None:
        if not self._welcomed:
            # A question came before the welcome: the coordinator is there now.
            await self._say_hello(connection)
            return
        # A question that is looked up and the same one that is delivered must not compete for the ledger.
        async with self._answering:
            await self._answer(connection, payload)

    async def _answer(self, connection: Connection, payload: bytes) -> None:
        try:
            message = wire.read_message(payload, self.invitation.coordinator.signer, wire.LARGEST_ASK)
            if message.study != self.study.digest:
                raise ProtocolError("it belongs to another study, or to another version of this one.")
            if isinstance(message, Notice):
                self._on_notice(message)
                return
            if not isinstance(message, AskMessage):
                raise ProtocolError("it is neither a question nor a notice.")
            questions = message.questions(self.client)
            check_questions(self.study, questions)
            for question in questions:
                self.limits.check_length(question)
        except (ProtocolError, SiteRefusal) as error:
            self._refuse("a question", str(error))
            return
        if not questions:
            return
        study = self.study.digest
        try:
            if sum(question.length for question in questions) <= AT_ONCE and not self.study.is_open:
                answer = self.responder.message(study, questions)
            else:
                answer = await self._in_worker(lambda: self.responder.message(study, questions))
        except (Equivocation, SiteRefusal) as error:
            if isinstance(error, Equivocation):
                self.metrics.add("equivocations")
                log.error("equivocation", extra=facts(client=self.client, round=message.round))
            self._refuse("a question", str(error))
            return
        except PrivatileError as error:
            self._fail(error)
            return
        if answer is None:
            return  # too few have come: the question is looked up again
        with contextlib.suppress(Exception):  # a lost connection: the question is looked up again after the next
            await connection.nc.publish(
                subjects.answer_subject(self.study.identity, self.client), answer.pack(self.key)
            )
        self.metrics.add("answers")
        self.metrics.set("round", message.round)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("answered", extra=facts(client=self.client, round=message.round))

    def _on_notice(self, notice: Notice) -> None:
        log.info("notice", extra=facts(client=self.client, state=notice.state, reason=notice.reason))
        if notice.run == self.study.run and notice.state in ("finished", "aborted"):
            self._end = "finished" if notice.state == "finished" else "aborted"
            self._wake.set()

    def _refuse(self, what: str, reason: str) -> None:
        self.metrics.add("refused")
        self._refused += 1
        if self._refused > 20 and self._refused & (self._refused - 1):
            return  # from here on only the 32nd, 64th, 128th … is logged: a flood must not fill the disk
        log.warning("refused", extra=facts(client=self.client, what=what, reason=reason))

    def _fail(self, error: PrivatileError) -> None:
        self._failure = self._failure or error
        self._wake.set()
