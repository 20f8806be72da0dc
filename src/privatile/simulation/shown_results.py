"""What a reader of many simulated results is shown: the headline of each, and the interval that stands beside it.

One entry for both declarations. Values declared continuous are asked by the tuned design and read as smooth; all others
by the straddling design, whose any-shape interval is the headline. A declared grid changes the report alone: the
headline is then the set of grid values that the any-shape interval leaves.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from privatile.core.arrays import Floats
from privatile.estimator.values import Declaration, parse_values
from privatile.inference.grid_values import Grid
from privatile.simulation.auto_simulation import BLOCK, AutoCell, simulate
from privatile.simulation.displayed_intervals import DisplayedIntervals, displayed_intervals
from privatile.simulation.straddled_simulation import read_straddled, straddle


class ShownResults(NamedTuple):
    """The results of many runs at one confidence level, in units; an end that is not bounded is infinite."""

    headline: DisplayedIntervals
    """Where a grid is declared, the first and the last grid value left, cut at the range as a result cuts them; NaN
    where the answers contradict the declaration: no set is shown, so none covers."""
    other: DisplayedIntervals
    sizes: Floats
    """Grid values left; ∞ where nothing is bounded, NaN where no set is shown: no grid, or a contradicted one."""

    @classmethod
    def joined(cls, parts: "Sequence[ShownResults]") -> "ShownResults":
        """Several blocks of runs as one."""
        headlines, others, sizes = zip(*parts, strict=True)
        return cls(DisplayedIntervals.joined(headlines), DisplayedIntervals.joined(others), np.concatenate(sizes))


def simulate_results(
    cell: AutoCell,
    values: str,
    runs: int,
    rng: np.random.Generator,
    confidence_level: float = 0.95,
    to_units: Callable[[Any], Any] = np.asarray,
) -> "ShownResults":
    """The results of `runs` runs with these values declared, `BLOCK` at a time.

    `to_units` maps the cell's working scale to units, in which a grid is declared.
    """
    declared = parse_values(values)
    sizes = [min(BLOCK, runs - first) for first in range(0, runs, BLOCK)]
    return ShownResults.joined([_block(cell, declared, size, rng, confidence_level, to_units) for size in sizes])


def _block(
    cell: AutoCell,
    declared: Declaration,
    runs: int,
    rng: np.random.Generator,
    confidence_level: float,
    to_units: Callable[[Any], Any],
) -> "ShownResults":
    if declared.continuous:
        found = simulate(cell, runs, rng)
        first, other = (
            displayed_intervals(cell, found, (confidence_level,), interval)[0] for interval in ("default", "any-shape")
        )
    else:
        both = read_straddled(cell, straddle(cell, runs, rng), (confidence_level,))[0]
        first, other = both.any_shape, both.smooth
    first, other = (DisplayedIntervals(*map(to_units, part)) for part in (first, other))
    if declared.step is None:
        return ShownResults(first, other, np.full(runs, np.nan))
    return grid_results(first, other, Grid(declared.step), float(to_units(cell.low)), float(to_units(cell.high)))


def grid_results(
    any_shape: DisplayedIntervals, other: DisplayedIntervals, grid: Grid, lowest: float, highest: float
) -> "ShownResults":
    """The grid values that any-shape intervals leave, in units; `lowest` and `highest` are the stated range.

    >>> low, high = np.array([43.2, 43.2, -np.inf]), np.array([45.0, 43.7, 1.0])
    >>> pairs = DisplayedIntervals(high, low, high)
    >>> shown = grid_results(pairs, pairs, Grid(1.0), 0.0, 120.0)
    >>> shown.sizes.tolist(), shown.headline.low.tolist(), shown.headline.covers(44.0).tolist()
    ([2.0, nan, 2.0], [44.0, nan, 0.0], [True, False, False])
    """
    pairs = [
        grid.inside(low, high, lowest, highest)
        for low, high in zip(any_shape.low.tolist(), any_shape.high.tolist(), strict=True)
    ]
    ends = np.array([grid.ends(low, high) for low, high in pairs]).reshape(-1, 2)
    sizes = np.array([grid.count(low, high) for low, high in pairs])
    return ShownResults(DisplayedIntervals(any_shape.center, ends[:, 0], ends[:, 1]), other, sizes)
