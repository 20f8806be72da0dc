"""Values declared to be multiples of a step: an interval becomes a short set of grid values.

The declaration says that every value is origin + k·step. Then the quantile is such a value too, and F is constant
between two of them. A low end c with F(c) < τ excludes every grid value up to c, so the first one above c is left; a
high end c with F(c) ≥ τ leaves the last one at or below c. The set is exactly as certain as the interval, given the
declaration: where values lie between the grid's, the quantile may be one of them and the set can miss it. So the
interval stands beside the set. Nothing of this is inferred from records.
"""

import math
from dataclasses import dataclass

from privatile.errors import InputError

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
                "Write values='whole', or values='step=1000'."
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
