"""Intervals for every distribution: the any-shape interval, the bracket of questions, the values of a grid.

The any-shape interval: valid for every distribution, with gaps, heaps and atoms, and at every look.

Each side has candidate ends with running tests (`straddle.Candidates`): S, the budget B that is left, and M, the
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
1/p is then the plain bound, not `level_variance` (`estimator.pools`).
Runs without a known end have bets in the place of budgets (`open_ended.Bets`), which are valid in the same exact sense.

The questions between which the quantile lies: an interval that needs no smooth distribution.

Values declared to be multiples of a step: an interval becomes a short set of grid values.

The declaration says that every value is k·step. Then the quantile is such a value too, and F is constant
between two of them. A low end c with F(c) < τ excludes every grid value up to c, so the first one above c is left; a
high end c with F(c) ≥ τ leaves the last one at or below c. The set is exactly as certain as the interval, given the
declaration: where values lie between the grid's, the quantile may be one of them and the set can miss it. So the
interval stands beside the set. Nothing of this is inferred from records.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from privatile.core.arrays import Flags, Floats
from privatile.estimator.open_ended import Bets
from privatile.estimator.straddle import Candidates
from privatile.inference.anytime import mixture_bound
from privatile.laws.ratio import one_sided_z

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


def accepted_at(candidates: Candidates, alpha: float, *, exact: bool = False) -> Flags:
    """Which candidates of a side are accepted where its error is `alpha`."""
    if exact:
        reached: Flags = exact_scores(candidates) >= math.sqrt(-2.0 * math.log(alpha))
        return reached
    final, early = critical_values(alpha)
    accepted: Flags = (candidates.peaks >= early) | ((candidates.scores >= final) & (candidates.budgets == 0.0))
    return accepted


def exact_scores(candidates: Candidates) -> Floats:
    """What a candidate has reached on the scale of λ: the largest of M and S/(1 − B/2)."""
    return np.maximum(candidates.peaks, candidates.scores / (1.0 - 0.5 * candidates.budgets))


def hull_from_outside(places: Floats, accepted: Flags) -> float:
    """From the outermost candidate inwards, the last of an unbroken row of accepted ones; −∞ without one.

    >>> hull_from_outside(np.array([1.0, 2.0, 3.0, np.inf]), np.array([True, False, True, False]))
    1.0
    """
    end = -math.inf
    for c in np.argsort(places):
        if not accepted[c] or math.isinf(places[c]):
            break
        end = float(places[c])
    return end


@dataclass(frozen=True, eq=False)
class AnyShape:
    """The any-shape interval of one run from its tests: ends at every confidence level."""

    sides: tuple[Candidates | Bets, Candidates | Bets]
    """Low and high."""
    exact: bool = False
    """By Ville's inequality instead of the normal law; bets always are."""

    def with_boundaries_moved(self, share: float) -> "AnyShape":
        """The same with every score a share larger, or, below zero, smaller: an end that differs was a near one."""
        factor = 1.0 + share

        def moved(side: Candidates | Bets) -> Candidates | Bets:
            if isinstance(side, Bets):
                return replace(side, peaks=side.peaks * factor)
            return replace(side, scores=side.scores * factor, peaks=side.peaks * factor)

        return replace(self, sides=(moved(self.sides[0]), moved(self.sides[1])))

    def ends(self, confidence_level: float) -> tuple[float, float]:
        """Both ends: the hull from outside; infinite on a side without an accepted outermost candidate.

        A bet is accepted once it has reached 1/a (Ville).
        """
        alpha = 0.5 * (1.0 - confidence_level)
        low, high = (
            hull_from_outside(
                side.places,
                side.peaks >= -math.log(alpha)
                if isinstance(side, Bets)
                else accepted_at(side, alpha, exact=self.exact),
            )
            for side in self.sides
        )
        return low, -high

    def crossed(self, confidence_level: float) -> bool:
        """Whether the answers contradict each other: the low end is above the high one."""
        low, high = self.ends(confidence_level)
        return low > high

    def around(self, center: float) -> tuple[float, Callable[[float], tuple[float, float]]]:
        """An estimate inside the interval, and ends at every level that hold it.

        The estimate is the given centre, moved into the interval of `CHECKED_AT`. Ends that cross contradict each
        other: the interval is then the hull of both, never a single point. The intervals widen with the confidence.
        """
        low, high = sorted(self.ends(CHECKED_AT))
        inside = min(max(center, low), high)
        first, last = self.ends(CROSSED_AT)
        least, most = (min(last, inside), max(first, inside)) if first > last else (inside, inside)

        def ends(level: float) -> tuple[float, float]:
            low, high = self.ends(level)
            return min(low, least), max(high, most)

        return inside, ends


