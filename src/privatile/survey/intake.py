"""Questions handed out and answers taken in, many in one commit; a reply only after its commit.

All changes of a group are made in the event loop's thread, which does nothing else meanwhile; another thread waits for
the disk. While it waits the next group gathers. So the number of commits follows from the disk, not from the visitors.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from privatile.errors import StoreError
from privatile.survey.rounds import OpenRound
from privatile.survey.store import COUNTED, SPENT, Count, SurveyStore

MOST_IN_GROUP = 2_000
"""Changes of one commit: a reply waits for all of them."""

MOST_WAITING = 20_000
"""Changes that wait; beyond that visitors are told to come again, so that memory stays bounded."""


class Outcome(NamedTuple):
    """What became of a request with a code that exists."""

    before: int
    """The state that the code had."""
    accepted: bool
    """The question is handed out; or the answer counts. Of a spent code: its answer counted then."""
    round: int
    """The round whose question is handed out."""

    @property
    def spent_before(self) -> bool:
        """Whether the code was spent already: nothing has changed."""
        return self.before in SPENT


class _Change(NamedTuple):
    code: bytes
    stratum: int
    round: int
    answer: bool | None
    """None: the question is handed out."""
    reply: "asyncio.Future[Outcome]"


class Busy(StoreError):
    """More changes wait than there is memory for."""


class Intake:
    """The one writer of a survey's file."""

    def __init__(self, store: SurveyStore) -> None:
        self.store = store
        self.state: OpenRound = store.round()
        """The open round, as the file has it."""
        self.awaited: set[bytes] | None = None if store.any_handed() else set()
        """Codes that were given the open round's question and have not answered; none after a restart: not known."""
        self.alone = asyncio.Lock()
        """Held by whoever writes: groups of changes, and the steps from round to round."""
        self.arrived: Callable[[], None] = lambda: None
        """Called after every commit that brought answers."""
        self._waiting: list[_Change] = []
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="survey-disk")
        self._task: asyncio.Task[None] | None = None

    def hand(self, code: bytes, stratum: int) -> "asyncio.Future[Outcome]":
        """Hand out the open round's question; done once the mark of it is on the disk."""
        return self._gather(code, stratum, 0, None)

    def take(self, code: bytes, stratum: int, round: int, answer: bool) -> "asyncio.Future[Outcome]":
        """Take an answer in; done once it is on the disk."""
        return self._gather(code, stratum, round, answer)

    def _gather(self, code: bytes, stratum: int, round: int, answer: bool | None) -> "asyncio.Future[Outcome]":
        if len(self._waiting) >= MOST_WAITING:
            raise Busy("too many answers wait for the disk.")
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Outcome] = loop.create_future()
        self._waiting.append(_Change(code, stratum, round, answer, reply))
        if self._task is None:
            self._task = loop.create_task(self._write())
        return reply

    async def _write(self) -> None:
        """Write group after group until nothing waits."""
        try:
            while self._waiting:
                async with self.alone:
                    group, self._waiting = self._waiting[:MOST_IN_GROUP], self._waiting[MOST_IN_GROUP:]
                    await self._commit(group)
        finally:
            self._task = None

    async def _commit(self, group: list[_Change]) -> None:
        try:
            outcomes, came = self._apply(group)
            await self.durably(self.store.commit)
        except Exception as error:
            self.store.roll_back()
            for change in group:
                if not change.reply.done():
                    change.reply.set_exception(StoreError(f"not written ({type(error).__name__})"))
                    change.reply.exception()  # a visitor who has left does not ask for it
            return
        self.state = replace(self.state, came=self.state.came + came)
        for change, outcome in zip(group, outcomes, strict=True):
            if self.awaited is not None and change.answer is None and outcome.accepted:
                self.awaited.add(change.code)
            elif self.awaited is not None and change.answer is not None:
                self.awaited.discard(change.code)
            if not change.reply.done():
                change.reply.set_result(outcome)
        if came:
            self.arrived()

    def _apply(self, group: list[_Change]) -> tuple[list[Outcome], int]:
        """Make all changes of a group, not yet durable; what became of each, and how many answers count."""
        store, state = self.store, self.state
        came, ones, late = ([0] * store.strata for _ in range(3))
        outcomes = []
        store.begin()
        for code, stratum, number, answer, _ in group:
            if answer is None:
                before = store.hand(code) if state.hands_out else store.state_of(code)
                outcomes.append(Outcome(before, state.hands_out and before not in SPENT, state.number))
                continue
            counts = number == state.number and state.counts
            before = store.spend(code, counts)
            if before in SPENT:
                outcomes.append(Outcome(before, before == COUNTED, number))
                continue
            outcomes.append(Outcome(before, counts, number))
            if counts:
                came[stratum] += 1
                ones[stratum] += answer
            else:
                late[stratum] += 1
        store.add([Count(*pair) for pair in zip(came, ones, strict=True)], late)
        return outcomes, sum(came)

    async def durably(self, write: Callable[[], None]) -> None:
        """Let the other thread wait for the disk."""
        await asyncio.get_running_loop().run_in_executor(self._disk, write)

    async def set_round(self, state: OpenRound, *, clear: bool = False) -> None:
        """Write where the round is; the caller holds `alone`. With `clear` the counts begin anew."""
        self.store.begin()
        try:
            self.store.set_round(state)
            if clear:
                self.store.clear_counts()
            await self.durably(self.store.commit)
        except Exception:
            self.store.roll_back()
            raise
        self.state = state

    async def stop(self) -> None:
        """Write what waits, then end the thread."""
        while (task := self._task) is not None:
            await asyncio.gather(task, return_exceptions=True)
        self._disk.shutdown()
