"""The interval along the way: Q_m ± v_m·√V_m at any round m, from what the run's file keeps.

v_m, the critical value for a run that had stopped after averaged round m, is computed exactly at a few dozen rounds
in geometric steps and interpolated in log m between them; at those rounds and at the end the band is the interval
that the run would have reported.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privatile.averaging import half_width, normalizer_of
from privatile.critical import Normalizer, statistic_law

Floats = NDArray[np.float64]

RATIO = 1.4
"""From one exact critical value to the next. At 1.2 the bands of the paper's schedules move by under 0.1%."""


def knots(rounds: int) -> list[int]:
    """Averaged rounds at which the critical value is exact: 2, then in steps of a factor, and the last.

    They do not depend on how long the run becomes, so a live page computes each of them once.

    >>> knots(20)
    [2, 3, 5, 7, 10, 14, 20]
    """
    found: list[int] = []
    at = 2
    while at < rounds:
        found.append(at)
        at = math.ceil(at * RATIO)
    return [*found, rounds] if rounds >= 2 else []


def half_widths(
    queries: Floats,
    weights: Floats,
    normalizers: Floats,
    confidence_level: float,
    kind: Normalizer = "l2",
    variance_share: float = 1.0,
    known: dict[int, float] | None = None,
) -> Floats:
    """Half-width of the self-normalised interval after each averaged round, working scale; NaN where there is none.

    `normalizers` are the V_m the run kept (used for l2; the other two are recomputed at the knots). `known` keeps
    critical values from one call to the next.
    """
    rounds = len(queries)
    width = np.full(rounds, np.nan)
    at = knots(rounds)
    if not at:
        return width
    values = []
    for m in at:
        value = None if known is None else known.get(m)
        if value is None:
            law = statistic_law(weights=weights[:m], normalizer=kind, endpoint_variance=variance_share)
            value = law.quantile(confidence_level)
            if known is not None:
                known[m] = value
        values.append(value)
    if known is not None and at[-1] not in knots(rounds + 1)[:-1]:
        del known[at[-1]]  # the end is no knot of a longer run
    passed = np.arange(1, rounds + 1)
    if kind == "l2":
        width[1:] = np.interp(np.log(passed[1:]), np.log(at), values) * np.sqrt(np.maximum(normalizers[1:], 0.0))
    else:
        reach = np.array(values) * [half_width(normalizer_of(queries[:k], weights[:k], kind), kind) for k in at]
        width[1:] = np.interp(np.log(passed[1:]), np.log(at), reach)
    return width


def expected_rounds(rounds: int, width: float, target: float) -> float:
    """Averaged rounds needed for a target width, if the width goes on falling like one over the root.

    >>> expected_rounds(100, 2.0, 1.0)
    400.0
    """
    if not (width > 0 and target > 0):
        return math.nan
    return rounds * (width / target) ** 2
