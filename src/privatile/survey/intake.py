"""Questions handed out and answers taken in, many in one commit; a reply only after its commit.

What becomes of each change of a group is decided in memory, then another thread writes all of them at once: it alone
waits for the disk and for a lock on the file that another process holds. While it waits the next group gathers. So the
number of commits follows from the disk, not from the visitors. What is in memory follows the file, after its commit.

A request for the question waits a moment for the next round's where a round is closing; then it is told to come again.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, TypeVar

from privatile.errors import StoreError
from privatile.run.rounds import OpenRound, Phase
from privatile.survey.store import (
    COUNTED,
    FREE,
    HANDED,
    LATE,
    SPENT,
    Altered,
    Changed,
    CodeTable,
    Count,
    Superseded,
    SurveyStore,
)

T = TypeVar("T")

GATHER = 0.004
"""Seconds from one commit's beginning to the next, at least: a disk that is fast would have one for every visitor."""

MIN_WAIT = 0.002
"""Seconds that the first of a group waits for others, at least: those whose replies came together ask together."""

MAX_IN_GROUP = 2_000
"""Changes of one commit: a reply waits for all of them."""

MAX_WAITING = 20_000
"""Changes that wait; beyond that visitors are told to come again, so that memory stays bounded."""

MAX_VISITS = 100_000
"""Devices that are known again: some 20 MB. What is forgotten costs a needless warning."""

PATIENCE = 0.5
"""Seconds that a request is kept while a round closes; most rounds close in less."""


class Refusal(Exception):
    """Why a request gets nothing, as `gateway.REFUSALS` names it."""


class Outcome(NamedTuple):
    """What became of a request with a code that exists."""

    before: int
    """The state that the code had: where it is one of `SPENT`, nothing has changed."""
    accepted: bool
    """The question is handed out; or the answer counts. Of a spent code: its answer counted then."""
    round: int
    """The round whose question is handed out."""


class HandedQuestion(NamedTuple):
    """A question, and whether its code was given one before."""

    round: int
    query: float
    handed_before: bool


class _Change(NamedTuple):
    code: bytes
    """Its hash."""
    place: int
    """The code's, in the table."""
    round: int
    answer: bool | None
    """None: the question is handed out."""
    visit: str
    """By which a device that asks again is known; empty: not at all."""
    reply: "asyncio.Future[Outcome]"
    """What became of it, once it is on the disk; or why it is not."""


