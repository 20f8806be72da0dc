"""The laws of the l1 and sup normalisers, simulated: no formula is known, so they come with a Monte Carlo error.

Paths are drawn once per schedule with a fixed seed, so a value does not change from call to call and a p-value inverts
the interval exactly. Only the path is simulated. Given the detrended path X the endpoint is normal, B(1) | X ~ N(μ, σ²)
with 1/σ² = Σ trend²/δ, and its tail is added up exactly:

    P(|B(1)| > v·R) = E[ Φ̄((vR − μ)/σ) + Φ̄((vR + μ)/σ) ],    R = Σ d_m|X_m| or max_m |X_m|.

Schedules above `POINTS` rounds are drawn at the ends of blocks. Between them |X| is averaged by the trapezoid rule,
which keeps E|X|. The largest |X| inside a block is that of a Brownian bridge between its ends, lowered by 0.5826·√d for
being looked at only every d (Broadie, Glasserman & Kou, 1997; 0.5826 = −ζ(1/2)/√(2π)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from privatile.core.arrays import Floats
from privatile.laws.brownian import block_starts
from privatile.laws.ratio_law import bracket, find_root

POINTS = 512
"""Schedules up to this many rounds are drawn round by round, longer ones at the ends of at least POINTS/2 blocks."""

PATHS = 65_536
"""Paths per schedule; the 95% values then have a standard error of about 0.1 to 0.2 percent."""

SEED = 20_259_218
"""Any fixed number; it makes a simulated value a property of the schedule."""

BETWEEN_LOOKS = 0.5826
"""How far, in units of √d, the largest of a Brownian path seen every d lies below its true maximum."""


@dataclass(frozen=True)
class Grid:
    """Where paths are drawn: block lengths on the clock and in rounds, and how |X| is averaged over a block."""

    clock: Floats
    trend: Floats
    weight_left: Floats
    """Σ d·(1 − s): weight in Σ d|X| of |X| before the block."""
    weight_right: Floats
    """Σ d·s: weight of |X| at the block's end."""
    spacing: Floats
    """Mean round length of the block, 0 where it is a single round."""


@dataclass(frozen=True)
class Paths:
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
    grid = path_grid(increments)
    # The cache is keyed by the grid, a few kilobytes, whatever the length of the schedule.
    paths = _cached_paths(
        *(column.tobytes() for column in (grid.clock, grid.trend, grid.weight_left, grid.weight_right, grid.spacing))
    )
    left = max(paths.variance - (1.0 - endpoint_variance), 1e-12)
    return SimulatedLaw(paths.l1 if normalizer == "l1" else paths.sup, paths.mean, math.sqrt(left))


@lru_cache(maxsize=16)
def _cached_paths(*columns: bytes) -> Paths:
    return draw_paths(Grid(*(np.frombuffer(column) for column in columns)), PATHS, np.random.default_rng(SEED))


def path_grid(increments: Floats, points: int = POINTS) -> Grid:
    """Every round, or blocks of at most 2/points of the clock and of the rounds."""
    rounds = increments.size
    if rounds <= points:
        none = np.zeros(rounds)
        return Grid(increments, np.full(rounds, 1.0 / rounds), none, increments, none)
    by_clock = block_starts(increments, points // 2)
    by_round = np.arange(0, rounds, max(1, 2 * rounds // points))
    starts = np.union1d(by_clock, by_round)
    counts = np.diff(starts, append=rounds)
    sums = np.cumsum(increments)
    before = np.concatenate([[0.0], sums])[starts]
    clock = sums[starts + counts - 1] - before
    share = (sums - np.repeat(before, counts)) / np.repeat(clock, counts)
    weight_right = np.add.reduceat(increments * share, starts)
    spacing = np.where(counts > 1, clock / counts, 0.0)
    return Grid(clock, counts / rounds, np.maximum(clock - weight_right, 0.0), weight_right, spacing)


def draw_paths(grid: Grid, paths: int, rng: np.random.Generator) -> Paths:
    """Simulate `paths` detrended paths on the grid."""
    root = np.sqrt(grid.clock)
    drift = np.cumsum(grid.trend)
    drift[-1] = 1.0
    precision = float((grid.trend**2 / grid.clock).sum())
    # |X| before block k + 1 is |X| at the end of block k; X is 0 at both ends of the clock.
    average = grid.weight_right + np.append(grid.weight_left[1:], 0.0)
    inner = np.flatnonzero(grid.spacing > 0.0)
    parts = []
    batch = max(1, 2**21 // grid.clock.size)
    for first in range(0, paths, batch):
        noise = rng.standard_normal((min(batch, paths - first), grid.clock.size))
        pull = noise @ (grid.trend / root)
        noise *= root
        path = np.cumsum(noise, axis=1, out=noise)
        end = path[:, -1].copy()
        path -= end[:, None] * drift
        size = np.abs(path, out=path)
        largest = size.max(axis=1)
        if inner.size:
            raise_between_looks(largest, size, grid, inner, rng)
        parts.append((size @ average, largest, end - pull / precision))
    l1, sup, mean = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Paths(l1, sup, mean, 1.0 / precision)


def raise_between_looks(
    largest: Floats,
    size: Floats,
    grid: Grid,
    inner: np.ndarray[tuple[int], np.dtype[np.intp]],
    rng: np.random.Generator,
) -> None:
    """Raise each path's maximum by what |X| reaches inside blocks of several rounds, in place."""
    right = size[:, inner]
    left = np.where(inner > 0, size[:, inner - 1], 0.0)
    length = grid.clock[inner]
    # A bridge rises 4 deviations √δ/2 above its higher end with probability below e⁻⁸ per block.
    path, block = np.nonzero(np.maximum(left, right) > largest[:, None] - 2.0 * np.sqrt(length))
    a, b, d = left[path, block], right[path, block], length[block]
    # Inverse of P(max > x) = exp(−2(x − a)(x − b)/δ).
    peak = 0.5 * (a + b + np.sqrt((a - b) ** 2 + 2.0 * d * rng.standard_exponential(a.size)))
    np.maximum.at(largest, path, peak - BETWEEN_LOOKS * np.sqrt(grid.spacing[inner][block]))
