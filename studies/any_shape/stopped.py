"""Runs that are looked at while they go on: how often both readings ever miss, in both designs.

    python -m studies.any_shape.stopped --runs 2000 --jobs 16

A stop may be chosen by whatever the looks show, so an interval holds at every such stop if it misses at any look in 5%
of runs at most. `fixed` is the control: the smooth interval for a planned end, looked at as often. Runs go one by one
through the code of real runs.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from studies.any_shape.cells import HARD, RATE, make_cell
from studies.coverage.rows import read_rows, write_rows

from privatile.core.arrays import Floats
from privatile.estimator.plan import Plan, begin, step
from privatile.estimator.settings import ReportSettings
from privatile.inference.inference import Inference
from privatile.inference.reading import Reading, read
from privatile.inference.trajectory import Trajectory
from privatile.result.summary import FIRST_LOOK
from privatile.simulation.default_design import AutoCell

RESULTS = Path(__file__).parent / "results" / "stopped.csv"
SEED = 20_261_117
BLOCK = 25
"""Runs of one random stream: with more workers the same numbers come out."""
SMOOTH = (("normal", 0.5, 1500.0), ("log-normal", 0.8, 1500.0), ("two humps", 0.5, 6000.0))
JUMPS = ("trough", "two values", "whole years", "atom at")


class Stopped(NamedTuple):
    """One cell: shares of the runs whose interval misses the quantile at any look."""

    cell: str
    values: str
    runs: int
    any_shape: float
    smooth: float
    fixed: float
    """The smooth interval for a planned end."""
    date: str = ""
    command: str = ""


def looks(cell: AutoCell, values: str, rng: np.random.Generator, every: int) -> Iterator[Reading]:
    """What one run says at its looks, the last of them at its end."""
    plan: Plan = cell.plan if values == "continuous" else cell.straddle_plan
    settings = ReportSettings("simulated values", (cell.level,), value_kind=values, until_width=1.0)
    state, trajectory = begin(plan), Trajectory()
    while (ask := plan.ask(state)) is not None:
        counts = [
            int(rng.binomial(length, 0.5 * (1.0 - rate) + rate * (1.0 - float(law.cdf(np.array(ask.query))))))
            for length, rate, law in zip(ask.lengths, cell.truth_rates, cell.populations, strict=True)
        ]
        state = step(state, ask, counts, plan)
        trajectory.record(ask, state, plan)
        if state.averages.rounds >= FIRST_LOOK and (state.round % every == 0 or plan.ask(state) is None):
            yield read(settings, plan, state, trajectory)


def ever_missed(cell: AutoCell, values: str, rng: np.random.Generator, every: int = 4) -> tuple[bool, bool, bool]:
    """Whether the any-shape, the smooth and the fixed interval of one run miss at any look that shows them."""
    missed = [False, False, False]
    for seen in looks(cell, values, rng, every):
        first, second, fixed = seen.anytime, seen.beside_anytime, seen.smooth
        if first is None or fixed is None:
            raise RuntimeError("a run with averaged rounds has both readings")
        any_shape, smooth = (first, second) if first.is_any_shape else (second, first)
        shown: tuple[Inference | None, ...] = (any_shape, smooth, fixed)
        if values == "any" and seen.contradiction:
            shown = (any_shape, None, None)  # not shown at this look
        for place, reading in enumerate(shown):
            if reading is not None:
                low, high = reading.interval(0.95)
                missed[place] |= not low <= cell.truth <= high
    return missed[0], missed[1], missed[2]


def block(cell: AutoCell, values: str, every: int, seed: Sequence[int]) -> Floats:
    """Rows of `BLOCK` runs that share a random stream."""
    rng = np.random.default_rng(seed)
    return np.array([ever_missed(cell, values, rng, every) for _ in range(BLOCK)], dtype=np.float64)


def cells() -> Iterator[tuple[str, AutoCell]]:
    """Smooth laws, and hard ones on which only the any-shape reading may be used."""
    for smooth, level, information in SMOOTH:
        cell = make_cell(smooth, 1, 0.5, level, information)
        yield f"smooth: {cell.name}", cell
    for name in JUMPS:
        law, level, (low, high) = HARD[name]
        yield f"hard: {name}", AutoCell((law,), (RATE,), (20_000,), level, low=low, high=high)


def main() -> None:
    """Run the cells that are missing or have fewer runs, print them, and write the file anew with all cells."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--every", type=int, default=4)
    parser.add_argument("--only", default="", help="a part of a cell's name; the rows of others are kept")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    kept = {(row.cell, row.values): row for row in read_rows(given.results, Stopped)}
    command = f"python -m studies.any_shape.stopped --runs {given.runs} --every {given.every} --seed {given.seed}"
    wanted = [(number, name, cell, v) for number, (name, cell) in enumerate(cells()) for v in ("any", "continuous")]
    with ProcessPoolExecutor(given.jobs) as pool:
        for number, name, cell, values in wanted:
            key = (name, values)
            if given.only not in name or (key in kept and kept[key].runs >= given.runs):
                continue
            seeds = [[given.seed, number, len(values), k] for k in range(max(1, given.runs // BLOCK))]
            found = np.concatenate(list(pool.map(partial(block, cell, values, given.every), seeds)))
            any_shape, smooth, fixed = found.mean(axis=0).tolist()
            date = time.strftime("%Y-%m-%d")
            kept[key] = Stopped(name, values, len(found), any_shape, smooth, fixed, date, command)
            write_rows([kept[(n, v)] for _, n, _, v in wanted if (n, v) in kept], given.results, digits=4)
            print(*kept[key][:6], flush=True)


if __name__ == "__main__":
    main()
