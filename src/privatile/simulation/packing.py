"""Cells laid out for the kernels: everything that does not depend on a replication, worked out beforehand.

Cells that share rounds, clients, tables or a data set share them here too, so that a whole paper fits into a few
megabytes.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.errors import InputError
from privatile.simulation.cells import Cell, states, uniforms
from privatile.simulation.populations import Grid, Population, make_grid

LANES = 128
"""Replications per job: as many as the CPU takes side by side, for the range of a job's tables follows its starts."""

COHORT, LOCAL, DIVIDED = range(3)


def chosen_kernel(cell: Cell, groups: int) -> int:
    """The kernel that runs a cell whose clients have `groups` distributions."""
    if cell.method == "divide":
        return DIVIDED
    # With one record per round the two modes are the same; `local` looks up once per client, `cohort` once per group.
    many_groups = 2 * groups > len(cell.populations) and not cell.fixed_data
    single = int(cell.lengths.max()) == 1
    return COHORT if cell.design.mode == "cohort" or (single and not many_groups) or cell.method == "dp-sgd" else LOCAL


CLIENT = np.dtype(
    [
        *((name, "<f8") for name in ("low", "inverse", "unit", "rise", "fall", "share", "move", "drift")),
        ("table", "<i8"),
        *((name, "<f4") for name in ("base", "slope", "noise")),
        *((name, "<u4") for name in ("whole", "lie", "tell", "run", "same_group")),
    ],
    align=True,
)
"""A client as the kernels read it.

low, inverse, unit: its table's first knot, cells per unit of q, and the latter in fixed point. rise, fall: what a one
and a zero move, in steps (divide and conquer: without 1/r_k). share, move: p_k and p_k/r_k. drift: what it takes off
the round's move. table: where its row of survival probabilities begins. base, slope: a report is 1 when the upper 31
bits of its draw are below base + slope·S. noise: p_k times the Laplace scale. whole: p_k/r_k in units of the job's
unit. lie, tell: thresholds when the record is known. run: so many clients from here on are alike, this one included.
same_group: the same distribution as the client before it, so S(q) is known.
"""
ROUND = np.dtype([*((name, "<f8") for name in ("step", "each", "inverse", "square")), ("length", "<i8")], align=True)
"""γ and γ/E; 1/m and w·m² with m counted from the first averaged round, 0 before it; E."""
JOB = np.dtype(
    [
        (name, "<i8")
        for name in (
            *("kind", "clients", "rounds", "cells", "shift", "first_client", "first_round", "first_length"),
            *("noisy", "data", "records", "first_lane"),
        )
    ]
    + [(name, "<f8") for name in ("drift", "unit", "centre", "total", "moment", "averaged", "low", "high")],
    align=True,
)
"""LANES replications of a cell.

first_length: -1 when every client has the round's length; else where a table of lengths by client and round begins,
followed by one of the records asked before. data: -1 when records are drawn; else where the records of the first client
begin, `records` before those of the next.
"""


@dataclass(frozen=True)
class Block:
    """LANES replications of a cell that are still to run, and the range of q its tables must serve."""

    place: int
    """Of the cell among those asked for."""
    cell: Cell
    first: int
    """Its first replication, counted from the first one asked for."""
    words: NDArray[np.uint32] = field(repr=False, compare=False)
    """Their generators."""
    start: Floats = field(repr=False, compare=False)
    """Where q begins in each of them."""
    low: float
    high: float
    data: Floats | None = field(default=None, repr=False, compare=False)
    """The cell's fixed data set; none: that of the released code."""

    def wider(self) -> "Block":
        """The same block with twice the range."""
        middle, half = 0.5 * (self.low + self.high), self.high - self.low
        return replace(self, low=middle - half, high=middle + half)


@dataclass(frozen=True)
class Batch:
    """Jobs and what they point into."""

    blocks: "list[Block]"
    """In the order of the jobs: the longest first."""
    jobs: NDArray[Any]
    clients: NDArray[Any]
    rounds: NDArray[Any]
    lengths: NDArray[np.int32]
    tables: NDArray[np.float32]
    data: Floats
    words: NDArray[np.uint32]
    start: Floats

    def pools(self) -> tuple[NDArray[Any], ...]:
        """The kernels' arguments after the jobs, in order."""
        return self.clients, self.rounds, self.lengths, self.tables, self.data, self.words, self.start


