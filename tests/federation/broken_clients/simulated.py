"""Clients in this process: an honest one to derive broken ones from, and sittings of an audit without processes.

A client of the table runs here, thousands of questions a second, and as a real process (`as_process.py`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Question
from privatile.federation.audit.checks import Finding, Transcript, judge, silent
from privatile.federation.audit.plan import Plan, PlantedFile
from privatile.federation.study import FederationStudy

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Place:
    """What a client process knows of itself."""

    client: str
    study: str
    mechanism: RandomizedResponse
    file: Floats
    """Its records, in the file's order."""
    range: tuple[float, float] = (0.0, 100_000.0)
    key: int = 0
    """Its secret: drawn when it enrolled, copied with its folder."""
    process: int = 1
    largest: RandomizedResponse | None = None
    """That of the study's client with the largest budget."""


class Honest:
    """Randomized response with fresh coins. Broken clients change one thing."""

    shuffles = True
    """Whether records are asked in random order."""
    repeats = False
    """Whether the same records are asked again in every round."""
    knows_people = True
    """Whether a person with several rows is asked once."""

    def __init__(self, place: Place, rng: np.random.Generator) -> None:
        self.place = place
        self.rng = rng
        self.rate = place.mechanism.truth_rate
        self.clock = 0
        """Seconds."""

    @property
    def truth(self) -> float:
        """The chance of a true report."""
        return (1.0 + self.rate) / 2.0

    def truths(self, question: Question, values: Floats) -> Bools:
        missing = np.isnan(values)
        return np.where(missing, self.rng.random(len(values)) < 1.0 - question.level, values > question.query)

    def coins(self, question: Question, count: int) -> Floats:
        return self.rng.random(count)

    def reports(self, question: Question, values: Floats) -> Bools:
        truths = self.truths(question, values)
        return np.where(self.coins(question, len(values)) < self.truth, truths, ~truths)

    @staticmethod
    def order(records: int, rng: np.random.Generator) -> NDArray[np.intp]:
        """Which record is asked first, second …"""
        return rng.permutation(records)

    def answer(self, question: Question, values: Floats) -> int | None:
        """The count; None for no answer."""
        return int(np.count_nonzero(self.reports(question, values)))

    def seeded(self, *words: object) -> np.random.Generator:
        """A generator that anybody who knows the words can repeat."""
        return np.random.default_rng(list(hashlib.sha256(repr(words).encode()).digest()))


@dataclass(eq=False)
class SimulatedSite:
    """A site's records, in the order in which they are asked."""

    place: Place
    order: NDArray[np.intp]
    cursor: int = 0

    def take(self, length: int, kind: type[Honest]) -> Floats:
        start = 0 if kind.repeats else self.cursor
        self.cursor += length
        places = self.order[start : start + length] if kind.shuffles else slice(start, start + length)
        return self.place.file[places]


def new_site(
    site: str, study: FederationStudy, planted: PlantedFile, kind: type[Honest], rng: np.random.Generator
) -> SimulatedSite:
    rows = planted.rows if planted.rows and not kind.knows_people else 1
    file = np.repeat(planted.values, planted.copies * rows)
    file = np.concatenate([file, np.full(planted.missing, np.nan)])
    mechanisms = {name: one.mechanism for name, one in study.clients.items()}
    largest = max(mechanisms.values(), key=lambda one: one.epsilon)
    key = int(rng.integers(1 << 60))
    place = Place(site, study.run, mechanisms[site], file, study.range, key, largest=largest)
    return SimulatedSite(place, kind.order(len(file), rng))


def sit_through(plan: Plan, kind: type[Honest], rng: np.random.Generator) -> Transcript | Finding:
    """Hold all sittings with clients of one kind; a finding where one is silent."""
    first: dict[str, SimulatedSite] = {}
    transcript: dict[tuple[str, str], NDArray[np.int64]] = {}
    for sitting_number, sitting in enumerate(plan.held):
        sites = {}
        for site, asks in sitting.asks.items():
            if sitting.name in ("copy", "other"):  # the other study walks behind what the first has reserved
                start = plan.first.study.clients[site].records if sitting.name == "other" else 0
                sites[site] = replace(
                    first[site], place=replace(first[site].place, study=sitting.study.run), cursor=start
                )
            else:
                sites[site] = new_site(site, sitting.study, asks.file, kind, rng)
        if sitting.name == "first":
            first = {site: replace(one) for site, one in sites.items()}
        clients = {site: kind(one.place, rng) for site, one in sites.items()}
        counts: dict[str, list[int]] = {site: [] for site in sites}
        for number, questions in enumerate(sitting.rounds(), 1):
            for site, asked in questions.items():
                clients[site].clock = 1_000 * sitting_number + number // 25
                for question in asked:
                    values = sites[site].take(question.length, kind)
                    ones = clients[site].answer(question, values)
                    if ones is None:
                        return silent(sitting.name, site, number)
                    counts[site].append(min(max(ones, 0), question.length))
        transcript |= {(sitting.name, site): np.array([found]) for site, found in counts.items()}
    if "once" in plan.parts:
        ((site, one),) = sites.items()
        one.cursor = len(one.place.file)
        if len(one.take(1, kind)):
            return Finding("once", False, f"all records of site {site} had answered, and yet one more did")
    return transcript


def failures(plan: Plan, kind: type[Honest], rng: np.random.Generator) -> dict[str, str]:
    """The checks that a kind of client fails, and what they say."""
    found = sit_through(plan, kind, rng)
    findings = [found] if isinstance(found, Finding) else judge(plan, found, rng)
    return {finding.name: finding.text for finding in findings if not finding.passed}
