"""Who is asked: made-up incomes whose quantiles are known, in ten clients, and how an answer is scored."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from privatile.core.arrays import Floats
from privatile.simulation.populations import Empirical, LogNormal, Normal, Population

CLIENTS = 10
CELLS = 65_536
"""Values of the Pareto incomes; cells of the range for the Bayesian search."""


class Discrete(Population):
    """Some values with their shares.

    >>> law = Discrete(np.array([1.0, 2.0, 4.0]), np.array([0.2, 0.5, 0.3]))
    >>> law.cdf([1.5, 2.0]).tolist(), law.quantile(0.2), law.quantile(0.6)
    ([0.2, 0.7], 1.0, 2.0)
    """

    smooth = False

    def __init__(self, values: Floats, shares: Floats) -> None:
        self.values, self.ranks = values, np.concatenate([[0.0], np.cumsum(shares / shares.sum())])

    def _cdf(self, z: Floats) -> Any:
        return self.ranks[np.searchsorted(self.values, z, side="right")]

    def _quantile(self, p: Floats) -> Any:
        at = np.searchsorted(self.ranks[1:], p - 1e-12, side="left")
        return self.values[np.minimum(at, self.values.size - 1)]


def heaped(median: float, sigma: float) -> Discrete:
    """Salaries as people tell them: 35% to the nearest 5,000, 35% to the nearest 1,000, the others to 100."""
    values, law = np.arange(100.0, 1_000_001.0, 100.0), LogNormal(math.log(median), sigma)
    shares = np.zeros(values.size)
    for unit, part in ((5000.0, 0.35), (1000.0, 0.35), (100.0, 0.30)):
        told = values % unit == 0.0
        shares[told] += part * np.diff(law.cdf(np.append(values[told] - unit / 2.0, values[-1] + unit / 2.0)))
    return Discrete(values, shares)


def pareto(smallest: float = 2000.0, shape: float = 1.5) -> Discrete:
    """Incomes 1 … 65,536: the whole part of a Pareto variable, what lies above moved to the end."""
    values = np.arange(1.0, CELLS + 1.0)
    beyond = np.minimum(1.0, (smallest / values) ** shape)
    return Discrete(values, beyond - np.append(beyond[1:], 0.0))


@dataclass(frozen=True)
class Setting:
    """People of ten equally large clients, what is asked of them, and the range that is known beforehand."""

    name: str
    populations: tuple[Population, ...]
    low: float
    high: float
    people: int = 20_000
    epsilon: float = 1.0
    level: float = 0.5
    grid: float | None = None
    """Values are multiples of it: every method's answer is rounded to one."""

    @property
    def rate(self) -> float:
        """r = tanh(ε/2)."""
        return math.tanh(self.epsilon / 2.0)

    @property
    def rank_bound(self) -> float:
        """The smallest standard error of a rank from one randomized bit per person."""
        return math.sqrt((self.rate**-2 - (2.0 * self.level - 1.0) ** 2) / (4.0 * self.people))

    @cached_property
    def truth(self) -> float:
        """The quantile of all clients together: the smallest x with a mean rank of at least the level."""
        low, high = self.low, self.high
        for _ in range(100):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if float(self.ranks(np.array([middle]))[0]) >= self.level else (middle, high)
        return high if self.grid is None else self.grid * round(high / self.grid)

    def ranks(self, x: Floats) -> Floats:
        """F(x), the mean over the clients."""
        return np.asarray(np.mean([law.cdf(x) for law in self.populations], axis=0))

    def rank_errors(self, x: Floats) -> Floats:
        """How far the level lies from [F(x−), F(x)]: signed, and 0 for the quantile itself even where it is a heap."""
        x = np.asarray(x, dtype=np.float64)
        below, upto = self.ranks(x - (0.5 * self.grid if self.grid else 0.0)), self.ranks(x)
        return np.maximum(below - self.level, 0.0) + np.minimum(upto - self.level, 0.0)

    def sample(self, rng: np.random.Generator) -> Floats:
        """Clients by people, in the order in which they are asked, on the scale of the range: 0 to 1, logarithmic."""
        each = self.people // CLIENTS
        return np.stack([self.to_unit(law.sample(each, rng)) for law in self.populations])

    def to_unit(self, x: Floats) -> Floats:
        """Where x lies between the ends of the range, on a log scale."""
        return np.clip(np.log(x / self.low) / math.log(self.high / self.low), 0.0, 1.0)

    def to_units(self, u: Floats) -> Floats:
        """The value at this place of the range."""
        x = self.low * (self.high / self.low) ** np.asarray(u, dtype=np.float64)
        return x if self.grid is None else self.grid * np.round(x / self.grid)

    @cached_property
    def unit_populations(self) -> tuple[Population, ...]:
        """The clients' laws on the scale 0 to 1, for the kernels; where rough, 100,000 equally likely values."""
        span = math.log(self.high / self.low)
        found: dict[Population, Population] = {}
        for law in self.populations:
            if isinstance(law, LogNormal):
                found[law] = Normal((law.location - math.log(self.low)) / span, law.scale / span)
            elif law not in found:
                found[law] = Empirical(self.to_unit(law.quantile((np.arange(100_000) + 0.5) / 100_000)))
        return tuple(found[law] for law in self.populations)


INCOMES = (LogNormal(math.log(48_000.0), 0.6),) * CLIENTS
HEAPED = (heaped(49_500.0, 0.6),) * CLIENTS
PARETO = (pareto(),) * CLIENTS
UNLIKE = tuple(LogNormal(math.log(30_000.0 + 6_000.0 * k), 0.4 + 0.04 * k) for k in range(CLIENTS))
RANGE = (1_000.0, 1_000_000.0)

MAIN = (
    Setting("incomes, median", INCOMES, *RANGE),
    Setting("incomes, median, ε = 0.5", INCOMES, *RANGE, epsilon=0.5),
    Setting("incomes, median, ε = 3", INCOMES, *RANGE, epsilon=3.0),
    Setting("incomes, q = 0.9", INCOMES, *RANGE, level=0.9),
    Setting("heaped salaries, median", HEAPED, *RANGE, grid=100.0),
    Setting("unlike clients, q = 0.9", UNLIKE, *RANGE, level=0.9),
)
SEARCHED = tuple(
    Setting(f"Pareto, n = {n:,}, ε = {epsilon:g}", PARETO, 1.0, float(CELLS), n, epsilon, grid=1.0)
    for n in (2_500, 5_000, 7_500)
    for epsilon in (0.5, 1.0, 2.0)
)
SIZES = tuple(
    Setting(f"incomes, median, n = {n:,}", INCOMES, *RANGE, people=n) for n in (1_250, 5_000, 40_000, 80_000, 160_000)
)
