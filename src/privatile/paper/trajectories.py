"""One run as it goes: the running mean and its interval after every round (Figure 2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.errors import InputError
from privatile.simulation.cells import Cell
from privatile.simulation.engine import run_cell


@dataclass(frozen=True)
class Trajectory:
    """Q_m with its interval against the records asked of a client."""

    records: NDArray[np.int64]
    means: Floats
    half_widths: Floats
    truth: float


def running_normalizers(means: Floats, weights: Floats) -> Floats:
    """V_m after every round, from the running means: Algorithm 2's four sums, about the last mean.

    >>> running_normalizers(np.array([10.0, 11.5]), np.array([1.0, 1.0])).tolist()
    [0.0, 0.28125]
    """
    centred = means - means[-1]
    rounds = np.arange(1, means.size + 1, dtype=np.float64)
    squared = weights * rounds**2
    top = (
        np.cumsum(squared * centred**2) - 2.0 * centred * np.cumsum(squared * centred) + centred**2 * np.cumsum(squared)
    )
    return np.asarray(np.maximum(top, 0.0) / (rounds**2 * np.cumsum(weights)))


def trajectory(cell: Cell, seed: int, replication: int = 0) -> Trajectory:
    """One replication of a cell, round by round; the critical value is that of the whole schedule."""
    if cell.skip:
        raise InputError("a trajectory is drawn from the first round on: use a design without burn-in.")
    paths = run_cell(cell, 1, seed, first=replication, keep_paths=True).paths
    if paths is None:
        raise InputError("this cell keeps no trajectory.")
    means = paths[:, 0]
    half = cell.critical_value * np.sqrt(running_normalizers(means, cell.round_weights))
    return Trajectory(np.cumsum(cell.lengths[0]), means, half, cell.truth)