class Intake:
    """The one writer of a survey's file."""

    def __init__(self, store: SurveyStore, *, keep: bool) -> None:
        """Read the codes and the open round of a file that nobody else writes.

        With `keep` requests are kept while a round closes: there is somebody who closes it.
        """
        self.store = store
        self.table: CodeTable = store.codes()
        """The codes, as the file has them."""
        self.state: OpenRound = store.round()
        """The open round, as the file has it."""
        self.late = store.late()
        """Answers that came too late, per stratum, as the file has them."""
        self.awaited: set[int] | None = None if HANDED in self.table.states else set()
        """Places of the codes that were given the open round's question and have not answered; none after a restart:
        not known."""
        self.alone = asyncio.Lock()
        """Held by whoever writes: groups of changes, and the steps from round to round."""
        self.arrived: Callable[[], None] = lambda: None
        """Called after every commit that brought answers."""
        self.on_superseded: Callable[[Superseded], None] = lambda error: None
        """Called where another process has become the writer."""
        self._keep = keep
        self._kept = 0
        """Requests that are kept."""
        self._asked: tuple[int, float] = (0, 0.0)
        """The round that asks, and its question."""
        self._opened = asyncio.Event()
        """Set once the next round is open, then replaced."""
        self._first_visits: dict[int, str] = {}
        """Which device a code's question was handed to first, by a random text of its own; in memory alone. So that a
        device whose reply was lost is not taken for a second one."""
        self._last = 0.0
        """When the last commit began, by the loop's clock."""
        self._waiting: list[_Change] = []
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="survey-disk")
        self._task: asyncio.Task[None] | None = None

    def ask(self, number: int, query: float) -> None:
        """A round asks from now on."""
        self._asked = (number, query)
        self._end_waiting()

    def _end_waiting(self) -> None:
        self._opened.set()
        self._opened = asyncio.Event()

    async def hand_out(self, code: bytes, place: int, visit: str) -> HandedQuestion:
        """The open question, marked on the disk as handed out; a request waits for the next round at most once."""
        for may_wait in (self._keep, False):
            opened = self._opened
            if self.table.states[place] in SPENT:
                raise Refusal("spent")
            if self.state.phase is Phase.OPEN:
                outcome = await self.written(code, place, visit=visit)
                if outcome.before in SPENT:
                    raise Refusal("spent")
                number, query = self._asked
                if outcome.accepted and outcome.round == number:
                    return HandedQuestion(number, query, outcome.before != FREE)
            if self.state.phase is Phase.CLOSED:
                raise Refusal("closed")
            if not may_wait or self._kept >= MAX_WAITING:
                break
            self._kept += 1
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(PATIENCE):
                        await opened.wait()
            finally:
                self._kept -= 1
        raise Refusal("wait")

    async def written(
        self, code: bytes, place: int, round: int = 0, answer: bool | None = None, visit: str = ""
    ) -> Outcome:
        """Take an answer in, or without one mark the open question as handed out; returns once it is on the disk."""
        if len(self._waiting) >= MAX_WAITING:
            raise StoreError("too many answers wait for the disk.")
        loop = asyncio.get_running_loop()
        change = _Change(code, place, round, answer, visit, loop.create_future())
        self._waiting.append(change)
        if self._task is None:
            self._task = loop.create_task(self._write())
        return await change.reply

    async def _write(self) -> None:
        """Write group after group until nothing waits."""
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                await asyncio.sleep(max(self._last + GATHER - loop.time(), MIN_WAIT))
                async with self.alone:
                    self._last = loop.time()
                    group, self._waiting = self._waiting[:MAX_IN_GROUP], self._waiting[MAX_IN_GROUP:]
                    await self._commit(group)
        finally:
            self._task = None

    async def _commit(self, group: list[_Change]) -> None:
        try:
            outcomes, changed, counts, late = self._decide(group)
            # Replies from memory alone are the writer's, too.
            await self.on_disk(lambda: self._store(changed, counts, late) if changed else self.store.require_writer())
        except Exception as error:
            if isinstance(error, Superseded):
                self.on_superseded(error)
            elif isinstance(error, Altered):
                # Another program has written: the file is right, and the next attempt goes by it.
                with suppress(StoreError):
                    self.table = await self.on_disk(self.store.codes)
            for change in group:
                if not change.reply.done():  # the visitor has left
                    change.reply.set_exception(StoreError(f"not written ({type(error).__name__})"))
            return
        for _, place, _, after in changed:
            self.table.states[place] = after
        self.late = [before + more for before, more in zip(self.late, late, strict=True)]
        came = sum(one.came for one in counts)
        self.state = replace(self.state, came=self.state.came + came)
        for change, outcome in zip(group, outcomes, strict=True):
            if self.awaited is not None and change.answer is not None:
                self.awaited.discard(change.place)
            elif self.awaited is not None and outcome.accepted:
                self.awaited.add(change.place)
            if not change.reply.done():
                change.reply.set_result(outcome)
        if came:
            self.arrived()

    def _store(self, changed: list[Changed], counts: list[Count], late: list[int]) -> None:
        with self.store.transaction():
            self.store.change(changed)
            self.store.add(counts, late)

    def _decide(self, group: list[_Change]) -> tuple[list[Outcome], list[Changed], list[Count], list[int]]:
        """What becomes of each change of a group, which codes change by it, and what is counted per stratum."""
        states, strata, state = self.table.states, self.table.strata, self.state
        came, ones, late = ([0] * self.store.strata for _ in range(3))
        outcomes = []
        now: dict[int, Changed] = {}
        for code, place, number, answer, visit, _ in group:
            before = now[place].after if place in now else states[place]
            if answer is None:
                # A device whose reply was lost is no second one.
                same = before == HANDED and visit and self._first_visits.get(place) == visit
                if before == FREE and state.hands_out:
                    now[place] = Changed(code, place, FREE, HANDED)
                    self._note(place, visit)
                handed = state.hands_out and before not in SPENT
                outcomes.append(Outcome(FREE if same else before, handed, state.number))
            elif before in SPENT:
                outcomes.append(Outcome(before, before == COUNTED, number))
            else:
                counts = number == state.number and state.counts
                outcomes.append(Outcome(before, counts, number))
                now[place] = Changed(code, place, states[place], COUNTED if counts else LATE)
                came[strata[place]] += counts
                ones[strata[place]] += counts and answer
                late[strata[place]] += not counts
        # In the order of the hashes, and not of arrival.
        in_order = [now[place] for place in sorted(now)]
        return outcomes, in_order, [Count(*pair) for pair in zip(came, ones, strict=True)], late

    def _note(self, place: int, visit: str) -> None:
        """A code's question goes out for the first time."""
        if visit:
            self._first_visits[place] = visit
            if len(self._first_visits) > MAX_VISITS:
                del self._first_visits[next(iter(self._first_visits))]

    async def on_disk(self, use: Callable[[], T]) -> T:
        """Let the one thread that uses the file's connection do something: it may wait, the event loop must not."""
        return await asyncio.get_running_loop().run_in_executor(self._disk, use)

    async def set_round(self, state: OpenRound, *, clear: bool = False) -> None:
        """Write where the round is; the caller holds `alone`. With `clear` the counts begin anew."""

        def write() -> None:
            with self.store.transaction():
                self.store.set_round(state, clear=clear)

        await self.on_disk(write)
        self.state = state

    async def stop(self) -> None:
        """Keep no request any more, write what waits, then end the thread."""
        self._keep = False
        self._end_waiting()
        while (task := self._task) is not None:
            await asyncio.gather(task, return_exceptions=True)
        self._disk.shutdown()
