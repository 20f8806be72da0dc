"""Accuracy at equal ε and n against what a user would pick instead, errors as multiples of the efficiency bound.

python -m benchmarks.peers [--replications 400] [--out benchmarks/results/peers.json]

n people in all; every record is asked once, with the whole ε. Methods that need clients get ten of n/10 people, the
others all of them at once. All know that the quantile lies in [−4, 4] and start in the middle or use that range. The
bound is that of one randomized bit per record (`theory.efficiency_bound`): a method that reports more than a bit may
in principle pass below it. Time is processor time of one run on this machine, the people's side included.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchmarks.peer_methods import (
    binary_search_quantile,
    hierarchy_quantile,
    sample_quantile,
    square_wave_plain,
    square_wave_quantile,
)

from privatile.core.arrays import Floats
from privatile.core.mechanism import RandomizedResponse
from privatile.core.scale import Identity
from privatile.estimator.auto import AutoPlan
from privatile.estimator.clients import Client
from privatile.estimator.schedule import Constant, Design
from privatile.estimator.settings import ReportSettings
from privatile.estimator.step import begin, step
from privatile.inference.choice import choose_interval, gather_evidence
from privatile.inference.trajectory import Trajectory
from privatile.simulation.cells import Cell
from privatile.simulation.engine import run_cell
from privatile.simulation.populations import Laplace, Mixture, Normal, Population, Uniform

CLIENTS = 10
LOW, HIGH = -4.0, 4.0
SEED = 20260101

OneRun = Callable[[Floats, float, float, float, float, np.random.Generator], float]


@dataclass(frozen=True)
class Setting:
    name: str
    population: Population
    level: float
    epsilon: float
    people: int


TWO_HUMPS = Mixture((Normal(-0.8, 0.5), Normal(1.2, 0.8)), (0.6, 0.4))
SETTINGS = (
    Setting("normal, median", Normal(0.3, 1.0), 0.5, 1.0, 20_000),
    Setting("normal, median, ε = 0.5", Normal(0.3, 1.0), 0.5, 0.5, 20_000),
    Setting("normal, median, ε = 3", Normal(0.3, 1.0), 0.5, 3.0, 20_000),
    Setting("normal, median, n = 200,000", Normal(0.3, 1.0), 0.5, 1.0, 200_000),
    Setting("normal, q = 0.9", Normal(0.3, 1.0), 0.9, 1.0, 20_000),
    Setting("two humps, q = 0.7", TWO_HUMPS, 0.7, 1.0, 20_000),
    Setting("Laplace, median", Laplace(0.3, 0.6), 0.5, 1.0, 20_000),
)


def auto(records: Floats, level: float, epsilon: float, low: float, high: float, rng: np.random.Generator) -> float:
    """privatile, design auto: the default of the command."""
    mechanism = RandomizedResponse.from_epsilon(epsilon)
    columns = [rng.permutation(part) for part in np.array_split(records, CLIENTS)]
    clients = tuple(Client(str(k), mechanism, 1.0 / CLIENTS, level, part.size) for k, part in enumerate(columns))
    plan = AutoPlan(clients, Identity(low, high))
    state, used, trajectory = begin(plan), [0] * CLIENTS, Trajectory()
    while (ask := plan.ask(state)) is not None:
        ones = []
        for k, length in enumerate(ask.lengths):
            truths = columns[k][used[k] : used[k] + length] > ask.query
            used[k] += length
            coins = rng.integers(0, 2**64, size=length, dtype=np.uint64)
            ones.append(int(mechanism.respond(truths, coins).sum()))
        state = step(state, ask, ones, plan)
        trajectory.record(ask, state, plan)
    settings = ReportSettings("records", (plan.level,))
    return choose_interval(settings, gather_evidence(settings, plan, state, trajectory)).center


def by_records(method: OneRun) -> Callable[[Setting, int], tuple[Floats, float]]:
    """A method run on fresh records, one replication after the other."""

    def run(setting: Setting, replications: int) -> tuple[Floats, float]:
        found = np.empty(replications)
        seconds = 0.0
        for i in range(replications):
            rng = np.random.default_rng([SEED, i])
            records = setting.population.sample(setting.people, rng)
            begun = time.process_time()
            found[i] = method(records, setting.level, setting.epsilon, LOW, HIGH, rng)
            seconds += time.process_time() - begun
        return found, seconds / replications

    return run


def cell_of(setting: Setting, method: str, design: Design) -> Cell:
    rate = math.tanh(setting.epsilon / 2.0)
    return Cell(
        populations=(setting.population,) * CLIENTS,
        levels=(setting.level,) * CLIENTS,
        truth_rates=(rate,) * CLIENTS,
        weights=(1.0 / CLIENTS,) * CLIENTS,
        design=design,
        records=(setting.people // CLIENTS,) * CLIENTS,
        method=method,  # type: ignore[arg-type]
        # The middle of the range; a law is wanted, so a very narrow one.
        start=Uniform(-1e-9, 1e-9),
    )


def by_kernel(method: str, design: Design) -> Callable[[Setting, int], tuple[Floats, float]]:
    """A method of the laboratory's compiled kernels: reports drawn from their law."""

    def run(setting: Setting, replications: int) -> tuple[Floats, float]:
        cell = cell_of(setting, method, design)
        run_cell(cell, 1, SEED)
        begun = time.process_time()
        found = run_cell(cell, replications, SEED)
        return found.estimates, (time.process_time() - begun) / replications

    return run


