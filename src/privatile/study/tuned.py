"""The self-tuning design in the laboratory: thousands of runs at once, through the very code that real runs execute.

A cohort's count is one binomial draw given q (its records are fresh and independent), so nothing is approximated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.auto import chosen_rounds
from privatile.averaging import normalizer_of
from privatile.curve import CurveFit, fit_curve
from privatile.diagnostics import troubled
from privatile.plug_in import known_share
from privatile.policy import AVERAGE, RELAXATIONS, Policy, Tuning, information
from privatile.study.populations import Mixture, Population
from privatile.summary import FIRST_LOOK
from privatile.theory import efficiency_bound

Floats = NDArray[np.float64]
BLOCK = 500
"""Runs in memory at a time: the beliefs of more would leave the processor's cache."""


@dataclass(frozen=True)
class TunedCell:
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
    def policy(self) -> Policy:
        """The rules, with this cell's numbers."""
        rounds = chosen_rounds(self.rounds, min(self.records))
        return Policy(self.level, self.low, self.high, rounds, self.noise, self.relaxations)


class TunedRuns(NamedTuple):
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
        return fieller_reach(self.fit, NormalDist().inv_cdf(0.5 + confidence_level / 2))


def fieller_reach(fit: CurveFit, z: Floats | float) -> Floats:
    """z·se/√(1 − z²ρ²) for many fits, ∞ where the slope may be zero."""
    rest = 1.0 - (z * fit.slope_error) ** 2
    reach: Floats = np.where(rest > 0.0, z * fit.error / np.sqrt(np.maximum(rest, 1e-12)), np.inf)
    return reach


def simulate(cell: TunedCell, runs: int, rng: np.random.Generator) -> TunedRuns:
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
    return TunedRuns(queries, residuals, noise, averaged, asked, after, share, tuning, fit)


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
    cell: TunedCell,
    queries: Floats,
    residuals: Floats,
    noise: Floats,
    averaged: NDArray[np.bool_],
    share: Floats,
    tuning: Tuning,
) -> CurveFit:
    """The curve through the answers of every run, as `plug_in` fits it."""
    start = np.where(averaged, queries, 0.0).sum(axis=1) / np.maximum(averaged.sum(axis=1), 1)
    return fit_curve(queries, residuals, noise * share[:, None], cell.level, start=start, slope=tuning.slope)


def ever_missed(cell: TunedCell, runs: TunedRuns, looks: int = 16, confidence_level: float = 0.95) -> Floats:
    """Whether the sequence missed Q* at any of `looks` looks, evenly spread over the window, in each run."""
    rounds = runs.queries.shape[1]
    missed = np.zeros(len(runs.queries))
    for fit, _, z in looks_of(cell, runs, np.linspace(0, rounds - 1, looks + 1, dtype=np.int64)[1:], confidence_level):
        missed = np.maximum(missed, np.abs(fit.center - cell.truth) > fieller_reach(fit, z))
    return missed


def mixture_bounds(times: Floats, confidence_level: float) -> Floats:
    """`sequence.mixture_bound` for many looks at once."""
    alpha = 1.0 - confidence_level
    rate = -2.0 * math.log(alpha) + math.log(1.0 - 2.0 * math.log(alpha))
    grown = 1.0 + rate * np.minimum(times, 1.0)
    bounds: Floats = np.sqrt(2.0 * grown / (grown - 1.0) * np.log(np.sqrt(grown) / alpha))
    return bounds


class Stopped(NamedTuple):
    """Runs that stopped when their sequence was narrow enough."""

    coverage: float
    """Of the interval shown at the stop."""
    stopped: float
    """Share of the runs that stopped before their records were used up."""
    asked: float
    """Mean share of the records asked."""
    ever_missed: float
    """Share of the runs whose sequence missed at any look, had they gone on."""


def stopping(
    cell: TunedCell, runs: TunedRuns, half_width: float, confidence_level: float = 0.95, every: int = 1
) -> Stopped:
    """Stop every run at the first look at which the sequence is narrow enough; a look `every` so many rounds."""
    rounds = runs.queries.shape[1]
    first = int(np.argmax(runs.averaged.any(axis=0)))
    open_ = np.ones(len(runs.queries), dtype=np.bool_)
    covered, missed, asked = np.zeros(len(open_)), np.zeros(len(open_)), np.ones(len(open_))
    early = np.zeros(len(open_))
    for fit, last, z in looks_of(cell, runs, np.arange(rounds - 1, first, -every)[::-1], confidence_level):
        reach = fieller_reach(fit, np.where(np.isfinite(z), z, 1e100))
        off = np.abs(fit.center - cell.truth)
        missed = np.maximum(missed, off > reach)
        final = last == rounds - 1
        stops = open_ & ((reach <= half_width) | final)
        covered, asked = np.where(stops, off <= reach, covered), np.where(stops, runs.asked[:, last], asked)
        early = np.where(stops & (not final), 1.0, early)
        open_ = open_ & ~stops
    return Stopped(float(covered.mean()), float(early.mean()), float(asked.mean()), float(missed.mean()))


