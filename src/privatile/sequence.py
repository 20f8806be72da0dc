"""Intervals that may be watched: a confidence sequence, valid at every look and at any stop (asymptotically).

Robbins' normal mixture: with time t = the share of the records that have answered, 0 < t ≤ 1,

    z_t = √( 2·(1 + 1/(ρ²t))·log(√(1 + ρ²t)/α) ),   ρ² = −2·log α + log(1 − 2·log α)

bounds the standardised error of an efficient estimate for all t at once with probability 1 − α; ρ makes it tightest at
t = 1. The estimated slope enters as in the fixed-time interval, by Fieller: z_t/√(1 − z_t²ρ_f²), ρ_f its relative error
at that look. A look at which the slope may still be zero has no bounded interval, and says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from privatile.curve import FiellerLaw
from privatile.errors import InputError


def mixture_bound(time: float, confidence_level: float = 0.95) -> float:
    """z_t: standard errors either way at a look, for ever valid.

    >>> round(mixture_bound(1.0), 3), round(mixture_bound(0.1), 3)
    (3.035, 3.855)
    """
    if not 0.0 < time <= 1.0:
        raise InputError(f"time is the share of the records that have answered, in (0, 1]; got {time!r}.")
    alpha = max(1.0 - confidence_level, 1e-300)
    rate = -2.0 * math.log(alpha) + math.log(1.0 - 2.0 * math.log(alpha))
    grown = 1.0 + rate * time
    return math.sqrt(2.0 * grown / (rate * time) * math.log(math.sqrt(grown) / alpha))


def anytime_reach(time: float, slope_error: float, confidence_level: float = 0.95) -> float:
    """How many standard errors the sequence reaches either way; ∞ while the slope could be zero.

    >>> round(anytime_reach(1.0, 0.1), 3)
    3.185
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
        """The smallest α whose sequence excludes a value this many standard errors away, by bisection."""
        low, high = 1e-300, 1.0 - 1e-9
        if self.quantile(1.0 - high) >= statistic:
            return 1.0
        for _ in range(200):
            middle = math.sqrt(low * high)
            if self.quantile(1.0 - middle) >= statistic:
                low = middle
            else:
                high = middle
        return high
