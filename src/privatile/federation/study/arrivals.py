"""Open studies: records arrive over weeks, and nobody knows how many. What is fixed about them beforehand.

    design = "open"

    [arrivals]
    round_answers = 0       # answers after which a round closes; 0: 25, later a fiftieth of all so far
    end_date = ""           # the run ends at this date, …
    end_answers = 0         # … after so many answers, …
    end_width = 0.0         # … or when the interval is so narrow; all empty: by command

`deadline` is how many seconds a round is open, once somebody has answered. A client's `records` is the most that it
will be asked for, and its weight is given beforehand, never by who comes.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from privatile.core.messages import LARGEST_LENGTH
from privatile.core.words import moment, short
from privatile.estimator.ending import End, seconds_of

if TYPE_CHECKING:
    from privatile.federation.study.study import FederationStudy

LEFT_OUT = ("rounds", "mode", "quorum", "patience")
"""Settings that an open study does not have."""

PATIENCE = 5
"""Silent rounds of one client after which a run pauses, unless a study says otherwise; an open one waits for nobody."""


@dataclass(frozen=True)
class Arrivals:
    """When the rounds of an open study close, and when it ends.

    >>> Arrivals(end_answers=5000).end, Arrivals(end_date="2027-01-31").end
    (End(date=None, answers=5000), End(date='2027-01-31T00:00:00Z', answers=None))
    """

    round_answers: int = 0
    """Answers after which a round closes; 0: as many as `round_length` says."""
    end_date: str = ""
    """Date or moment (ISO 8601; without a zone it is UTC) at which the run ends; empty: none."""
    end_answers: int = 0
    """Answers after which it ends; 0: none."""
    end_width: float = 0.0
    """Width of the interval, in units, at which it ends; 0: none."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "end_width", float(self.end_width))

    @property
    def ends_at(self) -> float:
        """When the run ends, in seconds since 1970; infinity without a date."""
        return seconds_of(self.end_date) if self.end_date else math.inf

    @property
    def end(self) -> End | None:
        """The end that is fixed before the first answer; none where it is not."""
        if not (self.end_date or self.end_answers):
            return None
        return End(moment(self.ends_at) if self.end_date else None, self.end_answers or None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, in the order of the file."""
        return asdict(self)


REMARKS = {
    "round_answers": "  # answers after which a round closes; 0: 25, later a fiftieth of all so far",
    "end_date": "  # the run ends at this date, …",
    "end_answers": "  # … after so many answers, …",
    "end_width": "  # … or when the interval is so narrow, in units; all empty: by command",
}


def broken_arrivals(study: "FederationStudy") -> Iterator[tuple[str, ...]]:
    """Broken rules of an open study, each followed by its place."""
    arrivals = study.arrivals
    if arrivals is None:
        return
    if not study.is_open:
        yield 'is for open studies, where nobody knows how many records come: set design = "open".', "arrivals"
        return
    for name, given, default in (
        ("rounds", study.rounds, 0),
        ("mode", study.mode, "cohort"),
        ("quorum", study.quorum, len(study.clients)),
        ("patience", study.patience, PATIENCE),
    ):
        if given != default:
            yield (
                f"an open study has none: its rounds close by number and time. Leave it out; got {short(given)}.",
                name,
            )
    if len(study.levels) > 1:
        yield "an open study asks for one level: make a study for each, of other people.", "levels"
    for name, agreement in study.clients.items():
        if agreement.weights is not None:
            yield "an open study has no weight classes: their sizes must be known beforehand.", "clients", name
    for name in ("round_answers", "end_answers"):
        number = getattr(arrivals, name)
        if not 0 <= number <= LARGEST_LENGTH:
            yield f"must lie in 0 to {LARGEST_LENGTH}; got {short(number)}.", "arrivals", name
    if not (math.isfinite(arrivals.end_width) and arrivals.end_width >= 0.0):
        yield f"must be a width of 0 or more; got {short(arrivals.end_width)}.", "arrivals", "end_width"
    if arrivals.end_date:
        try:
            seconds_of(arrivals.end_date)
        except (ValueError, OverflowError):
            example = "2027-01-31, or 2027-01-31T18:00Z"
            yield f"must be a date such as {example}; got {arrivals.end_date!r:.40}.", "arrivals", "end_date"


def shared_out(answers: int, weights: Mapping[str, float], left: Mapping[str, int]) -> dict[str, int]:
    """How many records of every client may take part in a round of `answers`: by its weight, at least one.

    `left` is how many each may still be asked for. It depends on numbers alone, never on an answer.

    >>> shared_out(25, {"north": 0.7, "south": 0.3}, {"north": 1000, "south": 5})
    {'north': 18, 'south': 5}
    """
    return {name: max(1, min(math.ceil(weight * answers), left[name])) for name, weight in weights.items()}
