"""A plan checked by simulation: the same design, clients and levels, on a population one can draw from."""

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from privatile.errors import InputError
from privatile.inference.inference import level_each
from privatile.planning.plan import RunPlan
from privatile.planning.widths import Guess
from privatile.simulation.default_design import AutoCell, simulate_results
from privatile.simulation.populations import FAMILIES, LogNormal, Normal, Population, population

SPREADS = 8.0
"""Half of the stated range, in spreads of the population (quartile distances): what a user might know."""

SEED = 1


def parse_population(text: str) -> Population:
    """A family, with its numbers after a colon: by name, or in order.

    >>> parse_population("normal:50,10").quantile(0.5), parse_population("normal:sd=10,mean=50").quantile(0.5)
    (50.0, 50.0)
    >>> round(parse_population("lognormal:median=48000,sigma=0.6").quantile(0.5))
    48000
    """
    family, _, numbers = text.partition(":")
    if family not in FAMILIES or family == "mixture":
        known = ", ".join(name for name in FAMILIES if name != "mixture")
        raise InputError(f"--population takes one of {known}, with its numbers after a colon; got {text!r}.")
    names = [field.name for field in fields(FAMILIES[family])]  # type: ignore[arg-type]
    other = FAMILIES[family].in_words
    found: dict[str, float] = {}
    for place, part in enumerate(numbers.split(",") if numbers else ()):
        said, equals, number = part.rpartition("=")
        name = other.get(said.strip(), said.strip()) if equals else (names[place : place + 1] or [""])[0]
        try:
            value = float(number)
            value = math.log(value) if (family, said.strip()) == ("lognormal", "median") else value
        except ValueError:
            value = math.nan
        if name not in names or name in found or math.isnan(value):
            words = ", ".join(f"{word}=…" for word in dict.fromkeys([*other, *names]))
            raise InputError(f"--population {family} takes {words}, each number once; got {text!r}.")
        found[name] = value
    return population(family, **found)


def guess_of(text: str, law: Population) -> Guess:
    """The population as a guess of the distribution."""
    scale = ", asked on the logarithm (--scale log)" if isinstance(law, LogNormal) else ""
    return Guess(f"the population {text}{scale}", lambda level, rank: float(law.quantile(rank)))


def check_plan(plan: RunPlan, law: Population, runs: int) -> list[dict[str, Any]]:
    """Of each level, coverage and median width of the intervals that the results of `runs` runs would show first.

    A lognormal population is asked on the logarithm, as its user would (--scale log).
    """
    to_units: Callable[[Any], Any] = np.asarray
    worked_on = law
    if isinstance(law, LogNormal):
        worked_on, to_units = Normal(law.location, law.scale), np.exp
    spec = plan.preview.spec
    return [_check_level(plan, index, worked_on, to_units, runs) for index in range(len(spec.levels))]


def _check_level(
    plan: RunPlan, index: int, law: Population, to_units: Callable[[Any], Any], runs: int
) -> dict[str, Any]:
    spec = plan.preview.spec
    center, spread = law.quantile(0.5), law.quantile(0.75) - law.quantile(0.25)
    clients = spec.at_level(index)
    cell = AutoCell(
        (law,) * len(clients),
        tuple(client.mechanism.truth_rate for client in clients),
        tuple(client.records for client in clients),
        spec.levels[index],
        tuple(client.weight for client in clients),
        low=center - SPREADS * spread,
        high=center + SPREADS * spread,
        rounds=plan.preview.rounds[index],
    )
    values = "continuous" if spec.declared.continuous else "any"
    rng, confidence = np.random.default_rng(SEED), level_each(spec.confidence_level, spec.joint)
    intervals = simulate_results(cell, values, runs, rng, confidence, to_units).headline
    widths = intervals.high - intervals.low
    bounded = np.isfinite(widths)
    covered = float(intervals.covers(float(to_units(cell.truth))).mean())
    near = (covered * runs + 2.0) / (runs + 4.0)  # Agresti and Coull: no error of 0 where every run covered
    return {
        "level": spec.levels[index],
        "runs": runs,
        "coverage": covered,
        "coverage_error": math.sqrt(near * (1.0 - near) / (runs + 4.0)),
        "width": float(np.median(widths[bounded])) if bounded.any() else None,
        "unbounded": float(1.0 - bounded.mean()),
    }
