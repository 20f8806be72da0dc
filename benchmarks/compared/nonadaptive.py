"""What a user might pick instead, each ε-locally private for one record: quantiles from randomized reports.

Every method takes the records of all people, who know the range [low, high] that the quantile lies in, and gives one
number. Records outside the range are moved to its ends, which changes no quantile inside it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats

LEAVES = 256
"""Cells of the finest histogram, inside which it is taken as flat: 4⁴, four levels of a tree with four branches."""


def sample_quantile(
    records: Floats, level: float, epsilon: float, low: float, high: float, rng: np.random.Generator
) -> float:
    """No privacy at all: the floor."""
    return float(np.quantile(records, level))


# --- Square Wave with EM (Li, Wang, Lopuhaä-Zwakenberg, Škorić and Li, SIGMOD 2020) ---


def square_wave_width(epsilon: float) -> float:
    """b = (εe^ε − e^ε + 1)/(2e^ε(e^ε − 1 − ε)): half the width of the wave that tells most (their equation 5).

    >>> round(square_wave_width(1.0), 6)
    0.256083
    """
    e = math.exp(epsilon)
    return (epsilon * e - e + 1.0) / (2.0 * e * (e - 1.0 - epsilon))


def square_wave(values: Floats, epsilon: float, rng: np.random.Generator) -> Floats:
    """A report in [−b, 1 + b] for each value in [0, 1]: density p within b of the value, q elsewhere, p = e^ε·q."""
    b = square_wave_width(epsilon)
    near = 2.0 * b * math.exp(epsilon) / (2.0 * b * math.exp(epsilon) + 1.0)
    inside = values + b * rng.uniform(-1.0, 1.0, values.size)
    # Outside the wave lies a total length of 1: `values` of it to the left, the rest to the right.
    along = rng.uniform(0.0, 1.0, values.size)
    outside = np.where(along < values, along - b, along + b)
    return np.where(rng.uniform(size=values.size) < near, inside, outside)


def square_wave_matrix(epsilon: float, cells: int) -> Floats:
    """P(report in output cell | value in input cell), values and reports spread evenly over `cells` cells each.

    Columns are inputs. The share of an output cell within b of x is linear in x between few corners; its mean over an
    input cell is taken at 16 points of it.
    """
    b = square_wave_width(epsilon)
    q = 1.0 / (2.0 * b * math.exp(epsilon) + 1.0)
    p = q * math.exp(epsilon)
    edges = np.linspace(-b, 1.0 + b, cells + 1)
    matrix = np.zeros((cells, cells))
    for part in (np.arange(16) + 0.5) / 16.0:
        x = (np.arange(cells) + part) / cells
        overlap = np.minimum(edges[1:, None], x + b) - np.maximum(edges[:-1, None], x - b)
        matrix += q * np.diff(edges)[:, None] + (p - q) * np.maximum(overlap, 0.0)
    return matrix / 16.0


def expectation_maximization(matrix: Floats, counts: Floats, smooth: bool, tolerance: float) -> Floats:
    """The most likely input shares; with `smooth` averaged by (1, 2, 1)/4 after each step (their EMS)."""
    shares = np.full(matrix.shape[1], 1.0 / matrix.shape[1])
    before = -math.inf
    for _ in range(10_000):
        predicted = matrix @ shares
        shares = shares * (matrix.T @ (counts / predicted))
        if smooth:
            wide = np.concatenate([shares[:1], shares, shares[-1:]])
            shares = 0.25 * wide[:-2] + 0.5 * wide[1:-1] + 0.25 * wide[2:]
        shares /= shares.sum()
        likelihood = float(counts @ np.log(matrix @ shares))
        if abs(likelihood - before) < tolerance:
            break
        before = likelihood
    return shares


def square_wave_quantile(
    records: Floats,
    level: float,
    epsilon: float,
    low: float,
    high: float,
    rng: np.random.Generator,
    smooth: bool = True,
    cells: int = 256,
) -> float:
    """Square Wave reports, EM with smoothing, the quantile of the histogram; tolerances as the authors use them."""
    reports = square_wave(np.clip((records - low) / (high - low), 0.0, 1.0), epsilon, rng)
    b = square_wave_width(epsilon)
    counts = np.histogram(reports, bins=cells, range=(-b, 1.0 + b))[0].astype(np.float64)
    tolerance = 1e-3 if smooth else 1e-3 * math.exp(epsilon)
    shares = expectation_maximization(square_wave_matrix(epsilon, cells), counts, smooth, tolerance)
    return low + (high - low) * crossing(np.cumsum(shares), level)


def square_wave_plain(
    records: Floats, level: float, epsilon: float, low: float, high: float, rng: np.random.Generator
) -> float:
    """The same without smoothing."""
    return square_wave_quantile(records, level, epsilon, low, high, rng, smooth=False)


def crossing(cumulative: Floats, level: float) -> float:
    """Where a cumulative histogram on [0, 1], made to rise, passes `level`; linear inside a cell.

    >>> crossing(np.array([0.25, 0.5, 0.75, 1.0]), 0.625)
    0.625
    """
    rising = np.concatenate([[0.0], np.clip(isotonic(cumulative), 0.0, 1.0)])
    # The middle of a flat stretch at this level, if there is one.
    left, right = np.searchsorted(rising, level, side="left"), np.searchsorted(rising, level, side="right")
    ends = []
    for end in (left, right):
        at = min(max(int(end), 1), cumulative.size)
        rise = rising[at] - rising[at - 1]
        ends.append(at - 1 + (min(max((level - rising[at - 1]) / rise, 0.0), 1.0) if rise > 0.0 else 0.0))
    return float(0.5 * (ends[0] + ends[1]) / cumulative.size)


def isotonic(values: Floats) -> Floats:
    """The closest sequence, in squares, that never falls (neighbours that fall are pooled).

    >>> isotonic(np.array([1.0, 3.0, 2.0, 4.0])).tolist()
    [1.0, 2.5, 2.5, 4.0]
    """
    means: list[float] = []
    sizes: list[int] = []
    for value in values.tolist():
        means.append(value)
        sizes.append(1)
        while len(means) > 1 and means[-2] > means[-1]:
            size = sizes[-2] + sizes[-1]
            mean = (means[-2] * sizes[-2] + means[-1] * sizes[-1]) / size
            del means[-1], sizes[-1]
            means[-1], sizes[-1] = mean, size
    return np.repeat(means, sizes)


# --- A hierarchical histogram (Cormode, Kulkarni and Srivastava, VLDB 2019) ---


def hierarchy_quantile(
    records: Floats,
    level: float,
    epsilon: float,
    low: float,
    high: float,
    rng: np.random.Generator,
    branching: int = 4,
    leaves: int = LEAVES,
) -> float:
    """A tree of intervals: each person reports one level's interval by optimized unary encoding; then consistency."""
    depth = round(math.log(leaves, branching))
    at = np.clip(((records - low) / (high - low) * leaves).astype(np.int64), 0, leaves - 1)
    levels = rng.integers(1, depth + 1, records.size)
    estimates = []
    for height in range(1, depth + 1):
        nodes = branching**height
        members = at[levels == height] // (leaves // nodes)
        estimates.append(unary_frequencies(np.bincount(members, minlength=nodes), epsilon, rng))
    finest = consistent(estimates, branching)[-1]
    return low + (high - low) * crossing(np.cumsum(finest), level)


