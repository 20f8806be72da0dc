"""The straddling design without a known end as a plan: whoever comes answers the present question (`open_end`)."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from privatile.core.scale import working_range
from privatile.estimator.attendance import Pool, Pools, gather, outermost
from privatile.estimator.clients import pooled_noise
from privatile.estimator.open_end import SEARCH, OpenEnd, OpenEndPolicy
from privatile.estimator.plan import Ask, Plan, RoundState
from privatile.estimator.question_policy import information
from privatile.estimator.straddle import STAGES


class OpenMemory(NamedTuple):
    """What a run of this design has learned."""

    policy_state: OpenEnd
    pools: Pools
    """Answers that wait for silent clients."""


@dataclass(frozen=True, eq=False)
class OpenPlan(Plan):
    """Search, then straddle the quantile, for as long as anybody answers.

    The caller decides how many records answer a question; `ask` has no end and leaves the lengths to the caller.
    """

    rounds: int = 0

    @cached_property
    def policy(self) -> OpenEndPolicy:
        """The rules, with this run's numbers."""
        return OpenEndPolicy(self.level, *working_range(self.scale))

    @property
    def start(self) -> float:
        """The first question: the middle of the range, where a flat belief asks first."""
        return float(self.policy.begin().query[0])

    @property
    def information(self) -> float:
        """How much the records of `clients` say at this level."""
        return information(self.level, pooled_noise(self.clients))

    def initial_memory(self) -> OpenMemory:
        """Nothing learned."""
        return OpenMemory(self.policy.begin(), {})

    def ask(self, state: RoundState) -> Ask:
        """The present question, without lengths."""
        learned = open_memory(state).policy_state
        stage = int(learned.stage[0])
        return Ask(float(learned.query[0]), (), 0.0, stage != SEARCH, STAGES[stage])

    def learn(self, ask: Ask, state: RoundState) -> OpenMemory:
        """What is known after a round: real answers alone, each once; those of some clients wait for the others."""
        learned, pools = open_memory(state)
        means = [mean if used == 1 else None for mean, used in zip(state.means, state.used, strict=True)]
        pools, pool = gather(pools, ask.stage, ask.query, ask.lengths, means)
        place, residual, variance = self._heard(ask, pool)
        learned = learned._replace(query=np.array([place]))
        return OpenMemory(self.policy.learn(learned, np.array([residual]), np.array([variance])), pools)

    def _heard(self, ask: Ask, pool: Pool) -> tuple[float, float, float]:
        """Place, y and the plain bound of its variance, with which the bets are exact; ∞: no answer yet."""
        if not pool.is_complete:
            return ask.query, 0.0, math.inf
        rows = list(zip(self.clients, pool.records, pool.sums, strict=True))
        residual = math.fsum(
            client.weight * (total / number - (1.0 - self.level_of(client))) for client, number, total in rows
        )
        # The search's answers have no outer side; its pools are rare and their questions near each other.
        place = outermost(ask.stage if ask.averaged else "centre", pool.places)
        return place, residual, math.fsum(client.noise(number) for client, number, _ in rows)


def open_memory(state: RoundState) -> OpenMemory:
    """The memory of a run of this design."""
    if not isinstance(state.memory, OpenMemory):
        raise TypeError("this run does not follow the open-ended design")
    return state.memory
