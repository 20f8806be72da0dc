"""The straddling design as the plan of a run (`straddle`, for one run)."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from privatile.core.scale import working_range
from privatile.estimator import search_belief
from privatile.estimator.attendance import Pools, add_round
from privatile.estimator.auto import SelfTuningPlan
from privatile.estimator.clients import pooled_noise
from privatile.estimator.exact_tests import needs_exact
from privatile.estimator.plan import Ask, RoundState
from privatile.estimator.step import round_weight
from privatile.estimator.straddle import SEARCH, STAGES, StraddlePolicy, Straddling
from privatile.estimator.straddle_schedule import clock
from privatile.estimator.straddle_window import Answers


class StraddleMemory(NamedTuple):
    """What a run of this design has learned."""

    policy_state: Straddling
    pools: Pools
    """Answers that wait for silent clients."""


@dataclass(frozen=True, eq=False)
class StraddlePlan(SelfTuningPlan):
    """Search, then straddle the quantile: see `StraddlePolicy`.

    A stored round needs nothing beyond what every round has. The stage is `search`, `low`, `high` or `centre`; the step
    is 0; the rounds of the window count as averaged.
    """

    @cached_property
    def policy(self) -> StraddlePolicy:
        """The rules, with this run's numbers."""
        low, high = working_range(self.scale)
        return StraddlePolicy(self.level, low, high, self.rounds, pooled_noise(self.clients), self.boundary_shift)

    @cached_property
    def exact(self) -> bool:
        """Whether the any-shape tests are exact instead of by the normal law."""
        return needs_exact(self.clients)

    @property
    def start(self) -> float:
        """The first question: the middle of the range, where a flat belief asks first."""
        return float(self.policy.begin().query[0])

    @property
    def information(self) -> float:
        """How much the records can say at this level."""
        return self.policy.information

    def initial_memory(self) -> StraddleMemory:
        """Nothing learned, nothing asked."""
        return StraddleMemory(self.policy.begin(), {})

    def ask(self, state: RoundState) -> Ask | None:
        """The policy's next question, asked of its share of every client's records."""
        if state.round >= self.rounds:
            return None
        learned = straddle_memory(state).policy_state
        records = np.array([client.records for client in self.clients])
        lengths = self.policy.lengths(learned, records, np.array([[one.left for one in state.records]]))[0]
        stage = int(learned.stage[0])
        return Ask(float(learned.query[0]), tuple(lengths.tolist()), 0.0, stage != SEARCH, STAGES[stage])

    def learn(self, ask: Ask, state: RoundState) -> StraddleMemory:
        """What is known after a round.

        Where to ask next may use a guess of what a silent client would have answered: its last answer, moved along the
        slope to this question. The tests take real answers alone, each once.
        """
        learned, pools = straddle_memory(state)
        learned = _as_asked(learned, ask)
        slope = float(learned.window.slope[0] / learned.window.spread[0])
        slope = 0.0 if math.isnan(slope) else slope
        rows = list(zip(self.clients, state.means, state.heard, state.used, strict=True))
        guess = math.fsum(
            client.weight * (mean - slope * (ask.query - heard) - (1.0 - self.level_of(client)))
            for client, mean, heard, _ in rows
        )
        means = [mean if used == 1 else None for _, mean, _, used in rows]
        pools, heard = add_round(
            pools, ask.stage, ask.query, ask.lengths, means, self.clients, self.level, exact=self.exact
        )
        answers = Answers(*(np.array([float(value)]) for value in heard))
        learned = self.policy.learn(learned, np.array([guess]), np.array([round_weight(state)]), answers)
        return StraddleMemory(learned, pools)

    def standard_error(self, state: RoundState, ask: Ask) -> float:
        """The belief's own error of the quantile; in the window s/(f·√v), that of the centre at time v."""
        learned = straddle_memory(state).policy_state
        if not ask.averaged:
            return float(search_belief.summarize(learned.belief).error[0])
        window = learned.window
        done = max(float(clock(window.first, window.rounds, window.asked)[0]), 1e-3)
        return math.sqrt(self.policy.noise / done) * float(window.spread[0] / window.slope[0])


def straddle_memory(state: RoundState) -> StraddleMemory:
    """The memory of a run of this design."""
    if not isinstance(state.memory, StraddleMemory):
        raise TypeError("this run does not follow the straddling design")
    return state.memory


def _as_asked(learned: Straddling, ask: Ask) -> Straddling:
    """The state with the question that was asked: in a replay it may differ from this machine's in the last bits."""
    query, window = np.array([ask.query]), learned.window
    if ask.stage == "centre":
        window = window._replace(center=query)
    elif ask.stage != "search":
        sides = window.sides.copy()
        sides[0, STAGES.index(ask.stage)] = ask.query
        window = window._replace(sides=sides)
    return learned._replace(query=query, window=window)
