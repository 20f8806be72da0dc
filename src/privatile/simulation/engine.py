"""Run a cell: replications in, estimates and normalisers out, then the summary a table shows.

Replications run in blocks of lanes, blocks in threads (the kernels release the interpreter's lock). Memory holds
one block per thread and two numbers per replication, however many rounds there are.
"""

import importlib
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from privatile.core.arrays import Floats
from privatile.errors import InputError, require
from privatile.simulation.cells import Cell
from privatile.simulation.packing import LANES, Batch, Block, blocks_of, grid_of, laplace_scales, pack
from privatile.simulation.populations import sampler_arrays

Path = Literal["auto", "law", "records"]
"""How a report is drawn: from its probability (`law`), from a drawn record and coins (`records`), or as fits."""

Launch = Callable[[Batch, Floats], Floats]
"""Runs a batch; returns three rows by lane: estimate, normaliser, and 1 where q stayed in range.

The second argument takes the running means, rounds by lanes, when it has rows; a GPU keeps none.
"""

WIDENINGS = 12
"""How often the range of the tables may be doubled before a run counts as diverged: a factor of 4,096."""


@dataclass(frozen=True)
class Outcome:
    """What every replication found."""

    estimates: Floats
    normalizers: Floats
    paths: Floats | None = None
    """Running means, rounds by replications, when asked for."""


@dataclass(frozen=True)
class Summary:
    """A cell's operating characteristics, each with its Monte Carlo standard error."""

    replications: int
    truth: float
    critical_value: float
    coverage: float
    coverage_error: float
    coverage_beside: float
    """Coverage with the cell's second critical value; NaN without one."""
    mae: float
    mae_error: float
    bias: float
    bias_error: float
    rmse: float
    width: float
    width_error: float
    bound: float
    updates: int
    """Records answered in all replications together."""
    bounded: float = 1.0
    """Share of the intervals with two finite ends; `width` is that of these."""
    other_coverage: float = math.nan
    other_width: float = math.nan
    """Of the interval that stands beside the one shown first; NaN where there is none."""
    values_left: float = math.nan
    """Median size of the set of grid values; NaN where no grid was declared."""


def load_kernels() -> Any:
    """The compiled kernels; without numba an error that says what to install."""
    require("numba", "simulation")
    return importlib.import_module("privatile.simulation.kernels")


def cpu_launch(threads: int = 1) -> Launch:
    """Runs a batch on the CPU, every job in a thread."""
    kernels = load_kernels()

    def launch(batch: Batch, paths: Floats) -> Floats:
        result = np.full((3, batch.start.size), np.nan)

        def run(index: int) -> None:
            kernels.simulate(batch.jobs[index : index + 1], *batch.pools(), result, paths)

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(run, range(batch.jobs.size)))
        return result

    return launch


def run_cell(
    cell: Cell,
    replications: int,
    seed: int,
    *,
    first: int = 0,
    threads: int = 1,
    path: Path = "auto",
    keep_paths: bool = False,
    data: Floats | None = None,
) -> Outcome:
    """Replications first … first + replications − 1 of a cell.

    The numbers of a replication depend on (seed, cell, its index) alone; with `fixed_data` also on `data` (clients by
    records), or without it on the data set of the released code.
    """
    if path == "records" and cell.fixed_data:
        raise InputError("a fixed data set is never drawn: use the default path.")
    table = None if data is None else np.ascontiguousarray(data, dtype=np.float64)
    blocks = blocks_of(0, cell, replications, seed, first, table)
    (outcome,) = _run_blocks([cell], blocks, replications, cpu_launch(threads), threads, path, keep_paths)
    return outcome


def run_cells(cells: Sequence[Cell], replications: int, seed: int, launch: Launch) -> list[Outcome]:
    """Replications 0 … replications − 1 of every cell, all cells at once; the numbers are those of `run_cell`."""
    blocks = [block for place, cell in enumerate(cells) for block in blocks_of(place, cell, replications, seed)]
    return _run_blocks(cells, blocks, replications, launch)


