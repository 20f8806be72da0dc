"""The laws of the l1 and sup normalisers, simulated: no formula is known, so they come with a Monte Carlo error.

Paths are drawn once per schedule with a fixed seed, so a value does not change from call to call and a p-value inverts
the interval exactly. Only the path is simulated. Given the detrended path X the endpoint is normal, B(1) | X ~ N(μ, σ²)
with 1/σ² = Σ trend²/δ, and its tail is added up exactly:

    P(|B(1)| > v·R) = E[ Φ̄((vR − μ)/σ) + Φ̄((vR + μ)/σ) ],    R = Σ d_m|X_m| or max_m |X_m|.

Schedules above `POINTS` rounds are drawn at the ends of blocks. Between them |X| is averaged by the trapezoid rule,
which keeps E|X|. A maximum seen only every δ lies about 0.5826·√δ below that of the whole path (Broadie, Glasserman &
Kou, 1997; 0.5826 = −ζ(1/2)/√(2π)): a block of length δ with rounds d apart is raised by 0.5826·(√δ − √d).
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from privatile.core.arrays import Floats
from privatile.laws.brownian import block_starts
from privatile.laws.ratio import bracket, find_root

POINTS = 512
"""Schedules up to this many rounds are drawn round by round, longer ones at the ends of at least POINTS/2 blocks."""

PATHS = 65_536
"""Paths per schedule; the 95% values then have a standard error of about 0.1 to 0.2 percent."""

SEED = 20_259_218
"""Any fixed number; it makes a simulated value a property of the schedule."""

BETWEEN_LOOKS = 0.5826
"""How far, in units of √d, the largest of a Brownian path seen every d lies below its true maximum."""


class Grid(NamedTuple):
    """Where paths are drawn: at the end of every round, or of blocks of rounds."""

    clock: Floats
    """δ, the length of each block on the clock."""
    trend: Floats
    """Its share of the rounds."""
    average: Floats
    """Weight of |X| at its end in Σ d|X|."""
    unseen: Floats
    """How far the largest |X| near its end exceeds what is seen there; 0 for a single round."""


class Paths(NamedTuple):
    """What the simulation leaves: one number per path and normaliser, and μ, σ² of the endpoint."""

    l1: Floats
    sup: Floats
    mean: Floats
    variance: float


@dataclass(frozen=True)
class SimulatedLaw:
    """The law of |B(1)|/R from simulated paths: `tail`, `quantile` and its Monte Carlo standard error."""

    radius: Floats
    mean: Floats
    deviation: float

    def tail(self, statistic: float) -> float:
        """P(|S| ≥ |statistic|)."""
        return float(self._tails(abs(float(statistic))).mean())

    def quantile(self, level: float) -> float:
        """The v with P(|S| ≤ v) = level."""
        target = math.log1p(-level)

        def gap(log_value: float) -> float:
            return target - math.log(max(self.tail(math.exp(log_value)), 1e-300))

        return math.exp(find_root(gap, *bracket(gap, math.log(5.0), 0.25)))

    def quantile_standard_error(self, level: float) -> float:
        """Standard error of the tail at v, divided by the density there."""
        v = self.quantile(level)
        scale = self.radius / self.deviation
        centre = self.mean / self.deviation
        normal = np.exp(-0.5 * (v * scale - centre) ** 2) + np.exp(-0.5 * (v * scale + centre) ** 2)
        density = float((scale * normal).mean()) / math.sqrt(2.0 * math.pi)
        return float(self._tails(v).std()) / math.sqrt(self.radius.size) / density

    def _tails(self, value: float) -> Floats:
        """P(|B(1)| ≥ value·R | path), path by path."""
        from scipy.special import ndtr  # 0.2 s that only these two normalisers need

        if math.isinf(value):
            return np.zeros_like(self.radius)
        reach = value * self.radius
        return np.asarray(ndtr((self.mean - reach) / self.deviation) + ndtr((-self.mean - reach) / self.deviation))


def simulated_law(increments: Floats, normalizer: Literal["l1", "sup"], endpoint_variance: float = 1.0) -> SimulatedLaw:
    """The law of |B(1)|/R on the schedule with clock increments d_m; Var B(1) lowered to `endpoint_variance`."""
    # The cache is keyed by the grid, a few kilobytes, whatever the length of the schedule.
    paths = _cached_paths(*(column.tobytes() for column in path_grid(increments)))
    left = max(paths.variance - (1.0 - endpoint_variance), 1e-12)
    return SimulatedLaw(paths.l1 if normalizer == "l1" else paths.sup, paths.mean, math.sqrt(left))


@lru_cache(maxsize=16)
def _cached_paths(*columns: bytes) -> Paths:
    return draw_paths(Grid(*(np.frombuffer(column) for column in columns)), PATHS, np.random.default_rng(SEED))


def path_grid(increments: Floats, points: int = POINTS) -> Grid:
    """Every round, or blocks of at most 2/points of the clock and of the rounds."""
    rounds = increments.size
    starts = np.arange(0, rounds, max(1, 2 * rounds // points) if rounds > points else 1)
    if rounds > points:
        starts = np.union1d(starts, block_starts(increments, points // 2))
    counts = np.diff(starts, append=rounds)
    sums = np.cumsum(increments)
    clock = np.add.reduceat(increments, starts)
    share = 1.0 - (np.repeat(sums[starts + counts - 1], counts) - sums) / np.repeat(clock, counts)
    right = np.add.reduceat(increments * share, starts)
    # |X| before block k + 1 is |X| at the end of block k; X is 0 at both ends of the clock.
    average = right + np.append((clock - right)[1:], 0.0)
    return Grid(clock, counts / rounds, average, BETWEEN_LOOKS * (np.sqrt(clock) - np.sqrt(clock / counts)))


def draw_paths(grid: Grid, paths: int, rng: np.random.Generator) -> Paths:
    """Simulate `paths` detrended paths on the grid."""
    root = np.sqrt(grid.clock)
    drift = np.cumsum(grid.trend)
    drift[-1] = 1.0
    precision = float((grid.trend**2 / grid.clock).sum())
    parts = []
    batch = max(1, 2**21 // grid.clock.size)
    for first in range(0, paths, batch):
        noise = rng.standard_normal((min(batch, paths - first), grid.clock.size))
        pull = noise @ (grid.trend / root)
        path = np.cumsum(noise * root, axis=1)
        end = path[:, -1].copy()
        size = np.abs(path - end[:, None] * drift)
        parts.append((size @ grid.average, (size + grid.unseen).max(axis=1), end - pull / precision))
    l1, sup, mean = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Paths(l1, sup, mean, 1.0 / precision)
