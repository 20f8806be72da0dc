"""What an audit asks: planted files whose truths the auditor knows, and questions that no answer changes.

    first   a run as real ones are: several sites at once, several levels, questions that a simulated run of the same
            study leads to. One file spread, one with missing values, one with equal records of known people, one
            asked for single records
    copy    the same study again, from copies of the sites' folders taken before the first answer: only coins differ
    other   the same questions under another study, at two of the sites, from the same copies
    local   a study in local mode
    long    one site, many rounds, a kill in the middle: cohorts of every size from 1 to 100 and large ones in random
            order, with no record, all, few or half of them above the query

After the long sitting comes `once`: the same round again, a kill, one record too many, another study.
Names, values and order are drawn anew for each audit, so that nothing tells a client that it is being audited.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.core.mechanism import RandomizedResponse, yes_probability
from privatile.core.messages import Question
from privatile.federation.audit.ratio import reports_needed
from privatile.federation.audit.scores import Counts
from privatile.federation.study.study import ClientAgreement, FederationStudy
from privatile.server.coordinator import Track

RANGE = (0.0, 100_000.0)
LEVELS = (0.25, 0.5, 0.9)
LOW_LEVELS, HIGH_LEVELS = (0.01, 0.05, 0.1, 0.3), (0.6, 0.75, 0.95, 0.99)
"""A record of the first study answers about one of three levels; the long study has a low and a high one."""

VALUE_SHARES = (0.02, 0.08, 0.40, 0.40, 0.08, 0.02)
"""Shares of the records of a spread file that hold its first, second … value, in rising order."""

ONCE_RECORDS = 5_000
"""Records of the long sitting that are left for the question whether a record answers once."""

LARGE, LARGE_ASKS = 5_000, 40
"""The fewest reports of one question for the ratio, and how many such questions there are, roughly, for each truth."""

RATIO_ALPHA, POWER = 1e-4, 0.999
"""Error of each end of a bound of the ratio, and the chance to find a truth rate that is wrong by `off`."""

PARTS = ("first", "copy", "other", "local", "long", "kill", "once")
"""What an audit consists of. A test of one question may leave out the parts that it does not need."""

PERSON = "code"
"""The column that tells people apart, in every file; only some clients are told so."""

TITLES = ("Pay survey", "Waiting times", "Household income", "Length of stay", "Energy use", "Rents")
NAMES = ("north", "south", "east", "west", "harbour", "hill", "river", "lake", "mill", "park", "abbey", "moor")
COLUMNS = ("salary", "amount", "minutes", "income", "cost", "reading")


@dataclass(frozen=True, eq=False)
class PlantedFile:
    """A site's file: `copies` records hold each of `values`, `missing` have none.

    `people` is the beginning of everybody's identifier where the file has a column of people, each with one record.
    """

    values: Floats
    copies: Counts
    missing: int = 0
    people: str = ""

    @property
    def records(self) -> int:
        """How many records there are."""
        return int(self.copies.sum()) + self.missing

    def above(self, queries: Floats) -> Floats:
        """The share of all records that is above each query."""
        return np.asarray((self.values > np.asarray(queries)[..., None]) @ self.copies / self.records)

    def text(self, column: str) -> str:
        """The file, in rising order of the values: a client that asks in the file's order shows it."""
        values = [f"{value:.4f}" for value in np.repeat(self.values, self.copies)] + [""] * self.missing
        lines = [f"{value},{self.people}{number:06d}\n" for number, value in enumerate(values)]
        return f"{column},{PERSON}\n" + "".join(lines)


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
            step = asks.rate * 1e-6 if study.mode == "local" else None  # the query stays where it is asked
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
    long: Sitting
    parts: Collection[str] = PARTS

    @property
    def sittings(self) -> tuple[Sitting, ...]:
        """Those that are held, in order."""
        every = (self.first, self.copy, self.other, self.local, self.long)
        return tuple(sitting for sitting in every if sitting.name in self.parts)

    @property
    def values(self) -> list[float]:
        """Every planted value."""
        files = (asks.file for sitting in self.sittings for asks in sitting.asks.values())
        return sorted({value for file in files for value in file.values.tolist()})

    @property
    def people(self) -> list[str]:
        """The beginnings of the planted identifiers of people."""
        files = [asks.file for sitting in self.sittings for asks in sitting.asks.values()]
        return sorted({file.people for file in files if file.people})


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
    >>> [sitting.name for sitting in plan.sittings], len(plan.first.asks), plan.copy.study is plan.first.study
    (['first', 'copy', 'other', 'local', 'long'], 4, True)
    """
    maker = _Maker(epsilon, RandomizedResponse.from_epsilon(epsilon).truth_rate, rng, rounds)
    first = maker.first()
    spread, _, equal, _ = first.asks
    other = Sitting(
        "other",
        maker.study_like(first.study, spread, equal),
        first.column,
        {site: first.asks[site] for site in (spread, equal)},
    )
    return Plan(
        epsilon,
        maker.rate,
        first,
        Sitting("copy", first.study, first.column, first.asks),
        other,
        maker.local(),
        maker.long(off),
        parts,
    )


@dataclass(eq=False)
class _Maker:
    epsilon: float
    rate: float
    rng: np.random.Generator
    rounds: int

    def study(self, name: str, levels: tuple[float, ...], rounds: int, clients: Mapping[str, int]) -> FederationStudy:
        """A study whose names do not say what it is for."""
        mode, design = ("local", "rounds") if name == "local" else ("cohort", "auto")
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
            clients={site: ClientAgreement(self.epsilon, 1.0 / len(clients), n) for site, n in clients.items()},
            allow_weak=True,
        )

    def study_like(self, study: FederationStudy, *sites: str) -> FederationStudy:
        """Another study that asks the same of these sites."""
        records = {name: study.clients[name].records for name in sites}
        return self.study("other", study.levels, study.rounds, records)

    def values(self, number: int) -> Floats:
        """Values inside the range, in rising order, of nine digits each, no two within 1,000 of each other."""
        places = np.sort(self.rng.choice(np.arange(20, 80, 2), number, replace=False)) * 1000
        return np.asarray(places + np.round(self.rng.uniform(1.0, 999.0, number), 3) + 0.0007)

    def spread(self, records: int, missing: float = 0.0) -> PlantedFile:
        """Six values; about a share `missing` of the records has none."""
        known = records - round(missing * records)
        copies = np.round(np.array(VALUE_SHARES) * known).astype(np.int64)
        copies[2] += known - copies.sum()
        return PlantedFile(self.values(len(VALUE_SHARES)), copies, records - known)

    def first(self) -> Sitting:
        """A run whose questions a simulated run of the same study has led to."""
        rng, cells = self.rng, self.rounds * len(LEVELS)
        sites = [str(name) for name in rng.choice(NAMES, 4, replace=False)]
        agreed = [50 * cells, 50 * cells, 50 * cells, cells]
        # Twice the agreed records: the other study, which starts from a copy, asks those that the first leaves.
        one = PlantedFile(self.values(1), np.array([2 * agreed[2]]), people=f"Q{rng.integers(10**6, 10**7)}X")
        files = (self.spread(2 * agreed[0]), self.spread(2 * agreed[1], missing=0.5), one, self.spread(2 * agreed[3]))
        study = self.study("first", LEVELS, self.rounds, dict(zip(sites, agreed, strict=True)))
        tracks = [Track(study.spec, index) for index in range(len(LEVELS))]
        asked: list[tuple[int, float, float, tuple[int, ...]]] = []
        number = 0
        while any(track.ask is not None for track in tracks):
            number += 1
            for level, track in zip(study.asked_levels, tracks, strict=True):
                if track.ask is None:
                    continue
                lengths = track.ask.lengths
                query = clear_of(files, track.ask.sent)
                asked.append((number, level, query, lengths))
                chances = [yes_probability(self.rate, float(file.above(np.array(query)))) for file in files]
                track.advance([int(rng.binomial(n, p)) for n, p in zip(lengths, chances, strict=True)])
        round_, level_, query_, lengths_ = (np.array(column) for column in zip(*asked, strict=True))
        asks = {
            site: Asks(file, self.rate, round_, level_, query_, lengths_[:, place])
            for place, (site, file) in enumerate(zip(sites, files, strict=True))
        }
        return Sitting("first", study, study.value, asks)

    def local(self) -> Sitting:
        """Local mode, far from every value: all truths of a question are the same, wherever the query moves."""
        rng, rounds = self.rng, max(20, self.rounds // 2)
        lengths = rng.integers(1, 101, rounds)
        file = self.spread(int(lengths.sum()))
        site = str(rng.choice(NAMES))
        study = self.study("local", (0.5,), rounds, {site: file.records})
        ends = np.array([RANGE[0] + 1000.0, RANGE[1] - 1000.0])
        queries = ends[rng.integers(0, 2, rounds)]
        asks = Asks(file, self.rate, np.arange(1, rounds + 1), np.full(rounds, 0.5), queries, lengths)
        return Sitting("local", study, study.value, {site: asks})

    def long(self, off: float) -> Sitting:
        """Cohorts of every size with every kind of truth, in random order, and the many reports for the ratio."""
        rng = self.rng
        every = max(1, round(100 / self.rounds))
        kinds = ("none", "all", "few", "half")
        cells = [(n, kind) for n in range(1, 101, every) for kind in kinds]
        cells += [(n, kind) for n in range(1, 10) for kind in ("none", "all") for _ in range(10 // every)]
        for low, high, count in ((100, 1000, 2 * self.rounds), (1000, LARGE, self.rounds)):
            sizes = np.exp(rng.uniform(math.log(low), math.log(high), count)).astype(np.int64)
            cells += [(int(n), kinds[place % 4]) for place, n in enumerate(sizes.tolist())]
        left = reports_needed(self.rate, off, RATIO_ALPHA, POWER)
        largest = max(2 * LARGE, 2 * left // LARGE_ASKS)
        while left > 0:
            size = int(rng.integers(LARGE, largest))
            cells += [(size, "none"), (size, "all")]
            left -= size
        cells += [(50, "few")] * (len(cells) % 2)
        lengths = np.array([n for n, _ in cells])
        file = self.spread(int(lengths.sum()) + ONCE_RECORDS)
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
        """A query with no record above it, all, few (or all but few) or about half."""
        rng, values = self.rng, file.values
        gaps = {"few": (0, 1, 3, 4), "half": (2,)}
        if kind in gaps:
            place = int(rng.choice(gaps[kind]))
            low, high = values[place], values[place + 1]
        elif kind == "all":
            low, high = RANGE[0], values[0]
        else:
            low, high = values[-1], RANGE[1]
        if kind in ("none", "all") and rng.random() < 0.25:
            return float(RANGE[0] if kind == "all" else RANGE[1])
        # Often close to a value: a client may treat records near the query in another way.
        return float(rng.choice([low + 1.5, high - 1.5, rng.uniform(low + 1.5, high - 1.5)]))


def clear_of(files: tuple[PlantedFile, ...], query: float) -> float:
    """The query, moved to at least 1 from every planted value: its digits must not look like a value's."""
    for value in np.concatenate([file.values for file in files]).tolist():
        if abs(query - value) < 1.0:
            return float(min(max(value - 1.0 if query <= value else value + 1.0, RANGE[0]), RANGE[1]))
    return query
