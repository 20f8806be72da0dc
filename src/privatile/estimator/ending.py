"""When an open-ended run ends, and what was fixed about it before the first answer.

A run ends by command, by date, by its number of answers, by its width, or never. The anytime interval holds wherever it
ends. An interval for a fixed end exists only where date or number stood in the specification from the beginning, and
only once it is reached: whoever ends a run because of what it shows has chosen the end.
"""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, get_args

from privatile.core.messages import LARGEST_LENGTH
from privatile.core.words import short
from privatile.errors import InputError

Reason = Literal["command", "date", "answers", "width"]
REASONS: tuple[Reason, ...] = get_args(Reason)
"""Why a run ended: somebody said so; the date or the number of answers of its specification; its width."""


def seconds_of(text: str) -> float:
    """A date, or a date with a time of day, in seconds since 1970; without a zone it is UTC.

    >>> seconds_of("2026-11-16"), seconds_of("2026-11-16T01:00+01:00") - seconds_of("2026-11-16")
    (1794787200.0, 0.0)
    """
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


@dataclass(frozen=True)
class End:
    """An end that was fixed beforehand: a date, or a number of answers at every level; whichever comes first.

    >>> End(date="2027-01-31T18:00:00Z").seconds
    1801418400.0
    >>> End()
    Traceback (most recent call last):
    ...
    privatile.errors.InputError: end must have a date, a number of answers or both. Leave it out where neither is fixed.
    """

    date: str | None = None
    """In UTC, as 2027-01-31T18:00:00Z."""
    answers: int | None = None
    """The run ends with the round in which so many have answered, over all clients. Rounds are never cut short."""

    def __post_init__(self) -> None:
        if self.date is None and self.answers is None:
            raise InputError("end must have a date, a number of answers or both. Leave it out where neither is fixed.")
        if self.date is not None:
            self.seconds  # noqa: B018  a date that is none is refused here
        whole = isinstance(self.answers, int) and not isinstance(self.answers, bool)
        if self.answers is not None and not (whole and 1 <= self.answers <= LARGEST_LENGTH):
            raise InputError(
                f"end.answers must be a whole number from 1 to {LARGEST_LENGTH}; got {short(self.answers)}."
            )

    @property
    def seconds(self) -> float | None:
        """The date in seconds since 1970; none without one."""
        if self.date is None:
            return None
        try:
            return datetime.strptime(self.date, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
        except (ValueError, TypeError, OverflowError):
            raise InputError(
                f"end.date must be a moment in UTC, as 2027-01-31T18:00:00Z; got {short(self.date)}."
            ) from None


SHORTEST, SHARE = 25, 50
"""People in the first rounds, and the part of all answers so far that a later round has."""


def round_length(answered: int) -> int:
    """How many people the next round should wait for, by how many have answered so far: a suggestion to whoever asks.

    Short rounds let the search move on. Later ones are a fiftieth of what has come: the questions are placed anew only
    when the information has grown by 15%. It sees numbers of people, never an answer.

    >>> round_length(0), round_length(100_000)
    (25, 2000)
    """
    return max(SHORTEST, answered // SHARE)


SEARCH_ROUNDS, SEARCH_BITS = 6, 125
"""What the search for the quantile takes, before there is an interval: rounds, and answers that are never a lie."""


def answers_before_interval(truth_rate: float, level: float, length: int = SHORTEST) -> int:
    """About how many answers an open-ended run takes until it has its first interval, with rounds of `length` answers.

    A rule of thumb, measured for ε from 0.5 to 4: for a median and a range of 5 to 20 standard deviations, eight of ten
    simulated runs had one by then, and none had one at a third of it. A wider range takes more.

    >>> import math
    >>> [answers_before_interval(math.tanh(epsilon / 2), 0.5) for epsilon in (0.5, 1, 2)]
    [2240, 740, 370]
    """
    answers = (SEARCH_ROUNDS * length + SEARCH_BITS / truth_rate**2) * 0.25 / (level * (1.0 - level))
    return math.ceil(answers / 10) * 10
