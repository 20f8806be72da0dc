"""The Polyak average and Algorithm 2's normaliser, in O(1) memory and without cancellation.

With q̄_i the query after averaged round i, Q_m their running mean, w_m the round's noise weight (1/E_m when all
clients are alike) and u_m = m²·w_m:

    V_T = Σ_m (r_m − r_{m−1})·(m/T)²·(Q_m − Q_T)² = Σ_m u_m·(Q_m − Q_T)² / (T²·Σ w_m)

The four raw sums of the listing cancel catastrophically for values far from 0. Here every value is first centred on
a point near the trajectory, and the sums are kept about the *current* mean, so nothing large is ever subtracted:
moving the mean by δ turns S = Σ u(Q_i − Q)² into S − 2δR + Pδ², with R = Σ u(Q_i − Q) and P = Σ u.
"""

import math
from typing import NamedTuple

import numpy as np

from privatile.core.arrays import Floats
from privatile.errors import InputError
from privatile.laws.critical import NORMALIZERS, Normalizer


class Averages(NamedTuple):
    """Sums over the averaged rounds; all values are relative to `center`."""

    center: float
    rounds: int = 0
    mean: float = 0.0
    weight: float = 0.0
    """Σ w."""
    moment0: float = 0.0
    """P = Σ u."""
    moment1: float = 0.0
    """R = Σ u·(Q_i − Q)."""
    moment2: float = 0.0
    """S = Σ u·(Q_i − Q)²."""

    @property
    def estimate(self) -> float:
        """The running mean Q_m; NaN before the first averaged round."""
        return self.center + self.mean if self.rounds else math.nan

    @property
    def give_interval(self) -> bool:
        """Whether there are enough averaged rounds for an interval: two."""
        return self.rounds >= 2


def add(sums: Averages, query: float, weight: float) -> Averages:
    """One averaged round: its query after the step and its noise weight.

    >>> sums = add(add(Averages(center=10.0), 10.0, 1.0), 13.0, 1.0)
    >>> sums.estimate, normalizer(sums)  # only m = 1 differs from the mean: ½·(1/2)²·1.5²
    (11.5, 0.28125)
    """
    rounds = sums.rounds + 1
    shift = (query - sums.center - sums.mean) / rounds
    u = weight * rounds * rounds
    # The sums move to the new mean; the new round's own deviation from it is zero.
    moment2 = sums.moment2 - shift * (2.0 * sums.moment1 - shift * sums.moment0)
    moment1 = sums.moment1 - shift * sums.moment0
    return Averages(
        sums.center, rounds, sums.mean + shift, sums.weight + weight, sums.moment0 + u, moment1, max(moment2, 0.0)
    )


def normalizer(sums: Averages) -> float:
    """V of Algorithm 2 so far; NaN before the first averaged round."""
    if not sums.rounds:
        return math.nan
    return sums.moment2 / (sums.weight * sums.rounds * sums.rounds)


def normalizer_of(queries: Floats, weights: Floats, kind: Normalizer = "l2") -> float:
    """The normaliser straight from its definition, for a whole trajectory.

    l2: V = Σ(r_m − r_{m−1})d_m²; l1: Σ(r_m − r_{m−1})|d_m|; sup: max|d_m|; d_m = (m/T)(Q_m − Q_T). The interval's
    half-width is v·√V for l2 and v times the normaliser for l1 and sup. The last two need the whole trajectory: their
    absolute values move with Q_T.

    >>> import numpy as np
    >>> normalizer_of(np.array([10.0, 13.0]), np.array([1.0, 1.0]))
    0.28125
    >>> normalizer_of(np.array([10.0, 13.0]), np.array([1.0, 1.0]), "sup")
    0.75
    """
    if kind not in NORMALIZERS:
        raise InputError(f"normalizer must be one of {', '.join(NORMALIZERS)}; got {kind!r}.")
    if len(queries) != len(weights) or not len(queries):
        raise InputError(f"a normaliser needs one weight per round; got {len(queries)} rounds, {len(weights)} weights.")
    rounds = np.arange(1, len(queries) + 1)
    centred = queries - queries.mean()
    sums = np.cumsum(centred)
    deviations = (sums - rounds * (sums[-1] / rounds[-1])) / rounds[-1]
    shares = weights / weights.sum()
    if kind == "l2":
        return float(shares @ deviations**2)
    if kind == "l1":
        return float(shares @ np.abs(deviations))
    return float(np.abs(deviations).max())


def half_width(value: float, kind: Normalizer) -> float:
    """What multiplies the critical value: √V for l2, the normaliser itself otherwise."""
    return math.sqrt(value) if kind == "l2" else value
