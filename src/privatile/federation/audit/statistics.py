"""From counts to evidence: normal scores, and exact bounds on the likelihood ratio of a report.

The likelihood ratio of a report: exact confidence bounds from counts, and how many reports they need.

Clopper and Pearson: the lower bound at error α is the p with P(X ≥ x | p) = α, the upper the p with P(X ≤ x | p) = α;
both tails are incomplete beta functions, which scipy inverts.

Counts to normal scores: where records are drawn with replacement, a score of an honest count is exactly N(0, 1).

A count c of n reports is Binomial(n, p), p being the share of ones that the planted records give. With V uniform on
(0, 1), drawn by the auditor, P(X < c) + V·P(X = c) is uniform, so its normal quantile is a standard normal score, for
every n, p and ε alike. The sum of m squared scores is then χ²(m), a weighted sum is normal, and

    Σ x·y / √(Σ y²)   is N(0, 1) for independent scores x and y,

all of them exactly: no approximation has to hold in the tails. A client draws without replacement, which makes counts
with mixed truths vary a little less; the planted files hold many times the records of one question, so that this is
less than the tests can tell.

All functions take arrays whose first axis may run over many audits.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv, gammainc, gammaincc, ndtr, ndtri

from privatile.core.arrays import Floats
from privatile.laws.ratio import one_sided_z


def clopper_pearson(ones: int, trials: int, alpha: float) -> tuple[float, float]:
    """Bounds that each miss with probability at most `alpha`.

    >>> tuple(round(end, 6) for end in clopper_pearson(5, 10, 0.025))
    (0.187086, 0.812914)
    """
    low = 0.0 if ones == 0 else float(betaincinv(ones, trials - ones + 1, alpha))
    high = 1.0 if ones == trials else float(betaincinv(ones + 1, trials - ones, 1.0 - alpha))
    return low, high


def ratio_bounds(
    ones_true: int, ones_false: int, trials: int, alpha: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Bounds of P(1 | truth 1)/P(1 | truth 0) and of P(0 | truth 0)/P(0 | truth 1), each at error `alpha` per side.

    Both ratios are e^ε for randomized response. The counts are ones among `trials` reports whose truth is 1, or 0.

    >>> [tuple(round(end, 3) for end in bounds) for bounds in ratio_bounds(731, 269, 1000, 0.001)]
    [(2.152, 3.459), (2.152, 3.459)]
    """
    low_true, high_true = clopper_pearson(ones_true, trials, alpha / 2)
    low_false, high_false = clopper_pearson(ones_false, trials, alpha / 2)
    return (
        (_quotient(low_true, high_false), _quotient(high_true, low_false)),
        (_quotient(1 - high_false, 1 - low_true), _quotient(1 - low_false, 1 - high_true)),
    )


