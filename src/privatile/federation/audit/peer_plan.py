"""What the audit of a peer plants and fixes beforehand. The questions are the run's own: a peer answers no others.

The auditor knows the truth of every record all the same, for it has written the files:

    above    every record lies above the range of the study: its truth is 1, whatever is asked
    below    every record lies below it: its truth is 0
    mixed    half of the records missing, the others inside the range, where the quantile is looked for
    whole    people below the range, with three rows each, and above it, with one; all are asked, with next to no noise:
             the sum of the counts shows who was

How many records a question asks is fixed beforehand, too, by the design of the study: cohorts of 1 to 100, of up to
1,000, and as large as the ratio needs, three rounds of each size, in random order. So only the threshold of a question
depends on answers.

Two runs are held, `first` and `copy`, the second from copies of all folders taken before the first answer.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from privatile.core.mechanism import LARGEST_EPSILON, STRONGEST_EPSILON, RandomizedResponse
from privatile.core.words import counted
from privatile.federation.audit.checks import Transcript
from privatile.federation.audit.judgement import Finding, compare_counts, find_whole, ratio_finding
from privatile.federation.audit.plan import (
    COLUMNS,
    NAMES,
    RATIO_ALPHA,
    TITLES,
    WHOLE_EPSILON,
    Asks,
    Sitting,
    reports_for_ratio,
)
from privatile.federation.audit.planted import RUN_RANGE, PlantedFile, half_missing, outside, spread, with_people
from privatile.federation.audit.ratio import ratio_bounds
from privatile.federation.study.study import ClientAgreement, FederationStudy
from privatile.server.run_file import StoredRound

KINDS = ("above", "below", "mixed", "whole")
WEIGHTS = (0.3, 0.3, 0.3, 0.1)
BUDGETS = (1.0, 1.0, 0.75)
"""The budgets of the first three organizations, as parts of the one that is audited."""

LEVELS = (0.4, 0.5, 0.6)
"""Between the records that are always below and those that are always above: the questions stay inside the range."""

SAME = 3
"""Rounds in a row whose cohorts have the same size."""

DEADLINE = 3600.0
"""Seconds that a round waits: on a slow machine with a large file, too, nobody is left out."""

PEER_PARTS = ("first", "kill", "copy", "end")
"""What the audit of a peer consists of: two runs, a kill in the first, and that the processes end by themselves.

