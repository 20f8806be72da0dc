"""A cell: one setting of an experiment, everything that decides its law, and its seeds.

Seeds: every replication of every cell has a generator of its own.

A stream is named by (seed, cell, replication) alone. So results do not depend on the number of threads, on how
replications are cut into blocks, on the other cells of a design, or on an interruption.

A cell: one setting of an experiment, everything that decides its law, as a frozen value.

Its `key` names it for good: the same setting gives the same random numbers in any design, in any order.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.core.mechanism import rank_noise
from privatile.errors import InputError
from privatile.estimator.schedule import Design, Lengths, lengths_by_rounds
from privatile.laws.critical import critical_value
from privatile.simulation.populations import Cauchy, Dithered, Empirical, Mixture, Normal, Population, Uniform
from privatile.simulation.theory import efficiency_bound

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2⁶⁴/φ, the increment of SplitMix64."""


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The output function of SplitMix64 (Steele, Lea and Flood): a bijection that scatters every bit."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _words(seed: int, cell: str, first: int, count: int, each: int) -> NDArray[np.uint64]:
    """`each` 64-bit words for replications first … first + count − 1, one row per replication."""
    digest = hashlib.sha256(f"{seed}:{cell}".encode()).digest()
    origin = np.frombuffer(digest[:8], dtype="<u8").astype(np.uint64)
    replications = np.arange(first, first + count, dtype=np.uint64)[:, None]
    with np.errstate(over="ignore"):
        own = _mix(origin + _mix(replications * GOLDEN + GOLDEN))
        return _mix(own + GOLDEN * np.arange(1, each + 1, dtype=np.uint64))


def states(seed: int, cell: str, first: int, count: int) -> NDArray[np.uint32]:
    """128 bits of generator state for each replication, as four rows of 32-bit words.

    >>> bool((states(1, "a", 0, 4) == states(1, "a", 2, 4)).any())
    False
    >>> bool((states(1, "a", 0, 4)[:, 2:] == states(1, "a", 2, 2)).all())
    True
    """
    pairs = _words(seed, cell, first, count, 2)
    rows = np.ascontiguousarray(pairs).view(np.uint32).T.copy()
    # All zeros is the one state that xoshiro never leaves; its chance is 2⁻¹²⁸.
    rows[0] |= np.uint32(1) * (rows == 0).all(axis=0)
    return rows


