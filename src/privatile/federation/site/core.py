"""A client without connection, clock or task: its limits, its ledger, and what it replies to every message.

Whatever is lost on the way is asked again, and a question that is asked again gets the stored count.
"""

import logging
import math
import secrets
from collections import deque
from collections.abc import Sequence
from typing import Literal

from privatile.core.messages import Position, Question
from privatile.errors import Equivocation, LedgerError, PrivatileError, ProtocolError, SiteRefusal
from privatile.federation.monitoring import CLIENT_METRICS, Metrics, facts
from privatile.federation.setup.invitation import Invitation
from privatile.federation.site.limits import SiteLimits, check_questions
from privatile.federation.site.responder import SiteResponder
from privatile.federation.wire import (
    MAX_ANSWER,
    MAX_ASK,
    Hello,
    Message,
    Notice,
    RoundQuestions,
    Welcome,
    read_message,
)
from privatile.records.keys import KeyPair

log = logging.getLogger("privatile.federation.client")

End = Literal["finished", "aborted", "stopped"]

CHALLENGE_SECONDS = 1.0
"""Seconds between two replies to hellos that another process may have sent: a flood of old ones costs little."""

KEPT_NONCES = 16
"""Own hellos that may still be echoed."""


class SiteCore:
    """One client of one study. No two of its methods may run at the same time."""

    def __init__(
        self,
        invitation: Invitation,
        key: KeyPair,
        limits: SiteLimits,
        responder: SiteResponder,
        *,
        restored: bool = False,
    ) -> None:
        """`restored`: the site says that its ledger was restored from a backup."""
        self.study, self.client, self.responder = invitation.study, invitation.client, responder
        self.metrics = Metrics("privatile_client", CLIENT_METRICS)
        self.end: End | None = None
        """How the study has ended; None while it goes on."""
        self.failure: PrivatileError | None = None
        """Why this client cannot go on."""
        self.outdated = False
        """The coordinator runs another version of the study, and this one has asked nothing."""
        self._invitation, self._key, self._limits = invitation, key, limits
        self._declared = restored
        self._restored: Position | None = None
        """The link of the lost ledger, once the coordinator has shown it."""
        self._instance = secrets.token_hex(16)
        self._nonces: deque[str] = deque(maxlen=KEPT_NONCES)
        """Of the last hellos: who echoes one of them is there now."""
        self._last_welcome: str | None = None
        """The nonce of the last welcome."""
        self._challenged_at = -math.inf
        self._n_refused = 0
        self.welcome = False
        """Whether the coordinator has welcomed this client since the connection was opened."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to answer."""
        return self.end is not None or self.failure is not None

    def _fail(self, error: PrivatileError) -> None:
        self.failure = self.failure or error

    def _read(self, payload: bytes, largest: int) -> Message:
        return read_message(payload, self._invitation.coordinator.signer, largest)

    # -- hello and welcome ---------------------------------------------------------------------------------------

    def hello(self, echo: str | None = None) -> bytes:
        """A hello; `echo` is the nonce of another process's hello, or of the last welcome."""
        nonce = secrets.token_hex(16)
        self._nonces.append(nonce)
        link, echo = self.responder.link(), echo or self._last_welcome
        hello = Hello(self.study.digest, self.client, self._instance, link, self._restored, nonce, echo)
        return hello.pack(self._key)

    def own_hello(self, payload: bytes, now: float) -> bytes | None:
        """The reply to a hello with this client's key. Another process that uses it now is a failure.

        Such a process has signed a nonce of this one. Any other hello may have been recorded earlier: the reply to it
        holds a new nonce, which a live holder signs. `now` is of a clock that never goes back.
        """
        try:
            message = read_message(payload, self._key.public.signer, MAX_ANSWER)
        except ProtocolError:
            return None
        if not isinstance(message, Hello) or message.study != self.study.digest or message.instance == self._instance:
            return None
        if message.echo in self._nonces:
            self._fail(
                SiteRefusal(
                    f"another process is answering with the key of client {self.client}: two live holders of one key. "
                    "Both stop. Find the other one (a copied folder, a service left running), remove it, then start "
                    "one again."
                )
            )
        elif now < self._challenged_at + CHALLENGE_SECONDS:
            return None
        else:
            self._challenged_at = now
        return self.hello(echo=message.nonce)  # after a failure, too: so that both stop

    def welcomed(self, payload: bytes) -> bytes | None:
        """The hello that replies to a welcome; None where none does."""
        try:
            message = self._read(payload, MAX_ANSWER)
        except ProtocolError as error:
            self._refuse("a welcome", error)
            return None
        if not isinstance(message, Welcome) or message.client != self.client or message.instance != self._instance:
            return None
        if message.echo not in self._nonces:
            return None  # not the reply to a hello of a moment ago
        self._last_welcome = message.nonce
        if message.study != self.study.digest:
            self.outdated = not self.responder.account.state().asked
            free = "What was reserved for this version is free again." if self.outdated else ""
            self._fail(
                SiteRefusal(
                    "the coordinator runs another version of this study than the invitation's. Ask for the new "
                    f"invitation, read it, and join with that. {free}"
                )
            )
            return None
        if message.refusal:
            self._fail(SiteRefusal(f"the coordinator refuses client {self.client}: {message.refusal}"))
            return None
        try:
            self._check_past(message)
        except LedgerError as error:
            self._fail(error)
            return None
        if self._restored is not None and message.ledger == self._restored:
            return self.hello()  # the coordinator has not yet heard which past was lost
        if self.welcome:
            return None
        self.welcome = True
        self.metrics.set("welcomed", 1)
        log.info("welcomed", extra=facts(client=self.client, round=message.round))
        return self.hello()  # with the nonce of the welcome: now the coordinator knows it is no echo

    def _check_past(self, message: Welcome) -> None:
        """Compare what the coordinator says was asked with the ledger; what a restored one lacks is marked as spent."""
        if message.ledger is not None and message.ledger == self._restored:
            return
        first = self._declared and self._restored is None
        if self.responder.check_past(message.ledger, message.records, message.round, restored=first):
            self._restored = message.ledger
            text = "restored ledger: unaccounted records are marked as spent"
            log.warning(text, extra=facts(client=self.client, round=message.round))

    # -- questions -----------------------------------------------------------------------------------------------

    def is_question(self, payload: bytes) -> bool:
        """Whether this is a question or notice that the coordinator has signed for this study."""
        try:
            message = self._read(payload, MAX_ASK)
        except ProtocolError:
            return False
        return isinstance(message, RoundQuestions | Notice) and message.study == self.study.digest

    def asked(self, payload: bytes) -> tuple[Question, ...]:
        """What the coordinator asks of this client; nothing where it asks nothing, or what this site refuses."""
        try:
            message = self._read(payload, MAX_ASK)
            if not isinstance(message, RoundQuestions | Notice):
                raise ProtocolError("it is neither a question nor a notice.")
            if message.study != self.study.digest:
                raise ProtocolError("it belongs to another study, or to another version of this one.")
            if isinstance(message, Notice):
                log.info("notice", extra=facts(client=self.client, state=message.state, reason=message.reason))
                if message.run == self.study.run and message.state in ("finished", "aborted"):
                    self.end = "finished" if message.state == "finished" else "aborted"
                return ()
            questions = message.questions(self.client)
            check_questions(self.study, questions)
            for question in questions:
                self._limits.check_length(question)
        except (ProtocolError, SiteRefusal) as error:
            self._refuse("a question", error)
            return ()
        return questions

    def answer(self, questions: Sequence[Question]) -> bytes | None:
        """The signed answer, which is in the ledger before it is given; None where there is none, or none yet."""
        number = questions[0].round
        try:
            answer = self.responder.message(self.study.digest, questions)
        except (Equivocation, SiteRefusal) as error:
            if isinstance(error, Equivocation):
                self.metrics.add("equivocations")
                log.error("equivocation", extra=facts(client=self.client, round=number))
            self._refuse("a question", error)
            return None
        except PrivatileError as error:
            self._fail(error)
            return None
        if answer is None:
            return None  # too few have come: the question is looked up again
        self.metrics.add("answers")
        self.metrics.set("round", number)
        log.debug("answered", extra=facts(client=self.client, round=number))
        return answer.pack(self._key)

    def _refuse(self, what: str, error: PrivatileError) -> None:
        self.metrics.add("refused")
        self._n_refused += 1
        if self._n_refused > 20 and self._n_refused & (self._n_refused - 1):
            return  # from here on only the 32nd, 64th, 128th … is logged: a flood must not fill the disk
        log.warning("refused", extra=facts(client=self.client, what=what, reason=str(error)))
