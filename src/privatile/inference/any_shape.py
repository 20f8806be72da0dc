"""The any-shape interval: valid for every distribution, with gaps, heaps and atoms, and at every look.

Each side has candidate ends with running tests (`estimator.candidates`): S, the budget B that is left, and M, the
largest S so far. For a fixed quantile Q the smallest candidate at or above Q carries one martingale whose clock 1 − B
never passes 1 and whose drift is at most 0, whatever the distribution and whichever questions came. By reflection,
one side errs with

    P(S reaches Z₂, or ends at Z₁ or above with B = 0) ≤ Φ̄(Z₁) + Φ̄(2Z₂ − Z₁)

Both parts are fixed shares of the side's error a = α/2: Φ̄(Z₁) = 0.95·a and Φ̄(2Z₂ − Z₁) = 0.05·a. So the critical
values of all levels are nested (95%: Z₁ = 1.982, Z₂ = 2.503), and a p-value is found by inverting the interval.

The end of a side is found from outside: from the outermost candidate inwards, the last one before the first that is not
accepted. The innermost accepted candidate instead would choose the best of many tests and is not valid.

`exact=True` needs no normal law: a round's answer is a mean of bits, so it is sub-Gaussian with its own variance
bound 1/p, and exp(λS − λ²(1 − B)/2) is a supermartingale. With λ = √(2·log(1/a)) a candidate is accepted where M ≥ λ,
or now S ≥ λ(1 − B/2) (Ville). At 95% λ = 2.716: about 1.15 times as wide. Runs with few effective answers use it, and
1/p is then the plain bound, not `level_variance` (`estimator.exact_tests`).
Runs without a known end have bets in the place of budgets (`estimator.open_candidates`), which are valid in the same
exact sense.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from privatile.core.arrays import Floats, array_namespace
from privatile.estimator.candidates import Candidates
from privatile.estimator.open_candidates import OpenCandidates
from privatile.laws.normal import one_sided_z

EARLY = 0.05
"""Share of a side's error that is spent on acceptance before the budget is used up."""

CHECKED_AT = 0.95
"""Confidence of the interval that an estimate is moved into, and that a smooth centre must lie in."""

CROSSED_AT = 0.5
"""Ends that cross at this confidence are both inside the interval of every level. By chance that is rare: in none of
500 runs each of normal values with 700 and 4,000 records."""


def critical_values(alpha: float) -> tuple[float, float]:
    """Z₁ and Z₂ of one side whose error is `alpha`.

    >>> [round(value, 3) for value in critical_values(0.025)], [round(value, 2) for value in critical_values(0.005)]
    ([1.982, 2.503], [2.59, 3.04])
    """
    final = one_sided_z((1.0 - EARLY) * alpha)
    return final, 0.5 * (final + one_sided_z(EARLY * alpha))


def accepted_at(tests: Candidates, alpha: float, *, exact: bool = False) -> Any:
    """Runs × 2 × room: which candidates are accepted where one side's error is `alpha`."""
    if exact:
        return exact_scores(tests) >= math.sqrt(-2.0 * math.log(alpha))
    final, early = critical_values(alpha)
    return (tests.peaks >= early) | ((tests.scores >= final) & (tests.budgets == 0.0))


def exact_scores(tests: Candidates) -> Floats:
    """What a candidate has reached on the scale of λ: the largest of M and S/(1 − B/2)."""
    xp = array_namespace(tests.scores)
    reached: Floats = xp.maximum(tests.peaks, tests.scores / (1.0 - 0.5 * tests.budgets))
    return reached


def ends_of(tests: Candidates, confidence_level: float, *, exact: bool = False) -> tuple[Floats, Floats]:
    """Both ends of every run: the hull from outside; ∓∞ on a side without an accepted outermost candidate.

    >>> from privatile.estimator.candidates import no_candidates
    >>> tests = no_candidates(1, 4)
    >>> places, scores, budgets = tests.places.copy(), tests.scores.copy(), tests.budgets.copy()
    >>> places[0, 0, :3], scores[0, 0, :3], budgets[0, 0, :3] = (1.0, 2.0, 3.0), (2.2, 1.1, 2.4), 0.0
    >>> done = tests._replace(places=places, scores=scores, budgets=budgets)
    >>> [float(end[0]) for end in ends_of(done, 0.95)]  # 2.0 is not accepted, so 3.0 does not count
    [1.0, inf]
    """
    return hull_from_outside(tests.places, accepted_at(tests, 0.5 * (1.0 - confidence_level), exact=exact))