A test of one question may leave out all but the first.
"""


@dataclass(frozen=True, eq=False)
class PeerPlan:
    """Files, study and sizes of cohorts of the runs of an audit."""

    epsilon: float
    study: FederationStudy
    column: str
    files: Mapping[str, PlantedFile]
    """By organization, in the order of `KINDS`."""
    parts: Collection[str]

    @property
    def whole(self) -> str:
        """The organization whose every record is asked with next to no noise. It runs no server."""
        return list(self.files)[KINDS.index("whole")]

    @property
    def runs(self) -> tuple[str, ...]:
        """The names of the runs that are held."""
        return tuple(name for name in ("first", "copy") if name in self.parts)


@dataclass(frozen=True, eq=False)
class AskedByRuns:
    """What the runs of an audit have asked, for the checks."""

    sittings: tuple[Sitting, ...]
    whole: Sitting
    fixed: bool = False


def make_peer_plan(
    epsilon: float,
    rng: np.random.Generator,
    *,
    off: float = 0.02,
    rounds: int = 100,
    parts: Collection[str] = PEER_PARTS,
) -> PeerPlan:
    """Draw a plan. `off` is the share by which a truth rate must be wrong to be found; `rounds` are those of a run.

    >>> plan = make_peer_plan(1.0, np.random.default_rng(1), off=0.5, rounds=20)
    >>> plan.study.rounds, plan.study.signing_quorum, len({one.records for one in plan.study.clients.values()})
    (20, 3, 1)
    """
    rate = RandomizedResponse.from_epsilon(epsilon).truth_rate
    runs = 2 if "copy" in parts else 1
    lengths = _lengths(-(-reports_for_ratio(rate, off) // (runs * len(LEVELS))), rounds, rng)
    records = sum(lengths) * len(LEVELS)
    half = records // 2
    files = (
        outside(0, records, rng),
        outside(records, 0, rng),
        half_missing(spread(records, rng)),
        with_people(outside(half, records - half, rng), (3, 3, 3, 1, 1, 1), rng),
    )
    names = [str(name) for name in rng.choice(NAMES, len(KINDS), replace=False)]
    budgets = [min(max(part * epsilon, STRONGEST_EPSILON), LARGEST_EPSILON) for part in BUDGETS]
    agreed = zip(names, [*budgets, WHOLE_EPSILON], WEIGHTS, strict=True)
    study = FederationStudy(
        rng.bytes(6).hex(),
        str(rng.choice(TITLES)),
        "all of us",
        str(rng.choice(COLUMNS)),
        LEVELS,
        RUN_RANGE,
        rounds,
        design=f"list:{','.join(map(str, lengths))}",
        clients={name: ClientAgreement(budget, weight, records) for name, budget, weight in agreed},
        deadline=DEADLINE,
        allow_weak=True,
        tolerate=1,
    )
    return PeerPlan(epsilon, study, study.value, dict(zip(names, files, strict=True)), parts)


def _lengths(needed: int, rounds: int, rng: np.random.Generator) -> list[int]:
    """Sizes of the cohorts of each round: half of them small, a quarter up to 1,000, the others with what is needed.

    Each size is that of `SAME` rounds in a row: coins that are used again in the next round show where it has as many.
    So do coins that are drawn again for the round in which peers are killed, after a quarter of all: it is never small.

    >>> lengths = _lengths(50_000, 20, np.random.default_rng(1))
    >>> len(lengths), sum(lengths) >= 50_000, len(set(lengths)) <= 7, min(lengths[5:8]) >= 100
    (20, True, True, True)
    """
    blocks = -(-rounds // SAME)
    small, middle = blocks // 2, blocks // 4
    large = blocks - small - middle
    sizes = [1] * -(-small // 4)
    sizes += [int(size) for size in rng.integers(1, 101, small - len(sizes))]
    sizes += [int(size) for size in np.exp(rng.uniform(math.log(100), math.log(1000), middle))]
    left = max(needed / SAME, 1000.0 * large)
    sizes += [int(size) for size in np.ceil(left * rng.dirichlet(np.full(large, 20.0)))]
    times = np.full(blocks, SAME)
    times[0] -= SAME * blocks - rounds
    order = rng.permutation(blocks)
    ends = np.cumsum(times[order])
    killed = int(np.searchsorted(ends, rounds // 4, side="right"))
    for place in range(killed, min(killed + 2, blocks)):
        elsewhere = [
            other for other in range(blocks) if not killed <= other < killed + 2 and sizes[order[other]] >= 100
        ]
        if sizes[order[place]] < 100 and elsewhere:
            other = int(rng.choice(elsewhere))
            order[[place, other]] = order[[other, place]]
    return [int(size) for size in np.repeat(np.array(sizes)[order], times[order])]


def asked_by_runs(plan: PeerPlan, runs: Mapping[str, Sequence[StoredRound]]) -> tuple[AskedByRuns, Transcript]:
    """The questions and the counts of the runs, in which everybody has answered every question."""
    names = list(plan.study.clients)
    sittings, counts = [], {}
    for run, rounds in runs.items():
        rows = sorted(rounds, key=lambda one: (one.round, one.level_index))
        number = np.array([one.round for one in rows])
        level = np.array([plan.study.asked_levels[one.level_index] for one in rows])
        query = np.array([one.ask.sent for one in rows])
        asks = {}
        for place, name in enumerate(names):
            length = np.array([one.ask.lengths[place] for one in rows])
            rate = plan.study.clients[name].mechanism.truth_rate
            asks[name] = Asks(plan.files[name], rate, number, level, query, length)
            counts[run, name] = np.array([[one.ones[place] for one in rows]], dtype=np.int64)
        sittings.append(Sitting(run, plan.study, plan.column, asks))
    first = sittings[0]
    whole = Sitting("first", plan.study, plan.column, {plan.whole: first.asks[plan.whole]})
    noisy = tuple(
        Sitting(one.name, one.study, one.column, {name: one.asks[name] for name in names if name != plan.whole})
        for one in sittings
    )
    return AskedByRuns(noisy, whole), counts


def judge_runs(plan: PeerPlan, asked: AskedByRuns, transcript: Transcript, rng: np.random.Generator) -> list[Finding]:
    """What the counts of an audit's runs show."""
    return [
        find_ratio_of_runs(plan, asked, transcript),
        find_whole(asked.whole, transcript),
        *compare_counts(asked, transcript, rng),
    ]


def find_ratio_of_runs(plan: PeerPlan, asked: AskedByRuns, transcript: Transcript) -> Finding:
    """Whether e^ε is within the bounds that all questions give to those above and those below, in all runs."""
    above, below = list(plan.files)[:2]
    ones = {site: sum(int(transcript[one.name, site].sum()) for one in asked.sittings) for site in (above, below)}
    trials = sum(int(one.asks[above].length.sum()) for one in asked.sittings)
    return ratio_finding(plan.epsilon, ratio_bounds(ones[above], ones[below], trials, RATIO_ALPHA))


def words_about(plan: PeerPlan, asked: AskedByRuns) -> str:
    """What was asked, in words: the questions are the run's own."""
    all_asks = [asks for one in asked.sittings for asks in one.asks.values()]
    lengths = np.concatenate([asks.length for asks in all_asks])
    queries = np.concatenate([asks.query for asks in all_asks])
    mixed = np.concatenate([one.asks[list(plan.files)[2]].above for one in asked.sittings])
    return (
        f"{counted(len(asked.sittings), 'run')} of {counted(plan.study.rounds, 'round')} and "
        f"{counted(len(LEVELS), 'level')}, the questions its own: cohorts of {lengths.min():,} to {lengths.max():,}, "
        f"thresholds from {queries.min():,.0f} to {queries.max():,.0f} with all records above, none, and from "
        f"{mixed.min():.0%} to {mixed.max():.0%} of the records"
    )
