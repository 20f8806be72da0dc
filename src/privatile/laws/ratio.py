"""Laws of ratios: the self-normalised statistic, an estimate divided by an estimated slope, the normal law.

The normal distribution's critical values.

The exact law of a self-normalised statistic |Z|/√V: Z normal, V a quadratic form of the same Gaussian noise.

Two functions of one tilt y ≥ 0 determine the law of the pair:

    G(y) = E[exp(−yV/2)]⁻²      a determinant, det(I + y·Cov)
    h(y) = Var(Z) when the law is tilted by exp(−yV/2), so h(0) = Var(Z) and h falls

The characteristic function of Z² − v²V is [G(y)·(1 − y·h(y)/v²)]^(−1/2) at y = −2i·t·v². Imhof's integral inverts it
along the real line of t, where it oscillates. Here Z² − v²V has exactly one positive eigenvalue, so the one singularity
on its side is a branch cut, y ≥ y₀ with y₀·h(y₀) = v²; folding the path onto that cut leaves a positive integrand:

    P(|Z| > v√V) = (1/π) ∫_{y₀}^∞ G(y)^(−1/2) · (k(y)/k(y₀) − 1)^(−1/2) dy/y,      k(y) = y·h(y).

With y = y₀·cosh²t the integrand is even and analytic for |Im t| < π/2, so the trapezoid rule converges like
exp(−π²/step). For the Brownian bridge (G = sinh√y/√y, h = 1) nothing is left but this one integral.

Fieller's law: the error of an estimate that was divided by an estimated slope.

Q̂ = q̄ + ȳ/f̂, with standard error se for a known slope and relative error ρ of f̂. The Q with |ȳ − f̂(Q − q̄)| ≤ z·s.e. are

    Q̂ ± z·se/√(1 − z²ρ²)

which holds at any confidence level, and is unbounded where the slope may be zero (zρ ≥ 1).

At low information I = (τ(1 − τ))²/s² the law is wider than the normal one says: z is multiplied by 1 + 0.5/√I. In the
smooth laws of the study coverage is then .94 to .97 from I = 150 on, without it .92. From I = 60,000 on the factor is
below 1.003.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np

from privatile.core.arrays import Floats

# The standard library's, exact to 1e-15: scipy.special takes 0.2 s to import, more than a small run takes.
_STANDARD = NormalDist()


def one_sided_z(alpha: float) -> float:
    """The z with P(N(0, 1) > z) = alpha.

    >>> round(one_sided_z(0.025), 6)
    1.959964
    """
    return -_STANDARD.inv_cdf(alpha)


def two_sided_z(confidence_level: float) -> float:
    """The z with P(|N(0, 1)| ≤ z) = confidence_level.

    >>> round(two_sided_z(0.95), 6)
    1.959964
    """
    return _STANDARD.inv_cdf(0.5 + confidence_level / 2.0)


Transform = Callable[[Floats], tuple[Floats, Floats]]
"""y ↦ (log G(y), h(y)), elementwise."""

STEP = 0.2
"""Trapezoid step in t: exp(−π²/0.2) is 4e-22, far below rounding even after the growth exp(v/2) inside the strip."""

CHUNK = 24
"""Nodes evaluated at a time; one chunk reaches y = 4·10³·y₀, enough for every long schedule at usual levels."""

START = 40.0
"""Where the search for a tilt starts: the constant schedule has y₀ = v² = 45.5 at 95%."""

FARTHEST = 1e30
"""A tilt beyond which the statistic is taken as bounded: V determines Z there and the tail is 0."""


@dataclass(frozen=True)
class RatioLaw:
    """The law of |Z|/√V, given by its transform. V should be scaled so that E[V] is of order 0.1 to 1.

    The Brownian bridge, whose 95% critical value is the paper's 6.747:

    >>> import numpy as np
    >>> def bridge(y):  # log G = log(sinh√y/√y), written so that it cannot overflow
    ...     root = np.sqrt(y)
    ...     return root + np.log(-np.expm1(-2 * root) / (2 * root)), np.ones_like(y)
    >>> law = RatioLaw(bridge)
    >>> round(law.quantile(0.95), 4), round(law.tail(6.7473), 6)
    (6.7473, 0.05)
    """

    transform: Transform

    def tail(self, statistic: float) -> float:
        """P(|Z|/√V ≥ |statistic|); NaN of NaN."""
        square = float(statistic) ** 2
        if square == 0.0:
            return 1.0
        if not math.isfinite(square):
            return math.nan if math.isnan(square) else 0.0

        @cache
        def gap(log_tilt: float) -> float:
            tilt = math.exp(log_tilt)
            variance = float(self.transform(np.array([tilt]))[1][0])
            return log_tilt + math.log(max(variance, 1e-300)) - math.log(square)

        # h falls from h(0), so k(y) ≤ y·h(0) and the root lies at or above v²/h(0).
        low = math.log(square) - math.log(float(self.transform(np.array([1e-12]))[1][0])) - 1e-9
        high = low + 0.1
        while gap(high) < 0.0:
            if high > math.log(FARTHEST):
                return 0.0
            high += 2.0 * (high - low)
        return self.tail_and_value(math.exp(find_root(gap, low, high)))[0]

    def quantile(self, level: float) -> float:
        """The v with P(|Z|/√V ≤ v) = level."""
        target = math.log1p(-level)

        @cache
        def gap(log_tilt: float) -> float:
            return target - math.log(max(self.tail_and_value(math.exp(log_tilt))[0], 1e-300))

        low, high = bracket(gap, math.log(START), 0.25)
        return self.tail_and_value(math.exp(find_root(gap, low, high)))[1]

    def tail_and_value(self, tilt: float) -> tuple[float, float]:
        """P(|Z|/√V ≥ v), and v, where v² = k(tilt): the integral of the module's text, no root to find."""
        total, start = 0.0, math.nan
        for first in range(0, 100 * CHUNK, CHUNK):
            # Midpoints: the same accuracy on an even integrand, and no 0/0 at t = 0.
            nodes = (np.arange(first, first + CHUNK) + 0.5) * STEP
            y = tilt * np.cosh(nodes) ** 2
            if first == 0:
                # The first chunk of nodes carries the tilt itself along.
                log_det, variance = self.transform(np.append(y, tilt))
                start = tilt * float(variance[-1])
                log_det, variance = log_det[:-1], variance[:-1]
            else:
                log_det, variance = self.transform(y)
            rise = np.sinh(nodes) / np.sqrt(np.maximum(y * variance / start - 1.0, 1e-300))
            terms = np.exp(-0.5 * log_det) * rise / np.cosh(nodes)
            total += float(terms.sum())
            if terms[-1] <= 1e-17 * total:
                break
        return min(1.0, 2.0 / math.pi * STEP * total), math.sqrt(start)


