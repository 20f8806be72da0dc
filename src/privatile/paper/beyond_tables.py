"""Beyond the paper's tables: three small experiments.

1. The L1 and sup normalisers beside L2: coverage and width, from the same trajectories.
2. Divide and conquer against synchronising, as the records grow: one error falls, the other stays (a design).
3. What local privacy costs: the estimator beside a central mechanism and the plain sample quantile, at equal ε.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from privatile.core.arrays import Floats
from privatile.core.mechanism import RandomizedResponse
from privatile.estimator.averaging import half_width, normalizer_of
from privatile.estimator.schedule import PRESETS, Constant, Design
from privatile.laws.critical import NORMALIZERS, Normalizer, critical_value
from privatile.paper.figures import path_queries
from privatile.simulation.cells import Cell
from privatile.simulation.engine import run_cell
from privatile.simulation.populations import Normal

SEED = 1
BLOCK = 128
"""Replications whose trajectories are in memory at a time."""


def _ten_clients(design: Design, records: int, rate: float) -> Cell:
    return Cell((Normal(),) * 10, (0.5,) * 10, (rate,) * 10, (0.1,) * 10, design, (records,) * 10)


def normalizer_experiment(
    replications: int = 1000,
    threads: int = 1,
    methods: Sequence[str] = ("C1", "C5", "Log"),
    rates: Sequence[float] = (0.25, 0.9),
) -> list[dict[str, Any]]:
    """Coverage and mean width of 95% intervals by normaliser, N(0, 1), τ = 0.5, ten clients, 10,000 records each."""
    rows = []
    for name in methods:
        for rate in rates:
            cell = _ten_clients(PRESETS[f"paper-{name.lower()}"], 10_000, rate)
            values = {kind: critical_value(None, 0.95, kind, weights=cell.round_weights) for kind in NORMALIZERS}
            errors: list[float] = []
            found: dict[Normalizer, list[float]] = {kind: [] for kind in NORMALIZERS}
            for first in range(0, replications, BLOCK):
                count = min(BLOCK, replications - first)
                outcome = run_cell(cell, count, SEED, first=first, threads=threads, keep_paths=True)
                errors += np.abs(outcome.estimates - cell.truth).tolist()
                for queries in path_queries(outcome).T:
                    for kind in NORMALIZERS:
                        value = normalizer_of(queries, cell.round_weights, kind)
                        found[kind].append(half_width(value, kind))
            l2_width = values["l2"].value * np.mean(found["l2"])
            for kind in NORMALIZERS:
                half = values[kind].value * np.array(found[kind])
                coverage = float(np.mean(errors <= half))
                rows.append(
                    {
                        "method": name,
                        "truth_rate": rate,
                        "normalizer": kind,
                        "critical_value": values[kind].value,
                        "critical_value_error": values[kind].standard_error,
                        "coverage": coverage,
                        "coverage_error": math.sqrt(coverage * (1.0 - coverage) / replications),
                        "mean_width": float(2.0 * half.mean()),
                        "width_over_l2": float(half.mean() / l2_width),
                    }
                )
    return rows


def central_quantile(
    values: Floats, level: float, epsilon: float, low: float, high: float, rng: np.random.Generator
) -> float:
    """The exponential mechanism for a quantile under central ε-DP, replace-one (Smith, 2011).

    Between neighbouring order statistics the utility −|i − τn| is constant and has sensitivity 1: an interval is chosen
    with probability ∝ length·exp(−ε|i − τn|/2), then a point of it uniformly.
    """
    ordered = np.concatenate([[low], np.sort(np.clip(values, low, high)), [high]])
    ranks = np.arange(ordered.size - 1)
    with np.errstate(divide="ignore"):
        scores = np.log(np.diff(ordered)) - epsilon * np.abs(ranks - level * values.size) / 2.0
    # The Gumbel trick draws from softmax(scores) without overflow.
    chosen = int(np.argmax(scores + rng.gumbel(size=scores.size)))
    return float(rng.uniform(ordered[chosen], ordered[chosen + 1]))


def cost_experiment(
    replications: int = 500,
    threads: int = 1,
    records: int = 1_000,
    epsilons: Sequence[float] = (0.25, 0.5, 1.0, 2.0, 4.0),
) -> list[dict[str, Any]]:
    """Root mean squared errors of the median of ten N(0, 1) clients: local, central and no privacy, at equal ε."""
    rng = np.random.default_rng(SEED)
    plain = np.empty(replications)
    central = np.empty((len(epsilons), replications))
    for i in range(replications):
        sample = np.sort(rng.standard_normal(10 * records))
        plain[i] = np.median(sample)
        for j, epsilon in enumerate(epsilons):
            central[j, i] = central_quantile(sample, 0.5, epsilon, -10.0, 10.0, rng)

    def rmse(values: Floats) -> float:
        return float(np.sqrt(np.mean(values**2)))

    rows = []
    for epsilon, at_centre in zip(epsilons, central, strict=True):
        rate = RandomizedResponse.from_epsilon(epsilon).truth_rate
        cell = _ten_clients(Design("cohort", Constant(1), burn_in=0.1), records, rate)
        local = rmse(run_cell(cell, replications, SEED, threads=threads).estimates)
        rows.append(
            {
                "epsilon": epsilon,
                "truth_rate": rate,
                "records": 10 * records,
                "no_privacy": rmse(plain),
                "central": rmse(at_centre),
                "local": local,
                "local_bound": cell.bound,
                "local_over_central": local / rmse(at_centre),
                "records_for_the_same_error": (local / rmse(at_centre)) ** 2,
            }
        )
    return rows
