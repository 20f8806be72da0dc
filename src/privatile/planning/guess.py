"""A guess of the distribution, which turns widths in rank into widths in units before anyone is asked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from privatile.errors import InputError
from privatile.result.result import QuantileResult

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