def unary_frequencies(counts: NDArray[np.int64], epsilon: float, rng: np.random.Generator) -> Floats:
    """Shares from optimized unary encoding (Wang et al. 2017): own bit kept with ½, others set with 1/(e^ε + 1).

    Bits are independent over people and intervals, so an interval's sum is two binomials.
    """
    people = int(counts.sum())
    keep, lie = 0.5, 1.0 / (math.exp(epsilon) + 1.0)
    sums = rng.binomial(counts, keep) + rng.binomial(people - counts, lie)
    return np.asarray((sums / max(people, 1) - lie) / (keep - lie))


def consistent(estimates: list[Floats], branching: int) -> list[Floats]:
    """The least-squares tree in which children sum to their parent and all to 1 (Hay et al., VLDB 2010)."""
    z = [values.copy() for values in estimates]
    for place in range(len(z) - 2, -1, -1):
        size = branching ** (len(z) - place)
        own = (size - size // branching) / (size - 1.0)
        below = z[place + 1].reshape(-1, branching).sum(axis=1)
        z[place] = own * z[place] + (1.0 - own) * below
    parents = np.ones(1)
    for place in range(len(z)):
        families = z[place].reshape(-1, branching)
        families += ((parents - families.sum(axis=1)) / branching)[:, None]
        parents = z[place] = families.reshape(-1)
    return z


# --- Noisy binary search ---


def binary_search_quantile(
    records: Floats, level: float, epsilon: float, low: float, high: float, rng: np.random.Generator
) -> float:
    """Halve the range: every step asks fresh people "above the middle?" by randomized response.

    ⌈½·log₂ n⌉ + 2 steps: the last interval is then about as wide, against the range, as the noise of a step.
    """
    steps = math.ceil(0.5 * math.log2(records.size)) + 2
    rate = math.tanh(epsilon / 2.0)
    for asked in np.array_split(rng.permutation(records), steps):
        middle = 0.5 * (low + high)
        told = rng.uniform(size=asked.size) < 0.5 * (1.0 + rate)
        ones = float(np.mean((asked > middle) == told))
        above = (ones - 0.5 * (1.0 - rate)) / rate
        low, high = (middle, high) if above > 1.0 - level else (low, middle)
    return 0.5 * (low + high)
