"""Peers that ask one person after another, each by randomized response: streams, and the Bayesian screening search.

All work on cells 0 … cells − 1 of the range or on [0, 1], with a target τ′ = (1 − r)/2 + rτ: the share of reports "not
above" at the quantile, r = tanh(ε/2). Written from what we know of the methods and from abstracts, not from the full
papers and not from their programs. The loops are compiled by numba; `.py_func` is the same in plain Python.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from privatile.core.arrays import Floats


def compiled(function: Callable[..., Any]) -> Any:
    """numba's decorator, which has no types of its own."""
    return njit(function)


def truth_rate(epsilon: float) -> float:
    """r = tanh(ε/2): a report is the truth with probability (1 + r)/2, whose odds are e^ε."""
    return math.tanh(epsilon / 2.0)


def report_level(level: float, epsilon: float) -> float:
    """τ′, the share of reports "not above" at the quantile of this level.

    >>> report_level(0.5, 1.0)
    0.5
    """
    rate = truth_rate(epsilon)
    return 0.5 * (1.0 - rate) + rate * level


# --- Frugal streaming (Ma, Muthukrishnan and Sandler 2013) ---


@compiled
def frugal(records: Floats, truthful: NDArray[np.bool_], draws: Floats, level: float, step: float) -> float:
    """Frugal-1U: one number in memory; up a step with probability τ′ after "above", down with 1 − τ′ after "not above".

    `level` is τ′. In balance at the quantile: (1 − τ′)·τ′ up, τ′·(1 − τ′) down.
    """
    q = 0.5
    for i in range(records.size):
        above = (records[i] > q) == truthful[i]
        if above and draws[i] < level:
            q = min(q + step, 1.0)
        elif not above and draws[i] < 1.0 - level:
            q = max(q - step, 0.0)
    return q


# --- EasyQuantile (Wang, Chen and Tang, APNet 2023) ---


@compiled
def easy_quantile(records: Floats, truthful: NDArray[np.bool_], level: float, step: float) -> float:
    """Two counts beside the estimate: a report moves it only while its side has more than its share of all reports."""
    q, below, above = 0.5, 0, 0
    for i in range(records.size):
        if (records[i] > q) == truthful[i]:
            above += 1
            if above > (1.0 - level) * (above + below):
                q = min(q + step, 1.0)
        else:
            below += 1
            if below > level * (above + below):
                q = max(q - step, 0.0)
    return q


# --- Bayesian screening search (Gretta and Price, ICALP 2024), by randomized response (Aamand et al., ICML 2025) ---


@compiled
def bayes_learn(
    cells: NDArray[np.int64], truthful: NDArray[np.bool_], size: int, level: float, margin: float
) -> NDArray[np.int64]:
    """The questions asked: each is the middle of the belief about the quantile's cell, which every report updates.

    Question t: "is your cell below t?". A report of yes has probability τ′ + margin if the quantile lies below t, else
    τ′ − margin. `size` is a power of two; a tree of sums with pending factors makes an update O(log size).
    """
    sums, factors = np.empty(2 * size), np.ones(2 * size)
    sums[size:] = 1.0 / size
    for node in range(size - 1, 0, -1):
        sums[node] = sums[2 * node] + sums[2 * node + 1]
    asked = np.empty(cells.size, dtype=np.int64)
    for i in range(cells.size):
        # The cell in which the belief passes one half: `before` of it lies to the left, `own` inside. A sum holds its
        # node's own factor; `scale` are those above.
        node, before, scale, own = 1, 0.0, factors[1], sums[1]
        half = 0.5 * sums[1]
        while node < size:
            node *= 2
            if before + scale * sums[node] < half:
                before += scale * sums[node]
                node += 1
            own = scale * sums[node]
            scale *= factors[node]
        # The end of this cell that splits the belief more evenly.
        t, mass = node - size, before
        if t == 0 or (t < size - 1 and before + own - half < half - before):
            t, mass = t + 1, before + own
        asked[i] = t
        yes = (cells[i] < t) == truthful[i]
        below = level + margin if yes else 1.0 - level - margin
        other = level - margin if yes else 1.0 - level + margin
        total = mass * below + (sums[1] - mass) * other
        multiply(sums, factors, size, t, below / total, other / total)
    return asked


@compiled
def multiply(sums: Floats, factors: Floats, size: int, t: int, below: float, other: float) -> None:
    """Cells below t times `below`, all others times `other`."""
    node, span, left = 1, size, 0
    while node < size:
        span //= 2
        if t >= left + span:
            sums[2 * node] *= below
            factors[2 * node] *= below
            node, left = 2 * node + 1, left + span
        else:
            sums[2 * node + 1] *= other
            factors[2 * node + 1] *= other
            node *= 2
    sums[node] *= other
    factors[node] *= other
    node //= 2
    while node >= 1:
        sums[node] = factors[node] * (sums[2 * node] + sums[2 * node + 1])
        node //= 2


def screening_search(
    cells: NDArray[np.int64],
    size: int,
    level: float,
    epsilon: float,
    rng: np.random.Generator,
    learning: float = 0.8,
    width: float = 0.7,
    candidates: int = 16,
) -> int:
    """A share `learning` of the people for `bayes_learn`; then a binary search among quantiles of its questions.

    The margin is the smallest for which so many people tell one of `size` cells: M·2m²/ln 2 = log₂ size, times `width`.
    """
    target, rate = report_level(level, epsilon), truth_rate(epsilon)
    truthful = rng.uniform(size=cells.size) < 0.5 * (1.0 + rate)
    first = int(learning * cells.size)
    margin = width * math.sqrt(math.log(size) / (2.0 * first))
    margin = min(margin, 0.9 * target, 0.9 * (1.0 - target))
    asked = np.sort(bayes_learn(cells[:first], truthful[:first], size, target, margin))
    kept = np.unique(asked[((np.arange(candidates) + 0.5) / candidates * first).astype(np.int64)])
    low, high = 0, kept.size - 1
    steps = max(1, math.ceil(math.log2(max(kept.size, 2))))
    rest = np.array_split(np.arange(first, cells.size), steps)
    for people in rest:
        if low == high:
            break
        middle = (low + high) // 2
        yes = np.mean((cells[people] < kept[middle]) == truthful[people])
        low, high = (low, middle) if yes >= target else (middle + 1, high)
    return int(kept[low])


def middle_of_questions(
    cells: NDArray[np.int64], size: int, level: float, epsilon: float, rng: np.random.Generator, width: float = 0.7
) -> int:
    """The same search with everybody in `bayes_learn` and no screening: the median of the later half of the questions.

    Not what the authors propose; of 18 variants in a trial on four Pareto settings it did best, so it is shown.
    """
    target = report_level(level, epsilon)
    truthful = rng.uniform(size=cells.size) < 0.5 * (1.0 + truth_rate(epsilon))
    margin = min(width * math.sqrt(math.log(size) / (2.0 * cells.size)), 0.9 * target, 0.9 * (1.0 - target))
    asked = bayes_learn(cells, truthful, size, target, margin)
    return int(np.median(asked[cells.size // 2 :]))
