"""Populations with heaps: values that people round."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from privatile.core.arrays import Floats
from privatile.simulation.populations import Population, check_positive


@dataclass(frozen=True)
class Rounded(Population):
    """A population of which a `share` is rounded to the nearest multiple of `unit`: its CDF jumps there.

    >>> from privatile.simulation.populations import Normal
    >>> ages = Rounded(Normal(40.2, 12.0))
    >>> round(ages.cdf(39.9), 4) == round(ages.cdf(39.1), 4) < ages.cdf(40.0)
    True
    """

    inner: Population
    unit: float = 1.0
    share: float = 1.0
    smooth = False

    def __post_init__(self) -> None:
        check_positive("unit", self.unit)

    def _cdf(self, x: Floats) -> Any:
        heaped = self.inner.cdf((np.floor(x / self.unit) + 0.5) * self.unit)
        return self.share * heaped + (1.0 - self.share) * self.inner.cdf(x)

    def _density(self, x: Floats) -> Any:
        """Of the population before rounding: there is none at a jump."""
        return self.inner.density(x)
