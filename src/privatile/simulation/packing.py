"""Cells laid out for the CUDA kernel: everything that does not depend on a replication, worked out beforehand.

The structs mirror those of kernels.cu, field by field. Cells that share rounds, clients, tables or a data set share
them here too, so that a whole paper fits into a few megabytes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.errors import InputError
from privatile.simulation.cells import Cell
from privatile.simulation.engine import (
    COHORT,
    DIVIDED,
    LOCAL,
    chosen_kernel,
    first_range,
    laplace_scales,
    no_grid,
    reach,
    widened,
)
from privatile.simulation.populations import Population
from privatile.simulation.streams import states, uniforms
from privatile.simulation.tables import Grid, make_grid

LANES = 128
"""Replications per job: as many as the CPU takes side by side, for the range of a job's tables follows its starts."""

LOCAL_FIXED = 3
"""Beside the kernels that the engine chooses from: `local` on fixed records."""

CLIENT = np.dtype(
    [(name, "<f8") for name in ("low", "inverse", "unit", "rise", "fall", "share", "move")]
    + [("table", "<i8")]
    + [(name, "<f4") for name in ("base", "slope", "noise")]
    + [(name, "<u4") for name in ("whole", "lie", "tell", "run", "same_group")]
)
ROUND = np.dtype(
    [(name, "<f8") for name in ("step", "each", "inverse", "square")] + [("length", "<i8"), ("unused", "<i8")]
)
JOB = np.dtype(
    [
        (name, "<i8")
        for name in (
            *("kind", "clients", "rounds", "cells", "shift", "first_client", "first_round", "first_length"),
            *("noisy", "groups", "data", "records", "lanes", "first_lane"),
        )
    ]
    + [(name, "<f8") for name in ("drift", "unit", "centre", "total", "moment", "averaged", "low", "high")]
)


@dataclass(frozen=True)
class Block:
    """LANES replications of a cell that are still to run, and the range of q its tables must serve."""

    place: int
    """Of the cell among those asked for."""
    cell: Cell
    first: int
    """The first replication."""
    words: NDArray[np.uint32] = field(repr=False, compare=False)
    """Their generators."""
    start: Floats = field(repr=False, compare=False)
    """Where q begins in each of them."""
    low: float
    high: float

    def wider(self) -> Block:
        """The same block with twice the range."""
        low, high = widened(self.low, self.high)
        return replace(self, low=low, high=high)


@dataclass(frozen=True)
class Batch:
    """Jobs and what they point into."""

    blocks: list[Block]
    """In the order of the jobs: the longest first."""
    jobs: NDArray[Any]
    clients: NDArray[Any]
    rounds: NDArray[Any]
    lengths: NDArray[np.int32]
    tables: NDArray[np.float32]
    data: Floats
    words: NDArray[np.uint32]
    start: Floats

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The kernel's arguments, in order."""
        return (
            *(self.jobs, self.clients, self.rounds, self.lengths, self.tables),
            *(self.data, self.words.reshape(-1), self.start),
        )


