"""Populations of the study that the package has no name for."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from privatile.core.arrays import Floats, array_namespace
from privatile.simulation.populations import Population


@dataclass(frozen=True)
class Steps(Population):
    """All of a population's mass on a few values: F is a step function."""

    values: tuple[float, ...] = (0.0,)
    shares: tuple[float, ...] = (1.0,)
    smooth = False

    def _cdf(self, z: Floats) -> Any:
        return sum(
            array_namespace(z).where(z >= value, share, 0.0)
            for value, share in zip(self.values, self.shares, strict=True)
        )

    def _density(self, z: Floats) -> Any:
        return np.ones_like(z)


@dataclass(frozen=True)
class WithAtom(Population):
    """A population of which a share sits on one value."""

    inner: Population
    value: float
    share: float
    smooth = False

    def _cdf(self, z: Floats) -> Any:
        return (1.0 - self.share) * self.inner.cdf(z) + array_namespace(z).where(z >= self.value, self.share, 0.0)

    def _density(self, z: Floats) -> Any:
        return (1.0 - self.share) * self.inner.density(z)


@dataclass(frozen=True)
class Pareto(Population):
    """P(X > x) = x^−shape from 1 on: its density breaks off at 1."""

    shape: float = 1.5

    def _cdf(self, z: Floats) -> Any:
        xp = array_namespace(z)
        return xp.where(z > 1.0, 1.0 - xp.maximum(z, 1.0) ** -self.shape, 0.0)

    def _density(self, z: Floats) -> Any:
        return np.where(z >= 1.0, self.shape * np.maximum(z, 1.0) ** (-self.shape - 1.0), 0.0)

    def _quantile(self, p: Floats) -> Any:
        return (1.0 - p) ** (-1.0 / self.shape)


class Column(Population):
    """A data column as a population, also on a GPU; without a density."""

    smooth = False

    def __init__(self, values: Any) -> None:
        self.values, counts = np.unique(np.asarray(values, dtype=float), return_counts=True)
        self.ranks = np.concatenate([[0.0], np.cumsum(counts) / counts.sum()])
        self._moved: dict[str, Any] = {}

    def _tables(self, xp: Any) -> Any:
        name = xp.__name__
        if name not in self._moved:
            self._moved[name] = xp.asarray(self.values), xp.asarray(self.ranks)
        return self._moved[name]

    def _cdf(self, z: Floats) -> Any:
        xp = array_namespace(z)
        values, ranks = self._tables(xp)
        return ranks[xp.searchsorted(values, z, side="right")]

    def _density(self, z: Floats) -> Any:
        return np.ones_like(z)

    def _quantile(self, p: Floats) -> Any:
        return self.values[np.clip(np.searchsorted(self.ranks[1:], p - 1e-12), 0, len(self.values) - 1)]
