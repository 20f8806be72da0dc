"""The rounds of one run, one by one: what a fit and a self-normalised interval are computed from."""

import math
from array import array
from collections.abc import Iterable

import numpy as np

from privatile.core.arrays import Floats
from privatile.estimator.plan import Ask, Plan, RoundState
from privatile.estimator.step import drift, round_weight


class Trajectory:
    """What each round asked, what came back, where it led, and its noise; some 60 bytes per round."""

    def __init__(self, averaged: Iterable[float] = (), answers: Iterable[float] = ()) -> None:
        self._averaged = array("d", averaged)
        self._answers = array("d", answers)

    def until(self, rounds: int, averaged: int) -> "Trajectory":
        """As it stood after so many rounds, of which so many were averaged (without a new start in between)."""
        return Trajectory(self._averaged[: 5 * averaged], self._answers[: 3 * rounds])

    def record(self, ask: Ask, state: RoundState, plan: Plan) -> None:
        """Add the round just done; where averaging starts again, the averaged rounds before are dropped."""
        came = drift(state, plan)
        heard = math.fsum(client.weight * query for client, query in zip(plan.clients, state.heard, strict=True))
        self._answers.extend((heard, came, math.fsum(state.noise)))
        if state.averages.rounds == 0:
            self._averaged = array("d")
        else:
            self._averaged.extend((ask.query, came, state.query, round_weight(state), ask.step))

    @property
    def answers(self) -> Floats:
        """All rounds, averaged or not, as three rows: query, τ − F̂ there, and its noise Σp_k²/(4r_k²E_k).

        Where a client was silent, the query is the p-weighted mean of those to which the answers in use belong.
        """
        return np.array(self._answers).reshape(-1, 3).T.copy()

    def _column(self, index: int) -> Floats:
        return np.array(self._averaged[index::5])

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


def slope(trajectory: "Trajectory") -> float:
    """f at Q*: minus the slope of what came back on the query asked about, rounds weighted by 1/w; never below 0."""
    asked, weights = trajectory.asked, 1.0 / trajectory.weights
    centred = asked - np.average(asked, weights=weights)
    spread = float(weights @ centred**2)
    return max(0.0, -float((weights * centred) @ trajectory.drifts) / spread) if spread else 0.0
