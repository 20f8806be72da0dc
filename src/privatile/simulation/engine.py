"""Run a cell: replications in, estimates and normalisers out, then the summary a table shows.

Replications run in blocks of lanes, blocks in threads (the kernels release the interpreter's lock). Memory holds
one block per thread and two numbers per replication, however many rounds there are.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.errors import InputError, require
from privatile.simulation.cells import Cell
from privatile.simulation.samplers import sampler_arrays
from privatile.simulation.streams import states, uniforms
from privatile.simulation.tables import Grid, make_grid

Path = Literal["auto", "law", "records"]
"""How a report is drawn: from its probability (`law`), from a drawn record and coins (`records`), or as fits."""

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


def load_kernels() -> Any:
    """The compiled kernels; without numba an error that says what to install."""
    require("numba", "simulation")
    return importlib.import_module("privatile.simulation.kernels")


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
    kernels = load_kernels()
    lanes = int(kernels.LANES)
    fixed = np.empty((0, 0))
    if cell.fixed_data:
        fixed = cell.data() if data is None else np.ascontiguousarray(data, dtype=np.float64)
    blocks = [(first + at, min(lanes, replications - at)) for at in range(0, replications, lanes)]
    if not blocks:
        raise InputError(f"replications must be at least 1; got {replications}.")

    def run(block: tuple[int, int]) -> tuple[Floats, Floats | None]:
        begin, count = block
        rounds = cell.lengths.shape[1] - cell.skip
        paths = np.empty((rounds if keep_paths else 0, lanes))
        result = _run_block(kernels, cell, seed, begin, lanes, fixed, path, paths)
        return result[:, :count], paths[:, :count].copy() if keep_paths else None

    if threads == 1 or len(blocks) == 1:
        parts = [run(block) for block in blocks]
    else:
        with ThreadPoolExecutor(threads) as pool:
            parts = list(pool.map(run, blocks))
    found = np.concatenate([part[0] for part in parts], axis=1)
    kept = [part[1] for part in parts if part[1] is not None]
    return Outcome(found[0], found[1], np.concatenate(kept, axis=1) if kept else None)


def _run_block(
    kernels: Any, cell: Cell, seed: int, begin: int, lanes: int, data: Floats, path: Path, paths: Floats
) -> Floats:
    """One block; the tables' range grows until no lane has left it."""
    words = states(seed, cell.key, begin, lanes).reshape(-1)
    start = np.asarray(cell.start.quantile(uniforms(seed, cell.key, begin, lanes)))
    if cell.fixed_data:
        if path == "records":
            raise InputError("a fixed data set is never drawn: use the default path.")
        result, _ = _call(kernels, cell, words, start, no_grid(len(cell.populations)), data, paths)
        return result
    low, high = first_range(cell, start)
    margin = reach(cell)
    for _ in range(WIDENINGS):
        grid = make_grid(cell.populations, low - margin, high + margin) if path != "records" else None
        if grid is None:
            if path == "law":
                raise InputError("a population of this cell has no smooth CDF: use the path `records`.")
            return _call_drawn(kernels, cell, words, start, paths)
        result, seen = _call(kernels, cell, words, start, grid, data, paths)
        if seen[0].min() >= low and seen[1].max() <= high:
            return result
        low, high = widened(low, high)
    raise left_every_range(low, high)


def widened(low: float, high: float) -> tuple[float, float]:
    """A range twice as wide, about the same middle."""
    middle, half = 0.5 * (low + high), high - low
    return middle - half, middle + half


def left_every_range(low: float, high: float) -> InputError:
    """The error when q has left the widest range that is tried."""
    return InputError(f"q left every range up to {high - low:.3g} wide: the steps of this design are too large.")


def first_range(cell: Cell, start: Floats) -> tuple[float, float]:
    """Where q will stay, most likely: from the usual starts to the truth and half as far again.

    The usual starts, not those of this block: neighbours in a design then share one table.
    """
    ends = [float(cell.start.quantile(1e-7)), float(cell.start.quantile(1.0 - 1e-7)), cell.truth]
    low, high = min(*ends, float(start.min())), max(*ends, float(start.max()))
    room = 0.25 * (high - low) + reach(cell)
    return low - room, high + room


