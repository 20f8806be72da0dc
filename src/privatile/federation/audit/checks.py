"""The checks of an audit: what a client answered beside what honest coins give, and the findings in words.

A check is a list of tests, each with an exact probability (`scores`). The check fails where its smallest probability,
times the number of its tests, is at most the check's share of the false alarms. All shares together are at most
1 in 1,000: an honest client fails an audit no more often than that (`studies/audit/power.py` measures it).

    share     is the number of ones that of the truths: by size of cohort, truth, level, phase, query, site
    spread    do counts vary as much as coins make them, no less and no more: by the same groups
    shape     are there as many counts far from their means as coins give, and none impossibly far
    sums      do sums over consecutive questions, and over those of one query, vary as sums of independent counts do
    sequence  does an answer not depend on the ones before
    shared    do the levels of a round, and the sites of a round, have coins of their own
    repeat    does the same study, from a copy of the sites' folders, get other coins: with the same records in the same
              order, the difference of two counts does not depend on the truths at all
    study     does another study get other coins
    parity    are as many counts even, and as many sums of two counts multiples of 2 and of 3, as coins give: one bit of
              a count may hold one bit of a person

Arrays have one row per audit, so that the same functions measure the power of the checks on many simulated audits.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.core.mechanism import RandomizedResponse
from privatile.core.text import counted
from privatile.federation.audit.plan import LARGE, RATIO_ALPHA, Asks, Plan, Sitting
from privatile.federation.audit.statistics import (
    Counts,
    at_most,
    count_scores,
    difference_scores,
    difference_tails,
    more_than,
    pair_score,
    ratio_bounds,
    size_scores,
    spread_tails,
    sum_tails,
    two_sided,
    weighted_sum,
)

Indices = NDArray[np.intp]

SIZES = (1, 2, 10, 30, 100, 1000)
"""Classes of cohort sizes begin here."""


class Table:
    """All questions of a plan side by side, and the groups that are tested."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rows: dict[tuple[str, str], slice] = {}
        parts: list[tuple[str, str, Asks]] = [
            (sitting.name, site, asks) for sitting in plan.sittings for site, asks in sitting.asks.items()
        ]
        stop = 0
        for sitting, site, asks in parts:
            self.rows[sitting, site] = slice(stop, stop + len(asks.round))
            stop += len(asks.round)

        def column(get: Callable[[Asks], NDArray[np.generic]]) -> NDArray[np.generic]:
            return np.concatenate([get(asks) for _, _, asks in parts])

        self.round = np.asarray(column(lambda asks: asks.round), dtype=np.int64)
        self.level = np.asarray(column(lambda asks: asks.level), dtype=np.float64)
        self.query = np.asarray(column(lambda asks: asks.query), dtype=np.float64)
        self.length = np.asarray(column(lambda asks: asks.length), dtype=np.int64)
        self.above = np.asarray(column(lambda asks: asks.above), dtype=np.float64)
        self.shares = np.asarray(column(lambda asks: asks.shares), dtype=np.float64)
        self.moves = np.asarray(column(lambda asks: asks.moves), dtype=np.float64)
        self.same_truth = np.asarray(column(lambda asks: asks.same_truth), dtype=np.bool_)
        self.phase = np.asarray(column(lambda asks: asks.round / asks.round.max()), dtype=np.float64)
        self.sign = np.where(self.above >= 0.5, 1.0, -1.0)
        """Where the truths are mostly 0, a lie raises the count; where they are mostly 1, it lowers it."""
        self.pooled = np.concatenate(
            [np.arange(rows.start, rows.stop) for (sitting, _), rows in self.rows.items() if sitting != "copy"]
        )
        """The copy asks the first sitting's records: beside the first it is tested by its differences alone."""

    @cached_property
    def groups(self) -> list[tuple[str, Indices]]:
        """Groups of questions, in words and as places."""
        length, above, phase = self.length, self.above, self.phase
        low, high = self.plan.sittings[0].study.range
        truths = {
            "no record above": self.same_truth & (above == 0.0),
            "all records above": self.same_truth & (above == 1.0),
            "few records above or below": ~self.same_truth & (abs(above - 0.5) >= 0.4),
            "records on both sides": ~self.same_truth & (abs(above - 0.5) < 0.4),
        }
        phases = {
            "the first round": self.round == 1,
            "rounds 2 to 10": (self.round >= 2) & (self.round <= 10),
            "the first half": phase <= 0.5,
            "the second half": phase > 0.5,
            "the last tenth": phase > 0.9,
        }
        masks = {"all questions": np.ones(len(length), dtype=np.bool_), **truths}
        for start, stop in zip(SIZES, (*SIZES[1:], np.inf), strict=True):
            words = "cohorts of 1" if start == 1 else f"cohorts from {start}"
            size = (length >= start) & (length < stop)
            masks[words] = size
            masks |= {f"{words}, {truth}": size & mask for truth, mask in truths.items()}
        for words, mask in phases.items():
            masks |= {words: mask, f"{words}, same truth": mask & self.same_truth}
            masks[f"{words}, records on both sides"] = mask & ~self.same_truth
        masks["queries at the low end"] = self.query < low + 0.1 * (high - low)
        masks["queries at the high end"] = self.query > high - 0.1 * (high - low)
        for level in sorted(set(self.level.tolist())):
            masks[f"level {level:g}"] = self.level == level
        return [
            *((words, self.pooled[mask[self.pooled]]) for words, mask in masks.items()),
            *self._sites(),
        ]

    def _sites(self) -> Iterator[tuple[str, Indices]]:
        """Every site of every sitting, and its levels."""
        for (sitting, site), rows in self.rows.items():
            places = np.arange(rows.start, rows.stop)
            yield f"sitting {sitting}, site {site}", places
            if sitting in ("first", "long"):
                for level in sorted(set(self.level[places].tolist())):
                    yield f"sitting {sitting}, site {site}, level {level:g}", places[self.level[places] == level]

    def sequences(self) -> list[Indices]:
        """Consecutive questions to one site in one sitting, without the copy."""
        return [np.arange(rows.start, rows.stop) for (sitting, _), rows in self.rows.items() if sitting != "copy"]

    def alike(self) -> list[Indices]:
        """Questions of one query to one site in one sitting, without the copy."""
        return [
            places[self.query[places] == query]
            for places in self.sequences()
            for query in np.unique(self.query[places]).tolist()
        ]


