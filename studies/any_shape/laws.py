"""Populations of the study that the package has no name for."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from privatile.core.arrays import Floats
from privatile.simulation.populations import Population


@dataclass(frozen=True)
class Steps(Population):
    """All of a population's mass on a few values: F is a step function."""

    values: tuple[float, ...] = (0.0,)
    shares: tuple[float, ...] = (1.0,)
    smooth = False

    def _cdf(self, z: Floats) -> Any:
        return sum(np.where(z >= value, share, 0.0) for value, share in zip(self.values, self.shares, strict=True))

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
        return (1.0 - self.share) * self.inner.cdf(z) + np.where(z >= self.value, self.share, 0.0)

    def _density(self, z: Floats) -> Any:
        return (1.0 - self.share) * self.inner.density(z)


@dataclass(frozen=True)
class Pareto(Population):
    """P(X > x) = x^−shape from 1 on: its density breaks off at 1."""

    shape: float = 1.5

    def _cdf(self, z: Floats) -> Any:
        return np.where(z > 1.0, 1.0 - np.maximum(z, 1.0) ** -self.shape, 0.0)

    def _density(self, z: Floats) -> Any:
        return np.where(z >= 1.0, self.shape * np.maximum(z, 1.0) ** (-self.shape - 1.0), 0.0)

    def _quantile(self, p: Floats) -> Any:
        return (1.0 - p) ** (-1.0 / self.shape)


@dataclass(frozen=True)
class Exponential(Population):
    """P(X > x) = e^−x."""

    def _cdf(self, z: Floats) -> Any:
        return -np.expm1(-np.maximum(z, 0.0))

    def _density(self, z: Floats) -> Any:
        return np.where(z >= 0.0, np.exp(-np.maximum(z, 0.0)), 0.0)

    def _quantile(self, p: Floats) -> Any:
        return -np.log1p(-p)


@dataclass(frozen=True)
class Gumbel(Population):
    """P(X ≤ x) = exp(−e^−x): skewed, smooth everywhere."""

    def _cdf(self, z: Floats) -> Any:
        return np.exp(-np.exp(-z))

    def _density(self, z: Floats) -> Any:
        return np.exp(-z - np.exp(-z))

    def _quantile(self, p: Floats) -> Any:
        return -np.log(-np.log(p))


@dataclass(frozen=True)
class Triangle(Population):
    """Density 1 − |x| on (−1, 1): a kink at the median, ends where it vanishes."""

    def _cdf(self, z: Floats) -> Any:
        inside = np.clip(z, -1.0, 1.0)
        return np.where(inside < 0.0, 0.5 * (1.0 + inside) ** 2, 1.0 - 0.5 * (1.0 - inside) ** 2)

    def _density(self, z: Floats) -> Any:
        return np.maximum(1.0 - np.abs(z), 0.0)


@dataclass(frozen=True)
class Arcsine(Population):
    """F = ½ + asin(x)/π on (−1, 1): the density is lowest at the median and unbounded at the ends."""

    def _cdf(self, z: Floats) -> Any:
        return 0.5 + np.arcsin(np.clip(z, -1.0, 1.0)) / np.pi

    def _density(self, z: Floats) -> Any:
        return np.where(np.abs(z) < 1.0, 1.0 / (np.pi * np.sqrt(np.maximum(1.0 - z * z, 1e-300))), 0.0)

    def _quantile(self, p: Floats) -> Any:
        return np.sin(np.pi * (p - 0.5))