def looks_of(
    cell: TunedCell, runs: TunedRuns, rounds: NDArray[np.int64], confidence_level: float
) -> Iterator[tuple[CurveFit, int, Floats]]:
    """The fit, the round and the mixture bound at each look; runs not yet averaging have an infinite bound."""
    for last in rounds.tolist():
        seen = np.arange(runs.queries.shape[1]) <= last
        window = runs.averaged & seen
        noise = np.where(seen, runs.noise, np.inf)
        fit = fit_runs(cell, runs.queries, runs.residuals, noise, window, runs.share, runs.tuning)
        z = np.where(window.sum(axis=1) >= FIRST_LOOK, mixture_bounds(runs.asked[:, last], confidence_level), np.inf)
        yield fit, last, z


def path_normalizers(runs: TunedRuns) -> tuple[Floats, Floats]:
    """Polyak mean and √V of every run's averaged rounds."""
    means, roots = np.empty(len(runs.after)), np.empty(len(runs.after))
    for i, (after, averaged, noise) in enumerate(zip(runs.after, runs.averaged, runs.noise, strict=True)):
        means[i] = after[averaged].mean()
        roots[i] = math.sqrt(normalizer_of(after[averaged], noise[averaged]))
    return means, roots


class Score(NamedTuple):
    """How a cell fared."""

    name: str
    information: float
    runs: int
    coverage: float
    coverage_90: float
    coverage_99: float
    error: float
    """Mean absolute error over that of the efficiency bound, √(2/π)·bound."""
    width: float
    """Mean width over the oracle Wald interval's, finite intervals only."""
    bias: float
    """In standard errors of the bound."""
    slope_error: float
    search_rounds: float
    search_share: float
    warned: float
    """Share of the runs whose result carries a warning."""
    unbounded: float


def score(cell: TunedCell, runs: int, seed: int, block_size: int = BLOCK) -> Score:
    """Run a cell in blocks and sum it up."""
    tables = []
    warned = []
    # Long runs in smaller blocks: a block keeps six numbers a round.
    size = max(20, min(block_size, block_size * 1000 // cell.policy.rounds))
    for block, first in enumerate(range(0, runs, size)):
        count = min(size, runs - first)
        got = simulate(cell, count, np.random.default_rng(seed + block))
        off = got.fit.center - cell.truth
        reaches = [got.reach(level) for level in (0.90, 0.95, 0.99)]
        covered = [np.abs(off) <= reach for reach in reaches]
        tables.append(
            np.stack([off, *covered, reaches[1], got.fit.slope_error, got.tuning.searched, got.tuning.spent], axis=1)
        )
        warned.append(warnings(cell, got))
    table = np.concatenate(tables)
    off, reach = table[:, 0], table[:, 4]
    bounded = np.isfinite(reach)
    z = NormalDist().inv_cdf(0.975)
    return Score(
        cell.name,
        cell.information,
        runs,
        coverage=float(table[:, 2].mean()),
        coverage_90=float(table[:, 1].mean()),
        coverage_99=float(table[:, 3].mean()),
        error=float(np.abs(off).mean()) / (math.sqrt(2 / math.pi) * cell.bound),
        width=float(reach[bounded].mean()) / (z * cell.bound) if bounded.any() else math.inf,
        bias=float(off.mean()) / cell.bound,
        slope_error=float(np.median(table[:, 5])),
        search_rounds=float(table[:, 6].mean()),
        search_share=float(table[:, 7].mean()),
        warned=float(np.concatenate(warned).mean()),
        unbounded=float(1.0 - bounded.mean()),
    )


def warnings(cell: TunedCell, runs: TunedRuns) -> NDArray[np.bool_]:
    """Which runs' results would warn; the rules of `diagnostics`."""
    fit = runs.fit
    return troubled(cell.information, fit.slope_error, fit.bend_share, fit.held, runs.tuning.gave_up, smooth=fit.smooth)
