"""Intervals for every distribution: the any-shape interval, the bracket of questions, the values of a grid.

The any-shape interval: valid for every distribution, with gaps, heaps and atoms, and at every look.

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

The questions between which the quantile lies: an interval that needs no smooth distribution.

Values declared to be multiples of a step: an interval becomes a short set of grid values.

The declaration says that every value is origin + k·step. Then the quantile is such a value too, and F is constant
between two of them. A low end c with F(c) < τ excludes every grid value up to c, so the first one above c is left; a
high end c with F(c) ≥ τ leaves the last one at or below c. The set is exactly as certain as the interval, given the
declaration: where values lie between the grid's, the quantile may be one of them and the set can miss it. So the
interval stands beside the set. Nothing of this is inferred from records.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privatile.core.arrays import Floats, array_namespace
from privatile.errors import InputError
from privatile.estimator.candidates import Candidates
from privatile.estimator.open_ended import OpenCandidates
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
    """The declared values origin + k·step.

    >>> Grid(1.0).values(43.8, 45.3), Grid(1000.0).values(47_930.0, 50_390.0)
    ((44.0, 45.0), (48000.0, 49000.0, 50000.0))
    """

    step: float
    origin: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 < self.step < math.inf or not math.isfinite(self.origin):
            raise InputError(
                f"the step of declared values must be a positive number; got step {self.step!r} from {self.origin!r}. "
                "Write value_kind='whole', or value_kind='step=1000'."
            )

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

    def values(self, low: float, high: float, most: int = 1000) -> tuple[float, ...]:
        """The grid values that the interval leaves; refused where there are more than `most`, or no end."""
        if self.contradicted(low, high):
            return ()
        number = self.count(low, high)
        if number > most:
            raise InputError(f"the interval leaves {number:g} grid values, more than {most}: show its ends instead.")
        first, _ = self.ends(low, high)
        return tuple(self._value(round((first - self.origin) / self.step) + k) for k in range(int(number)))

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
        """An end in steps from the origin, and how far rounding may move it; infinite where no number can hold it."""
        return (end - self.origin) / self.step, SLACK * max(abs(end), abs(self.origin)) / self.step

    def _value(self, index: float) -> float:
        return index if math.isinf(index) else self.origin + index * self.step
