"""The design auto in simulation: thousands of runs at once, through the code that real runs execute.

A cohort's count is one binomial draw given q (its records are fresh and independent), so nothing is approximated.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats, array_namespace
from privatile.core.mechanism import RandomizedResponse, debias, rank_noise, yes_probability
from privatile.core.scale import Identity
from privatile.estimator.auto import AutoPlan
from privatile.estimator.clients import Client
from privatile.estimator.question_policy import AVERAGE, RELAXATIONS, QuestionPolicy, Tuning
from privatile.estimator.straddle_plan import StraddlePlan
from privatile.inference.curve import CurveFit, fit_curve
from privatile.inference.variance import known_share
from privatile.simulation.populations import Mixture, Population
from privatile.simulation.theory import efficiency_bound

BLOCK = 500
"""Runs in memory at a time: the beliefs of more would leave the processor's cache."""

FITTED = 40
"""Curves fitted at a time on a processor."""


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
    def mixture(self) -> Mixture:
        """The clients' populations together."""
        return Mixture(self.populations, self.shares)

    @cached_property
    def truth(self) -> float:
        """Q*."""
        return float(self.mixture.quantile(self.level))

    @cached_property
    def bound(self) -> float:
        """The efficiency bound, a standard error."""
        ranks = [float(population.cdf(self.truth)) for population in self.populations]
        densities = [float(population.density(self.truth)) for population in self.populations]
        return efficiency_bound(self.shares, self.truth_rates, ranks, densities, self.records)

    @cached_property
    def plan(self) -> AutoPlan:
        """The plan of a real run with these clients."""
        rows = zip(self.truth_rates, self.shares, self.records, strict=True)
        clients = [Client(f"c{k}", RandomizedResponse(r), p, self.level, n) for k, (r, p, n) in enumerate(rows)]
        return AutoPlan(tuple(clients), Identity(self.low, self.high), self.rounds)

    @cached_property
    def straddle_plan(self) -> StraddlePlan:
        """The plan of a real run of the default design with these clients."""
        return StraddlePlan(self.plan.clients, self.plan.scale, self.rounds)

    @property
    def information(self) -> float:
        """(τ(1 − τ))²/s²."""
        return self.plan.information

    @cached_property
    def policy(self) -> QuestionPolicy:
        """The rules, with this cell's numbers."""
        return replace(self.plan.policy, relaxations=self.relaxations)


@dataclass(frozen=True, eq=False)
class AutoRuns:
    """What many runs of one cell gave; the first axis is runs, rounds the second."""

    level: float
    queries: Floats
    residuals: Floats
    noise: Floats
    """Σp_k²/(4r_k²E_k) of every round; infinite for a round that is left out."""
    averaged: NDArray[np.bool_]
    asked: Floats
    """Share of all records asked so far, after every round."""
    after: Floats
    """The query after every round."""
    share: Floats
    """What knowing the clients' ranks takes off the noise."""
    tuning: Tuning

    @cached_property
    def fit(self) -> CurveFit:
        """The curve through the answers of every run, as `fit_run` fits it."""
        xp, averaged = array_namespace(self.queries), self.averaged
        start = xp.where(averaged, self.queries, 0.0).sum(axis=1) / xp.maximum(averaged.sum(axis=1), 1)

        def part(runs: slice) -> CurveFit:
            return fit_curve(
                self.queries[runs],
                self.residuals[runs],
                (self.noise * self.share[:, None])[runs],
                self.level,
                start=start[runs],
                slope=self.tuning.slope[runs],
                window=averaged[runs],
            )

        # Runs of one fit wait for its slowest: on a processor few at a time.
        size = len(start) if xp is not np else FITTED
        parts = [part(slice(first, first + size)) for first in range(0, len(start), size)]
        return CurveFit(*(xp.concatenate(column) for column in zip(*parts, strict=True)))

    def until(self, last: int) -> "AutoRuns":
        """The runs as they stood after round `last` (counted from 0)."""
        xp = array_namespace(self.queries)
        seen = xp.arange(self.queries.shape[1]) <= last
        noise, averaged = xp.where(seen, self.noise, xp.inf), self.averaged & seen
        return replace(self, noise=noise, averaged=averaged, asked=self.asked[:, : last + 1])

    def on_host(self) -> "AutoRuns":
        """The same with numpy's arrays, the curves fitted where the runs were simulated."""
        if array_namespace(self.queries) is np:
            return self
        host = AutoRuns(*(on_host(getattr(self, part.name)) for part in fields(self)))
        host.__dict__["fit"] = on_host(self.fit)
        return host


def on_host(value: Any) -> Any:
    """Arrays of a GPU as numpy's; also inside tuples."""
    if isinstance(value, tuple):
        parts = [on_host(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value.get() if hasattr(value, "get") else value


class Drawn:
    """The answers of clients whose records are drawn with replacement: a cohort's count is one binomial draw."""

    def __init__(self, cell: AutoCell, rng: Any, xp: Any = np) -> None:
        self.rng, self.rates = rng, xp.array(cell.truth_rates)
        self.kinds = list(dict.fromkeys(cell.populations))
        self.which = xp.array([self.kinds.index(population) for population in cell.populations])

    def counts(self, queries: Floats, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ones of every run's clients (runs × clients) when `lengths` records of each answer."""
        ranks = ranks_at(self.kinds, queries)[:, self.which]
        ones: NDArray[np.int64] = self.rng.binomial(lengths, yes_probability(self.rates, 1.0 - ranks))
        return ones


def simulate(cell: AutoCell, runs: int, rng: Any, xp: Any = np, *, answers: Any = None) -> "AutoRuns":
    """Run a cell `runs` times; `xp` is the library of the arrays and `rng` a generator of it.

    `answers` has another way to answer than `Drawn`, as given people do.
    """
    answers = answers or Drawn(cell, rng, xp)
    policy, rounds = cell.policy, cell.policy.rounds
    weights, rates = xp.array(cell.shares), xp.array(cell.truth_rates)
    records = xp.array(cell.records, dtype=xp.int64)
    tuning = policy.begin(runs, xp)
    left = xp.tile(records, (runs, 1))
    queries, residuals, noise, asked, after = (xp.empty((runs, rounds)) for _ in range(5))
    averaged = xp.empty((runs, rounds), dtype=xp.bool_)
    ones, window = xp.zeros((runs, len(records))), xp.zeros((runs, len(records)))
    for m in range(rounds):
        lengths = policy.lengths(tuning, records, left)
        left -= lengths
        query, now = tuning.query, tuning.stage == AVERAGE
        counts = answers.counts(query, lengths)
        means = debias(rates, counts / lengths)
        queries[:, m], averaged[:, m] = query, now
        residuals[:, m] = means @ weights - (1.0 - cell.level)
        noise[:, m] = rank_noise(weights, rates, lengths).sum(axis=1)
        ones += xp.where(now[:, None], counts, 0)
        window += xp.where(now[:, None], lengths, 0)
        tuning = policy.learn(tuning, residuals[:, m], noise[:, m])
        asked[:, m] = 1.0 - left.sum(axis=1) / records.sum()
        after[:, m] = tuning.query
    local = 1.0 - debias(rates, ones / window)
    share = known_share(weights, rates, records, local, window)
    return AutoRuns(cell.level, queries, residuals, noise, averaged, asked, after, share, tuning)


def ranks_at(kinds: Sequence[Population], queries: Floats) -> Floats:
    """F of every kind of population (columns) at every run's question (rows)."""
    ranks: Floats = array_namespace(queries).stack([population.cdf(queries) for population in kinds], axis=1)
    return ranks