Transcript = Mapping[tuple[str, str], Counts]
"""Counts by sitting and site: one row per audit, one column per question."""

Test = tuple[str, Floats]
"""What was tested, in words, and the probability of something at least as strange, per audit."""

FEWEST = 4
"""A group with fewer counts is not tested by itself."""

BLOCKS = (2, 4, 8, 16, 32)
LAGS = (1, 2, 3, 4, 6, 8)
MODULI = (2, 3)
FAR = (1.0, 2.0, 2.5)
"""Numbers of consecutive questions that are added; distances of two questions that are compared; what sums of two
counts are divided by; scores called far."""


@dataclass(frozen=True, eq=False)
class Checked:
    """A check's outcome over one or more audits."""

    name: str
    share: float
    labels: tuple[str, ...]
    chances: Floats
    """One row per audit, one column per test."""

    @property
    def probability(self) -> Floats:
        """The smallest probability times the number of tests, at most 1, per audit."""
        return np.asarray(np.minimum(1.0, self.chances.min(axis=1) * len(self.labels)))

    @property
    def passed(self) -> NDArray[np.bool_]:
        """Per audit."""
        return self.probability > self.share

    def worst(self, audit: int = 0) -> str:
        """In words, the test with the smallest probability."""
        return self.labels[int(self.chances[audit].argmin())]


def run_checks(plan: Plan, transcript: Transcript, rng: np.random.Generator) -> list[Checked]:
    """All checks; `rng` spreads the scores of counts between those of their neighbours."""
    table = Table(plan)
    counts = np.concatenate([transcript[key] for key in table.rows], axis=1)
    found = _Scores(table, counts, count_scores(counts, table.length, table.shares, rng), rng)
    results = []
    for name, (share, check) in CHECKS.items():
        tests = list(check(found))
        if not tests:  # of a part that was left out
            continue
        chances = np.stack([chance for _, chance in tests], axis=1)
        results.append(Checked(name, share, tuple(words for words, _ in tests), chances))
    return results


@dataclass(frozen=True, eq=False)
class _Scores:
    table: Table
    counts: Counts
    scores: Floats
    rng: np.random.Generator

    def of(self, sitting: str, site: str) -> Floats:
        return self.scores[:, self.table.rows[sitting, site]]

    def differences(self, sitting: str) -> tuple[Indices, Counts, Floats]:
        """Places in the table, differences between the first sitting and this one, and their scores."""
        rows = self.table.rows
        sites = [site for name, site in rows if name == sitting]
        first = np.concatenate([np.arange(rows["first", s].start, rows["first", s].stop) for s in sites])
        then = np.concatenate([np.arange(rows[sitting, s].start, rows[sitting, s].stop) for s in sites])
        # Other records: comparable where all truths are the same.
        if sitting != "copy":
            same = self.table.same_truth[first]
            first, then = first[same], then[same]
        difference = self.counts[:, first] - self.counts[:, then]
        scores = difference_scores(difference, self.table.length[first], self.table.moves[first], self.rng)
        return first, difference, scores


