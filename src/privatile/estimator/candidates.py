"""Candidate ends of the any-shape interval: one running test for every question that a side has asked.

On the low side a candidate c stands for the hypothesis F(c) ≥ τ, "the quantile is not above c". F never falls, so every
answer y = τ − F(q) + noise asked at q ≥ c has mean at most 0 under it, whatever the distribution. Each test is a sum

    S = Σ a·y·√p,  Σ a² ≤ 1

over low rounds with q ≥ c, p the round's precision. The weight a is fixed before the answer comes; B = 1 − Σa² is the
budget left. A new candidate copies the next one above it: both have used the same answers so far. Hence, for a fixed
quantile Q, the smallest candidate at or above Q carries one martingale from the first answer to the last, whichever
questions came. Its largest value so far, M, is copied with it. The high side is the same with signs reversed, u = −q.

Nothing here depends on a confidence level: `inference.any_shape` reads S, B and M at any.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats, Ints, array_namespace


class Candidates(NamedTuple):
    """The tests of every run and side: runs × 2 × room. Unused room has its place at ∞."""

    places: Floats
    """c on the low side, −c on the high side: outward is down on both."""
    scores: Floats
    """S."""
    budgets: Floats
    """B."""
    peaks: Floats
    """M, the largest S so far; −∞ before the first answer."""
    rates: Floats
    """a² per share of the information, until the side's question moves; 0 where its answers do not count."""
    counts: Ints
    """Runs × 2: how many there are."""

    @property
    def outermost(self) -> tuple[Floats, Floats, Floats]:
        """S, B and M of the outermost candidate of every side (runs × 2); without one (0, 1, −∞)."""
        xp = array_namespace(self.scores)
        first = xp.argmin(self.places, axis=2)[..., None]
        score, budget, peak = (
            xp.take_along_axis(values, first, axis=2)[..., 0] for values in (self.scores, self.budgets, self.peaks)
        )
        return score, budget, peak


def no_candidates(runs: int, room: int, xp: Any = np) -> "Candidates":
    """Before the first question of the window; one place of the room always stays free."""
    shape = (runs, 2, room)
    return Candidates(
        xp.full(shape, xp.inf),
        xp.zeros(shape),
        xp.ones(shape),
        xp.full(shape, -xp.inf),
        xp.zeros(shape),
        xp.zeros((runs, 2), dtype=xp.int64),
    )


def add_candidate(tests: "Candidates", side: Ints, place: Floats) -> "Candidates":
    """One new candidate per run on its side; it copies the next above it, or begins with (0, 1).

    >>> tests = add_candidate(no_candidates(1, 4), np.array([0]), np.array([2.0]))
    >>> tests = add_answer(tests, np.array([0]), np.array([2.0]), np.array([0.5]), np.array([1.0]), np.array([True]))
    >>> tests = add_candidate(tests, np.array([0]), np.array([1.0]))
    >>> tests.places[0, 0, :2].tolist(), tests.scores[0, 0, :2].tolist(), tests.budgets[0, 0, :2].tolist()
    ([2.0, 1.0], [1.0, 1.0], [0.0, 0.0])
    """
    xp = array_namespace(place)
    rows = xp.arange(len(place))
    have = tests.places[rows, side]
    higher = xp.where(have >= place[:, None], have, xp.inf)
    above = xp.argmin(higher, axis=1)
    none = xp.isinf(higher[rows, above])
    slot = tests.counts[rows, side]
    places, scores, budgets, peaks = (values.copy() for values in tests[:4])
    counts = tests.counts.copy()
    places[rows, side, slot] = place
    scores[rows, side, slot] = xp.where(none, 0.0, tests.scores[rows, side, above])
    budgets[rows, side, slot] = xp.where(none, 1.0, tests.budgets[rows, side, above])
    peaks[rows, side, slot] = xp.where(none, -xp.inf, tests.peaks[rows, side, above])
    counts[rows, side] = slot + 1
    return Candidates(places, scores, budgets, peaks, tests.rates, counts)


def add_answer(
    tests: "Candidates", side: Ints, place: Floats, share: Floats, score: Floats, last: NDArray[np.bool_]
) -> "Candidates":
    """One answer per run on its side, asked at `place` (sign as in `places`).

    `share` is the answer's precision as a share of all information, 0 for none, and `score` = ±y·√p its standardised
    value. The side's last answer takes all of the budget that is left.
    """
    xp = array_namespace(place)
    rows = xp.arange(len(place))
    budget = tests.budgets[rows, side]
    spent = xp.minimum(tests.rates[rows, side] * share[:, None], budget)
    spent = xp.where(last[:, None], budget, spent)
    counts = (tests.places[rows, side] <= place[:, None]) & (share > 0.0)[:, None]
    spent = xp.where(counts, spent, 0.0)
    scores, budgets, peaks = tests.scores.copy(), tests.budgets.copy(), tests.peaks.copy()
    newer = tests.scores[rows, side] + xp.sqrt(spent) * xp.where(share > 0.0, score, 0.0)[:, None]
    scores[rows, side] = newer
    budgets[rows, side] = xp.where(spent >= budget, 0.0, budget - spent)
    peaks[rows, side] = xp.where(counts, xp.maximum(tests.peaks[rows, side], newer), tests.peaks[rows, side])
    return tests._replace(scores=scores, budgets=budgets, peaks=peaks)
