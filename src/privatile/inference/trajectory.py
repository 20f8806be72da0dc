"""The rounds of one run, one by one: what a fit and a self-normalised interval are computed from."""

import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from privatile.core.arrays import Floats
from privatile.estimator.plan import Ask, Plan, RoundState, drift, round_weight
from privatile.estimator.pools import Pools, gather


@dataclass(frozen=True, eq=False)
class ClientAnswers:
    """What every client answered, for runs in which some were silent: rounds × clients."""

    queries: Floats
    residuals: Floats
    """y_k − (1 − τ_k); 0 where the client was silent."""
    precisions: Floats
    """4r_k²E; 0 where the client was silent."""


class Trajectory:
    """What each round asked, what came back, where it led, and its noise; some 60 bytes per round, and 16 per answer
    where there are several clients. No answer is in it twice.
    """

    def __init__(
        self, averaged: Iterable[float] = (), answers: Iterable[float] = (), by_client: Iterable[float] = ()
    ) -> None:
        self._averaged = array("d", averaged)
        self._answers = array("d", answers)
        self._by_client = array("d", by_client)
        """By round: its query, then residual and precision of every client."""
        self._pools: Pools = {}
        self._last = math.nan
        """The last query."""

    def record(self, ask: Ask, state: RoundState, plan: Plan) -> None:
        """Add the round just done; where averaging starts again, the averaged rounds before are dropped."""
        came = drift(state, plan)
        self._add_answers(ask, state, plan, came)
        if state.averages.rounds == 0:
            self._averaged = array("d")
        else:
            self._averaged.extend((ask.query, came, state.query, round_weight(state), ask.step))

    def _add_answers(self, ask: Ask, state: RoundState, plan: Plan, came: float) -> None:
        """What this round gives a fit: its own answers, or those of a pool that it completes (`pools`)."""
        clients, last = plan.clients, self._last
        self._last = ask.query
        if len(clients) > 1 and plan.mode == "cohort":
            self._by_client.append(ask.query)
            for client, mean, used, length in zip(clients, state.means, state.used, ask.lengths, strict=True):
                answer = mean - (1.0 - plan.level_of(client)), 4.0 * client.mechanism.truth_rate**2 * length
                self._by_client.extend(answer if used == 1 else (0.0, 0.0))
        means = [mean if used == 1 else None for mean, used in zip(state.means, state.used, strict=True)]
        if None not in means and not any(pool.places for pool in self._pools.values()):
            query = math.fsum(client.weight * query for client, query in zip(clients, state.heard, strict=True))
            self._answers.extend((query, came, math.fsum(state.noise)))
            return
        # Before the window, questions go up and down by much: only those that went the same way are put together, and
        # those of a search never.
        side = ask.stage if ask.averaged else f"{ask.stage} {'up' if ask.query > last else 'down'}"
        searches = ask.stage == "search"
        waiting = {} if searches else self._pools
        pools, pool = gather(waiting, side, ask.query, ask.lengths, means, keeps_place=False)
        self._pools = self._pools if searches else pools
        if not pool.is_complete:
            self._answers.extend((ask.query, 0.0, math.inf))
            return
        rows = list(zip(clients, pool.records, pool.sums, pool.asked, strict=True))
        self._answers.extend(
            (
                math.fsum(client.weight * asked / number for client, number, _, asked in rows),
                math.fsum(
                    client.weight * (total / number - (1.0 - plan.level_of(client)))
                    for client, number, total, _ in rows
                ),
                math.fsum(client.noise(number) for client, number, _, _ in rows),
            )
        )

    @property
    def answers(self) -> Floats:
        """All rounds, averaged or not, as three rows: query, τ − F̂ there, and its noise Σp_k²/(4r_k²E_k).

        Where a client was silent, the answers of the others wait for the next of its own in the same stage: their
        round has an infinite noise, and the round that completes them stands for all. Its query is then the p-weighted
        mean of the clients' mean questions.
        """
        return np.array(self._answers).reshape(-1, 3).T.copy()

    @property
    def clients(self) -> ClientAnswers | None:
        """Every client's own answers; None where nobody was silent."""
        if not self._by_client:
            return None
        answers = self.by_client
        return None if bool((answers.precisions > 0.0).all()) else answers

    @property
    def by_client(self) -> ClientAnswers:
        """Every client's own answers, each at the question it was asked about; cohort mode only."""
        if not self._by_client:
            queries, residuals, noise = self.answers
            return ClientAnswers(queries, residuals[:, None], 1.0 / noise[:, None])
        rows = np.array(self._by_client).reshape(len(self._answers) // 3, -1)
        return ClientAnswers(rows[:, 0].copy(), rows[:, 1::2].copy(), rows[:, 2::2].copy())

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
