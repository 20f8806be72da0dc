"""Where the quantile is and how steep the distribution there, from the answers of the window.

Unit-free: d = (q − Q₀)/σ₀, with Q₀ and the spread σ₀ = τ(1 − τ)/f₀ that the search believed. The answers follow

    y = A − F·d − H·d² + noise

with priors A ~ N(0, (κe₀)²), F ~ N(κ, (0.8κ)²), H ~ N(κ(½ − τ), (0.3κ)²), where κ = τ(1 − τ) and e₀ is the search's
error in spreads. The bend's prior mean is a logistic curve's. The root of the fit places the next questions; no
interval is taken from it. Every array has a leading axis of runs.
"""

from typing import NamedTuple

from privatile.core.arrays import Floats, array_namespace

SLOPE_DOUBT = 0.8
"""Prior relative error of the slope."""

BEND_DOUBT = 0.3
"""Prior error of the bend: its unit-free size in common laws."""

FLATTEST, STEEPEST = 1.0 / 30.0, 8.0
"""The slope stays within these multiples of the search's."""

FAR = 1e4
"""Spreads from the origin beyond which an answer is left out of the fit: its fourth power would drown all others.
Beside an atom, whose spread is next to nothing, questions lie up to 10⁹ spreads away."""

STEPS = 6
"""Newton steps towards the root of the parabola."""


class Ridge(NamedTuple):
    """The normal equations of every run."""

    matrix: Floats
    """Runs × 3 × 3."""
    vector: Floats
    """Runs × 3."""


class Root(NamedTuple):
    """The fit in three numbers per run, unit-free."""

    center: Floats
    """d where the fitted answers are zero."""
    slope: Floats
    """F there, in ranks per spread."""
    bend: Floats
    """H."""


def begin_fit(level: float, error: Floats) -> "Ridge":
    """The priors, for a search that ended with this error, in spreads."""
    xp = array_namespace(error)
    scale = level * (1.0 - level)
    matrix, vector = xp.zeros((len(error), 3, 3)), xp.zeros((len(error), 3))
    matrix[:, 0, 0] = 1.0 / (scale * error) ** 2
    matrix[:, 1, 1] = 1.0 / (SLOPE_DOUBT * scale) ** 2
    matrix[:, 2, 2] = 1.0 / (BEND_DOUBT * scale) ** 2
    vector[:, 1] = matrix[:, 1, 1] * scale
    vector[:, 2] = matrix[:, 2, 2] * scale * (0.5 - level)
    return Ridge(matrix, vector)


def add_answer(fit: "Ridge", offset: Floats, residual: Floats, precision: Floats) -> "Ridge":
    """One answer per run, asked at d = `offset`; precision 0 adds nothing, nor does an answer from too `FAR` away."""
    xp = array_namespace(offset)
    precision = xp.where(xp.abs(offset) <= FAR, precision, 0.0)
    row = xp.stack([xp.ones_like(offset), -offset, -offset * offset], axis=1)
    weighted = precision[:, None] * row
    return Ridge(
        fit.matrix + weighted[:, :, None] * row[:, None, :],
        fit.vector + weighted * xp.where(precision > 0.0, residual, 0.0)[:, None],
    )


def solve_fit(fit: "Ridge", level: float) -> "Root":
    """The root nearest to A/F, at most twice as far, and the slope there.

    >>> import numpy as np
    >>> fit = begin_fit(0.5, np.array([0.5]))
    >>> for d in (-0.3, 0.0, 0.5):
    ...     fit = add_answer(fit, np.array([d]), np.array([0.02 - 0.25 * d]), np.array([1e6]))
    >>> [round(float(value[0]), 3) for value in solve_fit(fit, 0.5)[:2]]
    [0.08, 0.25]
    """
    xp = array_namespace(fit.vector)
    scale = level * (1.0 - level)
    found = xp.linalg.solve(fit.matrix, fit.vector[..., None])[..., 0]
    height, bend = found[:, 0], found[:, 2]
    slope = xp.clip(found[:, 1], FLATTEST * scale, STEEPEST * scale)
    root = height / slope
    limit = 2.0 * xp.abs(root)
    for _ in range(STEPS):
        steep = xp.clip(slope + 2.0 * bend * root, 0.3 * slope, 3.0 * slope)
        root = xp.clip(root + (height - slope * root - bend * root * root) / steep, -limit, limit)
    steep = xp.clip(slope + 2.0 * bend * root, 0.3 * slope, 3.0 * slope)
    return Root(root, steep, bend)


def offset_of(distance: Floats, slope: Floats, bend: Floats, side: float) -> Floats:
    """The u > 0 whose predicted rank is `distance`·slope away from the level on one side, within [0.6, 1.8]·distance.

    u ± (H/F)·u² = distance, + above (side = 1) and − below (side = −1).

    >>> import numpy as np
    >>> one = np.ones(1)
    >>> offset_of(one, one, 0 * one, 1.0).tolist(), offset_of(one, one, 2 * one, 1.0).tolist()
    ([1.0], [0.6])
    """
    xp = array_namespace(distance)
    tilt = side * bend / slope
    straight = xp.abs(tilt * distance) < 1e-9
    safe = xp.where(straight, 1.0, tilt)
    under = 1.0 + 4.0 * tilt * distance
    bent = (xp.sqrt(xp.maximum(under, 0.0)) - 1.0) / (2.0 * safe)
    reach = xp.where(straight, distance, xp.where(under > 0.0, bent, 1.8 * distance))
    result: Floats = xp.clip(reach, 0.6 * distance, 1.8 * distance)
    return result
