"""The quantile from the whole transcript: the distribution's curve through the answers.

A round asked at q gives y = τ − F(q) + noise, the noise's variance w known by design. Near the quantile Q

    F(q) = L( logit τ + x + κx² ),  x = β(q − Q),  L the logistic function, f = τ(1 − τ)β the slope at Q

Q, β and the bend κ are unknown. Weighted least squares gives them (Gauss–Newton), κ with the prior N(0, 0.3²), its
unit-free size in the laws one meets (at τ = 0.8: normal 0.06, t₃ −0.07, log-normal −0.23, Cauchy −0.39, uniform +0.30).
What the answers cannot tell about the bend is thereby part of the interval. Given β and κ, Q̂ is the mean of q + y/f:
efficient whatever path the questions took, no relaxation needed, and an error of the slope enters only multiplied by
the small distance between the questions' mean and Q.

The interval is Fieller's. Q̂ = q̄ + ȳ/f̂ with relative error ρ of the slope; the Q with |ȳ − f̂(Q − q̄)| ≤ z·s.e. are

    Q̂ ± z·se/√(1 − z²ρ²)

which needs no table, holds for any level, and is unbounded, honestly, when the slope could be zero (zρ ≥ 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.laws.normal import two_sided_z

BEND = 0.3
"""Prior standard deviation of κ."""

NEAR = 1.5
"""Rounds asked within this many local spreads of the quantile enter the fit, whatever they were asked for: the probes
do even where the spread was thought twice too wide, …"""

NEAR_ERRORS = 30.0
"""… and within this many standard errors, not quite twice the probes' own reach: as records grow the curve is read ever
closer to the quantile, so what the model has wrong further out fades, …"""

NEAR_LEAST = 0.2
"""… but this many spreads are always near enough: what the model has wrong there moves the slope by 1% or 2%, and the
few questions of the search steady it where the probes came to lie too close together."""

DRIFT_BIAS = 1.0
"""f̂ exceeds f by about 2ρ²: a path that answers its own noise regresses too steeply, by 4/N (Kendall's bias of an
AR(1)), N/2 being its share of the slope's precision 1/ρ². Half of that is taken off, Fieller's interval allows for the
rest: in the linear model it then covers .949 to .950 from 27 relaxations on (`studies/coverage/calibrate.py`), with all
of it off .954 to .958, and 2% wider."""

GROUPS = 8
SUSPECT_MISFIT, LARGEST_MISFIT = 15.5, 22.0
"""Near rounds in eight groups by their question, equal in precision; the squared standardised residuals of the groups
sum to χ² with about 5.9 degrees of freedom where the curve is smooth. The first is exceeded in 1–2% of such runs
(normal, t₃, log-normal, Laplace, uniform, mixtures; information 1,500–600,000) and leads to a warning, the second in
0.1%, and widens the interval. Ages in whole years (spread 12) exceed the first in a quarter of the runs at information
6,000, and both in all runs at 60,000."""

LEAST_SLOPE = 0.45
"""A fitted slope below this share of what search and probes believed leads to a warning: between two separate humps
four runs in five lie below, of smooth ones with 200 rounds 1% at most (log-normal, τ = 0.8), with 20 rounds 14%. It
widens nothing: a belief that was too steep looks the same."""

LARGEST_LEAN = (-3.5, 5.0)
"""Standard errors between the slope that the window alone shows, in the rounds near enough, and that of the curve.
Smooth runs of 200 rounds keep within (−2.2, 3.3); above stands a step that the path sits on, below a place where the
path found nothing to hold it."""

CUTS = (0.15, 0.3, 0.5, 0.7, 0.85)
"""Shares of the precision at which `Bracket` cuts the sorted questions, …"""

FAR_CUTS = (0.2, 0.7, 1.5, 6.0, 40.0)
"""… and distances from the estimate at which it does, in reaches of the probes: all probes of a side in one group."""

STEPS = 8
"""Gauss–Newton steps: quadratic convergence from a start within a spread needs five."""


class CurveFit(NamedTuple):
    """The fitted curve, one entry a run; all on the working scale."""

    center: Floats
    """Q̂."""
    error: Floats
    """Its standard error, the slope's bias removed."""
    slope: Floats
    """f̂, bias removed."""
    slope_error: Floats
    """ρ: relative standard error of f̂."""
    bend: Floats
    bend_error: Floats
    bend_share: Floats
    """Share of the error's square that stems from not knowing the bend."""
    used: Floats
    """Share of the offered precision that lay near enough."""
    held: NDArray[np.bool_]
    """Whether the slope had to be held at the edge of what the start allows: the fit is then no estimate."""
    misfit: Floats
    """χ² of the near rounds about the curve; see `LARGEST_MISFIT`."""
    kept: Floats
    """f̂ as a share of its first guess; see `LEAST_SLOPE`."""
    lean: Floats
    """Standard errors between the window's own slope and the curve's; see `LARGEST_LEAN`."""

    @property
    def smooth(self) -> NDArray[np.bool_]:
        """Whether the answers follow the curve: no step and no flat stretch shows."""
        low, high = LARGEST_LEAN
        straight = (self.lean >= low) & (self.lean <= high)
        return straight & (self.misfit <= LARGEST_MISFIT)

    @property
    def suspect(self) -> NDArray[np.bool_]:
        """Whether an atom or a gap may be there: the result warns."""
        return ~self.smooth | (self.misfit > SUSPECT_MISFIT) | (self.kept < LEAST_SLOPE)


