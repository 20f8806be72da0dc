"""A straddling run read back from its file: what was asked is data, the rest follows from it.

A stored round of this design holds, beside the counts: the question, the stage (`low`, `high`, `centre` or `search`)
and the placement, how often the window's questions had been placed when it was asked (0 in the search). From these
and the counts the tests, their weights and the fit follow; no hidden state is needed.

Machines differ in the last bits of their arithmetic. So a stored question is taken as it is where it agrees with the
design's own within `TOLERANCE` standard errors. Where a decision was on its boundary (the search is over, a side is
astray, a candidate is behind), the design with thresholds moved by a hair gives the other branch, and a question that
agrees with it is accepted as well. Any other question was not asked by this design.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from privatile.errors import ProtocolError
from privatile.estimator.search_belief import summarize
from privatile.estimator.straddle import SEARCH, STAGES, StraddlePolicy, Straddling

TOLERANCE = 1e-6
"""Of the standard error of the centre at that time."""

HAIR = 1e-7
"""How far thresholds are moved to find the other branch of a decision on its boundary."""


class AskedQuestion(NamedTuple):
    """What a stored round says was asked."""

    query: float
    stage: str
    placement: int


def question_of(state: Straddling) -> "AskedQuestion":
    """The next question of one run, as its file will hold it."""
    return AskedQuestion(float(state.query[0]), STAGES[int(state.stage[0])], int(state.placement[0]))


def standard_error(policy: StraddlePolicy, state: Straddling) -> float:
    """How well the centre is known now, on the working scale: what a question's agreement is measured in."""
    if int(state.stage[0]) == SEARCH:
        return float(summarize(state.belief).error[0])
    window = state.window
    done = max(float(window.first[0] + (1.0 - window.first[0]) * window.asked[0] / window.rounds[0]), 1e-3)
    return float(np.sqrt(policy.noise / done) * window.spread[0] / window.slope[0])


def agree(policy: StraddlePolicy, state: Straddling, asked: "AskedQuestion") -> bool:
    """Whether a stored question is the design's own, up to rounding."""
    own = question_of(state)
    same = own.stage == asked.stage and own.placement == asked.placement
    return same and abs(own.query - asked.query) <= TOLERANCE * standard_error(policy, state)


def taken(state: Straddling, asked: "AskedQuestion") -> Straddling:
    """The state with the stored question in the place of its own."""
    query = np.full(1, asked.query)
    window = state.window
    if asked.stage == "centre":
        window = window._replace(center=query)
    elif asked.stage != "search":
        sides = window.sides.copy()
        sides[0, STAGES.index(asked.stage)] = asked.query
        window = window._replace(sides=sides)
    return state._replace(query=query, window=window)


def begin_replay(policy: StraddlePolicy, asked: "AskedQuestion") -> Straddling:
    """The state before the first round of a stored run."""
    return _matched(policy, [policy.begin()], asked, 1)


def follow(
    policy: StraddlePolicy, state: Straddling, residual: float, variance: float, asked: "AskedQuestion"
) -> Straddling:
    """One stored round further: the answer to the last question in, the next stored question taken."""
    answers = np.array([residual]), np.array([variance])
    # The neighbours are computed only where the design's own question does not agree.
    states = (replace(policy, nudge=nudge).learn(state, *answers) for nudge in (0.0, HAIR, -HAIR))
    return _matched(policy, states, asked, int(state.done[0]) + 2)


def _matched(policy: StraddlePolicy, states: Iterable[Straddling], asked: "AskedQuestion", number: int) -> Straddling:
    for state in states:
        if agree(policy, state, asked):
            return taken(state, asked)
    raise ProtocolError(
        f"round {number} asked a question that this design does not ask after the answers before it (stage "
        f"{asked.stage}, placement {asked.placement}). The file was changed, or written by another version: restore "
        "it from a backup."
    )
