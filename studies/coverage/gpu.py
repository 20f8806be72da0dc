"""The self-tuning design's laboratory on a GPU: the same code, its arrays from CuPy.

The modules that carry thousands of runs side by side use nothing of numpy that CuPy does not have under the same name.
While they run, their `np` is CuPy; what comes back is numpy's. The draws are CuPy's, another stream than numpy's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from studies.coverage import rounded
from studies.coverage import stopping as watching

from privatile.errors import require
from privatile.estimator import locate
from privatile.estimator import question_policy as policy
from privatile.inference import curve, plug_in
from privatile.simulation import auto_simulation as tuned
from privatile.simulation import populations
from privatile.simulation.auto_simulation import AutoCell, AutoRuns

MODULES = (curve, locate, plug_in, policy, populations, rounded, tuned, watching)


@contextmanager
def gpu_arrays() -> Iterator[Any]:
    """Let the laboratory's arrays live on the GPU meanwhile; gives CuPy."""
    cupy: Any = require("cupy", "gpu")
    special: Any = require("cupyx.scipy.special", "gpu")
    swapped = [(module, "np", cupy) for module in MODULES]
    swapped += [(populations, "_erfc", special.erfc), (populations, "regularized_beta", special.betainc)]
    before = [getattr(module, name) for module, name, _ in swapped]
    try:
        for module, name, new in swapped:
            setattr(module, name, new)
        yield cupy
    finally:
        for (module, name, _), old in zip(swapped, before, strict=True):
            setattr(module, name, old)


def simulate(cell: AutoCell, runs: int, seed: int) -> AutoRuns:
    """`tuned.simulate` on the GPU, its results as numpy arrays."""
    with gpu_arrays() as cupy:
        found: AutoRuns = on_host(cupy, tuned.simulate(cell, runs, cupy.random.default_rng(seed)))
    return found


def on_host(cupy: Any, value: Any) -> Any:
    """The same named tuples with numpy arrays inside."""
    if isinstance(value, cupy.ndarray):
        return cupy.asnumpy(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(on_host(cupy, part) for part in value))
    return value