def uniforms(seed: int, cell: str, first: int, count: int) -> Floats:
    """One number inside (0, 1) for each replication, independent of its generator: the start is drawn from it."""
    third = _words(seed, cell, first, count, 3)[:, 2]
    return ((third >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


Method = Literal["estimator", "dp-sgd", "divide"]

DATA_SEED = 42
"""Seed of the one data set, and of the Hete L locations, in the authors' released code."""


@dataclass(frozen=True)
class Cell:
    """One setting: who the clients are, what is done with their records, what is compared with what."""

    populations: tuple[Population, ...]
    """One per client."""
    levels: tuple[float, ...]
    truth_rates: tuple[float, ...]
    weights: tuple[float, ...]
    design: Design
    """Round lengths, steps, mode, warm-up and burn-in; `rounds` set means a fixed number of rounds."""
    records: tuple[int, ...] = ()
    """Records of each client; none when the design's rounds decide."""
    method: Method = "estimator"
    start: Population = field(default_factory=Normal)
    """Where q begins, drawn again in every replication."""
    fixed_data: bool = False
    """One data set for all replications (only the coins differ), drawn as the authors' code draws it."""
    fixed_step: bool = False
    """γ stays at its first value for the first 5% of ΣE_m rounds and counts from there, as in the authors' code."""
    critical: float | None = None
    """The critical value to use; none: the exact one of the schedule."""
    critical_beside: float | None = None
    """A second critical value whose coverage is reported beside the first."""
    confidence_level: float = 0.95

    def __post_init__(self) -> None:
        # What is wrong with a number by itself is said where a design is read (`experiment`).
        if self.method == "dp-sgd" and max(self.truth_rates) == 1.0:
            raise InputError("dp-sgd needs truth rates below 1: its noise follows from epsilon, infinite at 1.")
        longest = int(self.lengths.max())
        if self.method != "estimator" and longest > 1:
            raise InputError(f"{self.method} asks one record per round; this design has longer rounds.")

    @cached_property
    def level(self) -> float:
        """τ = Σ p_k τ_k."""
        return math.fsum(p * t for p, t in zip(self.weights, self.levels, strict=True))

    @cached_property
    def truth(self) -> float:
        """Q*, the level-τ quantile of the weighted mixture of the clients."""
        return _mixture_quantile(self.populations, self.weights, self.level)

    @cached_property
    def mean_truth_rate(self) -> float:
        """r̄, the plain mean."""
        return math.fsum(self.truth_rates) / len(self.truth_rates)

    @cached_property
    def lengths(self) -> Lengths:
        """E: one row when all clients are asked alike, else one row per client."""
        return _lengths(self.design, self.records)

    @cached_property
    def steps(self) -> Floats:
        """γ of every round; the divide-and-conquer kernel takes it as η_t, not divided by r_k."""
        fixed = round(0.05 * int(self.lengths[0].sum())) if self.fixed_step else 0
        return _steps(self.design, self.lengths.shape[1], self.mean_truth_rate, fixed)

    @cached_property
    def round_weights(self) -> Floats:
        """w_m: 1/E_m when all clients are asked alike, else Σ p_k²/(4r_k²E_km)."""
        if self.lengths.shape[0] == 1:
            return np.asarray(1.0 / self.lengths[0])
        shares, rates = np.array(self.weights)[:, None], np.array(self.truth_rates)[:, None]
        weights: Floats = rank_noise(shares, rates, self.lengths).sum(axis=0)
        return weights

    @cached_property
    def skip(self) -> int:
        """Rounds before averaging starts."""
        rounds: int = self.lengths.shape[1]
        return round(self.design.burn_in * rounds)

    @cached_property
    def critical_value(self) -> float:
        """v: the one given, or the exact one of the averaged rounds."""
        if self.critical is not None:
            return self.critical
        return _exact_critical_value(self.round_weights[self.skip :].tobytes(), self.confidence_level)

    @cached_property
    def asked(self) -> tuple[int, ...]:
        """Records asked of each client."""
        sums = self.lengths.sum(axis=1).tolist()
        return tuple(sums) if len(sums) > 1 else tuple(sums) * len(self.populations)

    @property
    def updates(self) -> int:
        """Records answered in one replication, over all clients."""
        return sum(self.asked)

    @cached_property
    def bound(self) -> float:
        """The efficiency bound: no standard error is smaller, asymptotically; NaN without a density."""
        if any(type(population) is Empirical for population in self.populations):
            return math.nan
        return bound_at(self.truth, self.populations, self.weights, self.truth_rates, self.asked)

    def data(self) -> Floats:
        """The one data set of the released code, clients by records: RandomState(42), one client after the other.

        Clients whose locations were themselves drawn (Hete L: normal, unequal locations) come after that draw.
        """
        source = np.random.RandomState(DATA_SEED)
        if len({p.location for p in self.populations if isinstance(p, Normal)}) > 1:
            source.randn(len(self.populations))
        rows = [_as_released(p, n, source) for p, n in zip(self.populations, self.asked, strict=True)]
        table = np.full((len(rows), max(self.asked)), np.nan)
        for row, values in zip(table, rows, strict=True):
            row[: values.size] = values
        return table

    @cached_property
    def key(self) -> str:
        """Digest of all that decides the law of a replication."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Plain values; the critical value and the confidence level are left out: they do not change a draw."""
        return {
            "populations": [plain_population(population) for population in self.populations],
            "levels": list(self.levels),
            "truth_rates": list(self.truth_rates),
            "weights": list(self.weights),
            "design": {name: value for name, value in asdict(self.design).items() if name not in ("name", "rule")}
            | {"rule": repr(self.design.rule)},
            "records": list(self.records),
            "method": self.method,
            "start": plain_population(self.start),
            "fixed_data": self.fixed_data,
            "held_step": self.fixed_step,  # its first name: the digests of finished cells contain it
        }


# Cells of an experiment differ in few things at a time: what two of them share is worked out once and kept once.


@lru_cache(maxsize=256)
def _mixture_quantile(populations: tuple[Population, ...], weights: tuple[float, ...], level: float) -> float:
    return float(Mixture(populations, weights).quantile(level))


@lru_cache(maxsize=64)
def _exact_critical_value(weights: bytes, confidence_level: float) -> float:
    return float(critical_value(None, confidence_level, weights=np.frombuffer(weights)))


@lru_cache(maxsize=32)
def _lengths(design: Design, records: tuple[int, ...]) -> Lengths:
    if not records and design.rounds is not None:
        return lengths_by_rounds(design.rule, design.rounds, round(design.warm_up * design.rounds))[None, :]
    if len(set(records)) == 1:
        return design.lengths(records[0])[None, :]
    return design.client_lengths(records)


@lru_cache(maxsize=32)
def _steps(design: Design, rounds: int, mean_truth_rate: float, fixed: int) -> Floats:
    table = design.steps(rounds, mean_truth_rate)
    return np.concatenate([np.full(min(fixed, rounds), table[0]), table[: max(rounds - fixed, 0)]])


def bound_at(
    value: float,
    populations: Sequence[Population],
    weights: Sequence[float],
    truth_rates: Sequence[float],
    records: Sequence[int],
) -> float:
    """The efficiency bound of clients whose quantile is `value`."""
    ranks = [float(population.cdf(value)) for population in populations]
    densities = [float(population.density(value)) for population in populations]
    return efficiency_bound(weights, truth_rates, ranks, densities, records)


def plain_population(population: Population) -> object:
    """A population as it enters a key: its table, or for records the digest of them."""
    if isinstance(population, Empirical):
        width = population.width if isinstance(population, Dithered) else 0.0
        digest = hashlib.sha256(population.values.tobytes()).hexdigest()
        return {"family": "empirical", "digest": digest, "width": width}
    return population.to_spec()


def _as_released(population: Population, size: int, source: np.random.RandomState) -> Floats:
    if isinstance(population, Normal):
        return population.location + population.scale * source.randn(size)
    if isinstance(population, Uniform):
        return source.uniform(population.low, population.high, size)
    if isinstance(population, Cauchy):
        return population.location + population.scale * source.standard_cauchy(size)
    return np.asarray(population.quantile(source.uniform(size=size)))
