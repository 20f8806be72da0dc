"""The Brownian pair of a schedule: the law of B(1) and of Σ_m (r_m − r_{m−1})·(B(r_m) − (m/T)·B(1))², in O(T).

Write X_m = B(r_m) − (m/T)·z for a path with endpoint z = B(1), so X_0 = X_T = 0, and d_m = r_m − r_{m−1}. A tilt by
exp(−yV/2) is Gaussian with energy

    Σ_m (X_m − X_{m−1} + z/T)²/d_m + y·Σ_m d_m·X_m²,

a chain: eliminate the X_m one after the other (a tree of pairwise merges, all rounds and all tilts at once) and what is
left is z²/h(y), while the product of the pivots is G(y). No T×T matrix and no eigenvalue.

Long schedules are first cut into blocks of about 1/512 of the clock. Inside a block of length δ the energy of the best
path and the determinant are power series in y·δ²; both are kept to second order, closed so that they stay positive for
every y (a block of one or two rounds is then exact). Nothing is assumed about the weights inside a block; a critical
value moves by less than 1e-7 of itself against no coarsening at all, which the tests check.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from privatile.core.arrays import Floats
from privatile.laws.ratio_law import RatioLaw

BLOCKS = 512
"""Blocks of the clock. The third order left out is about y³/(6000·BLOCKS⁴) of log G: 2e-9 at y = 100."""

CACHE_ROUNDS = 16_384
"""Rounds handled at a time while blocks are summed up: a dozen such columns stay in a core's cache."""

PAIRS = ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))
"""Rows of a potential: coefficients of α², 2αβ, β², 2αz, 2βz, z² (α = X before the block, β = X at its end)."""


class Energy(NamedTuple):
    """c·(β − α + z·t)² + A·α² + B·β² + 2z·(a·α + b·β) + Z·z² for each block and tilt.

    Springs apart from potentials: merging then adds positive numbers only, and rounds that differ by many orders of
    magnitude in length cost no accuracy.
    """

    spring: Floats
    left: Floats
    right: Floats
    left_pull: Floats
    right_pull: Floats
    endpoint: Floats


@dataclass(frozen=True)
class Blocks:
    """A schedule as a chain of blocks, each a quadratic energy in (α, β, z) with a series in y."""

    clock: Floats
    """δ: the length of each block on the clock r."""
    trend: Floats
    """Share of the rounds in each block, the increment of m/T."""
    first: Floats
    """(6, blocks): coefficients of y in the energy, path straight between α and β."""
    second: Floats
    """(6, blocks): coefficients of −y², what bending the path inside the block gains."""
    trace: Floats
    """tr(CD) of the bridge inside each block."""
    trace_square: Floats
    """tr(CDCD)."""
    residual: float
    """Var(B(1) | the whole detrended path), where h(y) ends."""

    def transform(self, y: Floats) -> tuple[Floats, Floats]:
        """(log G(y), h(y)): the energies of all blocks at all tilts, merged pairwise."""
        clock = self.clock[:, None]
        trend = self.trend[:, None]
        # w′Cw ≤ tr(CD)·X′DX: closed this way the energy is positive for every y.
        bend = y * y / (1.0 + y * self.trace[:, None])
        aa, ab, bb, az, bz, zz = y * self.first[:, :, None] - bend * self.second[:, :, None]
        # The path's own energy is (β − α + z·t)²/δ; the cross term 2·ab·αβ joins it in the spring.
        pull = ab * trend
        energy = Energy(1.0 / clock - ab, aa + ab, bb + ab, az - pull, bz + pull, zz + pull * trend)
        # m·log(1 + y·c) with m·c = tr(CD) and m·c² = tr(CDCD) has the two first terms of log det(I + yCD).
        inside = self.trace > 0.0
        t1, t2 = self.trace[inside, None], self.trace_square[inside, None]
        log_det: Floats = (t1 * t1 / t2 * np.log1p(y * (t2 / t1))).sum(axis=0)
        while clock.size > 1:
            energy, clock, trend, gained = merge_pairs(energy, clock, trend)
            log_det = log_det + gained
        # A tilt never widens B(1), nor does it say more than the whole path: bounds that only rounding could pass, at
        # tilts far beyond every p-value that is not 0.
        precision = np.clip(energy.spring[0] + energy.endpoint[0], 1.0, 1.0 / self.residual)
        return log_det + np.log(precision), 1.0 / precision