def from_covariance(form: Floats, with_endpoint: Floats, endpoint_variance: float) -> RatioLaw:
    """The law of |Z|/√(Y·Y) for a jointly normal vector Y and number Z, from their covariances.

    Cov(Y) = UΛU′ and b = Λ^(−1/2)U′Cov(Y, Z) give G(y) = Π(1 + yλ_j) and h(y) = Var Z − Σ b_j²·yλ_j/(1 + yλ_j).
    """
    values, vectors = np.linalg.eigh(form)
    # Eigenvalues at the level of rounding carry no part of V; keeping them would divide noise by noise.
    kept = values > 1e-13 * values[-1]
    values, loads = values[kept], (vectors[:, kept].T @ with_endpoint) ** 2 / values[kept]
    # Scale to E[V] = 1/6, the Brownian bridge's, and back by Z: the search for a tilt starts from there.
    scale = 1.0 / (6.0 * float(values.sum()))
    values, loads, top = values * scale, loads * scale, endpoint_variance * scale

    def transform(y: Floats) -> tuple[Floats, Floats]:
        tilted = y[:, None] * values
        return np.log1p(tilted).sum(axis=1), np.maximum(top - (loads * (tilted / (1.0 + tilted))).sum(axis=1), 1e-300)

    return RatioLaw(transform)


def bracket(f: Callable[[float], float], start: float, reach: float) -> tuple[float, float]:
    """An interval around the root of an increasing f, growing from `start`."""
    low = high = start
    if f(start) < 0.0:
        while f(high) < 0.0:
            low, high, reach = high, high + reach, 2.0 * reach
    else:
        while f(low) > 0.0:
            low, high, reach = low - reach, low, 2.0 * reach
    return low, high


def find_root(f: Callable[[float], float], low: float, high: float) -> float:
    """The root of an increasing f in [low, high]; an end when f does not change its sign there."""
    # Imported here: it takes 0.3 s, and a run that shows the smooth interval needs no root.
    from scipy.optimize import brentq

    if f(low) >= 0.0:
        return low
    if f(high) <= 0.0:
        return high
    return float(brentq(f, low, high, xtol=1e-13, rtol=1e-15))


def fieller_reach(z: float | Floats, slope_error: float | Floats) -> Any:
    """z/√(1 − z²ρ²) standard errors either way; ∞ where the slope may be zero. For numbers and for arrays.

    >>> [round(float(reach), 4) for reach in fieller_reach(1.96, np.array([0.0, 0.1, 0.6]))]
    [1.96, 1.9988, inf]
    """
    rest = 1.0 - (z * np.asarray(slope_error)) ** 2
    bounded = rest > 0.0
    return np.where(bounded, z / np.sqrt(np.where(bounded, rest, 1.0)), np.inf)


def fieller_score(reach: float, slope_error: float) -> float:
    """z = t/√(1 + t²ρ²): the inverse of `fieller_reach`."""
    return reach / math.sqrt(1.0 + (reach * slope_error) ** 2)


LOW_INFORMATION = 0.5
"""c of the factor 1 + c/√I."""


def low_information_factor(information: float | Floats) -> Any:
    """1 + 0.5/√I, for numbers and for arrays.

    >>> round(low_information_factor(150.0), 3), round(low_information_factor(6000.0), 4)
    (1.041, 1.0065)
    """
    return 1.0 + LOW_INFORMATION * information**-0.5


@dataclass(frozen=True)
class FiellerLaw:
    """The law of (Q̂ − Q)/se when the slope has relative error ρ, and the answers this information.

    >>> law = FiellerLaw(0.1)
    >>> round(law.quantile(0.95), 4), round(law.tail(law.quantile(0.95)), 6)
    (1.9987, 0.05)
    >>> FiellerLaw(0.6).quantile(0.95)
    inf
    >>> low = FiellerLaw(0.1, information=150.0)
    >>> round(low.quantile(0.95), 4), round(low.tail(low.quantile(0.95)), 6)
    (2.0838, 0.05)
    """

    slope_error: float
    information: float = math.inf
    """Infinite: z is not corrected."""

    def quantile(self, confidence_level: float) -> float:
        """Standard errors either way; ∞ when the slope may be zero at this confidence."""
        z = two_sided_z(confidence_level) * low_information_factor(self.information)
        return float(fieller_reach(z, self.slope_error))

    def tail(self, statistic: float) -> float:
        """Two-sided p-value of a value this many standard errors away."""
        z = fieller_score(statistic, self.slope_error) / low_information_factor(self.information)
        return math.erfc(z / math.sqrt(2.0))
