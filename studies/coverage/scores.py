"""How a cell of the coverage study fared: the displayed interval and estimate against truth, bound and oracle."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from privatile.laws.ratio import two_sided_z
from privatile.result.diagnostics import warned
from privatile.simulation.default_design import (
    BLOCK,
    AutoCell,
    DisplayedIntervals,
    SimulatedRuns,
    displayed_intervals,
    join_blocks,
    simulate,
)

LEVELS = (0.90, 0.95, 0.99)


def blocks(cell: AutoCell, runs: int, seed: int, size: int) -> Iterator[SimulatedRuns]:
    """All runs of a cell, `size` at a time; each block has a seed of its own."""
    for block, first in enumerate(range(0, runs, size)):
        rng = np.random.default_rng(seed + block)
        yield simulate(cell, cell.plan, min(size, runs - first), rng)


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


def score(cell: AutoCell, runs: int, seed: int, block_size: int = BLOCK) -> Score:
    """Run a cell in blocks and sum it up."""
    shown: list[list[DisplayedIntervals]] = []
    facts: list[tuple[float, int, float, bool]] = []
    # Long runs in smaller blocks: a block keeps six numbers per round.
    size = max(20, min(block_size, block_size * 1000 // cell.plan.rounds))
    for found in blocks(cell, runs, seed, size):
        readings = found.readings()
        shown.append(displayed_intervals(found, LEVELS, readings))
        for learned, reading in zip(found.runs, readings, strict=True):
            assert reading.fit is not None
            warns = warned(cell.information, reading.fit, learned.gave_up)
            facts.append((reading.fit.slope_error, learned.searched, learned.spent, warns))
    slope_error, searched, spent, warns = np.array(facts).T
    covered = [join_blocks(column).covers(cell.truth).mean() for column in zip(*shown, strict=True)]
    usual = join_blocks([intervals[1] for intervals in shown])
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