def merge_pairs(energy: Energy, clock: Floats, trend: Floats) -> tuple[Energy, Floats, Floats, Floats]:
    """Eliminate the point between each two neighbouring blocks; the last return is the sum of log pivots."""
    pairs = clock.size // 2
    one = Energy(*(row[0 : 2 * pairs : 2] for row in energy))
    two = Energy(*(row[1 : 2 * pairs : 2] for row in energy))
    clock_one, clock_two = clock[0 : 2 * pairs : 2], clock[1 : 2 * pairs : 2]
    trend_one, trend_two = trend[0 : 2 * pairs : 2], trend[1 : 2 * pairs : 2]
    ground = one.right + two.left
    pull = one.right_pull + two.left_pull
    pivot = one.spring + two.spring + ground
    share_one, share_two = one.spring / pivot, two.spring / pivot
    lean_one, lean_two = share_one * trend_one, share_two * trend_two
    merged = Energy(
        spring=share_one * two.spring,
        left=one.left + share_one * ground,
        right=two.right + share_two * ground,
        left_pull=one.left_pull + share_one * pull - lean_one * ground,
        right_pull=two.right_pull + share_two * pull + lean_two * ground,
        endpoint=one.endpoint
        + two.endpoint
        + ground * (lean_one * trend_one + lean_two * trend_two)
        + pull * (2.0 * (lean_two - lean_one) - pull / pivot),
    )
    clock_merged = clock_one + clock_two
    # The pivot at y = 0 is 1/δ₁ + 1/δ₂, and it grows with y; dividing by it normalises G(0) to 1.
    gained: Floats = np.log(np.maximum(pivot * (clock_one * clock_two / clock_merged), 1.0)).sum(axis=0)
    trend_merged = trend_one + trend_two
    if clock.size > 2 * pairs:
        merged = Energy(*(np.concatenate([row, old[-1:]]) for row, old in zip(merged, energy, strict=True)))
        clock_merged = np.concatenate([clock_merged, clock[-1:]])
        trend_merged = np.concatenate([trend_merged, trend[-1:]])
    return merged, clock_merged, trend_merged, gained