def fit_curve(
    queries: Floats,
    residuals: Floats,
    variances: Floats,
    level: float,
    *,
    start: Floats,
    slope: Floats,
    window: NDArray[np.bool_],
) -> CurveFit:
    """Fit runs × rounds of answers; an infinite variance leaves a round out.

    `start` and `slope` are first guesses of Q and f; the slope is sought within a factor of 8 of its guess. `window`
    marks the rounds that followed the recursion.

    >>> q = np.linspace(-0.2, 0.4, 41)[None]
    >>> y = 0.5 - 1 / (1 + np.exp(-4 * (q - 0.1)))  # f = 1 at Q = 0.1, no noise
    >>> guesses = {"start": np.array([0.0]), "slope": np.array([0.5]), "window": np.ones((1, 41), dtype=bool)}
    >>> fit = fit_curve(q, y, np.full((1, 41), 1e-2), 0.5, **guesses)
    >>> [round(float(value[0]), 2) for value in (fit.center, fit.slope, fit.slope_error, fit.bend)]
    [0.1, 0.99, 0.11, 0.0]
    """
    scale = level * (1.0 - level)
    there = math.log(level / (1.0 - level))
    first = slope / scale
    center, steep, bend = start.astype(np.float64), first.astype(np.float64), np.zeros(len(start))
    precision = np.where(np.isfinite(variances), 1.0 / variances, 0.0)
    offered = precision.sum(axis=1)
    weights = precision
    near = np.minimum(NEAR, np.maximum(NEAR_LEAST, NEAR_ERRORS / (scale * np.sqrt(offered))))
    prior = np.diag([0.0, 0.0, BEND**-2])
    held = np.zeros(len(start), dtype=np.bool_)
    matrix = np.zeros((len(start), 3, 3))
    for turn in range(STEPS):
        x = steep[:, None] * (queries - center[:, None])
        if turn >= 2:
            # Which rounds are near is settled after two steps, then kept: a moving choice need not converge.
            weights = precision * (np.abs(x) <= near[:, None]) if turn == 2 else weights
        x = np.clip(x, -2.0, 2.0)
        ranks = 0.5 * (1.0 + np.tanh(0.5 * (there + x + bend[:, None] * x**2)))
        gap = residuals - (level - ranks)
        density = ranks * (1.0 - ranks)
        along = density * (1.0 + 2.0 * bend[:, None] * x)
        # In unit-free unknowns βQ, log β and κ, so that the matrix is well scaled.
        slopes = np.stack([along, -along * x, -density * x**2], axis=-1)
        weighted = weights[..., None] * slopes
        matrix = np.einsum("rmi,rmj->rij", weighted, slopes) + prior
        gradient = np.einsum("rmi,rm->ri", weighted, gap)
        gradient[:, 2] -= bend / BEND**2
        ridge = 1e-12 * np.trace(matrix, axis1=1, axis2=2)[:, None, None] * np.eye(3)
        change = np.linalg.solve(matrix + ridge, gradient[..., None])[..., 0]
        center = center + np.clip(change[:, 0], -2.0, 2.0) / steep
        wanted = steep * np.exp(np.clip(change[:, 1], -1.0, 1.0))
        steep = np.clip(wanted, first / 8.0, first * 8.0)
        held = wanted != steep
        bend = np.clip(bend + change[:, 2], -0.6, 0.6)
    spread = np.linalg.inv(matrix + 1e-12 * np.trace(matrix, axis1=1, axis2=2)[:, None, None] * np.eye(3))
    relative = np.sqrt(spread[:, 1, 1])
    pair = matrix[:, :2, :2]
    straight = pair[:, 1, 1] / (pair[:, 0, 0] * pair[:, 1, 1] - pair[:, 0, 1] ** 2 + 1e-300)
    unbiased = np.maximum(1.0 - DRIFT_BIAS * relative**2, 0.1)
    return CurveFit(
        center,
        np.sqrt(spread[:, 0, 0]) / (steep * unbiased),
        scale * steep * unbiased,
        relative,
        bend,
        np.sqrt(spread[:, 2, 2]),
        np.clip(1.0 - straight / spread[:, 0, 0], 0.0, 1.0),
        weights.sum(axis=1) / offered,
        held,
        lack_of_fit(queries, residuals, weights, level, center, steep, bend),
        steep * unbiased / first,
        window_lean(queries, residuals, np.where(window, weights, 0.0), scale * steep),
    )


