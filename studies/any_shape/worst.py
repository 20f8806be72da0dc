"""The level of the any-shape interval where it is used up: python -m studies.any_shape.worst [--runs N]

F jumps to exactly τ at 0 and stays there until 1: the quantile is 0, and a low end above 0 would be an error of that
side. Mirrored, F stays a billionth below τ until 1: the quantile is 1, and a high end below it is an error. `edge` has
the mirrored law with its first value at the low end of the range, where the high side may ask that end itself. Every
case is one row of results/worst.csv: the share of runs in which the side errs, allowed 0.025. A case that the file has
with as many runs is not run again.
"""

import argparse
import itertools
import math
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from studies.any_shape.laws import Steps
from studies.coverage.rows import read_rows, write_rows

from privatile.simulation.default_design import AutoCell, simulate

LEVELS = (0.1, 0.5, 0.8, 0.9)
RATES = (math.tanh(0.5), 0.905, 0.999)
"""ε = 1 and 3, and hardly any noise."""
INFORMATION = 750.0
SIDE = 0.025
BELOW = 1e-9
"""How far below τ the mirrored law stays."""
RESULTS = Path(__file__).parent / "results" / "worst.csv"


class Worst(NamedTuple):
    """One case."""

    case: str
    level: float
    truth_rate: float
    records: int
    runs: int
    error: float
    """Share of the runs in which the side errs."""
    bounded: float
    date: str = ""
    command: str = ""


def cell_of(case: str, level: float, rate: float) -> AutoCell:
    """A case with the information that all of them have."""
    records = math.ceil(INFORMATION / (4.0 * rate**2 * (level * (1.0 - level)) ** 2))
    first = level if case == "low" else level - BELOW
    range_low = 0.0 if case == "edge" else -2.0
    return AutoCell(
        (Steps((0.0, 1.0), (first, 1.0 - first)),), (rate,), (records,), level, low=range_low, high=3.0, name=case
    )


def measure_worst(case: str, level: float, rate: float, runs: int, seed: int) -> "Worst":
    """How often the side errs for which the case is the worst."""
    cell = cell_of(case, level, rate)
    low, high = simulate(cell, cell.straddle_plan, runs, np.random.default_rng(seed)).ends(1.0 - 2.0 * SIDE)
    wrong = low >= 0.0 if case == "low" else high < 1.0
    # What the range cuts off is bounded by it.
    bounded = np.isfinite(high) & (np.isfinite(low) | (case == "edge"))
    return Worst(case, level, round(rate, 4), cell.records[0], runs, float(wrong.mean()), float(bounded.mean()))


def main() -> None:
    """All cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--block", type=int, default=500)
    parser.add_argument("--seed", type=int, default=20_261_116)
    options = parser.parse_args()
    kept = {row[:3]: row for row in read_rows(RESULTS, Worst)}
    seed = options.seed
    for case, level, rate in itertools.product(("low", "high", "edge"), LEVELS, RATES):
        seed += 1_000
        key = (case, level, round(rate, 4))
        if key in kept and kept[key].runs >= options.runs:
            continue
        blocks = range(math.ceil(options.runs / options.block))
        parts = [measure_worst(case, level, rate, options.block, seed + k) for k in blocks]
        error, bounded = (float(np.mean([getattr(part, name) for part in parts])) for name in ("error", "bounded"))
        command = f"python -m studies.any_shape.worst --runs {options.runs} --seed {options.seed}"
        kept[key] = parts[0]._replace(
            runs=options.block * len(parts),
            error=error,
            bounded=bounded,
            date=time.strftime("%Y-%m-%d"),
            command=command,
        )
        print(*kept[key], flush=True)
        write_rows(list(kept.values()), RESULTS)
    rows = list(kept.values())
    mean = float(np.mean([row.error for row in rows]))
    print(f"mean error {mean:.4f}, largest {max(row.error for row in rows):.4f}, allowed {SIDE}")


if __name__ == "__main__":
    main()
