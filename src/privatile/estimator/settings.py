"""What a result needs beside the plan and the state: which interval, at which confidence, of which values.

What the user declares about the values: `--value-kind any`, `continuous`, `whole` or `step=NUMBER`.

The declaration is the user's knowledge from outside, like the range. It is never inferred from the records: that would
be a release that nobody has paid for.

What a result needs beside the plan and the state: which interval is shown, at which confidence, of what.
"""

import math
import re
from dataclasses import KW_ONLY, dataclass
from typing import Literal, NamedTuple, get_args

from privatile.core.messages import Missing
from privatile.core.text import short
from privatile.errors import InputError
from privatile.estimator.clients import Survey
from privatile.laws.critical import Normalizer, checked_level

STEP = re.compile(r"step=([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)")


class Declaration(NamedTuple):
    """What `values` says."""

    continuous: bool
    """Values are continuous and their distribution is smooth around the quantile."""
    step: float | None
    """Every value is a multiple of this; none: nothing is declared about that."""

    @property
    def may_be_smooth(self) -> bool:
        """Whether a smooth interval may be shown: a grid says that its condition is false.

        >>> [parse_values(text).may_be_smooth for text in ("any", "continuous", "whole")]
        [True, True, False]
        """
        return self.step is None

    @property
    def grid_in_words(self) -> str:
        """What a declared grid says of every value; empty without one.

        >>> parse_values("whole").grid_in_words, parse_values("step=0.5").grid_in_words
        ('a whole number', 'a multiple of 0.5')
        """
        if self.step is None:
            return ""
        return "a whole number" if self.step == 1.0 else f"a multiple of {self.step:,.10g}"


def parse_values(text: object) -> Declaration:
    """What is declared; anything else is refused.

    >>> parse_values("any"), parse_values("step=1000").step, parse_values("whole").step
    (Declaration(continuous=False, step=None), 1000.0, 1.0)
    >>> parse_values("step=0")
    Traceback (most recent call last):
    ...
    privatile.errors.InputError: value_kind must be any, continuous, whole or step=NUMBER with a positive number, such \
as step=1000; got 'step=0'.
    """
    if isinstance(text, str):
        if text in ("any", "continuous"):
            return Declaration(text == "continuous", None)
        if text == "whole":
            return Declaration(False, 1.0)
        found = STEP.fullmatch(text)
        step = float(found[1]) if found else 0.0
        if 0.0 < step < math.inf:
            return Declaration(False, step)
    raise InputError(
        "value_kind must be any, continuous, whole or step=NUMBER with a positive number, such as step=1000; got "
        f"{short(text)}."
    )


Target = Literal["population", "file"]
IntervalName = Literal["default", "any-shape", "smooth", "self-normalized", "paper"]
CHOICES = {"interval": IntervalName, "normalizer": Normalizer, "target": Target, "missing": Missing}
REPORT_ONLY = ("confidence_level", "interval", "simultaneous", "normalizer", "target", "value_kind")
"""Fields that change how a run is reported, but no question that it asks. What `values` means for the questions is in
the design: `RunSpec` resolves "auto" by it."""


def check_choice(name: str, given: object, allowed: object) -> None:
    """Refuse a value that is not one of those of a `Literal`."""
    if given not in get_args(allowed):
        raise InputError(f"{name} must be one of {', '.join(get_args(allowed))}; got {given!r:.60}.")


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """The part of the settings that a user chooses."""

    design: str = "auto"
    confidence_level: float = 0.95
    interval: IntervalName = "default"
    until_width: float | None = None
    """Width of the interval, in units of the data, at which the run stops; none: it never stops early."""
    simultaneous: bool = False
    """Whether the confidence holds for all levels at once."""
    normalizer: Normalizer = "l2"
    target: Target = "population"
    missing: Missing = "noise"
    value_kind: str = "any"
    """What is declared about the values: any, continuous, whole or step=NUMBER; see `estimator.values`."""
    dither: float = 0.0
    """Width of the dither, in units of the data."""

    def __post_init__(self) -> None:
        checked_level(self.confidence_level)
        for name, allowed in CHOICES.items():
            check_choice(name, getattr(self, name), allowed)
        parse_values(self.value_kind)
        if not (math.isfinite(self.dither) and self.dither >= 0):
            raise InputError(f"dither must be a width of 0 or more, in units of the data; got {self.dither!r}.")
        if self.until_width is not None and not (math.isfinite(self.until_width) and self.until_width > 0):
            raise InputError(f"until_width must be a positive width, in units of the data; got {self.until_width!r}.")

    @property
    def needs_path(self) -> bool:
        """Whether the interval asked for is read from the path of the questions: all self-normalised ones."""
        return self.interval in ("self-normalized", "paper") or self.normalizer != "l2"

    @property
    def declared(self) -> Declaration:
        """What is declared about the values."""
        return parse_values(self.value_kind)


@dataclass(frozen=True)
class ReportSettings(ReportOptions):
    """Everything a result needs beside the plan and the state. A run's specification contains it.

    >>> ReportSettings("income", (0.25, 0.5, 0.75), simultaneous=True).joint
    3
    """

    value: str
    """What the numbers are, in words."""
    levels: tuple[float, ...]
    _: KW_ONLY
    weighting: str = "equal"
    person: bool = False
    """Whether the unit of privacy is the person."""
    simulated: bool = False
    """Whether the draws were seeded."""
    survey: Survey | None = None
    """Of weighted records: what was done about their weights."""

    @property
    def joint(self) -> int:
        """How many levels the confidence holds for at once; 1: each by itself."""
        return len(self.levels) if self.simultaneous else 1
