"""The quantile as a series over periods, weeks say: each person once, in the period in which they answered.

Client k's answers of period j have mean question q̄, mean ȳ and weight W = Σ4r_k²E. They follow a line whose slope −b_k
is the same in all periods and is found from the differences within them, so that a move between periods does not tilt
it. As for silent clients (`client_curves`), with f = Σp_k·b_k,

    Q̂_j = Σp_k(ȳ + b_k·q̄)/f,  error²·f² = Σp_k²/W + Σp_k²(q̄ − Q̂_j)²/S_k

S_k the weighted squares of the questions around their periods' means. The interval is Fieller's, ρ² = ΣS_k⁻¹p_k²/f². It
is for one period that was chosen before it was looked at: of twenty honest ones, one misses. It needs a distribution
that is smooth around the quantile; the any-shape tests cannot bound a short period, whose questions lie close together.
Where nobody of a client came, a period says nothing. Whether the quantile has moved at all is decided by `change`.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from privatile.core.arrays import Floats
from privatile.inference.trajectory import ClientAnswers
from privatile.laws.fieller import fieller_reach
from privatile.laws.normal import two_sided_z


class Part(NamedTuple):
    """One period, on the working scale; NaN and ∓∞ where some client has no answer in it."""

    people: int
    estimate: float
    low: float
    high: float


def series(
    answers: ClientAnswers, periods: Sequence[int], weights: Floats, rates: Floats, confidence_level: float
) -> list[Part]:
    """One part per period; `periods` gives every round's, counted from 0. `weights` and `rates` are p_k and r_k."""
    number, clients = np.asarray(periods), len(weights)
    count = int(number.max()) + 1 if len(number) else 0
    precisions, queries = answers.precisions, answers.queries[:, None]

    def sums(values: Floats) -> Floats:
        return np.stack([np.bincount(number, values[:, k], count) for k in range(clients)], axis=1)

    total = sums(precisions)
    safe = np.where(total > 0.0, total, 1.0)
    asked, means = sums(precisions * queries) / safe, sums(precisions * answers.residuals) / safe
    off = queries - asked[number]
    spread = (precisions * off**2).sum(axis=0)
    falls = -(precisions * off * (answers.residuals - means[number])).sum(axis=0)
    known = spread > 0.0
    people = np.rint((total / (4.0 * rates**2)).sum(axis=1)).astype(int).tolist()
    slope = float(weights[known] @ (falls[known] / spread[known])) if bool(known.all()) and clients else 0.0
    if not slope > 0.0:
        return [Part(each, math.nan, -math.inf, math.inf) for each in people]
    slopes = falls / spread
    rough = float((weights**2 / spread).sum()) ** 0.5 / slope
    reach = float(fieller_reach(two_sided_z(confidence_level), rough))
    found = []
    for j in range(count):
        if not bool(np.all(total[j] > 0.0)):
            found.append(Part(people[j], math.nan, -math.inf, math.inf))
            continue
        center = float(weights @ (means[j] + slopes * asked[j])) / slope
        noise = weights**2 / total[j] + weights**2 * (asked[j] - center) ** 2 / spread
        half = reach * float(noise.sum()) ** 0.5 / slope
        found.append(Part(people[j], center, center - half, center + half))
    return found
