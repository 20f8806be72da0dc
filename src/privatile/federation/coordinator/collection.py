"""One round's answers on their way in: who has answered what, and why anything else was turned away. No I/O.

Every payload gets one verdict:

    counted      the client's counts of this round
    duplicate    the same counts again
    late         an earlier round's answer
    rejected     malformed, wrong signer, wrong study or run, counts out of range: an offence
    forked       the ledger behind it has gone back, or is one of two copies: provable, at once
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Question
from privatile.errors import ProtocolError
from privatile.federation.wire.messages import LARGEST_ANSWER, AnswerMessage, Link, read_message, unquoted

Outcome = Literal["counted", "duplicate", "late", "rejected", "forked"]

MOST_OFFENCES = 3
"""Rejected answers of one client after which it is quarantined."""

IMPOSSIBLE = 5.0
"""Standard errors by which a share of ones must leave its possible range: 3·10⁻⁷ for an honest client at the edge."""


class Verdict(NamedTuple):
    """What became of a payload; `reason` quotes nothing of it."""

    outcome: Outcome
    reason: str = ""


class Accepted(NamedTuple):
    """A client's counts of the round and the evidence behind them."""

    ones: tuple[int, ...]
    ledger: Link
    signer: str
    """The key that was good when the answer came in: it may be replaced or revoked before the round closes."""
    signature: bytes


@dataclass
class Collection:
    """The answers to one round's questions."""

    study: str
    questions: Mapping[str, Sequence[Question]]
    signers: Mapping[str, str]
    links: Mapping[str, Link]
    """The last link seen of each client's ledger, before this round."""
    answers: dict[str, Accepted] = field(default_factory=dict)

    @property
    def round(self) -> int:
        """The round that is being asked."""
        return next(iter(self.questions.values()))[0].round

    @property
    def missing(self) -> list[str]:
        """Clients that have not answered yet."""
        return [client for client in self.questions if client not in self.answers]

    def offer(self, client: str, payload: bytes) -> Verdict:
        """Judge a payload that came in on `client`'s subject; count it if it is this round's answer."""
        signer = self.signers.get(client)
        asked = self.questions.get(client)
        if signer is None or asked is None:
            return Verdict("rejected", "this client is not part of the round")
        try:
            message = read_message(payload, signer, LARGEST_ANSWER)
        except ProtocolError as error:
            return Verdict("rejected", str(error))
        if not isinstance(message, AnswerMessage) or message.client != client:
            return Verdict("rejected", "the message is not an answer of this client")
        if message.study != self.study or message.run != asked[0].run:
            return Verdict("rejected", "the answer belongs to another study or run")
        if message.round < self.round:
            return Verdict("late")
        if message.round > self.round:
            return Verdict("rejected", "the answer is to a round that was never asked")
        try:
            if len(message.answers) != len(asked):
                raise ProtocolError(f"one count a level, {len(asked)}, was asked; got {len(message.answers)}.")
            for answer, question in zip(message.answers, asked, strict=True):
                answer.check(question)
        except ProtocolError as error:
            return Verdict("rejected", unquoted(error))
        ones = tuple(answer.ones for answer in message.answers)
        return self._enter(client, Accepted(ones, message.ledger, signer, payload.rpartition(b"\n")[2]))

    def _enter(self, client: str, accepted: Accepted) -> Verdict:
        before = self.answers.get(client)
        if before is not None:
            if (before.ones, before.ledger) == (accepted.ones, accepted.ledger):
                return Verdict("duplicate")
            return Verdict("forked", "two different answers to one round: two copies of its ledger are in use")
        seen = self.links.get(client)
        if seen is not None and accepted.ledger.sequence <= seen.sequence:
            return Verdict(
                "forked",
                f"its ledger stands at entry {accepted.ledger.sequence}, but entry {seen.sequence} was seen before: "
                "it was restored from a backup, or is one of two copies",
            )
        self.answers[client] = accepted
        return Verdict("counted")


def impossible_share(ones: int, asked: int, mechanism: RandomizedResponse) -> bool:
    """Whether a cumulative share of ones leaves [(1−r)/2, (1+r)/2] by 5 standard errors: provably a lie.

    >>> coin = RandomizedResponse(0.5)
    >>> impossible_share(760, 1000, coin), impossible_share(900, 1000, coin), impossible_share(100, 1000, coin)
    (False, True, True)
    """
    if not asked:
        return False
    low = (1.0 - mechanism.truth_rate) / 2.0
    # At either end the variance of a report is the same, (1 − r²)/4.
    margin = IMPOSSIBLE * math.sqrt(low * (1.0 - low) / asked)
    share = ones / asked
    return share < low - margin or share > 1.0 - low + margin