class _Pool:
    """Arrays end to end, each distinct one once."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.size = 0
        self._parts: list[NDArray[Any]] = []
        self._at: dict[Hashable, int] = {}

    def place(self, key: Hashable, make: Callable[[], NDArray[Any]]) -> int:
        """Where the array of this key begins; it is made and appended unless it is here."""
        if key not in self._at:
            values = make()
            self._at[key] = self.size
            self._parts.append(values.astype(self.dtype, copy=False).reshape(-1))
            self.size += values.size
        return self._at[key]

    def joined(self) -> NDArray[Any]:
        """All of it; at least one element, so that it can be pointed at."""
        return np.concatenate(self._parts) if self._parts else np.zeros(1, self.dtype)


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


def laplace_scales(cell: Cell) -> Floats:
    """1/ε_k = 1/log((1+r)/(1−r)) for every client of DP-SGD; empty for other methods."""
    return np.asarray(0.5 / np.arctanh(np.array(cell.truth_rates))) if cell.method == "dp-sgd" else np.empty(0)


def blocks_of(
    place: int, cell: Cell, replications: int, seed: int, first: int = 0, data: Floats | None = None
) -> "list[Block]":
    """A cell's replications from `first` on, cut into blocks."""
    count = -(-replications // LANES) * LANES
    words = states(seed, cell.key, first, count)
    starts = np.asarray(cell.start.quantile(uniforms(seed, cell.key, first, count)))
    blocks = []
    for at in range(0, count, LANES):
        here = slice(at, at + LANES)
        low, high = (-np.inf, np.inf) if cell.fixed_data else first_range(cell, starts[here])
        blocks.append(Block(place, cell, at, words[:, here], starts[here], low, high, data))
    return blocks


def grid_of(block: "Block") -> Grid | None:
    """The block's tables; none when a population is too rough for one. Fixed data needs no table."""
    cell, margin = block.cell, reach(block.cell)
    if cell.fixed_data:
        groups = np.zeros(len(cell.populations), np.int64)
        return Grid(np.zeros((1, 1025), np.float32), np.zeros(1, np.int64), np.zeros(1), np.ones(1), groups)
    return _grid(cell.populations, block.low - margin, block.high + margin)


@lru_cache(maxsize=1024)
def _grid(populations: tuple[Population, ...], low: float, high: float) -> Grid | None:
    return make_grid(populations, low, high)


def pack(blocks: "Sequence[Block]") -> Batch:
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
            known[cell.key] = _schedule(cell, rounds, lengths) | _records(block, data)
        own = (cell.key, block.low, block.high)
        if own not in known:
            known[own] = known[cell.key] | _clients(block, clients, tables) | {"low": block.low, "high": block.high}
        values = known[own] | {"first_lane": LANES * i}
        for name, value in values.items():
            jobs[name][i] = value
    return Batch(
        ordered, jobs, clients.joined(), rounds.joined(), lengths.joined(), tables.joined(), data.joined(), words, start
    )


def _cost(cell: Cell) -> float:
    """Nanoseconds a replication takes when it waits for nothing but itself; only the order matters.

    Measured on an H200 with cells alone on it (`benchmarks/gpu.py --sweep`): a client's turn, and an update in it.
    """
    turns = float(cell.lengths.shape[1] * len(cell.populations))
    if cell.method == "divide":
        return 209.0 * turns
    if cell.method == "dp-sgd":
        return 480.0 * turns
    if int(cell.lengths.max()) == 1:
        return 350.0 * turns
    return 80.0 * cell.updates + 150.0 * turns


def _schedule(cell: Cell, rounds: _Pool, lengths: _Pool) -> dict[str, Any]:
    """Rounds and the constants of the normaliser; divide and conquer averages from its first record."""
    table, steps = cell.lengths, cell.steps
    skip = 0 if cell.method == "divide" else cell.skip
    weights = np.ones(steps.size) if cell.method == "divide" else cell.round_weights
    key = (table.tobytes(), steps.tobytes(), weights.tobytes(), skip)
    number = np.arange(1.0, steps.size - skip + 1.0)

    def rows() -> NDArray[Any]:
        row = np.zeros(steps.size, ROUND)
        row["step"], row["each"], row["length"] = steps, steps / np.maximum(table[0], 1), table[0]
        row["inverse"][skip:], row["square"][skip:] = 1.0 / number, weights[skip:] * number * number
        return row

    own = -1
    if table.shape[0] > 1:
        own = lengths.place(table.tobytes(), lambda: np.stack([table, np.cumsum(table, axis=1) - table]))
    return {
        "first_round": rounds.place(key, rows),
        "first_length": own,
        "rounds": steps.size,
        "averaged": steps.size - skip,
        "centre": cell.truth,
        # One after the other, as the CPU adds them: a pairwise sum would differ in the last bit.
        "total": np.add.accumulate(weights[skip:])[-1],
        "moment": np.add.accumulate(weights[skip:] * number * number)[-1],
    }


def _records(block: "Block", data: _Pool) -> dict[str, Any]:
    """The one data set, when there is one."""
    cell = block.cell
    if not cell.fixed_data:
        return {"data": -1, "records": 0}
    given = block.data
    if given is None:
        return {"data": data.place((cell.populations, cell.asked), cell.data), "records": max(cell.asked)}
    return {"data": data.place(id(given), lambda: given), "records": given.shape[1]}


def _clients(block: "Block", clients: _Pool, tables: _Pool) -> dict[str, Any]:
    """Clients with their tables, and the constants a cell's kernel derives from them."""
    cell, grid = block.cell, grid_of(block)
    if grid is None:
        raise InputError("a population of this cell has no smooth CDF: use the path `records`.")
    kind = chosen_kernel(cell, grid.rows.size)
    cells = grid.tables.shape[1] - 1
    shift = 32 - round(np.log2(cells))
    rates = np.ones(len(cell.truth_rates)) if cell.method == "dp-sgd" else np.array(cell.truth_rates)
    shares = np.array(cell.weights)
    noises = laplace_scales(cell) if cell.method == "dp-sgd" else np.zeros(rates.size)
    levels = np.array(cell.levels) if kind == DIVIDED else np.full(rates.size, cell.level)
    moves = shares / rates
    drifts = shares * ((1.0 - rates) / (2.0 * rates) + 1.0 - cell.level)
    unit = np.add.accumulate(moves)[-1] / 1073741824.0
    at = tables.place(grid.tables.tobytes(), lambda: grid.tables)
    key = (
        kind,
        at,
        cell.lengths.shape[0],
        *(x.tobytes() for x in (grid.lows, grid.inverses, grid.groups, rates, shares, levels, noises)),
    )

    def rows() -> NDArray[Any]:
        row = np.zeros(rates.size, CLIENT)
        own = grid.rows[grid.groups]
        row["low"], row["inverse"] = grid.lows[grid.groups], grid.inverses[grid.groups]
        row["unit"] = row["inverse"] * float(1 << shift)
        row["table"] = at + own * (cells + 1)
        divisor = 2.0 if kind == DIVIDED else 2.0 * rates
        row["rise"] = (1.0 - rates + 2.0 * levels * rates) / divisor
        row["fall"] = (1.0 + rates - 2.0 * levels * rates) / divisor
        row["share"], row["move"], row["drift"], row["noise"] = shares, moves, drifts, shares * noises
        # In a cohort a hair less than 2³¹, so that S = 1 without privacy still fits a signed word.
        row["base"] = (1.0 - rates) * 1073741824.0
        row["slope"] = rates * (2147483520.0 if kind == COHORT else 2147483648.0)
        row["whole"] = np.rint(moves / unit)
        row["lie"] = (1.0 - rates) * 2147483648.0
        row["tell"] = np.minimum((1.0 + rates) * 2147483648.0, 4294967295.0)
        row["same_group"][1:] = grid.groups[1:] == grid.groups[:-1]
        row["run"] = _runs(row, single=cell.lengths.shape[0] > 1)
        return row

    return {
        "kind": kind,
        "clients": rates.size,
        "cells": cells,
        "shift": shift,
        "first_client": clients.place(key, rows),
        "noisy": cell.method == "dp-sgd",
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
