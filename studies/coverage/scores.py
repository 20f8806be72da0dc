"""How a cell of the coverage study fared: the displayed interval and estimate against truth, bound and oracle."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from studies.coverage.displayed_intervals import shown

from privatile.laws.normal import two_sided_z
from privatile.result.diagnostics import troubled
from privatile.simulation.auto_simulation import BLOCK, AutoCell, AutoRuns, simulate

LEVELS = (0.90, 0.95, 0.99)

Simulate = Callable[[AutoCell, int, int], AutoRuns]
"""Cell, runs and seed: on the processor, or `gpu.simulate`."""


def on_processor(cell: AutoCell, runs: int, seed: int) -> AutoRuns:
    """`tuned.simulate` with numpy's draws."""
    return simulate(cell, runs, np.random.default_rng(seed))


class Score(NamedTuple):
    """How a cell fared."""

    name: str
    information: float
    runs: int
    coverage: float
    coverage_90: float
    coverage_99: float
    error: float
    """Mean absolute error over that of the efficiency bound, √(2/π)·bound."""
    width: float
    """Mean width over the oracle Wald interval's, finite intervals only."""
    bias: float
    """In standard errors of the bound."""
    slope_error: float
    search_rounds: float
    search_share: float
    warned: float
    """Share of the runs whose result carries a warning."""
    unbounded: float


def score(cell: AutoCell, runs: int, seed: int, block_size: int = BLOCK, simulated: Simulate = on_processor) -> Score:
    """Run a cell in blocks and sum it up."""
    tables = []
    warned = []
    # Long runs in smaller blocks: a block keeps six numbers a round.
    size = max(20, min(block_size, block_size * 1000 // cell.policy.rounds))
    for block, first in enumerate(range(0, runs, size)):
        got = simulated(cell, min(size, runs - first), seed + block)
        intervals = shown(cell, got, LEVELS)
        covered = [interval.covers(cell.truth) for interval in intervals]
        off, reach = intervals[1].center - cell.truth, intervals[1].half_width
        tables.append(
            np.stack([off, *covered, reach, got.fit.slope_error, got.tuning.searched, got.tuning.spent], axis=1)
        )
        warned.append(warnings(cell, got))
    table = np.concatenate(tables)
    off, reach = table[:, 0], table[:, 4]
    bounded = np.isfinite(reach)
    z = two_sided_z(0.95)
    return Score(
        cell.name,
        cell.information,
        runs,
        coverage=float(table[:, 2].mean()),
        coverage_90=float(table[:, 1].mean()),
        coverage_99=float(table[:, 3].mean()),
        error=float(np.abs(off).mean()) / (math.sqrt(2 / math.pi) * cell.bound),
        width=float(reach[bounded].mean()) / (z * cell.bound) if bounded.any() else math.inf,
        bias=float(off.mean()) / cell.bound,
        slope_error=float(np.median(table[:, 5])),
        search_rounds=float(table[:, 6].mean()),
        search_share=float(table[:, 7].mean()),
        warned=float(np.concatenate(warned).mean()),
        unbounded=float(1.0 - bounded.mean()),
    )


def warnings(cell: AutoCell, runs: AutoRuns) -> NDArray[np.bool_]:
    """Which runs' results would warn; the rules of `diagnostics`."""
    fit = runs.fit
    return troubled(cell.information, fit.slope_error, fit.bend_share, fit.held, runs.tuning.gave_up, fit.suspect)
