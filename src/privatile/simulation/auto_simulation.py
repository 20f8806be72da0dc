"""The self-tuning design in the laboratory: thousands of runs at once, through the very code that real runs execute.

A cohort's count is one binomial draw given q (its records are fresh and independent), so nothing is approximated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.estimator.auto import chosen_rounds
from privatile.estimator.question_policy import AVERAGE, RELAXATIONS, QuestionPolicy, Tuning, information
from privatile.inference.curve import CurveFit, fit_curve
from privatile.inference.plug_in import known_share
from privatile.laws.normal import two_sided_z
from privatile.simulation.populations import Mixture, Population
from privatile.simulation.theory import efficiency_bound

BLOCK = 500
"""Runs in memory at a time: the beliefs of more would leave the processor's cache."""


@dataclass(frozen=True)
class AutoCell:
    """One setting: the clients, the level, the stated range and the rounds."""

    populations: tuple[Population, ...]
    truth_rates: tuple[float, ...]
    records: tuple[int, ...]
    level: float = 0.5
    weights: tuple[float, ...] = ()
    """None: equal."""
    low: float = -10.0
    high: float = 10.0
    rounds: int | None = None
    relaxations: float = RELAXATIONS
    name: str = field(default="", compare=False)

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """The clients' weights."""
        return self.weights or (1.0 / len(self.populations),) * len(self.populations)

    @cached_property
    def truth(self) -> float:
        """Q*."""
        return float(Mixture(self.populations, self.shares).quantile(self.level))

    @cached_property
    def density(self) -> float:
        """f(Q*)."""
        return float(Mixture(self.populations, self.shares).density(self.truth))

    @cached_property
    def bound(self) -> float:
        """The efficiency bound, a standard error."""
        ranks = [float(population.cdf(self.truth)) for population in self.populations]
        densities = [float(population.density(self.truth)) for population in self.populations]
        return efficiency_bound(self.shares, self.truth_rates, ranks, densities, self.records)

    @cached_property
    def noise(self) -> float:
        """s²."""
        return math.fsum(
            (p / r) ** 2 / (4 * n) for p, r, n in zip(self.shares, self.truth_rates, self.records, strict=True)
        )

    @property
    def information(self) -> float:
        """(τ(1 − τ))²/s²."""
        return information(self.level, self.noise)

    @cached_property
    def policy(self) -> QuestionPolicy:
        """The rules, with this cell's numbers."""
        rounds = chosen_rounds(self.rounds, min(self.records))
        return QuestionPolicy(self.level, self.low, self.high, rounds, self.noise, self.relaxations)


class AutoRuns(NamedTuple):
    """What many runs gave; the first axis is runs, rounds the second."""

    queries: Floats
    residuals: Floats
    noise: Floats
    """Σp_k²/(4r_k²E_k) of every round."""
    averaged: NDArray[np.bool_]
    asked: Floats
    """Share of all records asked so far, after every round."""
    after: Floats
    """The query after every round."""
    share: Floats
    """What knowing the clients' ranks takes off the noise."""
    tuning: Tuning
    fit: CurveFit

    def reach(self, confidence_level: float = 0.95) -> Floats:
        """Half-widths of the plug-in interval."""
        return fieller_reach(self.fit, two_sided_z(confidence_level))


def fieller_reach(fit: CurveFit, z: Floats | float) -> Floats:
    """z·se/√(1 − z²ρ²) for many fits, ∞ where the slope may be zero."""
    rest = 1.0 - (z * fit.slope_error) ** 2
    reach: Floats = np.where(rest > 0.0, z * fit.error / np.sqrt(np.maximum(rest, 1e-12)), np.inf)
    return reach


def simulate(cell: AutoCell, runs: int, rng: np.random.Generator) -> AutoRuns:
    """Run a cell `runs` times."""
    policy, rounds = cell.policy, cell.policy.rounds
    weights, rates = np.array(cell.shares), np.array(cell.truth_rates)
    records = np.array(cell.records, dtype=np.int64)
    tuning = policy.begin(runs)
    left = np.tile(records, (runs, 1))
    queries, residuals, noise, asked, after = (np.empty((runs, rounds)) for _ in range(5))
    averaged = np.empty((runs, rounds), dtype=np.bool_)
    ones, window = np.zeros((runs, len(records))), np.zeros((runs, len(records)))
    kinds, places = _kinds(cell.populations)
    which = np.array(places)
    for m in range(rounds):
        lengths = policy.lengths(tuning, records, left)
        left -= lengths
        query, now = tuning.query, tuning.stage == AVERAGE
        ranks = ranks_at(kinds, query)[:, which]
        yes = (1.0 - rates) / 2.0 + rates * (1.0 - ranks)
        counts = rng.binomial(lengths, yes)
        means = (counts / lengths - (1.0 - rates) / 2.0) / rates
        queries[:, m], averaged[:, m] = query, now
        residuals[:, m] = means @ weights - (1.0 - cell.level)
        noise[:, m] = ((weights / rates) ** 2 / (4.0 * lengths)).sum(axis=1)
        ones += np.where(now[:, None], counts, 0)
        window += np.where(now[:, None], lengths, 0)
        tuning = policy.learn(tuning, residuals[:, m], noise[:, m])
        asked[:, m] = 1.0 - left.sum(axis=1) / records.sum()
        after[:, m] = tuning.query
    local = 1.0 - (ones / window - (1.0 - rates) / 2.0) / rates
    share = known_share(weights, rates, records, local, window)
    fit = fit_runs(cell, queries, residuals, noise, averaged, share, tuning)
    return AutoRuns(queries, residuals, noise, averaged, asked, after, share, tuning, fit)


def ranks_at(kinds: Sequence[Population], queries: Floats) -> Floats:
    """F of every kind of population (columns) at every run's question (rows)."""
    return np.stack([population.cdf(queries) for population in kinds], axis=1)


def _kinds(populations: Sequence[Population]) -> tuple[list[Population], list[int]]:
    """The distinct populations, and which of them each client has."""
    kinds: list[Population] = []
    for population in populations:
        if population not in kinds:
            kinds.append(population)
    return kinds, [kinds.index(population) for population in populations]


def fit_runs(
    cell: AutoCell,
    queries: Floats,
    residuals: Floats,
    noise: Floats,
    averaged: NDArray[np.bool_],
    share: Floats,
    tuning: Tuning,
) -> CurveFit:
    """The curve through the answers of every run, as `plug_in` fits it."""
    start = np.where(averaged, queries, 0.0).sum(axis=1) / np.maximum(averaged.sum(axis=1), 1)
    return fit_curve(
        queries, residuals, noise * share[:, None], cell.level, start=start, slope=tuning.slope, window=averaged
    )
