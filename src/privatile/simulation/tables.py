"""Survival functions on a grid: what the kernels read instead of calling a CDF ten billion times.

S = 1 − F of a standardised population at equally spaced knots, float32, with the spacing halved until a look-up is
within `ACCURACY` of the exact function: linear interpolation at every quarter of every cell, and the dither's step.
Widths and spacings are powers of two, so that the corners of a uniform population, 0 and 1, fall on knots.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.simulation.populations import Cauchy, Laplace, Normal, Population, StudentT, Uniform

ACCURACY = 1e-6
"""Largest error of a probability. It moves a root by 1e-6/f: a thousandth of the smallest error in the paper."""

FEWEST_CELLS, MOST_CELLS = 1 << 10, 1 << 17
"""From 4 kB, well inside the first-level cache, to 512 kB, the second-level one."""


def standardize(population: Population) -> tuple[Population, float, float]:
    """(standard population, location, scale): clients that differ in these two alone share a table.

    >>> standardize(Normal(3.0, 2.0))
    (Normal(location=0.0, scale=1.0), 3.0, 2.0)
    """
    if isinstance(population, Normal | Cauchy | Laplace | StudentT):
        return replace(population, location=0.0, scale=1.0), *population.frame
    if isinstance(population, Uniform):
        return Uniform(), *population.frame
    return population, 0.0, 1.0


@dataclass(frozen=True)
class Grid:
    """Tables for a set of clients over a range of q, in the layout of the kernels."""

    tables: NDArray[np.float32]
    """One row per standard population, knots along it."""
    rows: NDArray[np.int64]
    lows: Floats
    inverses: Floats
    """For each group of equal clients: its row, its first knot and its cells per unit, in the units of q."""
    groups: NDArray[np.int64]
    """For each client its group."""


def make_grid(populations: Sequence[Population], low: float, high: float) -> Grid | None:
    """Tables that serve q in [low, high] for all clients; none when a population is too rough for one."""
    if not all(population.smooth for population in populations):
        return None
    kinds = list(dict.fromkeys(populations))
    standards = [standardize(kind) for kind in kinds]
    # Clients of one family, apart in location and scale only, share one table over the union of their ranges.
    ends: dict[Population, tuple[float, float]] = {}
    for standard, location, scale in standards:
        start, end = (low - location) / scale, (high - location) / scale
        known = ends.get(standard, (start, end))
        ends[standard] = (min(known[0], start), max(known[1], end))
    # A quarter more than the widest range, then up to a power of two: room for the first knot to be a round number.
    width = 2.0 ** math.ceil(math.log2(1.25 * max(end - start for start, end in ends.values())))
    raster = width / 8.0
    keys = [(standard, raster * math.floor(start / raster)) for standard, (start, _) in ends.items()]
    row = {standard: i for i, standard in enumerate(ends)}
    cells = FEWEST_CELLS
    while any(_error(standard, first, width, cells) > ACCURACY for standard, first in keys):
        cells *= 2
        if cells > MOST_CELLS:
            return None
    return Grid(
        tables=np.stack([_survivals(standard, first, width, cells) for standard, first in keys]),
        rows=np.array([row[standard] for standard, _, _ in standards], dtype=np.int64),
        lows=np.array([location + scale * keys[row[standard]][1] for standard, location, scale in standards]),
        inverses=np.array([cells / width / scale for _, _, scale in standards]),
        groups=np.array([kinds.index(population) for population in populations], dtype=np.int64),
    )


@lru_cache(maxsize=64)
def _survivals(population: Population, first: float, width: float, cells: int) -> NDArray[np.float32]:
    knots = first + width * np.arange(cells + 1) / cells
    table: NDArray[np.float32] = (1.0 - population.cdf(knots)).astype(np.float32)
    table.flags.writeable = False
    return table


@lru_cache(maxsize=256)
def _error(population: Population, first: float, width: float, cells: int) -> float:
    """Largest error of a look-up: of interpolation at the quarters of the cells, and half a step of the dither."""
    table = _survivals(population, first, width, cells).astype(np.float64)
    worst = 0.0
    for part in (0.25, 0.5, 0.75):
        exact = 1.0 - population.cdf(first + width * (np.arange(cells) + part) / cells)
        worst = max(worst, float(np.max(np.abs(table[:-1] + part * np.diff(table) - exact))))
    return worst + float(np.max(np.abs(np.diff(table)))) / 2048.0
