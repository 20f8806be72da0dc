"""Working scales: monotone maps, so that the user's units never meet the step size.

The recursion moves q on the working scale; questions, estimates and interval ends are mapped back. A monotone map
changes no comparison: x > q in units iff its image is above the image of q, so records need no mapping at all.

Every scale carries the range [low, high] that the estimand is known to lie in; q is clipped to it after each
aggregation (the paper's bounded Θ).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from privatile.errors import InputError, OptionError

ScaleName = Literal["identity", "linear", "log", "logit"]

WIDTH = 8.0
"""A linear range is mapped to [−4, 4]: a spread of an eighth of the range becomes 1, what the paper's steps suit."""

LOGIT_END = math.log(2.0**20 - 1.0)
"""The logit scale ends at 2⁻²⁰ of the range from either end, where its slope would outgrow any sample."""

SMALLEST, LARGEST = 1e-100, 1e100
"""A range is at least so wide and reaches at most so far: squares and densities stay inside the doubles."""

NARROWEST = 1e-6
"""Least width of a range as a share of its distance from zero, in units and on the working scale: ten digits of a
double are left to place a question in it. Two machines that round otherwise then ask the same: of 24 runs of design
auto at each width, written with AVX-512 and read with SSE, one was refused at 1e-8, none at 1e-7 and above."""

LAST_BITS = 4
"""Roundings by which the functions of two C libraries may differ: each promises one or two."""


@dataclass(frozen=True)
class Scale(ABC):
    """A monotone map between units and the working scale, over a range in units."""

    low: float
    high: float
    name: ClassVar[ScaleName]

    def __post_init__(self) -> None:
        low, high = self.low, self.high
        if math.inf > low > high > -math.inf:
            fix = f"Give the low end first: range=({high:.10g}, {low:.10g})."
            raise OptionError("range", f"must rise, low < high; got {low:.10g} {high:.10g}. {fix}")
        if not (math.isfinite(low) and math.isfinite(high) and low < high and math.isfinite(2.0 * (high - low))):
            fix = "State where the quantile can lie: range=(LOW, HIGH)."
            raise OptionError("range", f"must be two finite numbers, low < high; got {low!r} {high!r}. {fix}")
        if not (high - low >= SMALLEST and max(abs(low), abs(high)) <= LARGEST):
            rule = f"must be at least {SMALLEST:g} wide and lie within ±{LARGEST:g}"
            raise OptionError("range", f"{rule}; got {low!r} {high!r}. Give the data in other units.")
        self._check_width(low, high)

    def _check_width(self, low: float, high: float) -> None:
        """Refuse ends, in units or on the working scale, that share almost all of their digits."""
        if not high - low >= NARROWEST * max(abs(low), abs(high)):
            raise OptionError(
                "range",
                f"is too narrow for its distance from zero: {self.low!r} to {self.high!r} differ by less than "
                f"{NARROWEST:g} of their size on the {self.name} scale, and doubles cannot place a question in it "
                "finely enough. Subtract a constant from the data, or widen it.",
            )

    @abstractmethod
    def to_working(self, value: float) -> float:
        """From units."""

    @abstractmethod
    def to_units(self, value: float) -> float:
        """Back to units; beyond the range too, where a client's own steps may lead (`units_inside` cuts)."""

    def rounding(self, value: float) -> float:
        """How far apart two machines may compute `to_units` at a working value.

        Nothing for plain arithmetic, which every machine rounds alike; their functions (`exp`, `log`) differ.
        """
        return 0.0

    def end_rounding(self) -> float:
        """How far apart two machines may compute the ends of the range on the working scale."""
        return 0.0

    @abstractmethod
    def slope(self, value: float) -> float:
        """Derivative of `to_units` at a working value: working widths times this are widths in units."""


def working_range(scale: Scale) -> tuple[float, float]:
    """Ends of the range on the working scale.

    >>> working_range(Linear(0.0, 100.0))
    (-4.0, 4.0)
    """
    return scale.to_working(scale.low), scale.to_working(scale.high)


def clip(scale: Scale, value: float) -> float:
    """A working value, moved to the nearest point of the range."""
    low, high = working_range(scale)
    return min(max(value, low), high)


def units_inside(scale: Scale, value: float) -> float:
    """`to_units`, cut at the range: a question at the end must not lie a rounding beyond it, where sites refuse it.

    >>> Log(1.0, 1e5).to_units(math.log(1e5)) > 1e5, units_inside(Log(1.0, 1e5), math.log(1e5))
    (True, 100000.0)
    """
    return min(max(scale.to_units(value), scale.low), scale.high)


