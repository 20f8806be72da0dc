"""Question and Answer: the only things that cross a wire.

A question asks `length` records of one client "are you above `query`?"; the answer is one integer, the number of
randomized reports that said yes. `query` is in the units of the data. In `local` mode the question also carries
the step η = γ/E with which the client moves its own query after each report; in `cohort` mode it does not.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple, Self

from msgspec import Meta

from privatile.core.decoding import json_value
from privatile.core.text import canonical_json, short
from privatile.errors import ProtocolError

Missing = Literal["noise", "drop", "fail"]
MISSING: tuple[Missing, ...] = ("noise", "drop", "fail")
"""What a record without a value does: answers at random, is left out, or stops the run before it begins."""

LONGEST_NAME = 200
LARGEST_LENGTH = 1 << 53
"""Counts stay exact in a double, hence in every JSON reader."""


LARGEST_REAL = sys.float_info.max

HEAD_BYTES = 16

_NAME = (
    str,
    f"a printable text of 1 to {LONGEST_NAME} characters",
    lambda v: v.isprintable() and 0 < len(v) <= LONGEST_NAME,
)
_POSITIVE = (int, f"a whole number from 1 to {LARGEST_LENGTH}", lambda v: 1 <= v <= LARGEST_LENGTH)
RULES: dict[str, tuple[type, str, Callable[[Any], bool]]] = {
    "run": _NAME,
    "client": _NAME,
    "round": _POSITIVE,
    "length": _POSITIVE,
    "ones": (int, f"a whole number from 0 to {LARGEST_LENGTH}", lambda v: 0 <= v <= LARGEST_LENGTH),
    "level": (float, "inside (0, 1)", lambda v: 0 < v < 1),
    "query": (float, "a finite number", lambda v: abs(v) <= LARGEST_REAL),
    "step": (float, "a positive number", lambda v: 0 < v <= LARGEST_REAL),
}
"""The kind of each field, its rule in words, and the rule."""


@dataclass(frozen=True)
class _Message:
    def __post_init__(self) -> None:
        for field, value in list(vars(self).items()):
            if field not in RULES or (field == "step" and value is None):
                continue
            kind, rule, holds = RULES[field]
            right_kind = isinstance(value, int | float if kind is float else kind) and not isinstance(value, bool)
            if not right_kind or not holds(value):
                raise ProtocolError(f"{field} must be {rule}; got {short(value)}.")
            # A negative zero is zero: what is stored, sent and signed has one form of it.
            object.__setattr__(self, field, float(value) + 0.0 if kind is float else kind(value))

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values."""
        return dict(vars(self))

    def to_json(self) -> str:
        """One line of JSON, keys sorted: the same message is always the same text."""
        return canonical_json(self.to_dict())

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
            fields = json_value(text)
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

    def of(self, length: int) -> "Question":
        """The same question to another number of records.

        >>> Question("r1", 1, 0.5, 0.0, 1).of(25).length
        25
        """
        return replace(self, length=length)


class Position(NamedTuple):
    """How far a ledger's chain has come: a number of entries, and the head of the chain at the last of them.

    For a run the number counts the entries of that run alone, so that nobody learns from it what others were given;
    the head covers everything before it all the same.
    """

    sequence: Annotated[int, Meta(ge=0, le=LARGEST_LENGTH)] = 0
    head: Annotated[bytes, Meta(min_length=HEAD_BYTES, max_length=HEAD_BYTES)] = bytes(HEAD_BYTES)

    def adds_only(self, entries: int, before: "Position") -> bool:
        """Whether the ledger has nothing but these entries since `before`: no coin was drawn for anything else.

        >>> Position(7).adds_only(2, Position(5)), Position(8).adds_only(2, Position(5))
        (True, False)
        """
        return self.sequence == before.sequence + entries


START = Position()


@dataclass(frozen=True)
class Answer(_Message):
    """How many of a question's records reported yes, and where the client's ledger stands with it.

    One integer; nothing else about the records. In an open run the question has the number of records that took part.

    >>> asked = Question(run="r1", round=1, level=0.5, query=0.0, length=50)
    >>> Answer(asked, client="north", ones=53).check(asked)
    Traceback (most recent call last):
    ...
    privatile.errors.ProtocolError: ones must be a whole number from 0 to 50; got 53.
    """

    question: Question
    client: str
    ones: int
    position: Position = START

    def check(self, asked: Question) -> "Answer":
        """Refuse an answer to another question, or a count no cohort could give."""
        if self.question != asked:
            raise ProtocolError("the answer is to another question than the one that was asked.")
        if self.ones > asked.length:
            raise ProtocolError(f"ones must be a whole number from 0 to {asked.length}; got {self.ones}.")
        return self

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values."""
        sequence, head = self.position
        return dict(vars(self)) | {"question": self.question.to_dict(), "position": [sequence, head.hex()]}

    @classmethod
    def from_dict(cls, fields: object) -> Self:
        """Read what `to_dict` wrote; anything missing, extra or out of range is refused."""
        found = super().from_dict(fields)
        return replace(found, question=Question.from_dict(found.question), position=_position(found.position))


def _position(plain: object) -> Position:
    match plain:
        case [int(sequence), str(head)] if re.fullmatch("[0-9a-f]{32}", head) and sequence is not True:
            if 0 <= sequence <= LARGEST_LENGTH:
                return Position(sequence, bytes.fromhex(head))
    raise ProtocolError(f"position must be a number of entries and 32 hexadecimal digits; got {short(plain)}.")