def _both_tails(words: str, scores: Floats) -> Iterator[Test]:
    if scores.shape[-1] < FEWEST:
        return
    low, high = spread_tails(scores)
    yield f"{words}: too little spread", low
    yield f"{words}: too much spread", high


def _share(found: _Scores) -> Iterator[Test]:
    size = np.sqrt(found.table.length)
    # A share of records that tell the truth moves a count by so much, up where most truths are 1, else down.
    lies = size * (found.table.shares - 0.5)
    for words, places in found.table.groups:
        if len(places) < FEWEST:
            continue
        yield f"{words}: ones", two_sided(weighted_sum(found.scores[:, places], size[places]))
        if lies[places].any():
            yield f"{words}: lies", two_sided(weighted_sum(found.scores[:, places], lies[places]))


def _spread(found: _Scores) -> Iterator[Test]:
    for words, places in found.table.groups:
        yield from _both_tails(words, found.scores[:, places])


def _shape(found: _Scores) -> Iterator[Test]:
    farthest = np.abs(found.scores).max(axis=1)
    yield "the farthest count", np.minimum(1.0, found.scores.shape[1] * two_sided(farthest))
    table = found.table
    for words, least in (("all questions", 1), ("cohorts from 10", 10)):
        places = table.pooled[table.length[table.pooled] >= least]
        number = np.array(len(places))
        for far in FAR:
            beyond = np.count_nonzero(np.abs(found.scores[:, places]) > far, axis=1)
            chance = two_sided(np.array(far))
            yield f"{words}: too few scores beyond {far:g}", at_most(beyond, number, chance)
            yield f"{words}: too many scores beyond {far:g}", more_than(beyond - 1, number, chance)


