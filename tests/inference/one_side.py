"""Candidates of one side under questions and answers that a test makes up, and what the any-shape interval reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from privatile.core.arrays import Floats
from privatile.estimator import straddle
from privatile.estimator.straddle import Candidates
from privatile.inference import any_shape

SIDE = 0.025


def asked_all_the_time(scores: Floats) -> Candidates:
    """One question in every round, its budget divided evenly; `scores` are the standardised answers."""
    side, rounds = Candidates(), len(scores)
    straddle.add_candidate(side, 0.0)
    for m, score in enumerate(scores.tolist()):
        side.rates[0] = side.budgets[0] * rounds / (rounds - m)
        straddle.add_answer(side, 0.0, 1.0 / rounds, score, m == rounds - 1)
    return side


def adaptive(
    drift: Callable[[float], float],
    rng: np.random.Generator,
    rounds: int,
    *,
    repeated: bool = False,
    forgotten: bool = False,
) -> Candidates:
    """Low questions that go where the tests look best: up after a good answer, down after a bad one.

    `drift` is τ − F. `repeated` uses every answer twice as if it were fresh; `forgotten` does not take the answers'
    weights off the budget.
    """
    side, place, answer = Candidates(), float(rng.normal()), 0.0
    for m, (noise, move) in enumerate(zip(rng.normal(size=rounds), rng.uniform(size=rounds), strict=True)):
        straddle.add_candidate(side, place)
        if forgotten:
            side.budgets[:] = 1.0
        side.rates[:] = np.where(side.places <= place, side.budgets * rounds / (rounds - m), 0.0)
        fresh = not (repeated and m % 2)
        answer = noise if fresh else answer
        score = drift(place) + answer
        straddle.add_answer(side, place, 1.0 / rounds, score, m == rounds - 1)
        place += 0.4 * float(np.sign(score)) * move if fresh else 0.0
    return side


def end_of(side: Candidates, alpha: float = SIDE, *, exact: bool = False) -> float:
    """The end of a side; −∞ where it is not bounded."""
    return any_shape.hull_from_outside(side.places, any_shape.accepted_at(side, alpha, exact=exact))


def accepted_share(sides: Sequence[Candidates], truth: float = -np.inf, *, exact: bool = False) -> float:
    """Share of the sides whose end lies at the truth or beyond: by default, of those that are bounded."""
    ends = np.array([end_of(side, exact=exact) for side in sides])
    return float(((ends >= truth) & np.isfinite(ends)).mean())
