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


class Handed(NamedTuple):
    """A question, and whether its code was given one before."""

    round: int
    query: float
    handed_before: bool


class Asked(NamedTuple):
    """Somebody who asks."""

    code: bytes
    """Its hash."""
    place: int
    visit: str
    reply: Callable[[Handed | Exception], None]


class Questions:
    """The open question, and those who wait for one."""

    def __init__(self, intake: Intake, *, keep: bool) -> None:
        """With `keep` people are kept while a round closes: there is somebody who closes it."""
        self._intake = intake
        self._keep = keep
        self._queries: dict[int, float] = {}
        self._held: list[Asked] = []
        """Kept, all until the same moment."""
        self._patience: asyncio.TimerHandle | None = None

    def open(self, round: int, query: float) -> None:
        """A round asks from now on."""
        self._queries = {round: query}
        self._ask_again()

    def stop(self) -> None:
        """Keep nobody any more."""
        self._keep = False
        self._ask_again()

    def ask(self, asked: Asked, *, again: bool = False) -> None:
        """Hand the question out, or raise a refusal. Nobody is kept twice."""
        if self._intake.table.states[asked.place] in SPENT:
            raise Refusal("spent")
        if self._intake.state.phase is Phase.OPEN:
            self._intake.hand(asked.code, asked.place, asked.visit, lambda outcome: self._hand(asked, outcome, again))
        else:
            self._hold(asked, again)

    def _hand(self, asked: Asked, outcome: Outcome | StoreError, again: bool) -> None:
        if isinstance(outcome, StoreError):
            asked.reply(outcome)
        elif outcome.spent_before:
            asked.reply(Refusal("spent"))
        elif outcome.accepted and (query := self._queries.get(outcome.round)) is not None:
            asked.reply(Handed(outcome.round, query, outcome.before != FREE))
        else:  # the round began to drain meanwhile
            try:
                self._hold(asked, again)
            except Refusal as refusal:
                asked.reply(refusal)

    def _hold(self, asked: Asked, again: bool) -> None:
        if self._intake.state.phase is Phase.CLOSED:
            raise Refusal("closed")
        if again or not self._keep or len(self._held) >= MOST_WAITING:
            raise Refusal("wait")
        if not self._held:
            self._patience = asyncio.get_running_loop().call_later(PATIENCE, self._ask_again)
        self._held.append(asked)

    def _ask_again(self) -> None:
        held, self._held = self._held, []
        if self._patience is not None:
            self._patience.cancel()
        for asked in held:
            try:
                self.ask(asked, again=True)
            except (Refusal, StoreError) as error:
                asked.reply(error)
