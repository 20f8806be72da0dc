"""Anytime intervals: a confidence sequence, valid at every look and wherever the run stops (asymptotically).

Robbins' normal mixture: with time t = the share of the records that have answered, 0 < t ≤ 1, and z the standardised
error of an efficient estimate at that look,

    log M_t = ½·z²·ρ²t/(1 + ρ²t) − ½·log(1 + ρ²t)

M is a martingale that starts at 1. Without an end, it reaches e^x with probability e^−x (Ville). A run ends with its
last record: by t = 1 it has reached e^x with probability e^−x·R(x), R(x) the same chance under the mixture itself. This
is exact, and a tenth narrower. The z_t with e^−x·R(x) = α bound the error at all looks at once:

    z_t = √( 2·(1 + 1/(ρ²t))·(x + ½·log(1 + ρ²t)) )

A run without an end has its information I so far in the place of t, with ρ² = `RATE`/`TUNED`, and x = −log α (Ville).
At 95% z is then 3.3 at I = 6,000, and at most 3.7 from 300 to 60,000; `TAILS` and low information are in it.

The estimated slope enters as in the fixed-time interval, by Fieller: z_t/√(1 − z_t²ρ_f²), ρ_f its relative error at
that look. A look at which the slope may still be zero has no bounded interval.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from privatile.errors import InputError
from privatile.laws.ratio import fieller_reach, fieller_score, low_information_factor

RATE = 8.0
"""ρ²: tightest near the end of a run at 95%, where −2·log α + log(1 − 2·log α) = 7.9."""

TAILS = 1.05
"""Without an end the fit's errors beyond three standard errors are some three times as frequent as the normal law says
(1%), because the questions follow the answers. Measured: with this factor 400 runs each of normal values at τ = 0.5 and
of log-normal ones at τ = 0.8 are missed at any of 20 looks in .030 and .035; without it and the factor of low
information in .048 and .063 (s.e. .011). `studies/arrivals/constants.py` measures it again."""

STRADDLED = TAILS
"""The same for runs with a known end whose questions straddle the quantile (`studies/any_shape/stopped.py`)."""

TUNED = 1500.0
"""Information at which the sequence without an end is tightest."""

THRESHOLDS = np.array([0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0])
REACHED = np.array([1.0, 0.753, 0.622, 0.471, 0.375, 0.306, 0.2115, 0.1505, 0.0795, 0.0435, 0.0139])
"""x and R(x), from `studies/coverage/sequence.py`, two standard errors on top. Between them log R is taken as linear,
beyond the last as constant, which errs on the wide side (it is convex and decreasing)."""


def ever_reached(threshold: float) -> float:
    """e^−x·R(x): the chance that log M reaches x at any look of a run.

    >>> round(ever_reached(2.0), 3)  # e^-2 = 0.135 without an end
    0.064
    """
    return math.exp(float(np.interp(threshold, THRESHOLDS, np.log(REACHED))) - max(threshold, 0.0))


def threshold(alpha: float) -> float:
    """The x that is reached with probability α.

    >>> round(ever_reached(threshold(0.05)), 9)
    0.05
    """
    wanted, known = -math.log(alpha), THRESHOLDS - np.log(REACHED)
    return float(np.interp(wanted, known, THRESHOLDS)) + max(0.0, wanted - float(known[-1]))


def log_mixture(z: Any, time: float) -> Any:
    """log M_t for a standardised error z; a number, or an array of many."""
    grown = 1.0 + RATE * time
    return 0.5 * z * z * RATE * time / grown - 0.5 * math.log(grown)


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


@dataclass(frozen=True)
class AnytimeLaw:
    """Quantiles and p-values of the sequence at one look, so that interval and test never disagree.

    >>> law = AnytimeLaw(time=0.5, slope_error=0.1)
    >>> round(law.tail(law.quantile(0.95)), 6)
    0.05
    """

    time: float
    slope_error: float
    wider: float = 1.0
    """By how much the estimate's errors exceed the normal law's."""

    def quantile(self, confidence_level: float) -> float:
        """Standard errors either way; ∞ while the slope may be zero."""
        return float(fieller_reach(self.wider * mixture_bound(self.time, confidence_level), self.slope_error))

    def tail(self, statistic: float) -> float:
        """The smallest α whose sequence excludes a value this many standard errors away."""
        return ever_reached(log_mixture(fieller_score(statistic, self.slope_error) / self.wider, self.time))


@dataclass(frozen=True)
class OpenAnytimeLaw:
    """The same for a run without an end, at a look with so much information.

    >>> law = OpenAnytimeLaw(information=6000.0, slope_error=0.0)
    >>> round(law.quantile(0.95), 3), round(law.tail(law.quantile(0.9)), 6)
    (3.306, 0.1)
    """

    information: float
    slope_error: float

    @property
    def _time(self) -> float:
        return max(self.information, 1e-9) / TUNED

    @property
    def _wider(self) -> float:
        return TAILS * float(low_information_factor(max(self.information, 1e-9)))

    def quantile(self, confidence_level: float) -> float:
        """Standard errors either way; ∞ while the slope may be zero."""
        grown = 1.0 + RATE * self._time
        reach = -math.log(max(1.0 - confidence_level, 1e-300)) + 0.5 * math.log(grown)
        z = math.sqrt(2.0 * grown / (RATE * self._time) * reach) * self._wider
        return float(fieller_reach(z, self.slope_error))

    def tail(self, statistic: float) -> float:
        """The smallest α whose sequence excludes a value this many standard errors away."""
        z = fieller_score(statistic, self.slope_error) / self._wider
        return min(1.0, math.exp(-float(log_mixture(z, self._time))))