def _quotient(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.inf


def reports_needed(truth_rate: float, off: float, alpha: float, power: float) -> int:
    """Reports per side that show a truth rate wrong by the share `off`, at error `alpha` on either side.

    n = p(1 − p)·((z_α + z_power)/δ)² with p = (1 + r)/2 and δ = off·r/2.

    >>> 250_000 < reports_needed(0.4621, 0.02, 0.0005, 0.99) < 350_000
    True
    """
    p = (1.0 + truth_rate) / 2.0
    delta = off * truth_rate / 2.0
    z = one_sided_z(alpha) + one_sided_z(1.0 - power)
    return math.ceil(p * (1.0 - p) * (z / delta) ** 2)


Counts = NDArray[np.int64]

SMALLEST = 1e-300
"""Below this a probability is taken for this: its score is −37, which no test lets pass."""


def at_most(counts: Counts, lengths: Counts, shares: Floats) -> Floats:
    """P(X ≤ c) for X Binomial(n, p); 0 below 0."""
    inside = np.clip(counts, 0, lengths - 1)
    below = betainc(lengths - inside, inside + 1.0, 1.0 - shares)
    return np.where(counts < 0, 0.0, np.where(counts >= lengths, 1.0, below))


def more_than(counts: Counts, lengths: Counts, shares: Floats) -> Floats:
    """P(X > c), without the cancellation of 1 − P(X ≤ c)."""
    inside = np.clip(counts, 0, lengths - 1)
    above = betainc(inside + 1.0, lengths - inside, shares)
    return np.where(counts < 0, 1.0, np.where(counts >= lengths, 0.0, above))


def normal_quantile(low: Floats, high: Floats) -> Floats:
    """The score with the tails `low` and `high`, read from the smaller one."""
    tail = np.maximum(np.minimum(low, high), SMALLEST)
    return np.where(low < high, ndtri(tail), -ndtri(tail))


def count_scores(counts: Counts, lengths: Counts, shares: Floats, rng: np.random.Generator) -> Floats:
    """The normal scores of counts.

    >>> rng = np.random.default_rng(1)
    >>> counts = rng.binomial(20, 0.7, size=(1, 100_000))
    >>> scores = count_scores(counts, np.array(20), np.array(0.7), rng)
    >>> bool(abs(scores.mean()) < 0.01 and abs(scores.std() - 1) < 0.01)
    True
    """
    part = rng.random(counts.shape)
    low = (1 - part) * at_most(counts - 1, lengths, shares) + part * at_most(counts, lengths, shares)
    high = (1 - part) * more_than(counts - 1, lengths, shares) + part * more_than(counts, lengths, shares)
    return normal_quantile(low, high)


@lru_cache(maxsize=100_000)
def difference_tails(length: int, move: float) -> tuple[Floats, Floats]:
    """P(D < d) and P(D > d) for d = −n … n, D being the difference of two counts over the same records.

    Each record moves the difference up with probability v = p(1 − p), down with v, whatever its truth: the
    generating function is (1 − 2v + v·x + v/x)ⁿ, and its coefficients come from its values on the unit circle.

    >>> below, above = difference_tails(1, 0.2)
    >>> [round(float(value), 6) for value in (*below, *above)]
    [0.0, 0.2, 0.8, 0.8, 0.2, 0.0]
    """
    size = 2 * length + 1
    angles = 2.0 * np.pi * np.arange(size) / size
    values = (1.0 - 2.0 * move + 2.0 * move * np.cos(angles)) ** length
    masses = np.maximum(np.fft.ifft(values).real, 0.0)
    masses = np.concatenate([masses[length + 1 :], masses[: length + 1]])
    before = np.cumsum(masses) - masses
    after = np.cumsum(masses[::-1])[::-1] - masses
    return np.maximum(before, 0.0), np.maximum(after, 0.0)


def difference_scores(differences: Counts, lengths: Counts, moves: Floats, rng: np.random.Generator) -> Floats:
    """The normal scores of differences of two counts over the same records (last axis: questions).

    >>> rng = np.random.default_rng(1)
    >>> one, two = rng.binomial(30, 0.7, size=(2, 50_000, 1))
    >>> scores = difference_scores(one - two, np.array([30]), np.array([0.21]), rng)
    >>> bool(abs(scores.mean()) < 0.02 and abs(scores.std() - 1) < 0.02)
    True
    """
    part = rng.random(differences.shape)
    low, high = np.empty(differences.shape), np.empty(differences.shape)
    for place, (length, move) in enumerate(zip(lengths.tolist(), moves.tolist(), strict=True)):
        before, after = difference_tails(length, move)
        found = differences[..., place] + length
        mass = 1.0 - before[found] - after[found]
        low[..., place] = before[found] + part[..., place] * mass
        high[..., place] = after[found] + (1.0 - part[..., place]) * mass
    return normal_quantile(low, high)


# -- tests: each gives the probability of something at least as strange, exactly --------------------------------


def two_sided(score: Floats) -> Floats:
    """The probability of a standard normal beyond ±|score|."""
    return 2.0 * ndtr(-np.abs(score))


def weighted_sum(scores: Floats, weights: Floats) -> Floats:
    """Σ w·z / √Σw² along the last axis: N(0, 1)."""
    return np.asarray(scores @ weights / np.sqrt(np.sum(weights**2)))


def spread_tails(scores: Floats) -> tuple[Floats, Floats]:
    """P(less spread) and P(more spread) of the sum of squares along the last axis, χ².

    >>> low, high = spread_tails(np.full(50, 0.1))
    >>> float(low) < 1e-30, float(high)
    (True, 1.0)
    """
    half, total = scores.shape[-1] / 2.0, np.sum(scores**2, axis=-1) / 2.0
    return np.asarray(gammainc(half, total)), np.asarray(gammaincc(half, total))


def pair_score(first: Floats, second: Floats) -> Floats:
    """Σ x·y / √Σy² along the last axis: N(0, 1) where the scores of `first` do not depend on those of `second`."""
    norm = np.sqrt(np.sum(second**2, axis=-1))
    return np.asarray(np.sum(first * second, axis=-1) / np.where(norm > 0.0, norm, 1.0))


def size_scores(scores: Floats) -> Floats:
    """Scores of |z|: again N(0, 1), and large where a count is far from its mean on either side."""
    tail = two_sided(scores)
    return normal_quantile(1.0 - tail, tail)


def sum_tails(observed: Counts, chances: Floats) -> tuple[Floats, Floats]:
    """P(S ≤ s) and P(S ≥ s) for the number S of events that happen independently with the given chances.

    >>> low, high = sum_tails(np.array([0, 2]), np.array([0.5, 0.5]))
    >>> low.round(6).tolist(), high.round(6).tolist()
    ([0.25, 1.0], [1.0, 0.25])
    """
    low, high = _sum_tables(chances.tobytes())
    return low[observed], high[observed]


@lru_cache(maxsize=1000)
def _sum_tables(chances: bytes) -> tuple[Floats, Floats]:
    """Both tails for every number of events; the chances of a plan are the same in all its audits."""
    kinds, times = np.unique(np.frombuffer(chances), return_counts=True)
    size = int(times.sum()) + 1
    turn = np.exp(-2j * np.pi * np.arange(size) / size)
    values = np.ones(size, dtype=np.complex128)
    for chance, number in zip(kinds.tolist(), times.tolist(), strict=True):
        values *= (1.0 - chance + chance * turn) ** number
    masses = np.maximum(np.fft.ifft(values).real, 0.0)
    low, high = np.cumsum(masses), np.cumsum(masses[::-1])[::-1]
    return np.minimum(low, 1.0), np.minimum(high, 1.0)
