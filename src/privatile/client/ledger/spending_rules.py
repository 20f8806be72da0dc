"""What the holder of the data allows beyond the rule that a record answers once."""

import math
from dataclasses import dataclass

from privatile.errors import InputError

ROUNDING = 1e-9
"""Realised ε falls short of the nominal one by up to 1e-10; the sum of a lifetime must not exceed its limit by that."""


@dataclass(frozen=True)
class SpendingRules:
    """`spend_again`: records that have answered may answer again. `new_people`: these are in no other data set.

    `max_epsilon` is the most that a person may spend for life; the ledger keeps the last one that was given, and a run
    without one takes it. `in_federation`: it is agreed that everybody answers once, and nobody at the site can accept
    more. `arriving`: people come while the run goes on, and every answer is from the column as it is then; needs a
    person column.

    >>> SpendingRules(max_epsilon=-1)
    Traceback (most recent call last):
    ...
    privatile.errors.InputError: max_epsilon must be a positive number; got -1. Leave it out for no limit.
    """

    spend_again: bool = False
    new_people: bool = False
    max_epsilon: float | None = None
    in_federation: bool = False
    arriving: bool = False

    def __post_init__(self) -> None:
        limit = self.max_epsilon
        if limit is not None and not limit > 0:
            raise InputError(f"max_epsilon must be a positive number; got {limit!r}. Leave it out for no limit.")

    def way_out(self, whose: str) -> str:
        """What to do about records or people that have answered.

        >>> SpendingRules().way_out("people")
        'Accept that with spend_again=True, or ask new people.'
        >>> SpendingRules(in_federation=True).way_out("people")
        'In a federation everybody answers once: ask new people.'
        """
        if self.in_federation:
            return f"In a federation everybody answers once: ask new {whose}."
        return f"Accept that with spend_again=True, or ask new {whose}."

    @property
    def lifetime_limit(self) -> float:
        """No total above this is allowed; ∞ without a limit."""
        return math.inf if self.max_epsilon is None else self.max_epsilon + ROUNDING
