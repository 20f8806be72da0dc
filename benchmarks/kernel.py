"""Nanoseconds an update in the Monte Carlo kernels, and the ratio to a plain Python loop of the same algorithm.

    python benchmarks/kernel.py

One update is one record of one client in one replication. Times are CPU time of one thread, the best of several runs,
so that neighbours on the machine disturb as little as may be. Nothing here is asserted: figures are printed with the
machine they come from.
"""

from __future__ import annotations

import platform
import random
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from privatile.estimator.schedule import PRESETS, Constant, Design
from privatile.simulation.cells import Cell
from privatile.simulation.engine import run_cell
from privatile.simulation.populations import Cauchy, Normal, Population, Uniform

REPLICATIONS = 128
REPEATS = 25


def listing(cell: Cell, rng: np.random.Generator) -> float:
    """Algorithms 1 and 2 as the paper lists them, a record at a time, with numpy's draws; returns Q_T."""
    q, mean, va, vb, vs, vp = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    level = cell.level
    locations = [p.location for p in cell.populations if isinstance(p, Normal)]
    for m, (length, gamma) in enumerate(zip(cell.lengths[0].tolist(), cell.steps.tolist(), strict=True), start=1):
        ends = []
        for k, r in enumerate(cell.truth_rates):
            own, eta = q, gamma / length
            for _ in range(length):
                x = rng.normal(locations[k], 1.0)
                u, v = rng.binomial(1, r), rng.binomial(1, 0.5)
                s = int(x > own) if u == 1 else v
                own += (1 - r + 2 * level * r) / (2 * r) * eta * (s == 1)
                own -= (1 + r - 2 * level * r) / (2 * r) * eta * (s == 0)
            ends.append(own)
        q = sum(p * end for p, end in zip(cell.weights, ends, strict=True))
        mean = ((m - 1) * mean + q) / m
        va, vb, vs, vp = va + m**2 * mean**2 / length, vb + m**2 * mean / length, vs + 1 / length, vp + m**2 / length
    return mean


def tight_loop(cell: Cell, rng: random.Random) -> float:
    """The same with the standard library's faster draws and everything constant taken out of the loop."""
    q, mean, va, vb, vs, vp = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    level = cell.level
    locations = [p.location for p in cell.populations if isinstance(p, Normal)]
    gauss, uniform = rng.gauss, rng.random
    for m, (length, gamma) in enumerate(zip(cell.lengths[0].tolist(), cell.steps.tolist(), strict=True), start=1):
        eta, total = gamma / length, 0.0
        for k, r in enumerate(cell.truth_rates):
            own, mu = q, locations[k]
            rise, fall = (1 - r + 2 * level * r) / (2 * r) * eta, (1 + r - 2 * level * r) / (2 * r) * eta
            for _ in range(length):
                x = gauss(mu, 1.0)
                if x > own if uniform() < r else uniform() < 0.5:
                    own += rise
                else:
                    own -= fall
            total += cell.weights[k] * own
        q = total
        mean = ((m - 1) * mean + q) / m
        va, vb, vs, vp = va + m**2 * mean**2 / length, vb + m**2 * mean / length, vs + 1 / length, vp + m**2 / length
    return mean


def best_seconds(cell: Cell) -> float:
    """CPU seconds of one thread for all replications, the best of several runs."""
    run_cell(cell, 1, seed=0)
    found = []
    for repeat in range(REPEATS):
        begun = time.thread_time()
        run_cell(cell, REPLICATIONS, seed=repeat)
        found.append(time.thread_time() - begun)
    return min(found)


def machine() -> str:
    """Processor and Python."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].split(":", 1)[1].strip() if lines else model
    return f"{model}, Python {platform.python_version()}, numpy {np.__version__}"


def main() -> None:
    c1, c5, log = PRESETS["paper-c1"], PRESETS["paper-c5"], PRESETS["paper-log"]
    alike: tuple[Population, ...] = (Normal(),) * 10
    apart: tuple[Population, ...] = tuple(Normal(float(mu)) for mu in np.random.RandomState(42).randn(10))
    families: tuple[Population, ...] = (Normal(),) * 3 + (Uniform(-1.0, 1.0),) * 3 + (Cauchy(),) * 4

    def cell(populations: tuple[Population, ...], design: Design, rate: float = 0.25) -> Cell:
        return Cell(populations, (0.5,) * 10, (rate,) * 10, (0.1,) * 10, design, (10_000,) * 10)

    estimator = {
        "C1, clients alike": cell(alike, c1),
        "C1, ten locations": cell(apart, c1),
        "C1, three families": cell(families, c1),
        "C5, clients alike": cell(alike, c5),
        "C5, ten locations": cell(apart, c5),
        "Log, three families": cell(families, log),
        "cohorts of 5": cell(apart, Design("cohort", Constant(5))),
        "cohorts of 100": cell(apart, Design("cohort", Constant(100))),
        "C5, one data set": replace(cell(alike, c5), fixed_data=True),
    }
    baselines = {
        "DP-SGD, clients alike": replace(cell(alike, c1), method="dp-sgd"),
        "DP-SGD, ten locations": replace(cell(apart, c1), method="dp-sgd"),
        "divide and conquer": replace(cell(apart, c1), method="divide"),
        "divide and conquer, one data set": replace(cell(alike, c1), method="divide", fixed_data=True),
    }
    print(machine())
    print(f"{REPLICATIONS} replications, one thread, best of {REPEATS}")
    small = replace(cell(apart, c5), records=(1_000,) * 10)
    begun = time.thread_time()
    listing(small, np.random.default_rng(1))
    between = time.thread_time()
    tight_loop(small, random.Random(1))
    slow, fast = ((t / small.updates) * 1e9 for t in (between - begun, time.thread_time() - between))
    print(f"plain Python, the paper's listing with numpy's draws: {slow:,.0f} ns an update")
    print(f"plain Python, the tightest loop we could write:       {fast:,.0f} ns an update")
    for title, cells in (("estimator", estimator), ("baselines", baselines)):
        print(title)
        for name, made in cells.items():
            each = best_seconds(made) / (REPLICATIONS * made.updates) * 1e9
            ratios = f"{slow / each:8,.0f} times the listing {fast / each:8,.0f} times the tight loop"
            print(f"  {name:32s} {each:7.3f} ns an update {ratios}")


if __name__ == "__main__":
    main()
