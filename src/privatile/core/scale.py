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

from privatile.errors import InputError

ScaleName = Literal["identity", "linear", "log", "logit"]

WIDTH = 8.0
"""A linear range is mapped to [−4, 4]: a spread of an eighth of the range becomes 1, what the paper's steps suit."""

LOGIT_END = math.log(2.0**20 - 1.0)
"""The logit scale ends at 2⁻²⁰ of the range from either end, where its slope would outgrow any sample."""


@dataclass(frozen=True)
class Scale(ABC):
    """A monotone map between units and the working scale, over a range in units."""

    low: float
    high: float
    name: ClassVar[ScaleName]

    def __post_init__(self) -> None:
        low, high = self.low, self.high
        if not (math.isfinite(low) and math.isfinite(high) and low < high and math.isfinite(2.0 * (high - low))):
            raise InputError(
                f"range must be two finite numbers, low < high; got {low!r} {high!r}. State where the quantile can "
                "lie: --range LOW HIGH."
            )

    @abstractmethod
    def to_working(self, value: float) -> float:
        """From units."""

    @abstractmethod
    def to_units(self, value: float) -> float:
        """Back to units."""

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
                f"a log scale needs a range above 0; got low = {self.low!r}. Raise the low end, or leave out --log."
            )

    def to_working(self, value: float) -> float:
        """ln x."""
        return math.log(value)

    def to_units(self, value: float) -> float:
        """e^w; beyond the largest double, infinity."""
        return math.exp(value) if value < 709.0 else math.inf

    def slope(self, value: float) -> float:
        """e^w."""
        return self.to_units(value)


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


SCALES: dict[str, type[Scale]] = {kind.name: kind for kind in (Identity, Linear, Log, Logit)}


def make_scale(name: str, low: float, high: float) -> Scale:
    """The scale of that name over a range.

    >>> make_scale("log", 1, 10).name
    'log'
    >>> make_scale("cubic", 1, 10)
    Traceback (most recent call last):
    ...
    privatile.errors.InputError: scale must be one of identity, linear, log, logit; got 'cubic'.
    """
    if name not in SCALES:
        raise InputError(f"scale must be one of {', '.join(SCALES)}; got {name!r:.60}.")
    return SCALES[name](float(low), float(high))
