"""The same study on a GPU: CuPy speaks numpy, so the very modules that real runs execute run there unchanged.

Inside `arrays_on_gpu` the name `np` of those modules is CuPy, and CDFs are evaluated there. For studies only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from privatile import curve, locate, plug_in, policy
from privatile.errors import InputError, require
from privatile.study import tuned
from privatile.study.populations import Cauchy, LogNormal, Normal, Population, StudentT, Uniform

MODULES: tuple[Any, ...] = (curve, locate, plug_in, policy, tuned)


@contextmanager
def arrays_on_gpu() -> Iterator[Any]:
    """Let the modules of the study compute with CuPy; yields it."""
    cupy = require("cupy", "gpu")
    normal: Callable[[Any], Any] = require("cupyx.scipy.special", "gpu").ndtr
    before = [module.np for module in MODULES]
    ranks_at = tuned.ranks_at

    def on_gpu(kinds: Sequence[Population], queries: Any) -> Any:
        return cupy.stack([cdf(cupy, normal, population, queries) for population in kinds], axis=1)

    try:
        for module in MODULES:
            module.np = cupy
        tuned.ranks_at = on_gpu
        yield cupy
    finally:
        for module, numpy in zip(MODULES, before, strict=True):
            module.np = numpy
        tuned.ranks_at = ranks_at


def cdf(xp: Any, normal: Callable[[Any], Any], population: Population, x: Any) -> Any:
    """F of a population with CuPy's (or numpy's) functions."""
    if isinstance(population, Uniform):
        return xp.clip((x - population.low) / (population.high - population.low), 0.0, 1.0)
    if isinstance(population, LogNormal):
        logs = xp.log(xp.where(x > 0.0, x, 1.0))
        return xp.where(x > 0.0, normal((logs - population.location) / population.scale), 0.0)
    if isinstance(population, Normal):
        return normal((x - population.location) / population.scale)
    if isinstance(population, Cauchy):
        return 0.5 + xp.arctan((x - population.location) / population.scale) / math.pi
    if isinstance(population, StudentT) and population.degrees == 3.0:
        z = (x - population.location) / (population.scale * math.sqrt(3.0))
        return 0.5 + (xp.arctan(z) + z / (1.0 + z * z)) / math.pi
    raise InputError(f"no CDF of {type(population).__name__} for the GPU; run this cell without it.")
