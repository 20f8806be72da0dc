"""What the user declares about the values: `--values any`, `continuous`, `whole` or `step=NUMBER`.

The declaration is the user's knowledge from outside, like the range. It is never inferred from the records: that would
be a release that nobody has paid for.
"""

import math
import re
from typing import NamedTuple

from privatile.core.words import short
from privatile.errors import InputError

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
    privatile.errors.InputError: values must be any, continuous, whole or step=NUMBER with a positive number, such as \
step=1000; got 'step=0'.
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
        "values must be any, continuous, whole or step=NUMBER with a positive number, such as step=1000; got "
        f"{short(text)}."
    )