def reach(cell: Cell) -> float:
    """How far a client may walk from q inside one round: γ·max(a_k, b_k)."""
    rate = min(cell.truth_rates) if cell.method == "estimator" else 1.0
    return float(cell.steps.max()) * (1.0 + rate) / (2.0 * rate)


def no_grid(clients: int) -> Grid:
    """What a kernel is given when it reads no table."""
    return Grid(
        np.zeros((1, 1025), np.float32), np.zeros(1, np.int64), np.zeros(1), np.ones(1), np.zeros(clients, np.int64)
    )


COHORT, LOCAL, DIVIDED = range(3)


def chosen_kernel(cell: Cell, groups: int) -> int:
    """The kernel that runs a cell whose clients have `groups` distributions."""
    if cell.method == "divide":
        return DIVIDED
    # With one record per round the two modes are the same; `local` looks up once per client, `cohort` once per group.
    many_groups = 2 * groups > len(cell.populations) and not cell.fixed_data
    single = int(cell.lengths.max()) == 1
    return COHORT if cell.design.mode == "cohort" or (single and not many_groups) or cell.method == "dp-sgd" else LOCAL


def _call(
    kernels: Any, cell: Cell, words: NDArray[np.uint32], start: Floats, grid: Grid, data: Floats, paths: Floats
) -> tuple[Floats, Floats]:
    """Choose the kernel and call it."""
    kind = chosen_kernel(cell, grid.rows.size)
    tables = (grid.tables, grid.rows, grid.lows, grid.inverses, grid.groups)
    call: Callable[..., tuple[Floats, Floats]]
    if kind == DIVIDED:
        call, rates = kernels.divided, np.array(cell.truth_rates)
        return call(words, start, tables, rates, np.array(cell.levels), cell.steps, cell.truth, data)
    clients, rounds = _clients(cell), _rounds(cell)
    if kind == LOCAL:
        call = kernels.local
        return call(words, start, tables, clients, rounds, data, paths)
    call = kernels.cohort
    return call(words, start, tables, clients, rounds, laplace_scales(cell), data, paths)


def _clients(cell: Cell) -> tuple[Floats, Floats, float]:
    """The kernels' `clients`; DP-SGD adds noise to the truth instead of randomizing it."""
    rates = np.ones(len(cell.truth_rates)) if cell.method == "dp-sgd" else np.array(cell.truth_rates)
    return rates, np.array(cell.weights), cell.level


def _rounds(cell: Cell) -> tuple[Any, ...]:
    """The kernels' `rounds`."""
    return cell.lengths, cell.steps, cell.round_weights, cell.skip, cell.truth


def laplace_scales(cell: Cell) -> Floats:
    """1/ε_k = 1/log((1+r)/(1−r)) for every client of DP-SGD; empty for other methods."""
    return np.asarray(0.5 / np.arctanh(np.array(cell.truth_rates))) if cell.method == "dp-sgd" else np.empty(0)


def _call_drawn(kernels: Any, cell: Cell, words: NDArray[np.uint32], start: Floats, paths: Floats) -> Floats:
    """The record-by-record kernel; divide-and-conquer is one run of it per client, with steps times r_k."""
    if paths.size:
        raise InputError("trajectories are kept by the path `law` only.")
    in_cohort = cell.design.mode == "cohort"
    result: Floats
    if cell.method != "divide":
        sampler = sampler_arrays(cell.populations)
        result, _ = kernels.drawn(words, start, sampler, _clients(cell), _rounds(cell), in_cohort, laplace_scales(cell))
        return result
    rates, one = np.array(cell.truth_rates), np.ones(1)
    lengths, steps, *rest = _rounds(cell)
    result = np.zeros((2, start.size))
    for k, population in enumerate(cell.populations):
        # Each client goes on with generators of its own.
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