CUTS = (0.15, 0.3, 0.5, 0.7, 0.85)
"""Shares of the precision at which `Bracket` cuts the sorted questions."""

FAR_CUTS = (0.2, 0.7, 1.5, 6.0, 40.0)
"""Distances from the estimate at which it cuts as well, in reaches of the probes: all probes of one side are in one
group."""


class Bracket:
    """Between which questions the quantile lies, for any distribution, with atoms or gaps.

    F never falls. Where the answers to a stretch of questions average τ − F > 0 beyond chance, the lowest of them lies
    below Q; where they average τ − F < 0, the highest lies at or above. All stretches of neighbouring groups on one
    side of the estimate are tried, with a Bonferroni correction for their number. `center` and `reach` (that of the
    probes) only place the groups.

    Answers may be those of several clients: `residuals` and `precisions` are rounds × clients, a precision 0 where a
    client was silent. No client's F falls, so the mean of its own answers stands for it in a stretch, Σp_k·ȳ_k with the
    `weights` p_k; where a client has none there, the stretch says nothing.

    At a look that was chosen while looking, every stretch has Robbins' bound in the place of the normal value: its sum
    is one of answers whose questions were known before they came, and its clock is its share of the precision of all
    records. Where the groups lie follows the answers, at the planned end as at every look: that is measured
    (`tests/statistical/test_stopped.py`), not proven.
    """

    def __init__(
        self, queries: Floats, residuals: Floats, precisions: Floats, weights: Floats, center: float, reach: float
    ) -> None:
        order = np.argsort(queries, kind="stable")
        asked, answered, precise = queries[order], residuals[order], precisions[order]
        precision = precise.sum(axis=1)
        before = (np.cumsum(precision) - 0.5 * precision) / precision.sum()
        far = np.array(FAR_CUTS) * reach
        # Rounds of equal length lie exactly on a cut: rounding must not decide on which side.
        group = np.searchsorted(np.array(CUTS) + 1e-9, before) + np.searchsorted(
            np.concatenate([center - far[::-1], center + far]), asked
        )
        parts = [np.flatnonzero(group == k) for k in np.unique(group)]
        sums = np.array([(precise[part] * answered[part]).sum(axis=0) for part in parts])
        totals = np.array([precise[part].sum(axis=0) for part in parts])
        middle = min(int(np.searchsorted([asked[part[-1]] for part in parts], center)), len(parts) - 1)

        def tested(first: int, last: int) -> tuple[float, float]:
            """How many standard errors the mean of a stretch lies above zero, and its clock."""
            total = totals[first : last + 1].sum(axis=0)
            if not bool((total > 0.0).all()):
                return math.nan, 0.0  # beyond nothing, on either side
            variance = float((weights**2 / total).sum())
            mean = weights @ (sums[first : last + 1].sum(axis=0) / total)
            return float(mean / math.sqrt(variance)), float((weights**2 / totals.sum(axis=0)).sum() / variance)

        # Stretches that reach beyond the estimate's own group to its other side would only be diluted by it.
        below = [(first, last) for first in range(middle + 1) for last in range(first, middle + 1)]
        above = [(first, last) for last in range(middle, len(parts)) for first in range(middle, last + 1)]
        scores, clocks = zip(*(tested(*stretch) for stretch in (*below, *above)), strict=True)
        lows, highs = scores[: len(below)], scores[len(below) :]
        self._below = [(float(asked[parts[first][0]]), score) for (first, _), score in zip(below, lows, strict=True)]
        self._above = [(float(asked[parts[last][-1]]), -score) for (_, last), score in zip(above, highs, strict=True)]
        self._clocks = list(clocks)

    def ends(self, confidence_level: float) -> tuple[float, float]:
        """Both ends at the planned end of a run; infinite on a side where no question was beyond chance."""
        least = one_sided_z((1.0 - confidence_level) / len(self._clocks))
        return self._beyond([least] * len(self._clocks))

    def ends_at_every_look(self, confidence_level: float, asked_share: float) -> tuple[float, float]:
        """Both ends, valid however often it is looked at; `asked_share` of all records have been asked."""
        each = 1.0 - 2.0 * (1.0 - confidence_level) / len(self._clocks)
        shares = [min(clock * asked_share, 1.0) for clock in self._clocks]
        return self._beyond([mixture_bound(share, each) if share > 0.0 else math.inf for share in shares])

    def _beyond(self, least: list[float]) -> tuple[float, float]:
        lows, highs = least[: len(self._below)], least[len(self._below) :]
        low = max((at for (at, score), z in zip(self._below, lows, strict=True) if score > z), default=-math.inf)
        high = min((at for (at, score), z in zip(self._above, highs, strict=True) if score > z), default=math.inf)
        return (low, high) if low <= high else (high, low)


