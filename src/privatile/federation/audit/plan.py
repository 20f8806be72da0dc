"""What an audit asks: planted files whose truths the auditor knows, and questions that no answer changes.

first   a run as real ones are: several sites at once with budgets of their own, several levels, questions that a
            simulated run of the same study leads to. One file spread, one with missing values and values at the edges
            of the range, one with equal records of known people, a small one that is asked for single records
    copy    the same study again, from copies of the sites' folders taken before the first answer: only coins differ
    other   the same questions under another study, at two of the sites, from the same copies
    local   a study in local mode, with queries among the values
    whole   two files asked to the last record with hardly any noise: the counts show who was asked
    long    one site, many rounds, a kill in the middle: cohorts of every size from 1 to 100 and large ones in random
            order, with no record, all, few or half of them above the query, and with many equal to it

After the long sitting comes `once`: the same round again, a kill, one record too many, another study.
Names, values and order are drawn anew for each audit, so that nothing tells a client that it is being audited.

Planted files: records whose truths the auditor knows, of the kinds that a client could treat in another way.

    spread  six clusters of twelve values: a marked one, and whole numbers beside it
    edges   half of the records missing; the others outside the range, at its ends, and in its outer fifths
    equal   people with one record each, all of one value
    people  people with one row, and people with three

A marked value has nine digits: it is looked for in all that a client writes and sends. Queries are multiples of 0.5,
which share no six digits with a marked value.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.core.kinds import LARGEST_EPSILON, STRONGEST_EPSILON
from privatile.core.mechanism import RandomizedResponse, yes_probability
from privatile.core.messages import Question
from privatile.errors import InputError
from privatile.federation.audit.statistics import Counts, reports_needed
from privatile.federation.study import ClientAgreement, FederationStudy
from privatile.run.coordinator import LevelRun

RANGE = (0.0, 100_000.0)

VALUE_SHARES = (0.02, 0.08, 0.40, 0.40, 0.08, 0.02)
"""Shares of the records of a spread file in its first, second … cluster, in rising order."""

TIED = 1
"""The place of the commonest whole number of a cluster, the first one above the marked value."""

PERSON = "code"
"""The column that tells people apart, in every file; only some clients are told so."""

_WITHIN = np.array([0.6, 0.3, *[0.01] * 10])
_TENTHS = (0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9)
_EDGES = {-4_000.0: 0.5, 0.0: 0.1, 12_000.0: 0.1, 88_000.0: 0.05, 100_000.0: 0.05, 103_000.0: 0.2}


@dataclass(frozen=True, eq=False)
class PlantedFile:
    """A site's file: `copies` records hold each of `values`, `missing` have none.

    `people` is the beginning of everybody's identifier where the file has a column of people. A record is then a
    person, who has as many equal rows as `rows` says for the value.
    """

    values: Floats
    copies: Counts
    missing: int = 0
    people: str = ""
    rows: tuple[int, ...] = ()

    @property
    def records(self) -> int:
        """How many records there are; people where they are known."""
        return int(self.copies.sum()) + self.missing

    @property
    def marks(self) -> list[float]:
        """The marked values, as a client reads them."""
        return [float(f"{value:.4f}") for value in self.values.tolist() if value % 1.0]

    @cached_property
    def gaps(self) -> list[tuple[float, float]]:
        """The ends of the wide gaps between values."""
        wide = np.flatnonzero(np.diff(self.values) > 500.0)
        return [(float(self.values[place]), float(self.values[place + 1])) for place in wide]

    @property
    def middle(self) -> float:
        """A query in the middle of the middle gap."""
        low, high = self.gaps[len(self.gaps) // 2]
        return at_half((low + high) / 2.0)

    def above(self, queries: Floats) -> Floats:
        """The share of all records that is above each query."""
        return np.asarray((self.values > np.asarray(queries)[..., None]) @ self.copies / self.records)

    def text(self, column: str) -> str:
        """The file, in rising order of the values: a client that asks in the file's order shows it."""
        values = [f"{value:.4f}" for value in np.repeat(self.values, self.copies)] + [""] * self.missing
        lines = [f"{value},{self.people}{number:06d}\n" for number, value in enumerate(values)]
        if self.rows:
            lines = [line * times for line, times in zip(lines, np.repeat(self.rows, self.copies), strict=True)]
        return f"{column},{PERSON}\n" + "".join(lines)