class _Pool:
    """Arrays end to end, each distinct one once."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.size = 0
        self._parts: list[NDArray[Any]] = []
        self._at: dict[Hashable, int] = {}

    def place(self, key: Hashable) -> int | None:
        """Where the array of this key begins, if it is here."""
        return self._at.get(key)

    def add(self, key: Hashable, values: NDArray[Any]) -> int:
        """Append an array; returns where it begins."""
        at = self._at[key] = self.size
        self._parts.append(values.astype(self.dtype, copy=False).reshape(-1))
        self.size += values.size
        return at

    def once(self, key: Hashable, values: NDArray[Any]) -> int:
        """Append an array unless it is here; returns where it begins."""
        at = self.place(key)
        return self.add(key, values) if at is None else at

    def joined(self) -> NDArray[Any]:
        """All of it; at least one element, so that it can be pointed at."""
        return np.concatenate(self._parts) if self._parts else np.zeros(1, self.dtype)


def blocks_of(place: int, cell: Cell, replications: int, seed: int) -> list[Block]:
    """A cell's replications, from the first, cut into blocks."""
    count = -(-replications // LANES) * LANES
    words = states(seed, cell.key, 0, count)
    starts = np.asarray(cell.start.quantile(uniforms(seed, cell.key, 0, count)))
    blocks = []
    for first in range(0, count, LANES):
        here = slice(first, first + LANES)
        low, high = (-np.inf, np.inf) if cell.fixed_data else first_range(cell, starts[here])
        blocks.append(Block(place, cell, first, words[:, here], starts[here], low, high))
    return blocks


def grid_of(block: Block) -> Grid | None:
    """The block's tables; none when a population is too rough for one. Fixed data needs no table."""
    cell, margin = block.cell, reach(block.cell)
    if cell.fixed_data:
        return no_grid(len(cell.populations))
    return _grid(cell.populations, block.low - margin, block.high + margin)


@lru_cache(maxsize=1024)
def _grid(populations: tuple[Population, ...], low: float, high: float) -> Grid | None:
    return make_grid(populations, low, high)


def pack(blocks: Sequence[Block]) -> Batch:
    """Lay out blocks; those with the most work come first."""
    costs = {block.cell.key: _cost(block.cell) for block in blocks}
    ordered = sorted(blocks, key=lambda block: -costs[block.cell.key])
    clients, rounds, lengths = _Pool(CLIENT), _Pool(ROUND), _Pool(np.int32)
    tables, data = _Pool(np.float32), _Pool(np.float64)
    jobs = np.zeros(len(ordered), JOB)
    lanes = LANES * len(ordered)
    words, start = np.empty((4, lanes), np.uint32), np.empty(lanes)
    known: dict[Hashable, dict[str, Any]] = {}
    for i, block in enumerate(ordered):
        cell, here = block.cell, slice(LANES * i, LANES * (i + 1))
        words[:, here], start[here] = block.words, block.start
        if cell.key not in known:
            known[cell.key] = _schedule(cell, rounds, lengths) | _records(cell, data)
        own = (cell.key, block.low, block.high)
        if own not in known:
            known[own] = known[cell.key] | _clients(block, clients, tables) | {"low": block.low, "high": block.high}
        values = known[own] | {"lanes": lanes, "first_lane": LANES * i}
        for name, value in values.items():
            jobs[name][i] = value
    return Batch(
        ordered,
        jobs,
        clients.joined(),
        rounds.joined(),
        lengths.joined(),
        tables.joined(),
        data.joined(),
        words,
        start,
    )


def _cost(cell: Cell) -> float:
    """Nanoseconds a replication takes when it waits for nothing but itself; only the order matters.

    Measured on an H200 with cells alone on it (`benchmarks/gpu.py --sweep`): a client's turn, and an update in it.
    """
    turns = float(cell.lengths.shape[1] * len(cell.populations))
    if cell.method == "divide":
        return 154.0 * turns
    if cell.method == "dp-sgd":
        return 110.0 * turns
    if int(cell.lengths.max()) == 1:
        return 62.0 * turns
    return 57.0 * cell.updates + 90.0 * turns


def _schedule(cell: Cell, rounds: _Pool, lengths: _Pool) -> dict[str, Any]:
    """Rounds and the constants of the normaliser; divide and conquer averages from its first record."""
    table, steps = cell.lengths, cell.steps
    if int(table.min()) < 1:
        raise InputError("on cuda every client is asked in every round; this design leaves some out. Use --device cpu.")
    skip = 0 if cell.method == "divide" else cell.skip
    weights = np.ones(steps.size) if cell.method == "divide" else cell.round_weights
    key = (table.tobytes(), steps.tobytes(), weights.tobytes(), skip)
    first = rounds.place(key)
    number = np.arange(1.0, steps.size - skip + 1.0)
    if first is None:
        row = np.zeros(steps.size, ROUND)
        row["step"], row["each"], row["length"] = steps, steps / table[0], table[0]
        row["inverse"][skip:], row["square"][skip:] = 1.0 / number, weights[skip:] * number * number
        first = rounds.add(key, row)
    own = -1
    if table.shape[0] > 1:
        own = lengths.once(table.tobytes(), table)
    return {
        "first_round": first,
        "first_length": own,
        "rounds": steps.size,
        "averaged": steps.size - skip,
        "centre": cell.truth,
        # One after the other, as the CPU adds them: a pairwise sum would differ in the last bit.
        "total": np.add.accumulate(weights[skip:])[-1],
        "moment": np.add.accumulate(weights[skip:] * number * number)[-1],
    }


def _records(cell: Cell, data: _Pool) -> dict[str, Any]:
    """The one data set, when there is one."""
    if not cell.fixed_data:
        return {"data": -1, "records": 0}
    if cell.lengths.shape[0] > 1:
        raise InputError("on cuda a fixed data set needs clients of equal size. Use --device cpu.")
    key = (cell.populations, cell.asked)
    first = data.place(key)
    if first is None:
        first = data.add(key, cell.data())
    return {"data": first, "records": max(cell.asked)}


def _clients(block: Block, clients: _Pool, tables: _Pool) -> dict[str, Any]:
    """Clients with their tables, and the constants a cell's kernel derives from them."""
    cell, grid = block.cell, grid_of(block)
    if grid is None:
        raise InputError("a population of this cell has no smooth CDF, which the cuda kernel reads. Use --device cpu.")
    kind = chosen_kernel(cell, grid.rows.size)
    if kind == LOCAL and cell.fixed_data:
        kind = LOCAL_FIXED
    cells = grid.tables.shape[1] - 1
    shift = 32 - round(np.log2(cells))
    rates = np.ones(len(cell.truth_rates)) if cell.method == "dp-sgd" else np.array(cell.truth_rates)
    shares = np.array(cell.weights)
    noises = laplace_scales(cell) if cell.method == "dp-sgd" else np.zeros(rates.size)
    levels = np.array(cell.levels) if kind == DIVIDED else np.full(rates.size, cell.level)
    moves = shares / rates
    unit = np.add.accumulate(moves)[-1] / 1073741824.0
    at = tables.once(grid.tables.tobytes(), grid.tables)
    key = (
        kind,
        at,
        cell.lengths.shape[0],
        *(x.tobytes() for x in (grid.lows, grid.inverses, grid.groups, rates, shares, levels, noises)),
    )
    first = clients.place(key)
    if first is None:
        row = np.zeros(rates.size, CLIENT)
        own = grid.rows[grid.groups]
        row["low"], row["inverse"] = grid.lows[grid.groups], grid.inverses[grid.groups]
        row["unit"] = row["inverse"] * float(1 << shift)
        row["table"] = at + own * (cells + 1)
        divisor = 2.0 if kind == DIVIDED else 2.0 * rates
        row["rise"] = (1.0 - rates + 2.0 * levels * rates) / divisor
        row["fall"] = (1.0 + rates - 2.0 * levels * rates) / divisor
        row["share"], row["move"], row["noise"] = shares, moves, shares * noises
        if kind == COHORT:
            row["base"], row["slope"] = (1.0 - rates) * 2147483648.0, rates * 4294967040.0
        else:
            row["base"], row["slope"] = (1.0 - rates) * 1073741824.0, rates * 2147483648.0
        row["whole"] = np.rint(moves / unit)
        row["lie"] = (1.0 - rates) * 2147483648.0
        row["tell"] = np.minimum((1.0 + rates) * 2147483648.0, 4294967295.0)
        row["same_group"][1:] = grid.groups[1:] == grid.groups[:-1]
        row["run"] = _runs(row, single=cell.lengths.shape[0] > 1)
        first = clients.add(key, row)
    drifts = shares * ((1.0 - rates) / (2.0 * rates) + 1.0 - cell.level)
    return {
        "kind": kind,
        "clients": rates.size,
        "cells": cells,
        "shift": shift,
        "first_client": first,
        "noisy": cell.method == "dp-sgd",
        "groups": grid.rows.size,
        "drift": np.add.accumulate(drifts)[-1],
        "unit": unit,
    }


def _runs(rows: NDArray[Any], single: bool) -> NDArray[np.int64]:
    """How many clients, from each one on, are alike in all but their number; 1 where each has lengths of its own."""
    runs = np.ones(rows.size, dtype=np.int64)
    plain = rows.copy()
    plain["same_group"] = 0
    for k in range(rows.size - 2, -1, -1):
        if not single and plain[k] == plain[k + 1]:
            runs[k] = runs[k + 1] + 1
    return runs
