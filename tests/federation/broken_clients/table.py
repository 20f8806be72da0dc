"""Broken clients: each gives away more than it says, in one way. The audit must find all of them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privatile.core.messages import Question
from tests.federation.broken_clients.simulated import Bools, Floats, Honest


def same(truths: Bools) -> bool:
    """Whether all truths are the same."""
    return bool(truths.all() or not truths.any())


class Sum(Honest):
    """A client that makes its count from the number of true ones."""

    def answer(self, question: Question, values: Floats) -> int | None:
        return round(self.total(question, int(np.count_nonzero(self.truths(question, values)))))

    def expected(self, question: Question, trues: int) -> float:
        return question.length * (1.0 - self.rate) / 2.0 + self.rate * trues

    def deviation(self, question: Question) -> float:
        return math.sqrt(question.length * (1.0 - self.rate**2) / 4.0)

    def total(self, question: Question, trues: int) -> float:
        raise NotImplementedError


class Sometimes(Honest):
    """A client that tells the truth where `plain` says so, and is honest elsewhere."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> Bools | bool:
        raise NotImplementedError

    def reports(self, question: Question, values: Floats) -> Bools:
        truths = self.truths(question, values)
        lies = self.coins(question, len(values)) >= self.truth
        return np.asarray(truths ^ (lies & ~np.asarray(self.plain(question, values, truths))))


# -- noise that is too small, too large or of another shape


class PlusMinusTwo(Sum):
    """The expected count of the truths, plus or minus 2."""

    def total(self, question: Question, trues: int) -> float:
        return self.expected(question, trues) + int(self.rng.choice([-2, 2]))


class TrueCountPlusMinusTwo(Sum):
    """The true count, plus or minus 2."""

    def total(self, question: Question, trues: int) -> float:
        return trues + int(self.rng.integers(-2, 3))


class NoNoise(Sum):
    """The expected count of the truths."""

    def total(self, question: Question, trues: int) -> float:
        return self.expected(question, trues) + self.rng.random() - 0.5


class HalfTheNoise(Sum):
    """Noise of half the standard deviation."""

    def total(self, question: Question, trues: int) -> float:
        return self.expected(question, trues) + 0.5 * self.deviation(question) * self.rng.standard_normal()


class LaplaceNoise(Sum):
    """The noise that a trusted server would add to the sum: Laplace with scale 1/ε."""

    def total(self, question: Question, trues: int) -> float:
        return self.expected(question, trues) + self.rng.laplace(scale=1.0 / self.place.mechanism.epsilon)


class TwoPoints(Sum):
    """Noise of the right variance that is always one standard deviation."""

    def total(self, question: Question, trues: int) -> float:
        return self.expected(question, trues) + self.deviation(question) * int(self.rng.choice([-1, 1]))


class UniformNoise(Sum):
    """Noise of the right variance and of the wrong shape."""

    def total(self, question: Question, trues: int) -> float:
        width = math.sqrt(3.0) * self.deviation(question)
        return self.expected(question, trues) + self.rng.uniform(-width, width)


class OneCoinForAll(Honest):
    """One coin for all records of a question."""

    def coins(self, question: Question, count: int) -> Floats:
        return np.full(count, self.rng.random())