SLACK = 1e-14
"""Of an end: rounding may move it, or a grid value, by less. What is this close to an end is left, unless it is the low
end itself."""


@dataclass(frozen=True)
class Grid:
    """The declared values, multiples of a positive step.

    >>> Grid(1.0).values(43.8, 45.3), Grid(1000.0).values(47_930.0, 50_390.0)
    ((44.0, 45.0), (48000.0, 49000.0, 50000.0))
    """

    step: float

    def ends(self, low: float, high: float) -> tuple[float, float]:
        """The first and the last grid value that the interval leaves; an infinite end stays infinite.

        `low` is a question that lies below the quantile, `high` one that lies at or above it. Where no grid value lies
        between them, the declaration is contradicted: there is no set, and both are NaN.

        >>> Grid(1.0).ends(43.0, 45.0)  # "the quantile is above 43" leaves 44
        (44.0, 45.0)
        >>> Grid(1.0).ends(5.0 - 1e-11, 5.0 + 1e-11)  # where many share a value the ends close on it
        (5.0, 5.0)
        >>> Grid(1.0).ends(43.2, 43.7)
        (nan, nan)
        """
        first, last = self._first(low), self._last(high)
        return (self._value(first), self._value(last)) if first <= last else (math.nan, math.nan)

    def inside(self, low: float, high: float, lowest: float, highest: float) -> tuple[float, float]:
        """The ends to take for an interval that is cut at a stated range: both infinite where nothing is bounded.

        An end of the range may be the quantile itself; a low end that is a question is excluded. So the low end of the
        range counts as just below itself. Results and simulations both read a set through this.

        >>> grid = Grid(1.0)
        >>> grid.values(*grid.inside(-math.inf, 1.5, 0.0, 120.0)), grid.values(*grid.inside(118.2, 130.0, 0.0, 120.0))
        ((0.0, 1.0), (119.0, 120.0))
        >>> grid.inside(0.0, math.inf, 0.0, 120.0)
        (-inf, inf)
        """
        low, high = max(low, lowest), min(high, highest)
        if (low, high) == (lowest, highest):
            return -math.inf, math.inf
        return (math.nextafter(lowest, -math.inf) if low == lowest else low), high

    def contradicted(self, low: float, high: float) -> bool:
        """Whether no grid value lies between the ends: then not all values can be on the grid.

        >>> Grid(1.0).contradicted(43.2, 43.7), Grid(1.0).contradicted(43.2, 44.0)
        (True, False)
        >>> Grid(1e300).contradicted(43.2, 43.7), Grid(5e-324).count(43.2, 43.7)
        (True, inf)
        """
        return self._first(low) > self._last(high)

    def count(self, low: float, high: float) -> float:
        """How many grid values the interval leaves; ∞ where an end is not bounded, NaN where it is contradicted."""
        first, last = self.ends(low, high)
        return round((last - first) / self.step) + 1 if math.isfinite(last - first) else last - first

    def values(self, low: float, high: float) -> tuple[float, ...]:
        """The grid values that the interval leaves; its ends are finite."""
        return tuple(self._value(k) for k in range(int(self._first(low)), int(self._last(high)) + 1))

    def _first(self, low: float) -> float:
        """Index of the first grid value that a low end leaves."""
        if math.isinf(low):
            return -math.inf
        place, slack = self._place(low)
        if math.isinf(place):
            return -math.inf
        nearest = round(place)
        if abs(place - nearest) <= slack:
            return nearest if low != self._value(nearest) else nearest + 1
        return math.floor(place) + 1

    def _last(self, high: float) -> float:
        """Index of the last one that a high end leaves."""
        place, slack = self._place(high)
        return math.inf if math.isinf(place) else math.floor(place + slack)

    def _place(self, end: float) -> tuple[float, float]:
        """An end in steps, and how far rounding may move it; infinite where no number can hold it."""
        return end / self.step, SLACK * abs(end) / self.step

    def _value(self, index: float) -> float:
        return index if math.isinf(index) else index * self.step
