"""Handing out the question: who gets it, who waits a moment for the next round's, who is told to come again."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from privatile.errors import StoreError
from privatile.server.open_rounds import Phase
from privatile.survey.intake import MOST_WAITING, Intake, Outcome
from privatile.survey.store import FREE, SPENT

PATIENCE = 0.5
"""Seconds that somebody who asks is kept while a round closes; most rounds close in less."""


class Refusal(Exception):
    """Why a request with a code gets nothing: `unknown`, `spent`, `closed`, `wait`."""


class HandedQuestion(NamedTuple):
    """A question, and whether its code was given one before."""

    round: int
    query: float
    handed_before: bool


class QuestionRequest(NamedTuple):
    """Somebody who asks for the question."""

    code: bytes
    """Its hash."""
    place: int
    visit: str
    reply: Callable[[HandedQuestion | Exception], None]


class Questions:
    """The open question, and those who wait for one."""

    def __init__(self, intake: Intake, *, keep: bool) -> None:
        """With `keep` people are kept while a round closes: there is somebody who closes it."""
        self._intake = intake
        self._keep = keep
        self._queries: dict[int, float] = {}
        self._waiting: list[QuestionRequest] = []
        """Kept, all until the same moment."""
        self._patience: asyncio.TimerHandle | None = None

    def open(self, round: int, query: float) -> None:
        """A round asks from now on."""
        self._queries = {round: query}
        self._hand_out_again()

    def stop(self) -> None:
        """Keep nobody any more."""
        self._keep = False
        self._hand_out_again()

    def hand_out(self, request: QuestionRequest, *, again: bool = False) -> None:
        """Hand the question out, or raise a refusal. Nobody is kept twice."""
        if self._intake.table.states[request.place] in SPENT:
            raise Refusal("spent")
        if self._intake.state.phase is Phase.OPEN:
            self._intake.hand_out(
                request.code, request.place, request.visit, lambda outcome: self._reply(request, outcome, again)
            )
        else:
            self._keep_waiting(request, again)

    def _reply(self, request: QuestionRequest, outcome: Outcome | StoreError, again: bool) -> None:
        if isinstance(outcome, StoreError):
            request.reply(outcome)
        elif outcome.spent_before:
            request.reply(Refusal("spent"))
        elif outcome.accepted and (query := self._queries.get(outcome.round)) is not None:
            request.reply(HandedQuestion(outcome.round, query, outcome.before != FREE))
        else:  # the round began to drain meanwhile
            try:
                self._keep_waiting(request, again)
            except Refusal as refusal:
                request.reply(refusal)

    def _keep_waiting(self, request: QuestionRequest, again: bool) -> None:
        if self._intake.state.phase is Phase.CLOSED:
            raise Refusal("closed")
        if again or not self._keep or len(self._waiting) >= MOST_WAITING:
            raise Refusal("wait")
        if not self._waiting:
            self._patience = asyncio.get_running_loop().call_later(PATIENCE, self._hand_out_again)
        self._waiting.append(request)

    def _hand_out_again(self) -> None:
        waiting, self._waiting = self._waiting, []
        if self._patience is not None:
            self._patience.cancel()
        for request in waiting:
            try:
                self.hand_out(request, again=True)
            except (Refusal, StoreError) as error:
                request.reply(error)
