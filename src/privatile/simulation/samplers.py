"""Populations as flat arrays for the kernel that draws every record."""

from collections.abc import Sequence

import numpy as np

from privatile.errors import InputError
from privatile.simulation.columns import Dithered, Empirical
from privatile.simulation.populations import Cauchy, Laplace, LogNormal, Mixture, Normal, Population, StudentT, Uniform

KINDS = (Normal, Uniform, Cauchy, Laplace, LogNormal, StudentT, Empirical)
"""A kind's number in the kernels is its place here."""


def sampler_arrays(populations: Sequence[Population]) -> tuple[np.ndarray[tuple[int], np.dtype[np.generic]], ...]:
    """(firsts, kinds, cumulative, locations, scales, shapes, values, sizes) of all parts.

    Client k has parts firsts[k] … firsts[k+1] − 1.
    A mixture's parts are its components with cumulative weights. `shapes` holds Student's degrees, or where an
    empirical part's records begin in `values`; `sizes` how many there are, and `scales` how far they are dithered.
    """
    firsts = [0]
    rows: list[tuple[int, float, float, float, float, int]] = []
    columns: list[np.ndarray[tuple[int], np.dtype[np.float64]]] = []
    held = 0
    for population in populations:
        parts, weights = _flat(population)
        for part, upto in zip(parts, np.cumsum(weights).tolist(), strict=True):
            kind = next((code for code, kind in enumerate(KINDS) if isinstance(part, kind)), None)
            if kind is None:
                raise InputError(f"records of {type(part).__name__} cannot be drawn one by one.")
            if isinstance(part, Empirical):
                width = part.width if isinstance(part, Dithered) else 0.0
                rows.append((kind, upto, 0.0, width, float(held), part.values.size))
                columns.append(part.values)
                held += part.values.size
            elif isinstance(part, Uniform):
                rows.append((kind, upto, part.low, part.high - part.low, 0.0, 0))
            else:
                shape = part.degrees if isinstance(part, StudentT) else 0.0
                rows.append((kind, upto, part.location, part.scale, shape, 0))  # type: ignore[attr-defined]
        firsts.append(len(rows))
    kinds, cumulative, locations, scales, shapes, sizes = (np.array(column) for column in zip(*rows, strict=True))
    values = np.concatenate(columns) if columns else np.zeros(1)
    reals = (column.astype(np.float64) for column in (cumulative, locations, scales, shapes))
    return np.array(firsts, dtype=np.int64), kinds.astype(np.int64), *reals, values, sizes.astype(np.int64)


def _flat(population: Population, share: float = 1.0) -> tuple[list[Population], list[float]]:
    """A population as plain parts with weights; mixtures of mixtures are multiplied out."""
    if not isinstance(population, Mixture):
        return [population], [share]
    parts: list[Population] = []
    weights: list[float] = []
    for part, weight in zip(population.parts, population.weights, strict=True):
        inner, shares = _flat(part, share * weight)
        parts += inner
        weights += shares
    return parts, weights
