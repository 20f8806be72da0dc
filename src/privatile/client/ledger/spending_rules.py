"""Spending rules: what the holder of the data allows, and what the ledger needs to know of a column to hold a run to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from privatile.client.ledger.overlap import SplitId
from privatile.client.order.people import PersonKey
from privatile.errors import InputError

ROUNDING = 1e-9
"""Realised ε falls short of the nominal one by up to 1e-10; a lifetime's sums must not trip over that."""


class Content(Protocol):
    """What the ledger needs to know of a column; a `ShuffledColumn` is one."""

    @property
    def client(self) -> str:
        """Who holds the records."""
        ...

    @property
    def column(self) -> str:
        """The name of the values."""
        ...

    @property
    def digest(self) -> bytes:
        """Keyed digest of the content, in its order."""
        ...

    @property
    def values_digest(self) -> bytes:
        """Keyed digest of its values alone, before reduction to one a person."""
        ...

    @property
    def cuts(self) -> tuple[SplitId, ...]:
        """The whole column it is a part of and the split, and itself as a whole."""
        ...

    @property
    def records(self) -> int:
        """How many records, after reduction to one a person."""
        ...

    @property
    def person_column(self) -> str | None:
        """The name of the person column."""
        ...

    @property
    def person_key(self) -> PersonKey | None:
        """The key under which its people are known; None without a person column."""
        ...


@dataclass(frozen=True)
class SpendingRules:
    """What the holder of the data allows beyond the rule "once".

    >>> SpendingRules(max_epsilon=-1)
    Traceback (most recent call last):
    ...
    privatile.errors.InputError: max_epsilon must be a positive number; got -1. Leave it out for no limit.
    """

    spend_again: bool = False
    new_people: bool = False
    max_epsilon: float | None = None

    def __post_init__(self) -> None:
        limit = self.max_epsilon
        if limit is not None and not limit > 0:
            raise InputError(f"max_epsilon must be a positive number; got {limit!r}. Leave it out for no limit.")