def _sums(found: _Scores) -> Iterator[Test]:
    table = found.table
    for words, sign in (("ones", np.ones(len(table.sign))), ("lies", table.sign)):
        for weighting, weights in (("", np.ones(len(sign))), (", by size", np.sqrt(table.length))):
            for block in BLOCKS:
                parts = []
                for places in table.sequences():
                    inside = places[: len(places) // block * block].reshape(-1, block)
                    weight = weights[inside]
                    total = np.sum(found.scores[:, inside] * (sign[inside] * weight), axis=2)
                    parts.append(total / np.sqrt(np.sum(weight**2, axis=1)))
                yield from _both_tails(
                    f"{words} in sums of {block} questions{weighting}", np.concatenate(parts, axis=1)
                )
            alike = [places for places in table.alike() if len(places) >= FEWEST]
            totals = [weighted_sum(found.scores[:, at] * sign[at], weights[at]) for at in alike]
            if totals:
                yield from _both_tails(f"{words} in sums over one query{weighting}", np.stack(totals, axis=-1))


def _pairs(words: str, found: _Scores, first: Indices, second: Indices) -> Iterator[Test]:
    """Whether scores at `first` and at `second` depend on each other: as ones, as lies, and in size."""
    if len(first) < FEWEST:
        return
    one, two, sign = found.scores[:, first], found.scores[:, second], found.table.sign
    yield f"{words}: ones", two_sided(pair_score(one, two))
    yield f"{words}: lies", two_sided(pair_score(one * sign[first], two * sign[second]))
    yield f"{words}: sizes", two_sided(pair_score(size_scores(one), size_scores(two)))


def _sequence(found: _Scores) -> Iterator[Test]:
    for lag in LAGS:
        for phase in (0, 1):
            first = []
            for places in found.table.sequences():
                starts = np.arange(max(0, len(places) - lag))
                # Every question is in one pair at most, so that the pairs are independent.
                first.append(places[starts[starts // lag % 2 == phase]])
            ahead = np.concatenate(first)
            yield from _pairs(f"questions {lag} apart, {'odd' if phase else 'even'}", found, ahead + lag, ahead)


def _shared(found: _Scores) -> Iterator[Test]:
    table = found.table
    for sitting in ("first", "copy", "other", "long"):
        sequences = [np.arange(rows.start, rows.stop) for (name, _), rows in table.rows.items() if name == sitting]
        if not sequences:
            continue
        levels = sorted(set(np.concatenate([table.level[places] for places in sequences]).tolist()))
        for one, two in combinations(levels, 2):
            first, second = [], []
            for places in sequences:
                by_round = {
                    level: dict(zip(table.round[at].tolist(), at.tolist(), strict=True))
                    for level in (one, two)
                    for at in [places[table.level[places] == level]]
                }
                rounds = sorted(set(by_round[one]) & set(by_round[two]))
                first += [by_round[one][number] for number in rounds]
                second += [by_round[two][number] for number in rounds]
            words = f"sitting {sitting}, levels {one:g} and {two:g}"
            yield from _pairs(words, found, np.array(first, dtype=np.intp), np.array(second, dtype=np.intp))
        for one_, two_ in combinations(sequences, 2):
            yield from _pairs(f"sitting {sitting}, two sites", found, one_, two_)


def _study(found: _Scores) -> Iterator[Test]:
    yield from _compared(found, "other", "another study")
    rows = found.table.rows
    for site in (site for sitting, site in rows if sitting == "other"):
        first, other = (
            np.arange(rows[sitting, site].start, rows[sitting, site].stop) for sitting in ("first", "other")
        )
        yield from _pairs(f"another study, site {site}", found, first, other)


def _compared(found: _Scores, sitting: str, words: str) -> Iterator[Test]:
    """Differences of counts between the first sitting and another one."""
    table = found.table
    if not any(name == sitting for name, _ in table.rows):
        return
    places, differences, scores = found.differences(sitting)
    inside = {int(place): column for column, place in enumerate(places.tolist())}
    if len(places) < FEWEST:
        return
    for group, members in table.groups:
        columns = [inside[place] for place in members.tolist() if place in inside]
        if len(columns) >= FEWEST:
            yield from _both_tails(f"{words}, {group}", scores[:, columns])
            yield f"{words}, {group}: differences", two_sided(weighted_sum(scores[:, columns], np.ones(len(columns))))
    lengths, moves = table.length[places], table.moves[places]
    pairs = zip(lengths.tolist(), moves.tolist(), strict=True)
    equal = np.array([1.0 - sum(float(tail[length]) for tail in difference_tails(length, v)) for length, v in pairs])
    _, many = sum_tails(np.count_nonzero(differences == 0, axis=1), equal)
    yield f"{words}: equal counts", many
    even = (1.0 + (1.0 - 4.0 * moves) ** lengths) / 2.0
    few, many = sum_tails(np.count_nonzero(differences % 2 == 0, axis=1), even)
    yield f"{words}: even differences, too few", few
    yield f"{words}: even differences, too many", many


def _parity(found: _Scores) -> Iterator[Test]:
    table = found.table
    for words, mask in (("all questions", table.length >= 1), ("same truth", table.same_truth)):
        places = table.pooled[mask[table.pooled]]
        even = (1.0 + (1.0 - 2.0 * table.shares[places]) ** table.length[places]) / 2.0
        few, many = sum_tails(np.count_nonzero(found.counts[:, places] % 2 == 0, axis=1), even)
        yield f"even counts, {words}: too few", few
        yield f"even counts, {words}: too many", many
    for least in (1, 10, 30):
        pairs = [places[table.length[places] >= least] for places in table.sequences()]
        for start in (0, 1):
            first = np.concatenate([places[start:-1:2] for places in pairs])
            second = np.concatenate([places[start + 1 :: 2] for places in pairs])
            sums = found.counts[:, first] + found.counts[:, second]
            for modulus in MODULI:
                truths = (table.above[second] >= 0.5).astype(np.int64)
                for words, rest in (("0", np.zeros_like(truths)), ("the truth", truths)):
                    chances = _remainder(table, first, second, modulus, rest)
                    few, many = sum_tails(np.count_nonzero(sums % modulus == rest, axis=1), chances)
                    words = f"sums of two counts, {words} modulo {modulus}, cohorts from {least}, from {start}"
                    yield f"{words}: too few", few
                    yield f"{words}: too many", many


def _remainder(table: Table, first: Indices, second: Indices, modulus: int, rest: Counts) -> Floats:
    """The chance that the sum of two counts leaves this rest: a mean over the roots of unity."""
    total = np.zeros(len(first), dtype=np.complex128)
    for power in range(modulus):
        turn = np.exp(2j * np.pi * power / modulus)
        term = turn ** (-rest)
        for places in (first, second):
            term = term * (1.0 - table.shares[places] * (1.0 - turn)) ** table.length[places]
        total += term
    return np.asarray(np.clip(total.real / modulus, 0.0, 1.0))


CHECKS: Mapping[str, tuple[float, Callable[[_Scores], Iterator[Test]]]] = {
    "share": (1.25e-4, _share),
    "spread": (1.25e-4, _spread),
    "shape": (0.75e-4, _shape),
    "sums": (0.75e-4, _sums),
    "sequence": (0.75e-4, _sequence),
    "shared": (1.0e-4, _shared),
    "repeat": (1.0e-4, partial(_compared, sitting="copy", words="the same study twice")),
    "study": (0.5e-4, _study),
    "parity": (0.5e-4, _parity),
}
"""How often an honest client may fail each check, and its tests. Together 0.775 in 1,000; the ratio has 0.2, `whole`
the rest."""

WHOLE_SHARE = 0.25e-4
"""How often an honest client may fail `whole`."""


@dataclass(frozen=True)
class Finding:
    """The answer to one question."""

    name: str
    passed: bool
    text: str


def judge(plan: Plan, transcript: Transcript, rng: np.random.Generator) -> list[Finding]:
    """The findings of one audit whose client has answered every question."""
    findings = [find_ratio(plan, transcript)] if "long" in plan.parts else []
    findings += [find_whole(plan.whole, transcript)] if "whole" in plan.parts else []
    for check in run_checks(plan, transcript, rng) if plan.sittings else ():
        probability = float(check.probability[0])
        seen = "nothing strange" if check.passed[0] else f"{check.worst()}, which honest coins give with"
        chance = f"p = {probability:.2g}" + ("" if check.passed[0] else f"; allowed: {check.share:.2g}")
        findings.append(
            Finding(check.name, bool(check.passed[0]), f"{counted(len(check.labels), 'test')}: {seen} ({chance})")
        )
    return findings


def silent(sitting: str, site: str, number: int) -> Finding:
    """A site that did not answer. On one machine nothing is lost: silence is an answer, and may tell the truth."""
    return Finding("answers", False, f"site {site} did not answer round {number} of sitting {sitting}")


def find_ratio(plan: Plan, transcript: Transcript) -> Finding:
    """Whether e^ε is within the bounds that the large questions give, for a report of 1 and for a report of 0."""
    ((site, asks),) = plan.long.asks.items()
    ones = transcript["long", site][0]
    large = asks.same_truth & (asks.length >= LARGE)
    above, below = large & (asks.above == 1.0), large & (asks.above == 0.0)
    bounds = ratio_bounds(int(ones[above].sum()), int(ones[below].sum()), int(asks.length[above].sum()), RATIO_ALPHA)
    return ratio_finding(plan.epsilon, bounds)


def find_whole(whole: Sitting, transcript: Transcript) -> Finding:
    """Whether the counts of a whole file add up to the records above the query: then each was asked once.

    A difference d needs at least |d| lies, whatever the truths are.
    """
    asked = []
    for site, asks in whole.asks.items():
        records = asks.file.records
        planted, counted = round(float(asks.above[0]) * records), int(transcript[whole.name, site][0].sum())
        lies, whose = np.array(abs(counted - planted)), "people" if asks.file.people else "records"
        chance = float(more_than(lies - 1, np.array(records), np.array((1.0 - asks.rate) / 2.0)))
        asked.append(f"{counted:,} of {records:,} {whose}")
        if len(whole.asks) * chance <= WHOLE_SHARE:
            text = (
                f"site {site}: {planted:,} of {records:,} {whose} are above the query, the counts add up to {counted:,}"
            )
            return Finding("whole", False, f"{text}: some were asked twice or never, or by row in place of by person")
    return Finding("whole", True, f"all were asked, each once: {' and '.join(asked)} are above the query, as planted")


def ratio_finding(epsilon: float, bounds: tuple[tuple[float, float], tuple[float, float]]) -> Finding:
    """The finding from the two intervals of the likelihood ratio."""
    rate = RandomizedResponse.from_epsilon(epsilon).truth_rate
    limit = (1 + rate) / (1 - rate)
    measured = ", ".join(f"{low:.4f} to {high:.4f}" for low, high in bounds)
    least = math.log(max(bounds[0][0], bounds[1][0], 1.0))
    text = f"e^epsilon = {limit:.4f}; measured, for a report of 1 and of 0: {measured}; epsilon is at least {least:.4f}"
    return Finding("ratio", all(low <= limit <= high for low, high in bounds), text)
