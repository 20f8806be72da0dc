"""Between which places the answers change sign, for any distribution: a falling step function through them.

τ − F never rises. The falling function nearest to the answers (pool adjacent violators) is

    μ_i = min over a ≤ i of max over b ≥ i of the mean answer from a to b

and is constant on stretches. A stretch whose pooled answer is z ≥ 2.5 standard errors above zero lies below the
quantile, one at z ≤ −2.5 above it. This places questions; it is no test. Every array has a leading axis of runs.
"""

from typing import Any

from privatile.core.arrays import Floats, array_namespace

ALIKE = 1e-12
"""Places closer than this share of the largest are one place."""

CERTAIN = 2.5
"""Standard errors of a stretch's pooled answer that tell its side."""


def sign_change(places: Floats, sums: Floats, precisions: Floats, z: float = CERTAIN) -> tuple[Floats, Floats]:
    """The last place certainly below the quantile (−∞: none) and the first certainly above (∞: none).

    Runs × places: the question, Σp·y and Σp of its answers; a place without answers has precision 0.

    >>> import numpy as np
    >>> asked, answers = np.array([[1.0, 2.0, 3.0, 4.0]]), np.array([[0.3, 0.2, 0.25, -0.5]])
    >>> [float(end[0]) for end in sign_change(asked, 100 * answers, np.full((1, 4), 100.0))]
    [3.0, 4.0]
    """
    xp = array_namespace(places)
    places = xp.where(precisions > 0.0, places, xp.inf)
    order = xp.argsort(places, axis=1)
    places, sums, precisions = (xp.take_along_axis(values, order, axis=1) for values in (places, sums, precisions))
    filled = precisions > 0.0
    used = max(int(filled.sum(axis=1).max()), 1)
    places, sums, precisions, filled = places[:, :used], sums[:, :used], precisions[:, :used], filled[:, :used]
    sums, precisions = _merged(xp, places, sums, precisions, filled)
    filled &= precisions > 0.0
    level = _falling_fit(xp, sums, precisions)
    same = level[:, :, None] == level[:, None, :]
    weight = xp.where(same, precisions[:, None, :], 0.0).sum(axis=2)
    score = xp.where(filled, level, 0.0) * xp.sqrt(weight)
    low = xp.where(filled & (score >= z), places, -xp.inf).max(axis=1)
    high = xp.where(filled & (score <= -z), places, xp.inf).min(axis=1)
    return low, high


def _merged(xp: Any, places: Floats, sums: Floats, precisions: Floats, filled: Any) -> tuple[Floats, Floats]:
    """Answers to one question asked at several times go to its first place; `ALIKE` forgives a place's last bits."""
    known = xp.where(filled, places, 0.0)
    close = ALIKE * (xp.abs(known).max(axis=1) + 1e-300)
    neighbours = (xp.abs(known[:, 1:] - known[:, :-1]) <= close[:, None]) & filled[:, 1:]
    chosen = xp.flatnonzero(neighbours.any(axis=1))
    if not len(chosen):
        return sums, precisions
    known, filled = known[chosen], filled[chosen]
    gap = xp.abs(known[:, :, None] - known[:, None, :])
    same = (gap <= close[chosen, None, None]) & filled[:, :, None] & filled[:, None, :]
    first = xp.argmax(same, axis=2) == xp.arange(known.shape[1])
    merged = []
    for values in (sums, precisions):
        total = xp.where(same, values[chosen][:, None, :], 0.0).sum(axis=2)
        values = values.copy()
        values[chosen] = xp.where(first & filled, total, 0.0)
        merged.append(values)
    return merged[0], merged[1]


def _falling_fit(xp: Any, sums: Floats, precisions: Floats) -> Floats:
    """μ of every place, by the formula above; a place without answers takes part in no mean."""
    runs, count = sums.shape
    nothing = xp.zeros((runs, 1))
    total = xp.concatenate([nothing, xp.cumsum(sums, axis=1)], axis=1)
    weight = xp.concatenate([nothing, xp.cumsum(precisions, axis=1)], axis=1)
    # Rows a, columns b: the mean answer from place a to place b.
    mass = weight[:, None, 1:] - weight[:, :-1, None]
    means = (total[:, None, 1:] - total[:, :-1, None]) / xp.where(mass > 0.0, mass, 1.0)
    places = xp.arange(count)
    means = xp.where((places[:, None] <= places[None, :]) & (mass > 0.0), means, -xp.inf)
    levels: Floats = xp.empty((runs, count))
    highest = xp.full((runs, count), -xp.inf)
    for i in range(count - 1, -1, -1):
        highest = xp.maximum(highest, means[:, :, i])
        levels[:, i] = highest[:, : i + 1].min(axis=1)
    return levels
