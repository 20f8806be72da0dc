"""The responder: question in, one count out. Nothing else about the records leaves it.

Cohort mode: the next `length` records all answer "is x > query?". Local mode (the question carries a step): the
client moves its own query after each report, on the working scale (Algorithm 1):

    w ← w + η·a if the report is 1, w ← w − η·b if it is 0,   a = rise(level), b = fall(level).

A missing record's truth is Bernoulli(1 − level) by a coin of its own, so that it pulls nowhere; then it randomizes
like every other. ±∞ answer like numbers. With `dither` each record adds U(−w/2, w/2) when it answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.client.coins import Coins
from privatile.client.ledger.accounts import Account, Stored
from privatile.client.ledger.ledger import Ledger
from privatile.client.ledger.spending_rules import SpendingRules
from privatile.client.order.shuffle import ShuffledColumn
from privatile.client.order.spill import Words
from privatile.core.arrays import Floats
from privatile.core.mechanism import COINS, RandomizedResponse
from privatile.core.messages import MISSING, Answer, Missing, Question
from privatile.core.scale import Scale
from privatile.errors import InputError, ProtocolError

CHUNK = 1 << 14
"""Records randomized at once: their values and coins (256 KiB) stay in the second-level cache."""


class Outcome(NamedTuple):
    """An answer, with where the ledger stood when it was written down."""

    answer: Answer
    stored: Stored


class _Stretch(NamedTuple):
    """Records that may answer: from position `base`, at `places` counted from there (None: all), in order."""

    base: int
    places: NDArray[np.intp] | None
    values: Floats
    people: Words | None


class Responder:
    """One client of one run.

    `coins` come through here and nowhere else. `dither` is the width of the noise added to a record as it answers.
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
        terms: SpendingRules | None = None,
    ) -> None:
        if missing not in MISSING:
            raise InputError(f"missing must be one of {', '.join(MISSING)}; got {missing!r}.")
        if not 0.0 <= dither < math.inf:
            raise InputError(f"dither must be a width of 0 or more; got {dither!r}.")
        self.client = column.client
        self.mechanism = mechanism
        self._column = column
        self._coins = coins
        self._scale = scale
        self._dither = float(dither)
        self._drop = missing == "drop" and column.missing > 0
        self._account = Account(ledger, run, column, mechanism, terms)
        if self._account.stand().first is None and not self._somebody():
            raise self._account.refuse_more(None, 0, self._most_spent())

    def __repr__(self) -> str:
        return f"Responder(run={self._account.run!r}, client={self.client!r})"

    @property
    def ledger(self) -> Ledger:
        """Where the answers are written down."""
        return self._account.ledger

    def available(self) -> int:
        """How many records may still answer in this run.

        Exact counts of missing values, and of people who have answered, stay at the site: tell others only that
        there are enough.
        """
        start, limit = self._account.window()
        if not self._drop and self._column.person_key is None:
            return limit - start
        return sum(len(stretch.values) for stretch in self._walk(start, limit, CHUNK))

    def asked(self) -> int:
        """How many records have answered this run, by the ledger."""
        return self._account.asked()

    def _somebody(self) -> bool:
        """Whether anybody may answer."""
        start, limit = self._account.window()
        if not self._drop and self._column.person_key is None:
            return limit > start
        return any(len(stretch.values) for stretch in self._walk(start, limit, CHUNK))

    def _most_spent(self) -> float | None:
        """The most that one of this column's people has spent; None where no people are known."""
        if self._column.person_key is None:
            return None
        spent = self._account.ledger.lifetime_budgets.spent
        blocks = self._column.blocks(0, self._column.records)
        return max((float(spent(people).max()) for _, people in blocks if people is not None), default=0.0)

    def reserve(self, records: int) -> None:
        """Keep for this run the records it will ask, `records` in all, so that no other run asks them meanwhile.

        Refused at once where fewer may answer. Harmless when repeated: what was asked counts, what is reserved stays.
        A run that is abandoned keeps its records unasked until `release`.
        """
        account = self._account
        with self.ledger.transaction():
            stand = account.stand()
            wanted = records - account.asked()
            if wanted <= 0 or (stand.reserved is not None and stand.reserved > stand.cursor):
                return
            start, limit = account.window(account.after_all())
            stop = start
            for end, _, _ in self._take(start, limit, wanted):
                stop = end
            account.reserve(start, stop)

    def release(self) -> None:
        """Give back what was reserved and not asked: the run is over, or is given up."""
        self._account.release()

    def require(self, records: int) -> None:
        """Refuse now, rather than in mid-run, where fewer than `records` may answer."""
        left = self.available()
        if left < records:
            raise self._account.refuse_more(records, left, self._most_spent())

    def answer(self, question: Question) -> Answer:
        """The count for a question, on the disk before this returns; the same again for the same question."""
        return self.outcome(question).answer

    def outcome(self, question: Question) -> Outcome:
        """The answer, with the ledger's position, for transports that watch the ledger from outside."""
        with self.ledger.transaction():
            stored = self._respond(question)
        return Outcome(self._answer(question, stored.ones), stored)

    def mark_spent(self, records: int, through_round: int) -> None:
        """After a restore: spend, unanswered, records that answered up to `through_round` of this run."""
        with self.ledger.transaction():
            stand = self._account.stand()
            start, limit = self._account.window(stand)
            stop, people = start, []
            for end, _, group in self._take(start, limit, records):
                stop = end
                if group is not None:
                    people.append(group)
            self._account.record_lost(stand, stop, records, through_round, people)

    def _answer(self, question: Question, ones: int) -> Answer:
        return Answer(run=question.run, round=question.round, client=self.client, level=question.level, ones=ones)

    def _respond(self, question: Question) -> Stored:
        """Replay or answer; the caller holds the transaction."""
        stand = self._account.replay(question)
        if isinstance(stand, Stored):
            return stand
        start, limit = self._account.window(stand)
        if limit - start < question.length:
            raise self._account.refuse_more(question.length, limit - start, self._most_spent())
        stop, ones, people = start, 0, []
        count = self._counter(question)
        for end, values, group in self._take(start, limit, question.length):
            stop = end
            ones += count(values)
            if group is not None:
                people.append(group)
        return self._account.record(question, stand, stop, ones, people)

    # -- walking the order ---------------------------------------------------------------------------------------

    def _walk(self, start: int, limit: int, size: int) -> Iterator[_Stretch]:
        """Stretches of up to `size` positions, less the records that may not answer."""
        records = self._column.records
        while start < limit:
            low = start % records
            for values, people in self._column.blocks(low, min(records, low + limit - start, low + size)):
                may: NDArray[np.bool_] | None = ~np.isnan(values) if self._drop else None
                if people is not None:
                    allowed = self._account.may_answer(people)
                    may = allowed if may is None else may & allowed
                if may is None or may.all():
                    yield _Stretch(start, None, values, people)
                else:
                    places = np.flatnonzero(may)
                    yield _Stretch(start, places, values[places], None if people is None else people[places])
                start += len(values)

    def _take(self, start: int, limit: int, length: int) -> Iterator[tuple[int, Floats, Words | None]]:
        """The next `length` records that may answer, piece by piece, each with the position after it."""
        taken = 0
        # A short question does not look at a whole chunk of people; 64 positions cost as much as one.
        for base, places, values, people in self._walk(start, limit, min(CHUNK, max(64, length))):
            count = min(len(values), length - taken)
            if count:
                taken += count
                end = base + (count if places is None else int(places[count - 1]) + 1)
                yield end, values[:count], None if people is None else people[:count]
            if taken == length:
                return
        raise self._account.refuse_more(length, taken, self._most_spent())

    # -- randomizing ---------------------------------------------------------------------------------------------

    def _counter(self, question: Question) -> Callable[[Floats], int]:
        """What counts the ones among the reports of records, piece by piece."""
        return self._cohort(question) if question.step is None else self._local(question, question.step)

    def _prepared(self, values: Floats) -> Floats:
        if not self._dither:
            return values
        shifts = self._coins.draw(len(values)).astype(np.float64) * 2.0**-64 - 0.5
        return values + self._dither * shifts

    def _cohort(self, question: Question) -> Callable[[Floats], int]:
        above = noise_threshold(question.level)

        def count(values: Floats) -> int:
            values = self._prepared(values)
            truth = values > question.query
            if self._column.missing:
                gaps = np.flatnonzero(np.isnan(values))
                if len(gaps):
                    truth[gaps] = self._coins.draw(len(gaps)) < above
            return int(np.count_nonzero(self._report(truth)))

        return count

    def _report(self, truth: NDArray[np.bool_]) -> NDArray[np.bool_]:
        if not self.mechanism.is_private:
            return truth
        return self.mechanism.respond(truth, self._coins.draw(len(truth)))

    def _local(self, question: Question, step: float) -> Callable[[Floats], int]:
        scale = self._scale
        if scale is None:
            raise ProtocolError("a question with a step needs the run's working scale; this client was given none.")
        above = noise_threshold(question.level)
        rise, fall = step * self.mechanism.rise(question.level), step * self.mechanism.fall(question.level)
        working = scale.to_working(question.query)

        def count(values: Floats) -> int:
            nonlocal working
            values = self._prepared(values)
            gaps = np.flatnonzero(np.isnan(values)) if self._column.missing else np.empty(0, dtype=np.intp)
            guesses = iter((self._coins.draw(len(gaps)) < above).tolist()) if len(gaps) else iter(())
            lies = self._report(np.zeros(len(values), dtype=np.bool_)).tolist()
            ones = 0
            for value, lie in zip(values.tolist(), lies, strict=True):
                truth = value > scale.to_units(working) if value == value else next(guesses)
                if truth != lie:
                    ones += 1
                    working += rise
                else:
                    working -= fall
            return ones

        return count


@lru_cache(maxsize=64)
def noise_threshold(level: float) -> np.uint64:
    """A missing record says "above" iff its coin falls below ⌊2⁶⁴·(1 − level)⌋.

    >>> int(noise_threshold(0.75)) == 2**62
    True
    """
    return np.uint64(math.floor(COINS * (1 - Fraction(level))))


def answer_all(asked: Iterable[tuple[Responder, Question]]) -> list[Answer]:
    """Answer a whole round in one transaction; no count is returned before all are on the disk."""
    pairs = list(asked)
    ledgers = {id(responder.ledger): responder.ledger for responder, _ in pairs}
    with ExitStack() as stack:
        for ledger in ledgers.values():
            stack.enter_context(ledger.transaction())
        counts = [responder._respond(question).ones for responder, question in pairs]
    return [responder._answer(question, ones) for (responder, question), ones in zip(pairs, counts, strict=True)]
