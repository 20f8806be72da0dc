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

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from privatile.core.arrays import Floats
from privatile.laws.ratio import RatioLaw

BLOCKS = 512
"""Blocks of the clock. The third order left out is about y³/(6000·BLOCKS⁴) of log G: 2e-9 at y = 100."""

PAIRS = ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))
"""Rows of a potential: coefficients of α², 2αβ, β², 2αz, 2βz, z² (α = X before the block, β = X at its end)."""


class QuadraticForm(NamedTuple):
    """c·(β − α + z·t)² + A·α² + B·β² + 2z·(a·α + b·β) + Z·z² for each block and tilt.

    Springs apart from potentials: merging then adds positive numbers only, and rounds that differ by many orders of
    magnitude in length cost no accuracy.
    """

    clock: Floats
    """δ, the same at every tilt."""
    trend: Floats
    """t."""
    spring: Floats
    left: Floats
    right: Floats
    left_pull: Floats
    right_pull: Floats
    endpoint: Floats

    def merged(self) -> "tuple[QuadraticForm, Floats]":
        """The point between each two neighbouring blocks eliminated, and the sum of the log pivots."""
        paired = len(self.clock) // 2 * 2
        one, two = (QuadraticForm(*(row[first:paired:2] for row in self)) for first in (0, 1))
        ground = one.right + two.left
        pull = one.right_pull + two.left_pull
        pivot = one.spring + two.spring + ground
        share_one, share_two = one.spring / pivot, two.spring / pivot
        lean_one, lean_two = share_one * one.trend, share_two * two.trend
        both = QuadraticForm(
            clock=one.clock + two.clock,
            trend=one.trend + two.trend,
            spring=share_one * two.spring,
            left=one.left + share_one * ground,
            right=two.right + share_two * ground,
            left_pull=one.left_pull + share_one * pull - lean_one * ground,
            right_pull=two.right_pull + share_two * pull + lean_two * ground,
            endpoint=one.endpoint
            + two.endpoint
            + ground * (lean_one * one.trend + lean_two * two.trend)
            + pull * (2.0 * (lean_two - lean_one) - pull / pivot),
        )
        # The pivot at y = 0 is 1/δ₁ + 1/δ₂, and it grows with y; dividing by it normalises G(0) to 1.
        gained: Floats = np.log(np.maximum(pivot * (one.clock * two.clock / both.clock), 1.0)).sum(axis=0)
        return QuadraticForm(
            *(np.concatenate([row, old[paired:]]) for row, old in zip(both, self, strict=True))
        ), gained


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
        clock, trend = self.clock[:, None], self.trend[:, None]
        # w′Cw ≤ tr(CD)·X′DX: closed this way the energy is positive for every y.
        bend = y * y / (1.0 + y * self.trace[:, None])
        aa, ab, bb, az, bz, zz = y * self.first[:, :, None] - bend * self.second[:, :, None]
        # The path's own energy is (β − α + z·t)²/δ; the cross term 2·ab·αβ joins it in the spring.
        pull = ab * trend
        energy = QuadraticForm(
            clock, trend, 1.0 / clock - ab, aa + ab, bb + ab, az - pull, bz + pull, zz + pull * trend
        )
        # m·log(1 + y·c) with m·c = tr(CD) and m·c² = tr(CDCD) has the two first terms of log det(I + yCD).
        inside = self.trace > 0.0
        t1, t2 = self.trace[inside, None], self.trace_square[inside, None]
        log_det: Floats = (t1 * t1 / t2 * np.log1p(y * (t2 / t1))).sum(axis=0)
        while len(energy.clock) > 1:
            energy, gained = energy.merged()
            log_det = log_det + gained
        # A tilt never widens B(1), nor does it say more than the whole path: bounds that only rounding could pass, at
        # tilts far beyond every p-value that is not 0.
        precision = np.clip(energy.spring[0] + energy.endpoint[0], 1.0, 1.0 / self.residual)
        return log_det + np.log(precision), 1.0 / precision


def block_starts(increments: Floats, blocks: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Where blocks begin: at every 1/blocks of the clock, and around every round longer than half of that."""
    cell = ((np.cumsum(increments) - 0.5 * increments) * blocks).astype(np.int64)
    long = increments > 0.5 / blocks
    return np.concatenate([[0], np.flatnonzero(np.diff(cell).astype(bool) | long[1:] | long[:-1]) + 1])


def block_chain(d: Floats, blocks: int) -> Blocks:
    """The schedule with clock increments d_m, Σd_m = 1, as a chain of blocks; a short one round by round.

    Inside a block let s = (r − r_start)/δ and c = the share of its rounds done. A straight path has
    X = α(1 − s) + βs + z·trend·(s − c). With w = d·X the bend gains w′Cw, C the covariance of the bridge over the
    block: w′Cw = Σ d·W² − (Σ d·W)²/δ with W the sums of w from here to the block's end.
    """
    starts = np.arange(d.size) if d.size <= 2 * blocks else block_starts(d, blocks)
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
    trend = counts / d.size
    position = np.arange(1, d.size + 1) - spread(starts.astype(np.float64))
    shapes = (rest, share, share * spread(trend) - position / d.size)
    forces = [d * shape for shape in shapes]
    first = np.stack([total(forces[i] * shapes[j]) for i, j in PAIRS])
    ahead = []
    for force in forces:
        sums = running(force)
        ahead.append(spread(sums[ends]) - sums + force)
    weighted = [d * sums for sums in ahead]
    level = [total(sums) for sums in weighted]
    second = np.stack([total(weighted[i] * ahead[j]) - level[i] * level[j] / clock for i, j in PAIRS]) * (counts > 1)
    trace = clock * total(d * share * rest)
    below = d * share * share
    before = running(below) - 0.5 * below
    trace_square = 2.0 * clock * clock * total(d * rest * rest * before)
    # n − 1 positive eigenvalues bound it; rounding may not, where a very short block follows a very long round.
    trace_square = np.clip(trace_square, trace * trace / np.maximum(counts - 1, 1), trace * trace)
    return Blocks(clock, trend, first, second, trace, trace_square, residual_variance(d))


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