def block_starts(increments: Floats, blocks: int = BLOCKS) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Where blocks begin: at every 1/blocks of the clock, and around every round longer than half of that."""
    clock = np.cumsum(increments)
    clock -= 0.5 * increments
    clock *= blocks
    cell = clock.astype(np.int64)
    long = increments > 0.5 / blocks
    cut = cell[1:] != cell[:-1]
    cut |= long[1:]
    cut |= long[:-1]
    return np.concatenate([[0], np.flatnonzero(cut) + 1])


def block_chain(increments: Floats, blocks: int = BLOCKS) -> Blocks:
    """The schedule with clock increments d_m, Σd_m = 1, as a chain of blocks."""
    rounds = increments.size
    residual = residual_variance(increments)
    # Short schedules need no blocks, so theirs is the plain elimination.
    starts = np.arange(rounds) if rounds <= 2 * blocks else block_starts(increments, blocks)
    if starts.size == rounds:
        nothing = np.zeros(rounds)
        first = np.zeros((6, rounds))
        first[PAIRS.index((1, 1))] = increments
        return Blocks(
            increments, np.full(rounds, 1.0 / rounds), first, np.zeros((6, rounds)), nothing, nothing, residual
        )
    parts = []
    edges = np.unique(np.append(np.searchsorted(starts, np.arange(0, rounds, CACHE_ROUNDS)), starts.size))
    for begin, end in pairwise(edges):
        last = starts[end] if end < starts.size else rounds
        parts.append(summed_blocks(increments[starts[begin] : last], starts[begin:end] - starts[begin], rounds))
    clock, trend, first, second, trace, trace_square = (
        np.concatenate(columns, axis=-1) for columns in zip(*parts, strict=True)
    )
    return Blocks(clock, trend, first, second, trace, trace_square, residual)


def summed_blocks(
    d: Floats, starts: np.ndarray[tuple[int], np.dtype[np.intp]], rounds: int
) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats]:
    """The fields of `Blocks` for consecutive rounds cut at `starts`, by running sums.

    Inside a block let s = (r − r_start)/δ and c = the share of its rounds done. A straight path has
    X = α(1 − s) + βs + z·trend·(s − c). With w = d·X the bend gains w′Cw, C the covariance of the bridge over the
    block: w′Cw = Σ d·W² − (Σ d·W)²/δ with W the sums of w from here to the block's end.
    """
    counts = np.diff(starts, append=d.size)
    ends = starts + counts - 1

    def spread(per_block: Floats) -> Floats:
        return np.repeat(per_block, counts)

    def total(per_round: Floats) -> Floats:
        sums: Floats = np.add.reduceat(per_round, starts)
        return sums

    def running(per_round: Floats) -> Floats:
        sums = np.cumsum(per_round)
        sums -= spread(sums[starts] - per_round[starts])
        return sums

    elapsed = running(d)
    clock = elapsed[ends]
    share = elapsed / spread(clock)
    rest = 1.0 - share
    trend = counts / rounds
    position = np.arange(1, d.size + 1) - spread(starts.astype(np.float64))
    shapes = (rest, share, share * spread(trend) - position / rounds)
    forces = [d * shape for shape in shapes]
    first = np.stack([total(forces[i] * shapes[j]) for i, j in PAIRS])
    ahead = []
    for force in forces:
        sums = running(force)
        ahead.append(spread(sums[ends]) - sums + force)
    weighted = [d * sums for sums in ahead]
    level = [total(sums) for sums in weighted]
    several = counts > 1
    second = np.stack([total(weighted[i] * ahead[j]) - level[i] * level[j] / clock for i, j in PAIRS]) * several
    trace = clock * total(d * share * rest)
    below = d * share * share
    above = d * rest * rest
    before = running(below) - 0.5 * below
    trace_square = 2.0 * clock * clock * total(above * before)
    # n − 1 positive eigenvalues bound it; rounding may not, where a very short block follows a very long round.
    trace_square = np.clip(trace_square, trace * trace / np.maximum(counts - 1, 1), trace * trace)
    return clock, trend, first, second, trace, trace_square


def brownian_law(increments: Floats, endpoint_variance: float = 1.0, blocks: int = BLOCKS) -> RatioLaw:
    """The law of |B(1)|/√V on the schedule with clock increments d_m; Var B(1) lowered to `endpoint_variance`.

    The covariance of B(1) with the detrended path stays as it is, so h falls by 1 − endpoint_variance at every tilt.
    """
    chain = block_chain(increments, blocks)
    lost = 1.0 - endpoint_variance

    def transform(y: Floats) -> tuple[Floats, Floats]:
        log_det, variance = chain.transform(y)
        return log_det, (np.maximum(variance - lost, 1e-300) if lost else variance)

    return RatioLaw(transform)


def residual_variance(increments: Floats) -> float:
    """Var(B(1) | the detrended path) = 1/Σ_m 1/(T²·d_m): 1 for a constant schedule, smaller for any other.

    >>> import numpy as np
    >>> residual_variance(np.full(8, 1 / 8))
    1.0
    """
    return float(1.0 / np.mean(1.0 / (increments * increments.size)))
