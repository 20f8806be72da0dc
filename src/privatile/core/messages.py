"""Question and Answer: the only things that cross a wire.

A question asks `length` records of one client "are you above `query`?"; the answer is one integer, the number of
randomized reports that said yes. `query` is in the units of the data. In `local` mode the question also carries
the step η = γ/E with which the client moves its own query after each report; in `cohort` mode it does not.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Literal, Self

from privatile.errors import ProtocolError

Missing = Literal["noise", "drop", "fail"]
MISSING: tuple[Missing, ...] = ("noise", "drop", "fail")
"""What a record without a value does: answers at random, is left out, or stops the run before it begins."""

LONGEST_NAME = 200
LARGEST_LENGTH = 1 << 53
"""Counts stay exact in a double, hence in every JSON reader."""


def _name(field: str, value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME or not value.isprintable():
        raise ProtocolError(f"{field} must be a printable text of 1 to {LONGEST_NAME} characters; got {value!r:.60}.")
    return value


def _count(field: str, value: object, low: int, high: int = LARGEST_LENGTH) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ProtocolError(f"{field} must be a whole number from {low} to {high}; got {value!r:.60}.")
    return value


def _real(field: str, value: object, rule: str, holds: bool) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not holds:
        raise ProtocolError(f"{field} must be {rule}; got {value!r:.60}.")
    return float(value)


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < math.inf


@dataclass(frozen=True)
class _Message:
    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values."""
        return dict(vars(self))

    def to_json(self) -> str:
        """One line of JSON, keys sorted: the same message is always the same text."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_dict(cls, fields: object) -> Self:
        """Read what `to_dict` wrote; anything missing, extra or out of range is refused."""
        expected = set(cls.__dataclass_fields__)
        if not isinstance(fields, dict) or set(fields) != expected:
            raise ProtocolError(f"a {cls.__name__.lower()} has exactly the fields {', '.join(sorted(expected))}.")
        return cls(**fields)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote; anything missing, extra or out of range is refused."""
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            raise ProtocolError(f"a {cls.__name__.lower()} must be one JSON object; this is not.") from None
        return cls.from_dict(fields)


@dataclass(frozen=True)
class Question(_Message):
    """ "Are you above `query`?", to `length` records of a client, once each.

    >>> asked = Question(run="r1", round=1, level=0.5, query=50_000.0, length=100)
    >>> Question.from_json(asked.to_json()) == asked
    True
    >>> Question(run="r1", round=0, level=0.5, query=0.0, length=1)
    Traceback (most recent call last):
    ...
    privatile.errors.ProtocolError: round must be a whole number from 1 to 9007199254740992; got 0.
    """

    run: str
    round: int
    level: float
    query: float
    length: int
    step: float | None = None

    def __post_init__(self) -> None:
        _name("run", self.run)
        _count("round", self.round, 1)
        level, query, step = self.level, self.query, self.step
        object.__setattr__(self, "level", _real("level", level, "inside (0, 1)", _is_finite(level) and 0 < level < 1))
        object.__setattr__(self, "query", _real("query", query, "a finite number", _is_finite(query)))
        _count("length", self.length, 1)
        if step is not None:
            object.__setattr__(self, "step", _real("step", step, "a positive number", _is_finite(step) and step > 0))


@dataclass(frozen=True)
class Answer(_Message):
    """How many of a question's records reported yes. One integer; nothing else about the records.

    >>> Answer(run="r1", round=1, client="north", level=0.5, ones=53).check(
    ...     Question(run="r1", round=1, level=0.5, query=0.0, length=50)
    ... )
    Traceback (most recent call last):
    ...
    privatile.errors.ProtocolError: ones must be a whole number from 0 to 50; got 53.
    """

    run: str
    round: int
    client: str
    level: float
    ones: int

    def __post_init__(self) -> None:
        _name("run", self.run)
        _count("round", self.round, 1)
        _name("client", self.client)
        level = self.level
        object.__setattr__(self, "level", _real("level", level, "inside (0, 1)", _is_finite(level) and 0 < level < 1))
        _count("ones", self.ones, 0)

    def check(self, question: Question) -> Answer:
        """Refuse an answer to another question, or a count no cohort could give."""
        for field in ("run", "round", "level"):
            asked, got = getattr(question, field), getattr(self, field)
            if asked != got:
                raise ProtocolError(f"the answer's {field} must be that of the question, {asked!r}; got {got!r}.")
        _count("ones", self.ones, 0, question.length)
        return self