def window_lean(queries: Floats, residuals: Floats, weights: Floats, slope: Floats) -> Floats:
    """(f_w − f)/s.e., f_w minus the slope of the answers on the questions of the window alone; 0 where it has none."""
    total = np.maximum(weights.sum(axis=1), 1e-300)[:, None]
    off = queries - (weights * queries).sum(axis=1)[:, None] / total
    precision = (weights * off**2).sum(axis=1)
    drop = -(weights * off * residuals).sum(axis=1)
    return np.where(precision > 0.0, (drop - slope * precision) / np.sqrt(np.maximum(precision, 1e-300)), 0.0)


def lack_of_fit(
    queries: Floats, residuals: Floats, weights: Floats, level: float, center: Floats, steep: Floats, bend: Floats
) -> Floats:
    """χ² of the answers about the curve, rounds grouped by their question; infinite where no round is near.

    Single rounds would drown a step of the curve in their own noise; groups add up what leans one way.
    """
    x = np.clip(steep[:, None] * (queries - center[:, None]), -2.0, 2.0)
    ranks = 0.5 * (1.0 + np.tanh(0.5 * (math.log(level / (1.0 - level)) + x + bend[:, None] * x**2)))
    order = np.argsort(queries, axis=1)
    weights = np.take_along_axis(weights, order, axis=1)
    gap = np.take_along_axis(residuals - (level - ranks), order, axis=1)
    total = weights.sum(axis=1)
    before = (np.cumsum(weights, axis=1) - 0.5 * weights) / np.maximum(total, 1e-300)[:, None]
    group = np.minimum((before * GROUPS).astype(np.int64), GROUPS - 1)
    found = np.zeros(len(queries))
    for k in range(GROUPS):
        part = np.where(group == k, weights, 0.0)
        found += (part * gap).sum(axis=1) ** 2 / np.maximum(part.sum(axis=1), 1e-300)
    return np.where(total > 0.0, found, np.inf)


class Bracket:
    """Between which questions the quantile lies, for any distribution, with atoms or gaps.

    F never falls. Where the answers to a stretch of questions average τ − F > 0 beyond chance, the lowest of them lies
    below Q; where they average τ − F < 0, the highest lies at or above. All stretches of neighbouring groups on a side
    of the estimate are tried, their number taken into account (Bonferroni). `center` and `reach`, of the probes, only
    place the groups.
    """

    def __init__(self, queries: Floats, residuals: Floats, variances: Floats, center: float, reach: float) -> None:
        order = np.argsort(queries)
        asked, answered = queries[order], residuals[order]
        precision = np.where(np.isfinite(variances[order]), 1.0 / variances[order], 0.0)
        before = (np.cumsum(precision) - 0.5 * precision) / precision.sum()
        far = np.array(FAR_CUTS) * reach
        group = np.searchsorted(CUTS, before) + np.searchsorted(
            np.concatenate([center - far[::-1], center + far]), asked
        )
        parts = [np.flatnonzero(group == k) for k in np.unique(group)]
        sums = np.array([float(precision[part] @ answered[part]) for part in parts])
        totals = np.array([float(precision[part].sum()) for part in parts])
        middle = min(int(np.searchsorted([asked[part[-1]] for part in parts], center)), len(parts) - 1)

        def score(first: int, last: int) -> float:
            return float(sums[first : last + 1].sum() / math.sqrt(totals[first : last + 1].sum()))

        # Stretches that reach beyond the estimate's own group to its other side would only be diluted by it.
        below = ((first, last) for first in range(middle + 1) for last in range(first, middle + 1))
        above = ((first, last) for last in range(middle, len(parts)) for first in range(middle, last + 1))
        self._below = [(float(asked[parts[first][0]]), score(first, last)) for first, last in below]
        self._above = [(float(asked[parts[last][-1]]), -score(first, last)) for first, last in above]

    def ends(self, confidence_level: float) -> tuple[float, float]:
        """Both ends; infinite on a side where no question was beyond chance."""
        least = -NormalDist().inv_cdf((1.0 - confidence_level) / (len(self._below) + len(self._above)))
        low = max((start for start, score in self._below if score > least), default=-math.inf)
        high = min((stop for stop, score in self._above if score > least), default=math.inf)
        return (low, high) if low <= high else (high, low)


@dataclass(frozen=True)
class FiellerLaw:
    """The law of (Q̂ − Q)/se when the slope has relative error ρ.

    >>> law = FiellerLaw(0.1)
    >>> round(law.quantile(0.95), 4), round(law.tail(law.quantile(0.95)), 6)
    (1.9987, 0.05)
    >>> FiellerLaw(0.6).quantile(0.95)
    inf
    """

    slope_error: float

    def quantile(self, confidence_level: float) -> float:
        """z/√(1 − z²ρ²); ∞ when the slope may be zero at this confidence."""
        return self.stretched(two_sided_z(confidence_level))

    def stretched(self, z: float) -> float:
        """z/√(1 − z²ρ²)."""
        rest = 1.0 - (z * self.slope_error) ** 2
        return z / math.sqrt(rest) if rest > 0.0 else math.inf

    def tail(self, statistic: float) -> float:
        """Two-sided p-value: z = t/√(1 + t²ρ²) inverts the quantile."""
        z = statistic / math.sqrt(1.0 + (statistic * self.slope_error) ** 2)
        return math.erfc(z / math.sqrt(2.0))