METHODS: dict[str, Callable[[Setting, int], tuple[Floats, float]]] = {
    "privatile, auto": by_records(auto),
    "privatile, cohorts of 10, the paper's step": by_kernel(
        "estimator", Design("cohort", Constant(10), mode="cohort", burn_in=0.1)
    ),
    "the paper, C1": by_kernel("estimator", Design("c1", Constant(1), mode="local", warm_up=0.05)),
    "DP-SGD": by_kernel("dp-sgd", Design("sgd", Constant(1), mode="local", warm_up=0.05)),
    "divide and conquer": by_kernel("divide", Design("dc", Constant(1), mode="local", step_scale=2.0)),
    "Square Wave, EM with smoothing": by_records(square_wave_quantile),
    "Square Wave, EM": by_records(square_wave_plain),
    "hierarchical histogram": by_records(hierarchy_quantile),
    "noisy binary search": by_records(binary_search_quantile),
    "no privacy: sample quantile": by_records(sample_quantile),
}


def compare(setting: Setting, replications: int) -> list[dict[str, object]]:
    bound = cell_of(setting, "estimator", Design("c1", Constant(1))).bound
    truth = setting.population.quantile(setting.level)
    rows: list[dict[str, object]] = []
    for name, run in METHODS.items():
        found, seconds = run(setting, replications)
        errors = found - truth
        rmse = math.sqrt(float(np.mean(errors**2)))
        # Delta method on the mean of squares.
        error = float(np.std(errors**2, ddof=1)) / (2.0 * rmse * math.sqrt(replications))
        rows.append(
            {
                "method": name,
                "error_over_bound": round(rmse / bound, 3),
                "monte_carlo_error": round(error / bound, 3),
                "bias_over_bound": round(float(np.mean(errors)) / bound, 3),
                "milliseconds": float(f"{1e3 * seconds:.3g}"),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=400)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    report: dict[str, object] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "replications": options.replications,
    }
    settings: list[dict[str, object]] = []
    for setting in SETTINGS:
        bound = cell_of(setting, "estimator", Design("c1", Constant(1))).bound
        print(f"\n{setting.name}: ε = {setting.epsilon:g}, n = {setting.people:,}, bound {bound:.5f}")
        print(f"  {'':44s} {'error/bound':>12s} {'± MC':>7s} {'bias/bound':>11s} {'ms a run':>9s}")
        rows = compare(setting, options.replications)
        for row in rows:
            print(
                f"  {row['method']:44s} {row['error_over_bound']:12.3f} {row['monte_carlo_error']:7.3f} "
                f"{row['bias_over_bound']:+11.3f} {row['milliseconds']:9.3g}",
                flush=True,
            )
        settings.append(
            {
                "name": setting.name,
                "level": setting.level,
                "epsilon": setting.epsilon,
                "people": setting.people,
                "efficiency_bound": round(bound, 6),
                "rows": rows,
            }
        )
    report["settings"] = settings
    if options.out:
        options.out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