def at_half(query: float) -> float:
    """The query, rounded to a multiple of 0.5 inside the range.

    >>> at_half(31415.9267), at_half(-1.0)
    (31416.0, 0.0)
    """
    return float(min(max(round(2.0 * query) / 2.0, RANGE[0]), RANGE[1]))


def marked(places: Floats, rng: np.random.Generator) -> Floats:
    """A marked value in each thousand that begins at `places`."""
    size = len(places)
    tenths, rest = rng.choice(_TENTHS, size), rng.integers(0, 100, size) / 1000.0
    return np.asarray(places + rng.integers(1, 900, size) + tenths + rest + 0.0007)


def spread(records: int, rng: np.random.Generator, *, close: bool = False) -> PlantedFile:
    """Six clusters; `close` puts them within 12,000 of each other.

    >>> file = spread(300, np.random.default_rng(1))
    >>> file.records, len(file.values), len(file.marks), len(file.gaps)
    (300, 72, 6, 5)
    """
    number = len(VALUE_SHARES)
    places = np.arange(20.0, 80.0, 2.0)
    start = int(rng.integers(len(places) - number))
    chosen = places[start : start + number] if close else np.sort(rng.choice(places, number, replace=False))
    marks = marked(1000.0 * chosen, rng)
    whole = np.ceil(marks)[:, None] + 2.0 + 3.0 * np.arange(len(_WITHIN) - 1)
    values = np.concatenate([marks[:, None], whole], axis=1).ravel()
    return PlantedFile(values, _copies(np.outer(VALUE_SHARES, _WITHIN).ravel(), records))


def edges(records: int, rng: np.random.Generator) -> PlantedFile:
    """Half of the records missing, the others at the edges of the range and beyond."""
    values = np.array(list(_EDGES))
    values[[2, 3]] = marked(values[[2, 3]], rng)
    known = records // 2
    return PlantedFile(values, _copies(np.array(list(_EDGES.values())), known), records - known)


def equal(records: int, rng: np.random.Generator) -> PlantedFile:
    """People with one record each, all of one value."""
    return PlantedFile(marked(np.array([50_000.0]), rng), np.array([records]), people=_identifier(rng))


