"""Values become counts: coins, and the comparison of each value with the query through randomized response.

Coins: the uniform 64-bit integers that randomize reports.

A responder takes its coins through its constructor and nowhere else. Real data meet `OperatingSystemCoins` only;
`SeededCoins` exist for simulation and for tests, and no option, file or environment variable leads to them.

What a record reports: the comparison of its value with the query, through randomized response.

Cohort mode: all records of a question answer "is x > query?". Local mode (the question carries a step): the client
moves its own query after each report, on the working scale (Algorithm 1):

    w ← w + η·a if the report is 1, w ← w − η·b if it is 0,   a = rise(level), b = fall(level).

A missing record's truth is Bernoulli(1 − level) by a coin of its own, so that it pulls nowhere; then it randomizes
like every other. ±∞ answer like numbers. With `dither` each record adds U(−w/2, w/2) when it answers.
"""

import math
import os
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.core.mechanism import COINS, RandomizedResponse
from privatile.core.messages import Question
from privatile.core.scale import Scale
from privatile.errors import InputError, ProtocolError

LARGEST_READ = 1 << 18
"""Bytes asked of the operating system at once: fits a second-level cache, and larger reads are no faster."""


class Coins(Protocol):
    """A source of independent integers, uniform on 0 … 2⁶⁴ − 1."""

    def draw(self, count: int) -> NDArray[np.uint64]:
        """The next `count` coins."""
        ...


class OperatingSystemCoins:
    """Coins from the operating system's cryptographic source.

    >>> OperatingSystemCoins().draw(3).dtype
    dtype('uint64')
    """

    def draw(self, count: int) -> NDArray[np.uint64]:
        """The next `count` coins; they cannot be replayed."""
        size = 8 * count
        if size <= LARGEST_READ:
            return np.frombuffer(os.urandom(size), dtype=np.uint64)
        coins = np.empty(count, dtype=np.uint64)
        words = LARGEST_READ // 8
        for start in range(0, count, words):
            part = coins[start : start + words]
            part[:] = np.frombuffer(os.urandom(8 * len(part)), dtype=np.uint64)
        return coins


class SeededCoins:
    """Coins from a generator whose draws can be repeated: for made-up data only.

    >>> import numpy as np
    >>> draw = lambda: SeededCoins(np.random.default_rng(7)).draw(2).tolist()
    >>> draw() == draw()
    True
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def draw(self, count: int) -> NDArray[np.uint64]:
        """The next `count` coins of the generator."""
        return self._rng.integers(0, 1 << 64, size=count, dtype=np.uint64)


Counter = Callable[[Floats], int]
"""Counts the ones among the reports of records, piece by piece."""


class Randomizer:
    """Turns values into counts of randomized reports; `coins` come through here and nowhere else."""

    def __init__(self, mechanism: RandomizedResponse, coins: Coins, scale: Scale | None, dither: float) -> None:
        if not 0.0 <= dither < math.inf:
            raise InputError(f"dither must be a width of 0 or more; got {dither!r}.")
        self._mechanism = mechanism
        self._coins = coins
        self._scale = scale
        self._dither = float(dither)

    def counter(self, question: Question) -> Counter:
        """What counts the answers to a question."""
        return self._cohort(question) if question.step is None else self._local(question, question.step)

    def _dithered(self, values: Floats) -> Floats:
        if not self._dither:
            return values
        shifts = self._coins.draw(len(values)).astype(np.float64) * 2.0**-64 - 0.5
        return values + self._dither * shifts

    def _missing_truths(self, values: Floats, level: float) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Which values are missing, and what these records take for the truth."""
        missing = np.flatnonzero(np.isnan(values))
        # No coin is drawn where none is missing: seeded simulations stay as they are.
        truths = self._coins.draw(len(missing)) < missing_threshold(level) if len(missing) else np.empty(0, np.bool_)
        return missing, truths

    def _reports(self, truth: NDArray[np.bool_]) -> NDArray[np.bool_]:
        if not self._mechanism.is_private:
            return truth
        return self._mechanism.respond(truth, self._coins.draw(len(truth)))

    def _cohort(self, question: Question) -> Counter:
        def count(values: Floats) -> int:
            values = self._dithered(values)
            truth = values > question.query
            missing, truths = self._missing_truths(values, question.level)
            truth[missing] = truths
            return int(np.count_nonzero(self._reports(truth)))

        return count

    def _local(self, question: Question, step: float) -> Counter:
        scale = self._scale
        if scale is None:
            raise ProtocolError("a question with a step needs the run's working scale; this client was given none.")
        rise, fall = step * self._mechanism.rise(question.level), step * self._mechanism.fall(question.level)
        working = scale.to_working(question.query)

        def count(values: Floats) -> int:
            nonlocal working
            values = self._dithered(values)
            truths = iter(self._missing_truths(values, question.level)[1].tolist())
            lies = self._reports(np.zeros(len(values), dtype=np.bool_)).tolist()
            ones = 0
            for value, lie in zip(values.tolist(), lies, strict=True):
                truth = value > scale.to_units(working) if value == value else next(truths)
                if truth != lie:
                    ones += 1
                    working += rise
                else:
                    working -= fall
            return ones

        return count


@lru_cache(maxsize=64)
def missing_threshold(level: float) -> np.uint64:
    """A missing record says "above" iff its coin falls below ⌊2⁶⁴·(1 − level)⌋.

    >>> int(missing_threshold(0.75)) == 2**62
    True
    """
    return np.uint64(math.floor(COINS * (1 - Fraction(level))))
