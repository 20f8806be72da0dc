"""Handing out the question: who gets it, who waits a moment for the next round's, who is told to come again."""

import asyncio
from contextlib import suppress
from typing import NamedTuple

from privatile.server.open_rounds import Phase
from privatile.survey.intake import MOST_WAITING, Intake
from privatile.survey.store import FREE, SPENT

PATIENCE = 0.5
"""Seconds that a request is kept while a round closes; most rounds close in less."""


class Refusal(Exception):
    """Why a request gets nothing, as `gateway.REFUSALS` names it."""


class HandedQuestion(NamedTuple):
    """A question, and whether its code was given one before."""

    round: int
    query: float
    handed_before: bool


class Questions:
    """The open question, and the requests that wait for one."""

    def __init__(self, intake: Intake, *, keep: bool) -> None:
        """With `keep` requests are kept while a round closes: there is somebody who closes it."""
        self._intake = intake
        self._keep = keep
        self._kept = 0
        """Requests that are kept."""
        self._queries: dict[int, float] = {}
        self._opened = asyncio.Event()
        """Set once the next round is open, then replaced."""

    def open(self, round: int, query: float) -> None:
        """A round asks from now on."""
        self._queries = {round: query}
        self._end_waiting()

    def stop(self) -> None:
        """Keep no request any more."""
        self._keep = False
        self._end_waiting()

    def _end_waiting(self) -> None:
        self._opened.set()
        self._opened = asyncio.Event()

    async def hand_out(self, code: bytes, place: int, visit: str) -> HandedQuestion:
        """The open question, marked on the disk as handed out; a request waits for the next round at most once."""
        for may_wait in (self._keep, False):
            opened = self._opened
            if self._intake.table.states[place] in SPENT:
                raise Refusal("spent")
            if self._intake.state.phase is Phase.OPEN:
                outcome = await self._intake.hand_out(code, place, visit)
                if outcome.spent_before:
                    raise Refusal("spent")
                if outcome.accepted and (query := self._queries.get(outcome.round)) is not None:
                    return HandedQuestion(outcome.round, query, outcome.before != FREE)
            if self._intake.state.phase is Phase.CLOSED:
                raise Refusal("closed")
            if not may_wait or self._kept >= MOST_WAITING:
                break
            self._kept += 1
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(PATIENCE):
                        await opened.wait()
            finally:
                self._kept -= 1
        raise Refusal("wait")
