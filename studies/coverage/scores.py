"""How a cell of the coverage study fared: the displayed interval and estimate against truth, bound and oracle."""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.errors import require
from privatile.laws.ratio import two_sided_z
from privatile.result.diagnostics import warned
from privatile.simulation.default_design import (
    BLOCK,
    AutoCell,
    AutoRuns,
    DisplayedIntervals,
    displayed_intervals,
    simulate,
)

LEVELS = (0.90, 0.95, 0.99)

Simulate = Callable[[AutoCell, int, int], AutoRuns]
"""Cell, runs and seed: `on_processor` or `on_gpu`."""


def on_processor(cell: AutoCell, runs: int, seed: int) -> AutoRuns:
    """`simulate` with numpy's arrays and draws."""
    return simulate(cell, runs, np.random.default_rng(seed))


def on_gpu(cell: AutoCell, runs: int, seed: int) -> AutoRuns:
    """`simulate` with CuPy's arrays and draws, another stream than numpy's."""
    cupy: Any = require("cupy", "gpu")
    return simulate(cell, runs, cupy.random.default_rng(seed), cupy)


def blocks(cell: AutoCell, runs: int, seed: int, simulated: Simulate, size: int) -> Iterator[AutoRuns]:
    """All runs of a cell, `size` at a time; each block has a seed of its own."""
    for block, first in enumerate(range(0, runs, size)):
        yield simulated(cell, min(size, runs - first), seed + block)


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
    shown: list[list[DisplayedIntervals]] = []
    facts = []
    # Long runs in smaller blocks: a block keeps six numbers per round.
    size = max(20, min(block_size, block_size * 1000 // cell.policy.rounds))
    for block in blocks(cell, runs, seed, simulated, size):
        found = block.on_host()
        shown.append(displayed_intervals(cell, found, LEVELS))
        tuning = found.tuning
        facts.append([found.fit.slope_error, tuning.searched, tuning.spent, warnings(cell, found)])
    slope_error, searched, spent, warns = (np.concatenate(column) for column in zip(*facts, strict=True))
    covered = [DisplayedIntervals.joined(column).covers(cell.truth).mean() for column in zip(*shown, strict=True)]
    usual = DisplayedIntervals.joined([intervals[1] for intervals in shown])
    bounded = np.isfinite(usual.half_width)
    off = usual.center - cell.truth
    wald = two_sided_z(0.95) * cell.bound
    return Score(
        cell.name,
        cell.information,
        runs,
        coverage=float(covered[1]),
        coverage_90=float(covered[0]),
        coverage_99=float(covered[2]),
        error=float(np.abs(off).mean()) / (math.sqrt(2 / math.pi) * cell.bound),
        width=float(usual.half_width[bounded].mean()) / wald if bounded.any() else math.inf,
        bias=float(off.mean()) / cell.bound,
        slope_error=float(np.median(slope_error)),
        search_rounds=float(searched.mean()),
        search_share=float(spent.mean()),
        warned=float(warns.mean()),
        unbounded=float(1.0 - bounded.mean()),
    )


def warnings(cell: AutoCell, runs: AutoRuns) -> NDArray[np.bool_]:
    """Which runs' results would warn."""
    return warned(cell.information, runs.fit, runs.tuning.gave_up)