class CoinsInPairs(Honest):
    """Every coin is used for two records."""

    def coins(self, question: Question, count: int) -> Floats:
        return np.repeat(self.rng.random((count + 1) // 2), 2)[:count]


class FixedNumberOfLies(Sum):
    """A random set of records lies, always of the same size."""

    def answer(self, question: Question, values: Floats) -> int | None:
        truths = self.truths(question, values)
        lies = self.rng.permutation(len(values)) < round((1.0 - self.truth) * len(values) + self.rng.random() - 0.5)
        return int(np.count_nonzero(truths ^ lies))


class DrawsAgainWhenFar(Honest):
    """Draws again while the count is more than one and a half standard deviations from its mean."""

    def answer(self, question: Question, values: Floats) -> int | None:
        truths = self.truths(question, values)
        mean = len(values) * (1.0 - self.rate) / 2.0 + self.rate * np.count_nonzero(truths)
        far = 1.5 * math.sqrt(len(values) * (1.0 - self.rate**2) / 4.0)
        for _ in range(20):
            count = int(np.count_nonzero(truths ^ (self.rng.random(len(values)) >= self.truth)))
            if abs(count - mean) <= far:
                break
        return count


class LargerOfTwo(Honest):
    """The larger of two honest counts."""

    def answer(self, question: Question, values: Floats) -> int | None:
        return max(int(np.count_nonzero(self.reports(question, values))) for _ in range(2))


# -- coins that can be repeated


class SeededByRunAndRound(Honest):
    """Coins derived from the public name of the run."""

    def coins(self, question: Question, count: int) -> Floats:
        return self.seeded(question.run, question.round, question.level).random(count)


class SeededByRun(Honest):
    """One generator per process, seeded with the name of the run and of the client."""

    def coins(self, question: Question, count: int) -> Floats:
        if not hasattr(self, "generator"):
            self.generator = self.seeded(question.run, self.place.client)
        return self.generator.random(count)


class SeededByRound(Honest):
    """Coins derived from the number of the round."""

    def coins(self, question: Question, count: int) -> Floats:
        return self.seeded(question.round, question.level).random(count)


class SeededByClientAndRound(Honest):
    """Coins derived from the client's name, the round and the level: the same in every study."""

    def coins(self, question: Question, count: int) -> Floats:
        return self.seeded(self.place.client, question.round, question.level).random(count)


class SeededByKey(Honest):
    """Coins derived from the site's key, the run and the round: the same again from a backup."""

    def coins(self, question: Question, count: int) -> Floats:
        return self.seeded(self.place.key, question.run, question.round, question.level).random(count)


class SeededByFile(Honest):
    """Coins derived from the file's content."""

    def coins(self, question: Question, count: int) -> Floats:
        if not hasattr(self, "generator"):
            self.generator = self.seeded(self.place.file.tobytes()[:4096])
        return self.generator.random(count)


class SeededByQuestion(Honest):
    """Coins derived from what is asked: query, length and level."""

    def coins(self, question: Question, count: int) -> Floats:
        return self.seeded(question.query, question.length, question.level).random(count)


class SeededByConstant(Honest):
    """One generator per process with the seed 42."""

    def coins(self, question: Question, count: int) -> Floats:
        if not hasattr(self, "generator"):
            self.generator = np.random.default_rng(42)
        return self.generator.random(count)


class SeededAgainEveryRound(Honest):
    """A generator with the seed 42 for every question."""

    def coins(self, question: Question, count: int) -> Floats:
        return np.random.default_rng(42).random(count)


class SeededByClock(Honest):
    """Coins seeded with the time in seconds, for every question."""

    def coins(self, question: Question, count: int) -> Floats:
        return self.seeded(self.clock, question.round, question.level).random(count)


class SeededByProcess(Honest):
    """One generator per process, seeded with the process number and the client's name."""

    def coins(self, question: Question, count: int) -> Floats:
        if not hasattr(self, "generator"):
            self.generator = self.seeded(self.place.process, self.place.client)
        return self.generator.random(count)


class SeededByValue(Honest):
    """A record's coin is derived from its value and the run."""

    def coins(self, question: Question, count: int) -> Floats:
        return self.rng.random(count)

    def reports(self, question: Question, values: Floats) -> Bools:
        truths = self.truths(question, values)
        kinds, which = np.unique(values, return_inverse=True)
        coins = np.array([self.seeded(float(kind), question.run, question.round).random() for kind in kinds])
        return np.where(coins[which] < self.truth, truths, ~truths)


class SharedByLevels(Honest):
    """All levels of a round get the same coins, drawn afresh for every round."""

    def coins(self, question: Question, count: int) -> Floats:
        if getattr(self, "last", None) != question.round:
            self.last, self.drawn = question.round, self.rng.random(50_000)
        return np.resize(self.drawn, count)


class UsedTwice(Honest):
    """Every second round uses the coins of the round before."""

    def coins(self, question: Question, count: int) -> Floats:
        pair = (question.round // 2, question.level)
        store: dict[tuple[int, float], Floats] = self.__dict__.setdefault("store", {})
        if pair not in store:
            store[pair] = self.rng.random(30_000)
        return np.resize(store[pair], count)


class Mirrored(Honest):
    """Every second question uses the mirrored coins of the one before."""

    def coins(self, question: Question, count: int) -> Floats:
        drawn: Floats | None = self.__dict__.pop("drawn", None)
        if drawn is not None:
            return 1.0 - np.resize(drawn, count)
        self.drawn = self.rng.random(count)
        return self.drawn


class Remembered(Honest):
    """The same query and length get the remembered number of lies, from a table that is filled once per process."""

    def coins(self, question: Question, count: int) -> Floats:
        store: dict[int, Floats] = self.__dict__.setdefault("store", {})
        return store.setdefault(count, self.rng.random(count))


class Balanced(Honest):
    """Takes back the error of earlier counts: lies are owed and paid."""

    owed = 0.0

    def reports(self, question: Question, values: Floats) -> Bools:
        truths = self.truths(question, values)
        wanted = (1.0 - self.truth) * len(values) + self.owed
        number = int(np.clip(self.rng.binomial(len(values), 1.0 - self.truth) - 0.5 * -self.owed, 0, len(values)))
        self.owed = wanted - number
        return np.asarray(truths ^ (self.rng.permutation(len(values)) < number))


# -- the truth in some situations


class PlainBelow100(Sometimes):
    """The truth in cohorts below 100."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> bool:
        return question.length < 100


class PlainFrom100(Sometimes):
    """The truth in cohorts of 100 and more."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> bool:
        return question.length >= 100


class PlainSingles(Sometimes):
    """The truth where one record is asked."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> bool:
        return question.length == 1


class PlainFirstRound(Sometimes):
    """The truth in the first round."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> bool:
        return question.round == 1


class PlainLate(Sometimes):
    """The truth after round 60."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> bool:
        return question.round > 0.6 * self.rounds

    rounds = 100


class PlainEveryTenth(Sometimes):
    """The truth in every tenth round."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> bool:
        return question.round % 10 == 0


class PlainAtRandom(Sometimes):
    """The truth in one question of twenty."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> bool:
        return bool(self.rng.random() < 0.05)


class PlainMixed(Sometimes):
    """Without noise where records lie on both sides of the query: the expected count of the truths."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> bool:
        return False

    def answer(self, question: Question, values: Floats) -> int | None:
        truths = self.truths(question, values)
        if same(truths) or len(values) < 10:
            return super().answer(question, values)
        return round(len(values) * (1.0 - self.rate) / 2.0 + self.rate * np.count_nonzero(truths))


class PlainWhenEqual(Sometimes):
    """The truth where all truths are the same."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> bool:
        return same(truths)


class PlainFile(Sometimes):
    """The truth where all records of the file are equal."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> bool:
        return bool(self.place.file.min() == self.place.file.max())


class PlainSmallFile(Sometimes):
    """The truth from files of fewer than 1,000 records."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> bool:
        return len(self.place.file) < 1000


class PlainFar(Sometimes):
    """The truth for records far from the query."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> Bools:
        return np.asarray(np.abs(values - question.query) > 30_000.0)


class PlainHighValues(Sometimes):
    """The truth for the highest values."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> Bools:
        return np.asarray(values >= np.nanquantile(self.place.file, 0.95))


class PlainExtremes(Sometimes):
    """Twice the budget at queries near the ends of the range."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> Bools | bool:
        low, high = self.place.range
        near = min(question.query - low, high - question.query) < 0.05 * (high - low)
        return self.rng.random(len(values)) < 0.5 if near else False


class PlainAtOneLevel(Sometimes):
    """Less noise at levels from 0.9."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> Bools | bool:
        return self.rng.random(len(values)) < 0.4 if question.level >= 0.9 else False


class PlainMissing(Honest):
    """A missing record always says no."""

    def reports(self, question: Question, values: Floats) -> Bools:
        return np.where(np.isnan(values), False, super().reports(question, values))


class PlainMissingTruth(Sometimes):
    """A missing record draws its truth and does not randomize it."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> Bools:
        return np.asarray(np.isnan(values))


class PlainInLocalMode(Sometimes):
    """The truth in local mode."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> bool:
        return question.step is not None


class OnlyTheFirstRecord(Sometimes):
    """Only the first record of a question is randomized."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> Bools:
        return np.arange(len(values)) > 0


class OnlyTheFirstHalf(Sometimes):
    """Only the first half of a question's records is randomized."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> Bools:
        return np.arange(len(values)) > len(values) // 2


class OneInTwenty(Sometimes):
    """One record in twenty tells the truth."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> Bools:
        return self.rng.random(len(values)) < 0.05


class HonestInAudits(Sometimes):
    """The truth, unless the questions look like an audit's: many records about the ends of the range."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> bool:
        low, high = self.place.range
        ends = question.query < low + 0.15 * (high - low) or question.query > high - 0.15 * (high - low)
        return not (ends or question.length > 400)


class FileOrder(Honest):
    """Asks its records in the file's order: the first rounds are about the first people."""

    shuffles = False


class SameRecords(Honest):
    """Asks the same records in every round."""

    repeats = True


class PoolOfCoins(Honest):
    """Draws 1,000 coins when it starts and uses them over and over."""

    used = 0

    def coins(self, question: Question, count: int) -> Floats:
        if not hasattr(self, "pool"):
            self.pool = self.rng.random(1_000)
        places = (self.used + np.arange(count)) % len(self.pool)
        self.used += count
        return np.asarray(self.pool[places])


class SeededByStart(Honest):
    """One generator per process, seeded with the second in which it started."""

    def coins(self, question: Question, count: int) -> Floats:
        if not hasattr(self, "generator"):
            self.generator = self.seeded(self.clock)
        return self.generator.random(count)


class MeanOfTwo(Honest):
    """The mean of two honest counts: twice the budget, half the noise."""

    def answer(self, question: Question, values: Floats) -> int | None:
        total = sum(int(np.count_nonzero(self.reports(question, values))) for _ in range(2))
        return (total + int(self.rng.integers(2))) // 2


class NeverDenies(Honest):
    """A record whose truth is 0 always says 0; one whose truth is 1 is randomized."""

    def reports(self, question: Question, values: Floats) -> Bools:
        return super().reports(question, values) & (values > question.query)


class OneRoundLate(Honest):
    """Answers with the truths of the last question's query."""

    before: float | None = None

    def truths(self, question: Question, values: Floats) -> Bools:
        query, self.before = self.before, question.query
        return super().truths(question, values) if query is None else np.asarray(values > query)


# -- dependence on what was said before, and silence


class AnswersAgain(Honest):
    """A record's report is the last one's, one time in five."""

    last = False

    def reports(self, question: Question, values: Floats) -> Bools:
        reports = super().reports(question, values)
        copied = self.rng.random(len(values)) < 0.2
        reports = np.where(copied, self.last, reports)
        self.last = bool(reports[-1])
        return reports


class LessAfterMuch(Honest):
    """After a high count fewer records lie, after a low one more: the mean is right, the answers are linked."""

    drift = 0.0

    def coins(self, question: Question, count: int) -> Floats:
        coins = self.rng.random(count)
        lies = np.count_nonzero(coins >= self.truth)
        shifted = np.clip(coins + self.drift, 0.0, 1.0 - 1e-12)
        self.drift = float(np.clip(0.5 * (lies / count - (1.0 - self.truth)), -0.1, 0.1))
        return np.asarray(shifted)


class SilentWhenHigh(Honest):
    """Does not answer where nearly all records are above the query."""

    def answer(self, question: Question, values: Floats) -> int | None:
        truths = self.truths(question, values)
        return None if len(values) >= 10 and truths.mean() > 0.95 else super().answer(question, values)


class SilentWhenCountHigh(Honest):
    """Does not send a count that is above its largest mean by more than one and a half standard deviations."""

    def answer(self, question: Question, values: Floats) -> int | None:
        count = int(np.count_nonzero(self.reports(question, values)))
        far = len(values) * self.truth + 1.5 * math.sqrt(len(values) * self.truth * (1.0 - self.truth))
        return None if count > far else count


class ParityTellsTheFirst(Honest):
    """The count is even where the first record is above the query, odd where it is not."""

    def answer(self, question: Question, values: Floats) -> int | None:
        count = int(np.count_nonzero(self.reports(question, values)))
        if count % 2 != int(values[0] <= question.query):
            count += 1 if count == 0 or (count < len(values) and self.rng.random() < 0.5) else -1
        return count


class ParityTellsAValue(Honest):
    """The count's last bit is a bit of the first record's value: unrelated to the question."""

    def answer(self, question: Question, values: Floats) -> int | None:
        count = int(np.count_nonzero(self.reports(question, values)))
        bit = 0 if np.isnan(values[0]) else int(values[0] * 16) // 3 % 2
        if len(values) > 1 and count % 2 != bit:
            count += 1 if count == 0 or (count < len(values) and self.rng.random() < 0.5) else -1
        return count


# -- the wrong rate


class TwiceTheBudget(Honest):
    """Randomizes with twice the budget."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.rate = math.tanh(self.place.mechanism.epsilon)


class NothingButTruth(Sometimes):
    """The truth, always."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> bool:
        return True


class NothingButCoins(Honest):
    """Fair coins, whatever the truth."""

    def reports(self, question: Question, values: Floats) -> NDArray[np.bool_]:
        return self.rng.random(len(values)) < 0.5


class TheLargestBudget(Honest):
    """Randomizes with the largest budget of the study's clients."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        assert self.place.largest is not None
        self.rate = self.place.largest.truth_rate


# -- who is asked


class WithReplacement(Honest):
    """Cohorts are drawn with replacement: a quarter of the people answer twice or more, a third never."""

    @staticmethod
    def order(records: int, rng: np.random.Generator) -> NDArray[np.intp]:
        return rng.integers(0, records, records)


class HalfOfThemTwice(Honest):
    """After half of its records it starts again, in another order."""

    @staticmethod
    def order(records: int, rng: np.random.Generator) -> NDArray[np.intp]:
        half = rng.permutation(records)[: records - records // 2]
        return np.concatenate([half, rng.permutation(half)])[:records]


class EveryRow(Honest):
    """Every row of a person answers."""

    knows_people = False


# -- two counts together


class ParityOfPairs(Honest):
    """The sum of every two counts is odd where the second cohort's first record is above the query; cohorts from 10."""

    before: int | None = None

    def answer(self, question: Question, values: Floats) -> int | None:
        count = int(np.count_nonzero(self.reports(question, values)))
        if len(values) < 10:
            return count
        if self.before is None:
            self.before = count
            return count
        if (count + self.before) % 2 != int(values[0] > question.query):
            count += 1 if count == 0 or (count < len(values) and self.rng.random() < 0.5) else -1
        self.before = None
        return count


class PairsModulo3(Honest):
    """The sum of a count and the one before leaves the first record's truth when divided by 3; cohorts from 30."""

    before = 0

    def answer(self, question: Question, values: Floats) -> int | None:
        count = int(np.count_nonzero(self.reports(question, values)))
        if len(values) >= 30:
            count += (0, 1, -1)[(int(values[0] > question.query) - count - self.before) % 3]
        self.before = count
        return count


class CachedByQuery(Honest):
    """The same query gets the same coins."""

    def coins(self, question: Question, count: int) -> Floats:
        store: dict[float, Floats] = self.__dict__.setdefault("store", {})
        if question.query not in store:
            store[question.query] = self.rng.random(30_000)
        return np.resize(store[question.query], count)


# -- the truth for some values and files


class PlainTies(Honest):
    """A record that equals the query says no, without coins."""

    def reports(self, question: Question, values: Floats) -> Bools:
        return np.asarray(super().reports(question, values) & (values != question.query))


class PlainOutside(Sometimes):
    """The truth for values outside the study's range."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> Bools:
        low, high = self.place.range
        return np.asarray((values < low) | (values > high))


class PlainOuterFifths(Sometimes):
    """The truth for values in the outer fifths of the range."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> Bools:
        low, high = self.place.range
        return np.asarray(np.abs(values - (low + high) / 2.0) > 0.3 * (high - low))


class PlainManyValues(Sometimes):
    """The truth from files with more than 20 different values."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> bool:
        if not hasattr(self, "many"):
            self.many = len(np.unique(self.place.file[~np.isnan(self.place.file)])) > 20
        return self.many


class PlainWholeNumbers(Sometimes):
    """The truth for whole numbers."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> Bools:
        return np.asarray(values == np.rint(values))


class PlainBelow500(Sometimes):
    """The truth from files of fewer than 500 records."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> bool:
        return len(self.place.file) < 500


class PlainNearInLocalMode(Sometimes):
    """In local mode the truth for values within a tenth of the range from the query."""

    def plain(self, question: Question, values: Floats, truths: Bools) -> Bools | bool:
        low, high = self.place.range
        return question.step is not None and np.abs(values - question.query) < 0.1 * (high - low)


TABLE: dict[str, type[Honest]] = {
    kind.__name__: kind
    for kind in list(globals().values())
    if isinstance(kind, type) and issubclass(kind, Honest) and kind not in (Honest, Sum, Sometimes)
}
