"""The responder: question in, one count out. Nothing else about the records leaves it."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.client.ledger.account import Account, SpendingRules
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import ShuffledColumn
from privatile.client.order.tags import Words
from privatile.client.randomizer import Coins, Counter, Randomizer
from privatile.core.arrays import Floats
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import MISSING, Answer, Missing, Question
from privatile.core.scale import Scale
from privatile.errors import InputError

log = logging.getLogger("privatile.client")

CHUNK = 1 << 14
"""Records randomized at once: their values and coins (256 KiB) stay in the second-level cache."""


class _Stretch(NamedTuple):
    """Records that may answer: from position `base`, at `places` counted from there (None: all), in order."""

    base: int
    places: NDArray[np.intp] | None
    values: Floats
    people: Words | None


class Responder:
    """One client of one run.

    `coins` come through here and nowhere else. `dither` is the width of the noise added to a record as it answers;
    `scale` is needed for questions with a step. `account` is the ledger's side: what the run may ask and has asked.
    """

    def __init__(
        self,
        run: str,
        column: ShuffledColumn,
        mechanism: RandomizedResponse,
        ledger: Ledger,
        coins: Coins,
        *,
        scale: Scale | None = None,
        missing: Missing = "noise",
        dither: float = 0.0,
        rules: SpendingRules | None = None,
    ) -> None:
        if missing not in MISSING:
            raise InputError(f"missing must be one of {', '.join(MISSING)}; got {missing!r}.")
        self.client = column.content.client
        self.mechanism = mechanism
        self._column = column
        self._randomizer = Randomizer(mechanism, coins, scale, dither)
        self._drop = missing == "drop" and column.missing > 0
        self.account = Account(ledger, run, column.content, mechanism, rules or SpendingRules())
        arriving = self.account.rules.arriving  # then nobody may have come yet
        if not arriving and self.account.state().first is None and not any(self._available()):
            raise self.account.refusal(None, 0, self._most_spent())

    def __repr__(self) -> str:
        return f"Responder(run={self.account.run!r}, client={self.client!r})"

    @property
    def ledger(self) -> Ledger:
        """Where the answers are written down."""
        return self.account.ledger

    def available(self) -> int:
        """How many records may still answer in this run.

        Exact counts of missing values, and of people who have answered, stay at the site: tell others only that
        there are enough.
        """
        return sum(self._available())

    def _available(self) -> Iterator[int]:
        """The numbers of records that may still answer, piece by piece."""
        start, limit = self.account.window()
        if self._drop or self._column.content.by_person:
            return (len(stretch.values) for stretch in self._walk(start, limit, CHUNK))
        return iter([limit - start])

    def _most_spent(self) -> float | None:
        """The most that one of this column's people has spent by name; None where no people are known."""
        if not self._column.content.by_person:
            return None
        spent = self.ledger.lifetime_budgets.spent
        blocks = self._column.blocks(0, self._column.records)
        return max((float(spent(people).max()) for _, people in blocks if people is not None), default=0.0)

    def reserve(self, records: int) -> None:
        """Keep for this run the records it will ask, `records` in all, so that no other run asks them meanwhile.

        Refused at once where fewer may answer. Harmless when repeated: what was asked counts, what is reserved stays.
        A run that is abandoned keeps its records unasked until `release`. The holder is told if people are passed over.
        """
        account = self.account
        with self.ledger.transaction():
            state = account.state()
            wanted = records - state.asked
            if wanted <= 0:
                return
            if state.reserved:
                account.check_limit(state.cursor, state.reserved)
                return
            # Behind everything that is answered or reserved.
            window = account.window(state._replace(cursor=state.end, reserved=0))
            stop, _, _ = self._take(window, wanted)
            account.check_limit(window[0], stop)
            account.reserve(window[0], stop)
        # How many they are would say who is a member of what.
        if self._column.content.by_person and not self.account.rules.spend_again and self._most_spent():
            log.warning(
                "some people of client %r have answered before and are passed over. The result is about the others. It "
                "holds for all of them only where those who answered were a random part: not after a run with survey "
                "weights, or one that chose whom to ask.",
                self.client,
            )

    def require(self, records: int) -> None:
        """Refuse now, rather than in mid-run, where fewer than `records` may answer."""
        left = self.available()
        if left < records:
            raise self.account.refusal(records, left, self._most_spent())

    def answer(self, question: Question) -> Answer:
        """The count for a question, on the disk before this returns; the same again for the same question."""
        with self.ledger.transaction():
            return self._respond(question)

    def mark_spent(self, records: int, through_round: int) -> None:
        """After a restore: spend, unanswered, records that answered up to `through_round` of this run."""
        with self.ledger.transaction():
            state = self.account.state()
            stop, _, people = self._take(self.account.window(state), records)
            self.account.record_lost(state, stop, records, through_round, people)

    def _respond(self, question: Question) -> Answer:
        """Replay or answer; the caller holds the transaction."""
        state = self.account.replay(question)
        if isinstance(state, Answer):
            return state
        start, limit = self.account.window(state)
        if limit - start < question.length:
            raise self.account.refusal(question.length, limit - start, self._most_spent())
        if not (self._drop or self._column.content.by_person):
            self.account.check_limit(start, start + question.length)
        stop, ones, people = self._take((start, limit), question.length, self._randomizer.counter(question))
        if self._drop:
            self.account.check_limit(start, stop)
        position = self.account.record(question, state, stop, question.length, ones, people)
        return Answer(question, self.client, ones, position)

    # -- walking the order ---------------------------------------------------------------------------------------

    def _walk(self, start: int, limit: int, size: int) -> Iterator[_Stretch]:
        """Stretches of up to `size` positions, less the records that may not answer."""
        records = self._column.records
        while start < limit:
            low = start % records
            for values, people in self._column.blocks(low, min(records, low + limit - start, low + size)):
                may: NDArray[np.bool_] | None = ~np.isnan(values) if self._drop else None
                if people is not None:
                    allowed = self.account.may_answer(people)
                    may = allowed if may is None else may & allowed
                if may is None or may.all():
                    yield _Stretch(start, None, values, people)
                else:
                    places = np.flatnonzero(may)
                    yield _Stretch(start, places, values[places], None if people is None else people[places])
                start += len(values)

    def _take(
        self, window: tuple[int, int], length: int, count: Counter = lambda values: 0
    ) -> tuple[int, int, list[Words]]:
        """Walk over the next `length` records that may answer: the position after them, their count, their people."""
        stop, taken, ones, people = window[0], 0, 0, []
        # A short question does not look at a whole chunk of people; 64 positions cost as much as one.
        for base, places, values, group in self._walk(*window, min(CHUNK, max(64, length))):
            size = min(len(values), length - taken)
            if size:
                taken += size
                stop = base + (size if places is None else int(places[size - 1]) + 1)
                ones += count(values[:size])
                if group is not None:
                    people.append(group[:size])
            if taken == length:
                return stop, ones, people
        raise self.account.refusal(length, taken, self._most_spent())


def answer_all(asked: Iterable[tuple[Responder, Question]]) -> list[Answer]:
    """Answer a whole round in one transaction; no count is returned before all are on the disk."""
    pairs = list(asked)
    ledgers = {id(responder.ledger): responder.ledger for responder, _ in pairs}
    with ExitStack() as stack:
        for ledger in ledgers.values():
            stack.enter_context(ledger.transaction())
        answers = [responder._respond(question) for responder, question in pairs]
    return answers