@dataclass(frozen=True)
class Identity(Scale):
    """Units are the working scale; the range only clips."""

    name = "identity"

    def to_working(self, value: float) -> float:
        """The same number."""
        return value

    def to_units(self, value: float) -> float:
        """The same number."""
        return value

    def slope(self, value: float) -> float:
        """One."""
        return 1.0


@dataclass(frozen=True)
class Linear(Scale):
    """[low, high] mapped to [−4, 4].

    >>> Linear(0.0, 80.0).to_units(Linear(0.0, 80.0).to_working(25.0))
    25.0
    """

    name = "linear"

    def to_working(self, value: float) -> float:
        """8·(x − middle)/(high − low)."""
        return ((value - self.low) - (self.high - value)) / (self.high - self.low) * (WIDTH / 2)

    def to_units(self, value: float) -> float:
        """middle + w·(high − low)/8."""
        return self.low + (self.high - self.low) * (value / WIDTH + 0.5)

    def slope(self, value: float) -> float:
        """(high − low)/8."""
        return (self.high - self.low) / WIDTH


@dataclass(frozen=True)
class Log(Scale):
    """Natural logarithm, for positive quantities over decades.

    >>> round(Log(1e3, 1e6).to_units(Log(1e3, 1e6).to_working(50_000.0)), 6)
    50000.0
    """

    name = "log"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low <= 0:
            raise InputError(
                f"a log scale needs a range above 0; got low = {self.low!r}. Raise it, or leave out scale='log'."
            )
        if self.low < SMALLEST:
            raise InputError(
                f"a log scale needs a range above {SMALLEST:g}; got low = {self.low!r}. Give the data in other units."
            )
        self._check_width(*working_range(self))

    def to_working(self, value: float) -> float:
        """ln x."""
        return math.log(value)

    def to_units(self, value: float) -> float:
        """e^w; beyond the largest double, infinity."""
        return math.exp(value) if value < 709.0 else math.inf

    def slope(self, value: float) -> float:
        """e^w."""
        return self.to_units(value)

    def rounding(self, value: float) -> float:
        """Some last bits of e^w."""
        return LAST_BITS * math.ulp(self.to_units(value))

    def end_rounding(self) -> float:
        """Some last bits of ln."""
        return LAST_BITS * math.ulp(max(abs(end) for end in working_range(self)))


@dataclass(frozen=True)
class Logit(Scale):
    """log((x − low)/(high − x)), for shares and scores that live strictly between two ends.

    >>> round(Logit(0.0, 1.0).to_units(Logit(0.0, 1.0).to_working(0.9)), 12)
    0.9
    """

    name = "logit"

    def to_working(self, value: float) -> float:
        """The logit of the position in the range, cut at 2⁻²⁰ from either end."""
        above, below = value - self.low, self.high - value
        if above <= 0 or below <= 0:
            return -LOGIT_END if above <= 0 else LOGIT_END
        return min(max(math.log(above / below), -LOGIT_END), LOGIT_END)

    def to_units(self, value: float) -> float:
        """low + (high − low)/(1 + e^−w)."""
        if value >= 0:
            return self.low + (self.high - self.low) / (1.0 + math.exp(-min(value, 700.0)))
        odds = math.exp(max(value, -700.0))
        return self.low + (self.high - self.low) * odds / (1.0 + odds)

    def slope(self, value: float) -> float:
        """(high − low)·s(1 − s), s the logistic function of w."""
        share = 1.0 / (1.0 + math.exp(-min(max(value, -700.0), 700.0)))
        return (self.high - self.low) * share * (1.0 - share)

    def rounding(self, value: float) -> float:
        """Some last bits of the distance from the low end, which the functions give, and of the sum."""
        units = self.to_units(value)
        return LAST_BITS * (math.ulp(units - self.low) + math.ulp(units))

    def end_rounding(self) -> float:
        """Some last bits of `LOGIT_END`."""
        return LAST_BITS * math.ulp(LOGIT_END)


def check_range(low: float, high: float) -> None:
    """Refuse what is no range on any scale."""
    Identity(low, high)


SCALES: dict[str, type[Scale]] = {kind.name: kind for kind in (Identity, Linear, Log, Logit)}


def make_scale(name: str, low: float, high: float) -> Scale:
    """The scale of that name over a range.

    >>> make_scale("log", 1, 10).name
    'log'
    >>> make_scale("cubic", 1, 10)
    Traceback (most recent call last):
    ...
    privatile.errors.OptionError: scale must be one of identity, linear, log, logit; got 'cubic'.
    >>> make_scale("linear", 80, 0)
    Traceback (most recent call last):
    ...
    privatile.errors.OptionError: range must rise, low < high; got 80 0. Give the low end first: range=(0, 80).
    """
    if name not in SCALES:
        raise OptionError("scale", f"must be one of {', '.join(SCALES)}; got {name!r:.60}.")
    return SCALES[name](float(low), float(high))