def people(records: int, query: float, rng: np.random.Generator) -> PlantedFile:
    """Half of the people have three rows and a value below the query, half have one row and a value above it."""
    low = records // 2
    values = marked(1000.0 * (query // 1000.0 + np.array([-1.0, 1.0])), rng)
    return PlantedFile(values, np.array([low, records - low]), people=_identifier(rng), rows=(3, 1))


def _identifier(rng: np.random.Generator) -> str:
    return f"Q{rng.integers(10**6, 10**7)}X"


def _copies(shares: Floats, records: int) -> Counts:
    """Whole numbers in proportion to the shares, `records` in all."""
    ends = np.rint(np.cumsum(shares) / math.fsum(shares) * records).astype(np.int64)
    return np.diff(ends, prepend=0)


LEVELS = (0.25, 0.5, 0.9)
LOW_LEVELS, HIGH_LEVELS = (0.01, 0.05, 0.1, 0.3), (0.6, 0.75, 0.95, 0.99)
"""A record of the first study answers about one of three levels; the long study has a low and a high one."""

BUDGETS = (1.0, 0.75, 1.25, 1.0)
"""The budgets of the first sitting's sites, as parts of the one that is audited: each must use its own."""

WHOLE_EPSILON, WHOLE_ROUNDS = 30.0, 20
"""So large that a lie is not expected in ten million audits, and the rounds of that sitting."""

ONCE_RECORDS = 5_000
"""Records of the long sitting that are left for the question whether a record answers once."""

LARGE, LARGE_ASKS = 5_000, 40
"""The fewest reports of one question for the ratio, and how many such questions there are, roughly, for each truth."""

RATIO_ALPHA, POWER = 1e-4, 0.999
"""Error of each end of a bound of the ratio, and the chance to find a truth rate that is wrong by `off`."""

MOST_REPORTS = 100_000_000
"""Reports per truth that an audit asks at most: files of a few GB."""

PARTS = ("first", "copy", "other", "local", "whole", "long", "kill", "once")
"""What an audit consists of. A test of one question may leave out the parts that it does not need."""

TITLES = ("Pay survey", "Waiting times", "Household income", "Length of stay", "QuadraticForm use", "Rents")
NAMES = ("north", "south", "east", "west", "harbour", "hill", "river", "lake", "mill", "park", "abbey", "moor")
COLUMNS = ("salary", "amount", "minutes", "income", "cost", "reading")


@dataclass(frozen=True, eq=False)
class Asks:
    """One site's questions, in order; arrays of one length."""

    file: PlantedFile
    rate: float
    round: Counts
    level: Floats
    query: Floats
    length: Counts

    @cached_property
    def above(self) -> Floats:
        """The share of the file's records above each query."""
        return self.file.above(self.query)

    @cached_property
    def shares(self) -> Floats:
        """The chance that a report is 1: a missing record's truth is 1 with probability 1 − level."""
        missing = self.file.missing / self.file.records
        return np.asarray(yes_probability(self.rate, self.above + missing * (1.0 - self.level)))

    @cached_property
    def moves(self) -> Floats:
        """The chance v that a record's second report is 1 and its first 0: p(1 − p) of its own chance p of a 1."""
        missing, unknown = self.file.missing / self.file.records, yes_probability(self.rate, 1.0 - self.level)
        known = (1.0 - self.rate**2) / 4.0
        return np.asarray((1.0 - missing) * known + missing * unknown * (1.0 - unknown))

    @cached_property
    def same_truth(self) -> NDArray[np.bool_]:
        """Where all records have the same truth."""
        return np.asarray((self.above == 0.0) | (self.above == 1.0)) & (self.file.missing == 0)


@dataclass(frozen=True, eq=False)
class Sitting:
    """One run of one study at one or more sites."""

    name: str
    study: FederationStudy
    column: str
    asks: Mapping[str, Asks]

    def rounds(self) -> Iterator[dict[str, tuple[Question, ...]]]:
        """The questions to each site, round by round."""
        study = self.study
        of_round: dict[int, dict[str, list[Question]]] = {}
        for site, asks in self.asks.items():
            step = asks.rate * 1e-6 if study.mode == "local" else None
            columns = (asks.round, asks.level, asks.query, asks.length)
            for number, level, query, length in zip(*(column.tolist() for column in columns), strict=True):
                question = Question(study.run, number, level, query, length, step)
                of_round.setdefault(number, {}).setdefault(site, []).append(question)
        for number in sorted(of_round):
            yield {site: tuple(questions) for site, questions in of_round[number].items()}


@dataclass(frozen=True, eq=False)
class Plan:
    """All sittings of an audit, in order."""

    epsilon: float
    rate: float
    first: Sitting
    copy: Sitting
    other: Sitting
    local: Sitting
    whole: Sitting
    long: Sitting
    parts: Collection[str] = PARTS

    @property
    def held(self) -> tuple[Sitting, ...]:
        """Those that are held, in order."""
        every = (self.first, self.copy, self.other, self.local, self.whole, self.long)
        return tuple(sitting for sitting in every if sitting.name in self.parts)

    @property
    def sittings(self) -> tuple[Sitting, ...]:
        """Those whose counts are compared with honest coins: all but the whole files, where coins hardly matter."""
        return tuple(sitting for sitting in self.held if sitting.name != "whole")

    @property
    def files(self) -> list[PlantedFile]:
        """Every planted file."""
        return [asks.file for sitting in self.held for asks in sitting.asks.values()]


def make_plan(
    epsilon: float,
    rng: np.random.Generator,
    *,
    off: float = 0.02,
    rounds: int = 100,
    parts: Collection[str] = PARTS,
) -> Plan:
    """Draw a plan. `off` is the share by which a truth rate must be wrong to be found; `rounds` are those of a run.

    >>> plan = make_plan(1.0, np.random.default_rng(1), rounds=20)
    >>> [sitting.name for sitting in plan.held], len(plan.first.asks), plan.copy.study is plan.first.study
    (['first', 'copy', 'other', 'local', 'whole', 'long'], 4, True)
    """
    maker = _Maker(epsilon, RandomizedResponse.from_epsilon(epsilon).truth_rate, rng, rounds)
    first = maker.first()
    copy = Sitting("copy", first.study, first.column, first.asks)
    spread, _, equal, _ = first.asks
    like_first = maker.study_like(first.study, spread, equal)
    other = Sitting("other", like_first, first.column, {site: first.asks[site] for site in (spread, equal)})
    return Plan(epsilon, maker.rate, first, copy, other, maker.local(), maker.whole(), maker.long(off), parts)


def reports_for_ratio(rate: float, off: float) -> int:
    """Reports per truth with which a truth rate wrong by the share `off` is found."""
    needed = reports_needed(rate, off, RATIO_ALPHA, POWER)
    if needed > MOST_REPORTS:
        raise InputError(
            f"to find a truth rate wrong by {off:g} an audit at this epsilon needs {needed:,} reports of each kind, "
            f"more than {MOST_REPORTS:,}. Choose a larger --off, or a larger --epsilon."
        )
    return needed


@dataclass(eq=False)
class _Maker:
    epsilon: float
    rate: float
    rng: np.random.Generator
    rounds: int

    def study(
        self, name: str, levels: tuple[float, ...], rounds: int, clients: Mapping[str, int], *budgets: float
    ) -> FederationStudy:
        """A study whose names do not say what it is for; `clients` are their agreed records."""
        mode, design = ("local", "rounds") if name == "local" else ("cohort", "auto")
        given = zip(clients.items(), budgets or [self.epsilon] * len(clients), strict=True)
        return FederationStudy(
            self.rng.bytes(6).hex(),
            str(self.rng.choice(TITLES)),
            "the institute",
            str(self.rng.choice(COLUMNS)),
            levels,
            RANGE,
            rounds,
            mode=mode,  # type: ignore[arg-type]
            design=design,
            clients={site: ClientAgreement(epsilon, 1.0 / len(clients), n) for (site, n), epsilon in given},
            allow_weak=True,
        )

    def study_like(self, study: FederationStudy, *sites: str) -> FederationStudy:
        """Another study that asks the same of these sites."""
        agreed = {name: study.clients[name] for name in sites}
        records = {name: one.records for name, one in agreed.items()}
        return self.study("other", study.levels, study.rounds, records, *(one.epsilon for one in agreed.values()))

    def first(self) -> Sitting:
        """A run whose questions a simulated run of the same study has led to."""
        rng, cells = self.rng, self.rounds * len(LEVELS)
        sites = [str(name) for name in rng.choice(NAMES, 4, replace=False)]
        agreed = [50 * cells, 50 * cells, 50 * cells, cells]
        # Twice the agreed records: the other study, which starts from a copy, asks those that the first leaves.
        files = (spread(2 * agreed[0], rng), edges(2 * agreed[1], rng), equal(2 * agreed[2], rng), spread(cells, rng))
        budgets = [min(max(part * self.epsilon, STRONGEST_EPSILON), LARGEST_EPSILON) for part in BUDGETS]
        rates = [RandomizedResponse.from_epsilon(budget).truth_rate for budget in budgets]
        study = self.study("first", LEVELS, self.rounds, dict(zip(sites, agreed, strict=True)), *budgets)
        tracks = [LevelRun(study.spec, index) for index in range(len(LEVELS))]
        asked: list[tuple[int, float, float, tuple[int, ...]]] = []
        number = 0
        while any(track.ask is not None for track in tracks):
            number += 1
            for level, track in zip(study.asked_levels, tracks, strict=True):
                if track.ask is None:
                    continue
                lengths = track.ask.lengths
                query = at_half(track.ask.sent)
                asked.append((number, level, query, lengths))
                above = [float(file.above(np.array(query))) for file in files]
                chances = [yes_probability(rate, share) for rate, share in zip(rates, above, strict=True)]
                track.advance([int(rng.binomial(n, p)) for n, p in zip(lengths, chances, strict=True)])
        round_, level_, query_, lengths_ = (np.array(column) for column in zip(*asked, strict=True))
        asks = {
            site: Asks(file, rate, round_, level_, query_, lengths_[:, place])
            for place, (site, file, rate) in enumerate(zip(sites, files, rates, strict=True))
        }
        return Sitting("first", study, study.value, asks)

    def local(self) -> Sitting:
        """Local mode; the step is so small that the query stays where it is asked."""
        rng, rounds = self.rng, max(20, self.rounds // 2)
        lengths = rng.integers(1, 101, rounds)
        file = spread(int(lengths.sum()), rng, close=True)
        site = str(rng.choice(NAMES))
        study = self.study("local", (0.5,), rounds, {site: file.records})
        queries = np.array([self.query(file, kind) for kind in rng.choice(["none", "all", "few", "half"], rounds)])
        asks = Asks(file, self.rate, np.arange(1, rounds + 1), np.full(rounds, 0.5), queries, lengths)
        return Sitting("local", study, study.value, {site: asks})

    def whole(self) -> Sitting:
        """Every record of two files, one of people with several rows, about one query with next to no noise.

        Where each is asked once, the sum of all counts is the number of records above the query. Were they drawn with
        replacement, it would have a standard deviation of some 30.
        """
        rng, numbers = self.rng, np.arange(1, WHOLE_ROUNDS + 1)
        one, two = rng.integers(3600, 4400, 2).tolist()
        file = spread(one, rng)
        query, files = file.middle, [file, people(two, file.middle, rng)]
        sites = [str(name) for name in rng.choice(NAMES, len(files), replace=False)]
        agreed = {site: file.records for site, file in zip(sites, files, strict=True)}
        study = self.study("whole", (0.5,), WHOLE_ROUNDS, agreed, *[WHOLE_EPSILON] * len(files))
        rate = RandomizedResponse.from_epsilon(WHOLE_EPSILON).truth_rate
        asks = {}
        for site, file in zip(sites, files, strict=True):
            lengths = rng.multinomial(file.records, np.full(WHOLE_ROUNDS, 1.0 / WHOLE_ROUNDS))
            queries, levels = np.full(WHOLE_ROUNDS, query), np.full(WHOLE_ROUNDS, study.asked_levels[0])
            asks[site] = Asks(file, rate, numbers, levels, queries, lengths)
        return Sitting("whole", study, study.value, asks)

    def long(self, off: float) -> Sitting:
        """Cohorts of every size with every kind of truth, in random order, and the many reports for the ratio."""
        rng = self.rng
        every = max(1, round(100 / self.rounds))
        kinds = ("none", "all", "few", "half", "tie")
        cells = [(n, kind) for n in range(1, 101, every) for kind in kinds]
        cells += [(n, kind) for n in range(1, 10) for kind in ("none", "all") for _ in range(10 // every)]
        for low, high, count in ((100, 1000, 2 * self.rounds), (1000, LARGE, self.rounds)):
            sizes = np.exp(rng.uniform(math.log(low), math.log(high), count)).astype(np.int64)
            cells += [(int(n), kinds[place % len(kinds)]) for place, n in enumerate(sizes.tolist())]
        left = reports_for_ratio(self.rate, off)
        largest = max(2 * LARGE, 2 * left // LARGE_ASKS)
        while left > 0:
            size = int(rng.integers(LARGE, largest))
            cells += [(size, "none"), (size, "all")]
            left -= size
        cells += [(50, "few")] * (len(cells) % 2)
        lengths = np.array([n for n, _ in cells])
        file = spread(int(lengths.sum()) + ONCE_RECORDS, rng)
        order = rng.permutation(len(cells))
        queries = np.array([self.query(file, kind) for _, kind in cells])
        site, rounds = str(rng.choice(NAMES)), len(cells) // 2
        two = (float(rng.choice(LOW_LEVELS)), float(rng.choice(HIGH_LEVELS)))
        study = self.study("long", two, rounds + 10, {site: file.records})
        numbers = np.repeat(np.arange(1, rounds + 1), 2)
        levels = np.tile(np.array(study.asked_levels), rounds)
        asks = Asks(file, self.rate, numbers, levels, queries[order], lengths[order])
        return Sitting("long", study, study.value, {site: asks})

    def query(self, file: PlantedFile, kind: str) -> float:
        """A query with no record above it, all, few (or all but few) or about half; or one that many records equal."""
        rng, values = self.rng, file.values
        gaps = {"few": (0, 1, 3, 4), "half": (2,)}
        if kind == "tie":
            cluster = int(rng.choice([2, 3]))
            return float(values.reshape(len(VALUE_SHARES), -1)[cluster, TIED])
        if kind in gaps:
            low, high = file.gaps[int(rng.choice(gaps[kind]))]
        else:
            low, high = (RANGE[0], values[0]) if kind == "all" else (values[-1], RANGE[1])
            if rng.random() < 0.25:
                return RANGE[0] if kind == "all" else RANGE[1]
        # Often close to a value: a client may treat records near the query in another way.
        return at_half(float(rng.choice([low + 1.5, high - 1.5, rng.uniform(low + 1.5, high - 1.5)])))
