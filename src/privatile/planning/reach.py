"""Whether the width at which a run is to stop is within reach, before anyone is asked.

A width in units depends on the distribution. With a guess of it the answer is yes or no. Without one it is the spread
of the people up to which the width is within reach; the records themselves are not looked at. What it takes beyond that
is said by the rule of the result (`result.caveats.out_of_reach`).
"""

from typing import Any, NamedTuple

from privatile.estimator.spec import RunSpec
from privatile.planning.expected_width import ExpectedWidth, width_in_units
from privatile.planning.guess import Guess, from_spread
from privatile.result.caveats import out_of_reach
from privatile.result.diagnostics import three_digits
from privatile.result.number_words import finite


class Reach(NamedTuple):
    """What is known beforehand about the width at which one level is to stop."""

    width: float
    within_reach: bool | None
    """None where it depends on a distribution of which nothing is known."""
    spread: float | None
    """The middle half of the people within so many units: up to there the width is within reach; 0 if nowhere."""
    text: str

    def facts(self) -> dict[str, Any]:
        """As plain values."""
        return self._asdict() | {"spread": None if self.spread is None else finite(self.spread)}


def reach(spec: RunSpec, index: int, expected: ExpectedWidth, guess: Guess | None = None) -> Reach | None:
    """Of a level and the interval that its result would show first; none where no width was asked for."""
    asked = spec.until_width
    if asked is None:
        return None
    name, level, clients = f"a width of {asked:g}", spec.levels[index], spec.plan(index).clients
    if asked >= spec.high - spec.low:
        return Reach(asked, True, None, f"The asked precision, {name}, is within reach: the stated range is no wider.")
    at_one = width_in_units(from_spread(1.0), level, expected.rank_width)
    if at_one is None:
        return Reach(
            asked, None, None, f"Whether the asked precision, {name}, is within reach is not known beforehand."
        )
    spread = asked / at_one
    if not spread:
        text = f"The asked precision, {name}, is out of reach: the interval is expected to be the whole stated range."
        return Reach(asked, False, 0.0, text)
    if guess is not None and expected.width is not None:
        if expected.width > asked:
            return Reach(asked, False, spread, out_of_reach(asked, expected.width, clients).text)
        return Reach(asked, True, spread, f"The asked precision, {name}, is within reach.")
    beyond = out_of_reach(asked, 2.0 * asked, clients).text.partition(": ")[2]
    text = (
        f"The asked precision, {name}, is within reach where the middle half of the people lies within about "
        f"{three_digits(spread)}, and out of reach where it needs more. Where it needs twice as much, {beyond}"
    )
    return Reach(asked, None, spread, text)
