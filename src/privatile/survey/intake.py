"""Questions handed out and answers taken in, many in one commit; a reply only after its commit.

What becomes of each change of a group is decided in memory, then another thread writes all of them at once: it alone
waits for the disk and for a lock on the file that another process holds. While it waits the next group gathers. So the
number of commits follows from the disk, not from the visitors. What is in memory follows the file, after its commit.

Handing out the question: who gets it, who waits a moment for the next round's, who is told to come again.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, Self, TypeVar

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

SHORTEST_WAIT = 0.002
"""Seconds that the first of a group waits for others, at least: those whose replies came together ask together."""

MOST_IN_GROUP = 2_000
"""Changes of one commit: a reply waits for all of them."""

MOST_WAITING = 20_000
"""Changes that wait; beyond that visitors are told to come again, so that memory stays bounded."""

MOST_VISITS = 100_000
"""Devices that are known again: some 20 MB."""


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


class Visits:
    """Which device a question was handed to first, by a random text of its own; in memory alone.

    So that a device whose reply was lost is not taken for a second one. What is forgotten, after a restart or beyond
    `MOST_VISITS`, costs a needless warning.
    """

    def __init__(self) -> None:
        self._first: dict[int, str] = {}

    def note(self, place: int, visit: str) -> None:
        """A code's question goes out for the first time."""
        if visit:
            self._first[place] = visit
            if len(self._first) > MOST_VISITS:
                del self._first[next(iter(self._first))]

    def knows(self, place: int, visit: str) -> bool:
        """Whether this very device had it."""
        return bool(visit) and self._first.get(place) == visit


class Intake:
    """The one writer of a survey's file."""

    def __init__(self, store: SurveyStore, table: CodeTable, state: OpenRound) -> None:
        """Use `open`."""
        self.store = store
        self.table = table
        """The codes, as the file has them."""
        self.state = state
        """The open round, as the file has it."""
        self.late = store.late()
        """Answers that came too late, per stratum, as the file has them."""
        self.awaited: set[int] | None = None if HANDED in table.states else set()
        """Places of the codes that were given the open round's question and have not answered; none after a restart:
        not known."""
        self.alone = asyncio.Lock()
        """Held by whoever writes: groups of changes, and the steps from round to round."""
        self.arrived: Callable[[], None] = lambda: None
        """Called after every commit that brought answers."""
        self.on_superseded: Callable[[Superseded], None] = lambda error: None
        """Called where another process has become the writer."""
        self._visits = Visits()
        self._last = 0.0
        """When the last commit began, by the loop's clock."""
        self._waiting: list[_Change] = []
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="survey-disk")
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def open(cls, store: SurveyStore) -> Self:
        """Read the codes and the open round of a file that nobody else writes."""
        return cls(store, store.codes(), store.round())

    async def hand_out(self, code: bytes, place: int, visit: str) -> Outcome:
        """Hand out the open round's question; returns once the mark of it is on the disk."""
        return await self._written(code, place, 0, None, visit)

    async def take(self, code: bytes, place: int, round: int, answer: bool) -> Outcome:
        """Take an answer in; returns once it is on the disk."""
        return await self._written(code, place, round, answer, "")

    async def _written(self, code: bytes, place: int, round: int, answer: bool | None, visit: str) -> Outcome:
        if len(self._waiting) >= MOST_WAITING:
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
                await asyncio.sleep(max(self._last + GATHER - loop.time(), SHORTEST_WAIT))
                async with self.alone:
                    self._last = loop.time()
                    group, self._waiting = self._waiting[:MOST_IN_GROUP], self._waiting[MOST_IN_GROUP:]
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
        if self.awaited is not None:
            for change, outcome in zip(group, outcomes, strict=True):
                if change.answer is not None:
                    self.awaited.discard(change.place)
                elif outcome.accepted:
                    self.awaited.add(change.place)
        for change, outcome in zip(group, outcomes, strict=True):
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
            changed = now.get(place)
            before = states[place] if changed is None else changed.after
            if answer is None:
                # A device whose reply was lost is no second one.
                same = before == HANDED and self._visits.knows(place, visit)
                if before == FREE and state.hands_out:
                    now[place] = Changed(code, place, FREE, HANDED)
                    self._visits.note(place, visit)
                outcomes.append(
                    Outcome(FREE if same else before, state.hands_out and before not in SPENT, state.number)
                )
                continue
            if before in SPENT:
                outcomes.append(Outcome(before, before == COUNTED, number))
                continue
            counts = number == state.number and state.counts
            outcomes.append(Outcome(before, counts, number))
            now[place] = Changed(code, place, states[place], COUNTED if counts else LATE)
            if counts:
                came[strata[place]] += 1
                ones[strata[place]] += answer
            else:
                late[strata[place]] += 1
        # In the order of the hashes, and not of arrival.
        in_order = [now[place] for place in sorted(now)]
        return outcomes, in_order, [Count(*pair) for pair in zip(came, ones, strict=True)], late

    async def on_disk(self, use: Callable[[], T]) -> T:
        """Let the one thread that uses the file's connection do something: it may wait, the event loop must not."""
        return await asyncio.get_running_loop().run_in_executor(self._disk, use)

    async def set_round(self, state: OpenRound, *, clear: bool = False) -> None:
        """Write where the round is; the caller holds `alone`. With `clear` the counts begin anew."""

        def write() -> None:
            with self.store.transaction():
                self.store.set_round(state)
                if clear:
                    self.store.clear_counts()

        await self.on_disk(write)
        self.state = state

    async def stop(self) -> None:
        """Write what waits, then end the thread."""
        while (task := self._task) is not None:
            await asyncio.gather(task, return_exceptions=True)
        self._disk.shutdown()


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
