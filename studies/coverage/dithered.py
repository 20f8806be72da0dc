"""A heaped column as a population: a file's values plus uniform dither, on the logarithmic working scale."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privatile.core.arrays import Floats
from privatile.errors import InputError
from privatile.simulation.populations import Population


@dataclass(frozen=True, eq=False)
class DitheredLog(Population):
    """log(X + U), X drawn from `values`, U uniform on ±width/2: its CDF is piecewise linear in x, exactly.

    A sum below zero lies below every question a log scale can ask.

    >>> law = DitheredLog(np.array([100.0, 200.0]), 10.0)
    >>> round(float(law.cdf(np.log(100.0))), 6), round(float(np.exp(law.quantile(0.25))), 6)
    (0.25, 100.0)
    """

    values: Floats
    width: float

    def __post_init__(self) -> None:
        if not self.width > 0 or not len(self.values):
            raise InputError("a dithered population needs values and a positive width.")

    @cached_property
    def _knots(self) -> tuple[Floats, Floats]:
        """Points between which the CDF is linear, and its values there."""
        half = self.width / 2
        points = np.unique(np.concatenate([self.values - half, self.values + half]))
        ordered = np.sort(self.values)
        sums = np.concatenate([[0.0], np.cumsum(ordered)])
        # F(x) = mean of clip((x − v)/w + ½, 0, 1): values below x − w/2 count whole, those within the window in part.
        low, high = np.searchsorted(ordered, points - half), np.searchsorted(ordered, points + half)
        part = (high - low) * (points / self.width + 0.5) - (sums[high] - sums[low]) / self.width
        return points, (low + part) / len(ordered)

    def _cdf(self, x: Floats) -> Floats:
        points, ranks = self._knots
        return np.interp(np.exp(x), points, ranks, left=0.0, right=1.0)

    def _density(self, x: Floats) -> Floats:
        points, ranks = self._knots
        at = np.exp(x)
        k = np.clip(np.searchsorted(points, at, side="right") - 1, 0, len(points) - 2)
        slope = (ranks[k + 1] - ranks[k]) / (points[k + 1] - points[k])
        return np.where((at >= points[0]) & (at < points[-1]), slope * at, 0.0)
