"""Intervals that may be watched: a confidence sequence, valid at every look and at any stop (asymptotically).

Robbins' normal mixture: with time t = the share of the records that have answered, 0 < t ≤ 1, and z the standardised
error of an efficient estimate at that look,

    log M_t = ½·z²·ρ²t/(1 + ρ²t) − ½·log(1 + ρ²t)

M is a martingale that starts at 1. For ever, it reaches e^x with probability e^−x (Ville). A run ends with its last
record: by t = 1 it has reached e^x with probability e^−x·R(x), R(x) the same chance under the mixture itself. That is
exact, and narrower by a tenth. The z_t with e^−x·R(x) = α bound the error at all looks at once:

    z_t = √( 2·(1 + 1/(ρ²t))·(x + ½·log(1 + ρ²t)) )

The estimated slope enters as in the fixed-time interval, by Fieller: z_t/√(1 − z_t²ρ_f²), ρ_f its relative error at
that look. A look at which the slope may still be zero has no bounded interval, and says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from privatile.errors import InputError
from privatile.inference.curve import FiellerLaw

RATE = 8.0
"""ρ²: tightest near the end of a run at 95%, where −2·log α + log(1 − 2·log α) = 7.9."""

REACHED = (
    (0.0, 1.0),
    (0.5, 0.753),
    (1.0, 0.622),
    (2.0, 0.471),
    (3.0, 0.375),
    (4.0, 0.306),
    (6.0, 0.2115),
    (8.0, 0.1505),
    (12.0, 0.0795),
    (16.0, 0.0435),
    (24.0, 0.0139),
)
"""x and R(x), from `studies/coverage/sequence.py`, two standard errors on top; between them log R is taken for straight
and beyond the last for constant, which errs on the wide side (it is convex, and falls)."""


def ever_reached(threshold: float) -> float:
    """e^−x·R(x): the chance that log M reaches x at any look of a run.

    >>> round(ever_reached(2.0), 3)  # e^-2 = 0.135 for ever
    0.064
    """
    if threshold <= 0.0:
        return 1.0
    for (low, first), (high, second) in pairwise(REACHED):
        if threshold <= high:
            part = (threshold - low) / (high - low)
            return math.exp((1.0 - part) * math.log(first) + part * math.log(second) - threshold)
    return math.exp(-threshold) * REACHED[-1][1]


def threshold(alpha: float) -> float:
    """The x that is reached with probability α.

    >>> round(ever_reached(threshold(0.05)), 9)
    0.05
    """
    low, high = 0.0, -math.log(alpha)
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if ever_reached(middle) > alpha else (low, middle)
    return high


def mixture_bound(time: float, confidence_level: float = 0.95) -> float:
    """z_t: standard errors either way at a look, valid at every look of a run.

    >>> round(mixture_bound(1.0), 3), round(mixture_bound(0.1), 3)
    (2.723, 3.348)
    """
    if not 0.0 < time <= 1.0:
        raise InputError(f"time is the share of the records that have answered, in (0, 1]; got {time!r}.")
    grown = 1.0 + RATE * time
    reach = threshold(max(1.0 - confidence_level, 1e-300)) + 0.5 * math.log(grown)
    return math.sqrt(2.0 * grown / (RATE * time) * reach)


def anytime_reach(time: float, slope_error: float, confidence_level: float = 0.95) -> float:
    """How many standard errors the sequence reaches either way; ∞ while the slope could be zero.

    >>> round(anytime_reach(1.0, 0.1), 3)
    2.83
    """
    return FiellerLaw(slope_error).stretched(mixture_bound(time, confidence_level))


@dataclass(frozen=True)
class SequenceLaw:
    """Quantiles and p-values of the sequence at one look, so that interval and test never disagree.

    >>> law = SequenceLaw(time=0.5, slope_error=0.1)
    >>> round(law.tail(law.quantile(0.95)), 6)
    0.05
    """

    time: float
    slope_error: float

    def quantile(self, confidence_level: float) -> float:
        """Standard errors either way."""
        return anytime_reach(self.time, self.slope_error, confidence_level)

    def tail(self, statistic: float) -> float:
        """The smallest α whose sequence excludes a value this many standard errors away."""
        z = statistic / math.sqrt(1.0 + (statistic * self.slope_error) ** 2)
        grown = 1.0 + RATE * self.time
        return ever_reached(0.5 * z * z * RATE * self.time / grown - 0.5 * math.log(grown))
