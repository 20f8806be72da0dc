"""A plan checked by simulation: the same design, clients and level, on a population one can draw from."""

import math
from dataclasses import fields
from typing import Any

import numpy as np

from privatile.errors import InputError
from privatile.estimator.values import parse_values
from privatile.planning.plan import RunPlan
from privatile.simulation.auto_simulation import AutoCell, simulate
from privatile.simulation.displayed_intervals import displayed_intervals
from privatile.simulation.populations import FAMILIES, Population, population
from privatile.simulation.straddled_simulation import read_straddled, straddle

SPREADS = 8.0
"""Half-width of the stated range, in spreads of the population (quartile distances): what a user might know."""

SEED = 1


def parse_population(text: str) -> Population:
    """A family, with its numbers in order after a colon.

    >>> parse_population("normal:50,10").quantile(0.5)
    50.0
    """
    family, _, numbers = text.partition(":")
    if family not in FAMILIES or family == "mixture":
        known = ", ".join(name for name in FAMILIES if name != "mixture")
        raise InputError(f"--population takes one of {known}, with its numbers after a colon; got {text!r}.")
    names = [field.name for field in fields(FAMILIES[family])]  # type: ignore[arg-type]
    try:
        values = [float(number) for number in numbers.split(",")] if numbers else []
    except ValueError:
        values = [math.nan] * (len(names) + 1)
    if len(values) > len(names):
        raise InputError(f"--population {family} takes numbers for {', '.join(names)}; got {text!r}.")
    return population(family, **dict(zip(names, values, strict=False)))


def check_plan(plan: RunPlan, law: Population, runs: int) -> dict[str, Any]:
    """Coverage and median half-width of the intervals that the results of `runs` simulated runs would show first."""
    center, spread = law.quantile(0.5), law.quantile(0.75) - law.quantile(0.25)
    cell = AutoCell(
        (law,) * len(plan.clients),
        tuple(client.mechanism.truth_rate for client in plan.clients),
        tuple(client.records for client in plan.clients),
        plan.level,
        tuple(client.weight for client in plan.clients),
        low=center - SPREADS * spread,
        high=center + SPREADS * spread,
        rounds=plan.rounds,
    )
    rng, levels = np.random.default_rng(SEED), (plan.confidence_level,)
    if parse_values(plan.values).continuous:
        intervals = displayed_intervals(cell, simulate(cell, runs, rng), levels, "smooth")[0]
    else:
        intervals = read_straddled(cell, straddle(cell, runs, rng), levels)[0].any_shape
    bounded = np.isfinite(intervals.half_width)
    covered = float(intervals.covers(cell.truth).mean())
    return {
        "runs": runs,
        "coverage": covered,
        "coverage_error": math.sqrt(covered * (1.0 - covered) / runs),
        "half_width": float(np.median(intervals.half_width[bounded])) if bounded.any() else None,
        "unbounded": float(1.0 - bounded.mean()),
    }
