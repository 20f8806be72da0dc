"""The rounds of one run, one by one: what a fit and a self-normalised interval are computed from."""

from __future__ import annotations

import math
from array import array

import numpy as np

from privatile.core.arrays import Floats
from privatile.estimator.plan import Ask, Plan, RoundState
from privatile.estimator.step import drift, round_weight


class Trajectory:
    """What each round asked, what came back, where it led, and its noise; some 60 bytes per round."""

    def __init__(self) -> None:
        self._columns = [array("d") for _ in range(5)]
        self._answers = [array("d") for _ in range(3)]

    def until(self, rounds: int, averaged: int) -> Trajectory:
        """As it stood after so many rounds, of which so many were averaged (without a new start in between)."""
        before = Trajectory()
        before._columns = [column[:averaged] for column in self._columns]
        before._answers = [row[:rounds] for row in self._answers]
        return before

    def record(self, ask: Ask, state: RoundState, plan: Plan) -> None:
        """Add the round just done; where averaging starts anew, the averaged rounds before are dropped."""
        came = drift(state, plan)
        heard = math.fsum(client.weight * query for client, query in zip(plan.clients, state.heard, strict=True))
        for column, fact in zip(self._answers, (heard, came, math.fsum(state.noise)), strict=True):
            column.append(fact)
        if state.averages.rounds == 0:
            self._columns = [array("d") for _ in range(5)]
        else:
            facts = (ask.query, came, state.query, round_weight(state), ask.step)
            for column, fact in zip(self._columns, facts, strict=True):
                column.append(fact)

    @property
    def answers(self) -> Floats:
        """All rounds, averaged or not, as three rows: query, τ − F̂ there, and its noise Σp_k²/(4r_k²E_k).

        Where a client was silent, the query is the p-weighted mean of those to which the answers in use belong.
        """
        return np.array(self._answers, dtype=np.float64)

    def _column(self, index: int) -> Floats:
        return np.array(self._columns[index], dtype=np.float64)

    @property
    def asked(self) -> Floats:
        """The query each round asked about."""
        return self._column(0)

    @property
    def drifts(self) -> Floats:
        """What came back: an unbiased estimate of τ − F at that query."""
        return self._column(1)

    @property
    def queries(self) -> Floats:
        """q̄_i, the query after each round."""
        return self._column(2)

    @property
    def weights(self) -> Floats:
        """w_i, each round's noise weight."""
        return self._column(3)

    @property
    def steps(self) -> Floats:
        """γ_i, the step each round took."""
        return self._column(4)


def slope(trajectory: Trajectory) -> float:
    """f at Q*: minus the slope of what came back on the query asked about, rounds weighted by 1/w; never below 0."""
    asked, weights = trajectory.asked, 1.0 / trajectory.weights
    centred = asked - np.average(asked, weights=weights)
    spread = float(weights @ centred**2)
    return max(0.0, -float((weights * centred) @ trajectory.drifts) / spread) if spread else 0.0