def _run_blocks(
    cells: Sequence[Cell],
    blocks: Sequence[Block],
    replications: int,
    launch: Launch,
    threads: int = 1,
    path: Path = "auto",
    keep_paths: bool = False,
) -> list[Outcome]:
    """Run blocks; one whose q left its tables runs again with wider ones, one that has no tables record by record."""
    if replications < 1:
        raise InputError(f"replications must be at least 1; got {replications}.")
    lanes = -(-replications // LANES) * LANES
    found = np.empty((len(cells), 2, lanes))
    rounds = cells[0].lengths.shape[1] - cells[0].skip if keep_paths else 0
    paths = np.empty((rounds, lanes if keep_paths else 0))
    waiting = list(blocks)
    for _ in range(WIDENINGS):
        rough = [b for b in waiting if path == "records" or (path == "auto" and grid_of(b) is None)]
        if rough and keep_paths:
            raise InputError("trajectories are kept by the path `law` only.")
        with ThreadPoolExecutor(threads) as pool:
            for block, values in zip(rough, pool.map(_run_drawn, rough), strict=True):
                found[block.place][:, block.first : block.first + LANES] = values
        waiting = [block for block in waiting if block not in rough]
        if not waiting:
            break
        batch = pack(waiting)
        kept = np.empty((rounds, batch.start.size if keep_paths else 0))
        result = launch(batch, kept)
        waiting = []
        for i, block in enumerate(batch.blocks):
            there, here = slice(block.first, block.first + LANES), slice(LANES * i, LANES * (i + 1))
            if result[2, here].all():
                found[block.place][:, there] = result[:2, here]
                paths[:, there] = kept[:, here]
            else:
                waiting.append(block.wider())
    if waiting:
        width = waiting[0].high - waiting[0].low
        raise InputError(f"q left every range up to {width:.3g} wide: the steps of this design are too large.")
    whole = paths[:, :replications].copy() if keep_paths else None
    return [Outcome(one[:replications].copy(), other[:replications].copy(), whole) for one, other in found]


def _run_drawn(block: Block) -> Floats:
    """The record-by-record kernel; divide-and-conquer is one run of it per client, with steps times r_k."""
    kernels, cell = load_kernels(), block.cell
    words, start = np.ascontiguousarray(block.words).reshape(-1), block.start
    in_cohort = cell.design.mode == "cohort"
    rates, shares = np.array(cell.truth_rates), np.array(cell.weights)
    lengths, steps, *rest = cell.lengths, cell.steps, cell.round_weights, cell.skip, cell.truth
    result: Floats
    if cell.method != "divide":
        # DP-SGD adds noise to the truth instead of randomizing it.
        clients = (np.ones(rates.size) if cell.method == "dp-sgd" else rates, shares, cell.level)
        rounds, noises = (lengths, steps, *rest), laplace_scales(cell)
        result, _ = kernels.drawn(words, start, sampler_arrays(cell.populations), clients, rounds, in_cohort, noises)
        return result
    one = np.ones(1)
    result = np.zeros((2, start.size))
    for k, population in enumerate(cell.populations):
        # Each client continues with generators of its own.
        own = words + np.uint32(0x9E3779B9 * k & 0xFFFFFFFF)
        client = (rates[k : k + 1], one, cell.levels[k])
        rounds = (lengths, steps * rates[k], *rest)
        found, _ = kernels.drawn(own, start, sampler_arrays((population,)), client, rounds, in_cohort, one[:0])
        result += found / len(cell.populations)
    return result


def summarize(cell: Cell, outcome: Outcome) -> Summary:
    """Coverage, error and width, with standard errors from the replications themselves."""
    errors = outcome.estimates - cell.truth
    halves = cell.critical_value * np.sqrt(outcome.normalizers)
    count = errors.size
    coverage = float(np.mean(np.abs(errors) <= halves))
    beside = math.nan
    if cell.critical_beside is not None:
        beside = float(np.mean(np.abs(errors) <= cell.critical_beside * np.sqrt(outcome.normalizers)))

    def standard_error(values: Floats) -> float:
        return float(np.std(values, ddof=1) / math.sqrt(count)) if count > 1 else math.nan

    return Summary(
        replications=count,
        truth=cell.truth,
        critical_value=cell.critical_value,
        coverage=coverage,
        coverage_error=math.sqrt(coverage * (1.0 - coverage) / count),
        coverage_beside=beside,
        mae=float(np.mean(np.abs(errors))),
        mae_error=standard_error(np.abs(errors)),
        bias=float(np.mean(errors)),
        bias_error=standard_error(errors),
        rmse=float(np.sqrt(np.mean(errors**2))),
        width=float(np.mean(2.0 * halves)),
        width_error=standard_error(2.0 * halves),
        bound=cell.bound,
        updates=count * cell.updates,
    )
