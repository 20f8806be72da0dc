"""The interval along the way: Q_m ± v_m·√V_m at any round m, from what the run's file keeps.

v_m, the critical value for a run that had stopped after averaged round m, is computed exactly at a few dozen rounds
in geometric steps and interpolated in log m between them; at those rounds and at the end the band is the interval
that the run would have reported.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privatile.averaging import Normalizer, half_width, normalizer_of
from privatile.critical import statistic_law

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

KNOTS = 32
"""Exact critical values along the way. Doubling them moves the band of the paper's schedules by under 0.1%."""


def knots(rounds: int, most: int = KNOTS) -> Whole:
    """Averaged rounds at which the critical value is exact: the first is 2, the last `rounds`.

    >>> knots(1000, 4).tolist()
    [2, 16, 126, 1000]
    """
    if rounds < 2:
        return np.empty(0, dtype=np.int64)
    return np.unique(np.rint(np.geomspace(2, rounds, min(most, rounds - 1))).astype(np.int64))


def half_widths(
    queries: Floats,
    weights: Floats,
    normalizers: Floats,
    confidence_level: float,
    kind: Normalizer = "l2",
    variance_share: float = 1.0,
    most: int = KNOTS,
) -> Floats:
    """Half-width of the self-normalised interval after each averaged round, working scale; NaN where there is none.

    `normalizers` are the V_m the run kept (used for l2; the other two are recomputed at the knots).
    """
    rounds = len(queries)
    width = np.full(rounds, np.nan)
    at = knots(rounds, most)
    if not len(at):
        return width
    values = np.array(
        [
            statistic_law(weights=weights[:m], normalizer=kind, endpoint_variance=variance_share).quantile(
                confidence_level
            )
            for m in at
        ]
    )
    m = np.arange(1, rounds + 1)
    if kind == "l2":
        width[1:] = np.interp(np.log(m[1:]), np.log(at), values) * np.sqrt(np.maximum(normalizers[1:], 0.0))
    else:
        reach = values * [half_width(normalizer_of(queries[:k], weights[:k], kind), kind) for k in at]
        width[1:] = np.interp(np.log(m[1:]), np.log(at), reach)
    return width


def expected_rounds(rounds: int, width: float, target: float) -> float:
    """Averaged rounds needed for a target width, if the width goes on falling like one over the root.

    >>> expected_rounds(100, 2.0, 1.0)
    400.0
    """
    if not (width > 0 and target > 0):
        return math.nan
    return rounds * (width / target) ** 2