def open_ends_of(bets: OpenCandidates, confidence_level: float) -> tuple[Floats, Floats]:
    """Both ends of every run without a known end: a candidate is accepted once its bet has reached 1/a (Ville)."""
    return hull_from_outside(bets.places, bets.peaks >= -math.log(0.5 * (1.0 - confidence_level)))


def hull_from_outside(places: Floats, accepted: Any) -> tuple[Floats, Floats]:
    """From the outermost candidate inwards, the last of an unbroken row of accepted ones: runs × 2 × room in."""
    xp = array_namespace(places)
    order = xp.argsort(places, axis=2)
    ordered = xp.take_along_axis(places, order, axis=2)
    unbroken = xp.cumsum(~xp.take_along_axis(accepted, order, axis=2), axis=2) == 0
    ends = xp.where(unbroken & xp.isfinite(ordered), ordered, -xp.inf).max(axis=2)
    return ends[:, 0], -ends[:, 1]


@dataclass(frozen=True, eq=False)
class AnyShape:
    """The any-shape interval of one run, or of many, from their tests: ends at every confidence level."""

    tests: Candidates | OpenCandidates
    """Of one run: the first axis has length 1. Without a known end they are bets."""
    exact: bool = False
    """By Ville's inequality instead of the normal law; bets always are."""

    def with_boundaries_moved(self, share: float) -> "AnyShape":
        """The same with every score a share larger, or, below zero, smaller: an end that differs was a near one."""
        factor, tests = 1.0 + share, self.tests
        if isinstance(tests, OpenCandidates):
            return replace(self, tests=tests._replace(peaks=tests.peaks * factor))
        return replace(self, tests=tests._replace(scores=tests.scores * factor, peaks=tests.peaks * factor))

    def every_end(self, confidence_level: float) -> tuple[Floats, Floats]:
        """Both ends of every run that the tests are of; infinite on a side that is not bounded."""
        if isinstance(self.tests, OpenCandidates):
            return open_ends_of(self.tests, confidence_level)
        return ends_of(self.tests, confidence_level, exact=self.exact)

    def ends(self, confidence_level: float) -> tuple[float, float]:
        """Both ends of one run."""
        low, high = self.every_end(confidence_level)
        return float(low[0]), float(high[0])

    def crossed(self, confidence_level: float) -> Any:
        """In which runs the answers contradict each other: the low end is above the high one."""
        low, high = self.every_end(confidence_level)
        return low > high

    def around(self, centers: Floats) -> tuple[Floats, Callable[[float], tuple[Floats, Floats]]]:
        """An estimate inside the interval of every run, and ends at every level that hold it.

        The estimate is the given centre, moved into the interval of `CHECKED_AT`. Ends that cross contradict each
        other: the interval is then the hull of both, never a single point. The intervals widen with the confidence.

        >>> import numpy as np
        >>> from privatile.estimator.candidates import no_candidates
        >>> tests = no_candidates(1, 2)
        >>> places, peaks = tests.places.copy(), tests.peaks.copy()
        >>> places[0, :, 0], peaks[0, :, 0] = (2.0, -1.0), 9.0  # above 2 and at or below 1
        >>> inside, ends = AnyShape(tests._replace(places=places, peaks=peaks)).around(np.array([1.2]))
        >>> [float(value[0]) for value in (inside, *ends(0.95))]
        [1.2, 1.0, 2.0]
        """
        xp = array_namespace(centers)
        low, high = self.every_end(CHECKED_AT)
        inside = xp.minimum(xp.maximum(centers, xp.minimum(low, high)), xp.maximum(low, high))
        first, last = self.every_end(CROSSED_AT)
        least = xp.where(first > last, xp.minimum(last, inside), inside)
        most = xp.where(first > last, xp.maximum(first, inside), inside)

        def ends(level: float) -> tuple[Floats, Floats]:
            low, high = self.every_end(level)
            return xp.minimum(low, least), xp.maximum(high, most)

        return inside, ends
