"""p-values of the any-shape interval straight from its tests, one per candidate: what inverting the ends must give.

Only where the ends do not cross and hold the centre by themselves; results invert the interval that they show.
"""

import math

import numpy as np
from scipy import special

from privatile.core.arrays import Floats
from privatile.estimator.open_ended import Bets
from privatile.estimator.straddle import Candidates
from privatile.inference.any_shape import EARLY, AnyShape, exact_scores


def candidate_p_values(tests: Candidates, *, exact: bool = False) -> Floats:
    """The smallest one-sided error at which each candidate is accepted; 1 where none is."""
    if exact:
        reached = np.maximum(exact_scores(tests), 0.0)
        values: Floats = np.exp(-0.5 * reached * reached)
        return values
    final = np.where(tests.budgets == 0.0, special.ndtr(-tests.scores) / (1.0 - EARLY), 1.0)
    low, high = np.full(tests.peaks.shape, math.log(1e-300)), np.zeros(tests.peaks.shape)
    for _ in range(60):
        middle = 0.5 * (low + high)
        alpha = np.exp(middle)
        early = -0.5 * (special.ndtri((1.0 - EARLY) * alpha) + special.ndtri(EARLY * alpha))
        met = tests.peaks >= early
        low, high = np.where(met, low, middle), np.where(met, middle, high)
    smallest: Floats = np.minimum(np.minimum(final, np.where(tests.peaks > -np.inf, np.exp(high), 1.0)), 1.0)
    return smallest


def p_value(shape: AnyShape, value: float) -> float:
    """The largest α whose interval still holds `value`: twice the p-value of the side that excludes it.

    On that side it is the largest p-value from the outermost candidate to the first one beyond the value.
    """
    sides = []
    for side, sign in zip(shape.sides, (1.0, -1.0), strict=True):
        each = np.exp(-side.peaks) if isinstance(side, Bets) else candidate_p_values(side, exact=shape.exact)
        sides.append(_excluding(side.places, each, sign * value))
    return min(1.0, 2.0 * min(sides))


def _excluding(places: Floats, p_values: Floats, value: float) -> float:
    """The p-value at which the hull from outside passes `value`; 1 where no candidate lies beyond it."""
    order = np.argsort(places)
    ordered = places[order]
    beyond = np.flatnonzero((ordered > value) & np.isfinite(ordered))
    return float(p_values[order][: beyond[0] + 1].max()) if len(beyond) else 1.0
