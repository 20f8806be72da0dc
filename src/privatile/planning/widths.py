"""How wide the two intervals of a run will be, before anyone is asked, in rank and in units.

A width is that of the whole interval, from its lower to its upper end; ± in words is half of it. In rank it is known
from the clients' records and budgets alone:

    w = 2·z·s·a,   s² = Σ p_k²σ_k²/n_k,   σ_k² = (r_k⁻² − (2τ − 1)²)/4

a ≥ 1 is the price of the interval over one that knows the distribution. For the smooth interval it is what search, bend
and the estimated slope add (`smooth_factor`); for the any-shape interval it was measured (`any_shape_factor`). With a
guess of the distribution (`guess`) the width in units is Q(τ + w/2) − Q(τ − w/2). Where the clients' distributions
differ σ_k² is a little smaller than at rank τ, so w errs on the wide side.

From an information of 150 on the median width of simulated runs is within 10% of it (`tests/planning/test_honest.py`).
Below, a smooth interval is not shown, and the width of the other one is a rough guide.

Whether the width at which a run is to stop is within reach, before anyone is asked.

A width in units depends on the distribution. With a guess of it the answer is yes or no. Without one it is the spread
of the people up to which the width is within reach; the records themselves are not looked at. What it takes beyond that
is said by the rule of the result (`result.caveats.out_of_reach`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np

from privatile.errors import InputError
from privatile.estimator.clients import Client
from privatile.estimator.spec import RunSpec
from privatile.estimator.tuned import (
    PROBE_ERRORS,
    PROBE_REACH,
    PROBE_SHARE,
    RELAXATIONS,
    STABLE,
    SUPPORTED,
)
from privatile.laws.critical import critical_value
from privatile.laws.ratio import low_information_factor, two_sided_z
from privatile.result.caveats import out_of_reach, rounded_text
from privatile.result.result import QuantileResult
from privatile.result.shown import CONDITIONS, Condition, finite

QUARTILES = NormalDist().inv_cdf(0.75) - NormalDist().inv_cdf(0.25)
"""Distance between the quartiles of the standard normal distribution."""


@dataclass(frozen=True)
class Guess:
    """Where the units come from, in words, and the value at a rank near a level."""

    words: str
    value_at: Callable[[float, float], float]
    """Of a level and a rank; only differences at one level count."""


def from_spread(spread: float) -> Guess:
    """A normal distribution of which half of the people lie within `spread` units.

    >>> guess = from_spread(30_000.0)
    >>> round(guess.value_at(0.5, 0.75) - guess.value_at(0.5, 0.25))
    30000
    """
    _check("spread", spread)
    law = NormalDist(0.0, spread / QUARTILES)
    words = f"a rough guess: normal, with the middle half of the people within {spread:,.10g} units"
    return Guess(words, lambda level, rank: law.inv_cdf(rank))


def from_densities(densities: Mapping[float, float], words: str) -> Guess:
    """From the density at each level's quantile, in 1/units.

    >>> guess = from_densities({0.5: 0.04}, "known")
    >>> round(guess.value_at(0.5, 0.51) - guess.value_at(0.5, 0.49), 3)
    0.5
    """
    for level, density in densities.items():
        _check(f"the density at level {level:g}", density)
    return Guess(words, lambda level, rank: rank / densities[level])


def from_results(results: Sequence[QuantileResult], levels: Sequence[float], name: str) -> Guess:
    """From the densities that an earlier run, called `name`, found at its quantiles."""
    known = {result.level: result for result in results}
    densities, errors = {}, []
    for level in levels:
        if level not in known:
            has = ", ".join(f"{one:g}" for one in known)
            raise InputError(f"{name}: that run is about level {has}, and the plan about {level:g}.")
        density = known[level].facts()["density"]
        if density is None or not density["estimate"] > 0.0:
            raise InputError(
                f"{name}: its answers do not tell the density at level {level:g}. Give a rough guess instead: "
                "spread=UNITS, within which the middle half of the people lies."
            )
        densities[level] = density["estimate"]
        errors.append(density["relative_error"])
    return from_densities(
        densities, f"the density that {name} found, within a standard error of {100 * max(errors):.0f}%"
    )


def _check(what: str, value: float) -> None:
    if not 0.0 < value < float("inf"):
        raise InputError(f"{what} must be a positive number; got {value!r}.")


SEARCH_AND_BEND = 1.2
"""Search and bend raise the standard error by the factor 1 + SEARCH_AND_BEND/√I: 4% at I = 1,000, as the
coverage study found."""

BY_INFORMATION = ((150.0, 3.9), (600.0, 3.4), (6000.0, 3.2))
"""Information, and the median width of the any-shape interval at 95% over that of one that knows the distribution
(smooth laws of `studies/any_shape`)."""

BY_CONFIDENCE = ((0.8, 4.1), (0.9, 3.5), (0.95, 3.2), (0.99, 3.1), (0.999, 3.6))
"""Confidence level, and the same ratio there at information 6,000 (`python -m studies.any_shape.by_confidence`): the
questions are placed for 95%."""

SELF_NORMALIZED_COST = 1.30
"""A self-normalised interval is this many times as wide as one with known variance, on average (constant lengths)."""


class ExpectedWidth(NamedTuple):
    """What one of the two intervals of a run is expected to be worth."""

    method: Condition | Literal["self-normalized"]
    rank_width: float
    """NaN where it is not known before the run."""
    width: float | None
    """In units; none without a guess of the distribution, ∞ where the interval reaches beyond all quantiles."""

    @property
    def condition(self) -> str:
        """What it needs, in words; empty where it is no interval of the default design."""
        return "" if self.method == "self-normalized" else CONDITIONS[self.method]

    def facts(self) -> dict[str, Any]:
        """As plain values; no interval holds more than all quantiles."""
        return {
            "method": self.method,
            "condition": self.condition,
            "width_in_rank": finite(1.0 if self.rank_width > 1.0 else self.rank_width),
            "width": None if self.width is None else finite(self.width),
        }


NOT_SHOWN = (
    f"{CONDITIONS['smooth'].capitalize()}, there is a narrower interval. Below an information of {SUPPORTED:,.0f} it "
    "is not shown, and to declare it widens the one that is."
)


def both_in_words(widths: Sequence[ExpectedWidth], level: float, confidence_level: float) -> list[str]:
    """A sentence for each expected interval, the first one first.

    Values declared continuous are asked otherwise: the any-shape interval is then that of a run that declares nothing.
    """
    first, *others = (width_words(width, level, confidence_level) for width in widths)
    if not others:
        return [first]
    if widths[1].method == "smooth" and math.isnan(widths[1].rank_width):
        others = [NOT_SHOWN]
    elif math.isnan(widths[0].rank_width) and widths[1].method == "self-normalized":
        others = [f"{others[0].removesuffix('.')} (--interval self-normalized)."]
    elif widths[0].method == "smooth":
        others = [f"Without this declaration: {text[0].lower()}{text[1:]}" for text in others]
    return [first, *others]


def width_words(width: ExpectedWidth, level: float, confidence_level: float) -> str:
    """One interval's expected width and what it needs, in a sentence.

    >>> print(width_words(ExpectedWidth("any-shape", 0.02, 4.0), 0.5, 0.95))
    The 95% interval that holds whatever the distribution would be about 4 wide (±2), from the 0.4900 to the 0.5100
    quantile.
    >>> print(width_words(ExpectedWidth("any-shape", 0.02, None), 0.5, 0.95))
    The 95% interval that holds whatever the distribution would be about 0.02 wide in rank, from the 0.4900 to the
    0.5100 quantile.
    """
    percent = f"{100 * confidence_level:g}%"
    holds = f" that holds {width.condition}" if width.method == "any-shape" else ""
    if math.isnan(width.rank_width):
        name = f"{percent} interval{holds}" if holds else f"{width.method} {percent} interval"
        return f"The result will show the {name}: its width is not known beforehand."
    low, high = max(0.0, level - width.rank_width / 2.0), min(1.0, level + width.rank_width / 2.0)
    if width.width is None:
        size = f"{high - low:.2g} wide in rank"
    elif math.isinf(width.width):
        size = "as wide as the stated range"
    else:
        size = wide(width.width)
    size = f"would be about {size}, from the {low:.4f} to the {high:.4f} quantile"
    if width.method == "smooth":
        return f"{CONDITIONS['smooth'].capitalize()} (--value-kind continuous), the {percent} interval {size}."
    name = f"self-normalised {percent}" if width.method == "self-normalized" else percent
    return f"The {name} interval{holds} {size}."


def wide(width: float) -> str:
    """A width in words, with the half of it that people write after ±.

    >>> wide(2000.0), wide(0.3333)
    ('2,000 wide (±1,000)', '0.333 wide (±0.167)')
    """
    return f"{rounded_text(width, 3)} wide (±{rounded_text(width / 2.0, 3)})"


def width_in_units(guess: Guess | None, level: float, rank_width: float) -> float | None:
    """Q(τ + w/2) − Q(τ − w/2); ∞ where one of the two is no quantile, none without a guess or a width in rank.

    >>> from privatile.planning.widths import from_spread
    >>> guess = from_spread(30_000.0)
    >>> width_in_units(guess, 0.5, 0.5), width_in_units(guess, 0.9, 0.25), width_in_units(None, 0.5, 0.5)
    (30000.0, inf, None)
    """
    if guess is None or math.isnan(rank_width):
        return None
    low, high = level - rank_width / 2.0, level + rank_width / 2.0
    return guess.value_at(level, high) - guess.value_at(level, low) if low > 0.0 and high < 1.0 else math.inf


def any_shape_factor(info: float, confidence_level: float = 0.95) -> float:
    """a of the any-shape interval: measured at three informations, linear in log I between them, and further below.

    Above information 6,000 it stays as it is. At another confidence level it is in proportion to what was measured
    there, linear in z between the levels.

    >>> [round(any_shape_factor(info), 2) for info in (40.0, 150.0, 300.0, 600.0, 6000.0, 1e6)]
    [4.38, 3.9, 3.65, 3.4, 3.2, 3.2]
    >>> round(any_shape_factor(6000.0, 0.8), 2), round(any_shape_factor(6000.0, 0.99), 2)
    (4.1, 3.1)
    """
    places, factors = np.array(BY_INFORMATION).T
    places = np.log(places)
    below = (factors[0] - factors[1]) / (places[1] - places[0]) * max(0.0, places[0] - math.log(info))
    levels, ratios = np.array(BY_CONFIDENCE).T
    ratio = np.interp([two_sided_z(confidence_level), two_sided_z(0.95)], [two_sided_z(c) for c in levels], ratios)
    return float((np.interp(math.log(info), places, factors) + below) * ratio[0] / ratio[1])


def smooth_factor(info: float, rounds: int, confidence_level: float = 0.95) -> float:
    """a of the smooth interval: `inflation`, and what its law allows for low information.

    >>> round(smooth_factor(150.0, 200), 2), round(smooth_factor(6000.0, 200), 3)
    (1.32, 1.082)
    """
    return inflation(info, rounds, confidence_level) * float(low_information_factor(info))


def inflation(info: float, rounds: int, confidence_level: float = 0.95) -> float:
    """a: how much wider than with known slope and no search.

    The slope is learned from the probes, reach·√share standard errors apart in units of the local spread, and from the
    window's N relaxations: 1/ρ² = (reach/λ)²·share + N/2, λ = 1/√I. The interval is 1/√(1 − z²ρ²) wider for it.

    >>> round(inflation(1000, 200), 3), round(inflation(100_000, 200), 3)
    (1.115, 1.063)
    """
    z = two_sided_z(confidence_level)
    unit = 1.0 / math.sqrt(info)
    reach = min(PROBE_REACH, PROBE_ERRORS * unit)
    relaxed = min(RELAXATIONS, STABLE * 0.8 * rounds)
    slope_variance = 1.0 / ((reach / unit) ** 2 * PROBE_SHARE + relaxed / 2.0)
    rest = 1.0 - z * z * slope_variance
    if rest <= 0.0:
        return math.inf
    return (1.0 + SEARCH_AND_BEND * unit) * (1.0 + slope_variance / 2.0) / math.sqrt(rest)


def rank_width(level: float, clients: Sequence[Client], confidence_level: float, inflated: float) -> float:
    """w: the interval's expected width in rank, with the factor that its method adds."""
    error = math.sqrt(math.fsum(client.rank_variance(level) for client in clients))
    return 2.0 * inflated * two_sided_z(confidence_level) * error


def self_normalized_cost(confidence_level: float) -> float:
    """`SELF_NORMALIZED_COST` at another level: the self-normalised quantile grows faster than the normal one.

    >>> self_normalized_cost(0.95), round(self_normalized_cost(0.99), 2)
    (1.3, 1.47)
    """
    if confidence_level == 0.95:
        return SELF_NORMALIZED_COST
    constant = [1] * 1000
    at = float(critical_value(constant, confidence_level)) / float(critical_value(constant, 0.95))
    return SELF_NORMALIZED_COST * at * two_sided_z(0.95) / two_sided_z(confidence_level)


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
        f"{rounded_text(spread, 3)}, and out of reach where it needs more. Where it needs twice as much, {beyond}"
    )
    return Reach(asked, None, spread, text)
