"""What a reader of many simulated results is shown: the headline of each, and the interval that stands beside it.

One entry for both declarations. Values declared continuous are asked by the tuned design and read as smooth; all others
by the straddling design, whose any-shape interval is the headline. A declared grid changes the report alone: the
headline is then the set of grid values that the any-shape interval leaves.
"""

from collections.abc import Sequence
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
    """Where a grid is declared, the first and the last grid value left."""
    other: DisplayedIntervals
    sizes: Floats
    """Grid values left; ∞ where an end is not bounded, NaN without a declared grid."""

    @classmethod
    def joined(cls, parts: "Sequence[ShownResults]") -> "ShownResults":
        """Several blocks of runs as one."""
        headlines, others, sizes = zip(*parts, strict=True)
        return cls(DisplayedIntervals.joined(headlines), DisplayedIntervals.joined(others), np.concatenate(sizes))

    def in_units(self, to_units: Any) -> "ShownResults":
        """The same on another scale; `to_units` is monotone and takes arrays."""
        return self._replace(
            headline=DisplayedIntervals(*(to_units(column) for column in self.headline)),
            other=DisplayedIntervals(*(to_units(column) for column in self.other)),
        )


def simulate_results(
    cell: AutoCell, values: str, runs: int, rng: np.random.Generator, confidence_level: float = 0.95
) -> "ShownResults":
    """The results of `runs` runs with these values declared, `BLOCK` at a time."""
    declared = parse_values(values)
    sizes = [min(BLOCK, runs - first) for first in range(0, runs, BLOCK)]
    return ShownResults.joined([_block(cell, declared, size, rng, confidence_level) for size in sizes])


def _block(
    cell: AutoCell, declared: Declaration, runs: int, rng: np.random.Generator, confidence_level: float
) -> "ShownResults":
    none = np.full(runs, np.nan)
    if declared.continuous:
        found = simulate(cell, runs, rng)
        smooth, other = (
            displayed_intervals(cell, found, (confidence_level,), interval)[0] for interval in ("default", "any-shape")
        )
        return ShownResults(smooth, other, none)
    both = read_straddled(cell, straddle(cell, runs, rng), (confidence_level,))[0]
    headline = both.headline(continuous=False)
    if declared.step is None:
        return ShownResults(headline, both.smooth, none)
    return grid_results(headline, both.smooth, Grid(declared.step))


def grid_results(any_shape: DisplayedIntervals, other: DisplayedIntervals, grid: Grid) -> "ShownResults":
    """The grid values that any-shape intervals leave."""
    pairs = list(zip(any_shape.low.tolist(), any_shape.high.tolist(), strict=True))
    ends = np.array([grid.ends(low, high) for low, high in pairs]).reshape(-1, 2)
    sizes = np.array([grid.count(low, high) for low, high in pairs])
    return ShownResults(DisplayedIntervals(any_shape.center, ends[:, 0], ends[:, 1]), other, sizes)
