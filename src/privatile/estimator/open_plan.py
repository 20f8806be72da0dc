"""The straddling design without a known end as a plan: whoever comes answers the present question (`open_end`).

How many come to a round is up to whoever asks, by the number of people or by the clock. It must never depend on the
answers: a round that is closed because its answers look well would be biased. So it is decided by functions that see
numbers of people and times only, and reaches the plan together with the counts, as `Ask.lengths`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from privatile.core.scale import working_range
from privatile.errors import InputError
from privatile.estimator import search_belief
from privatile.estimator.attendance import Pool, Pools, gather, outermost
from privatile.estimator.clients import UNKNOWN_SIZE, check_clients, pooled_noise
from privatile.estimator.open_end import SEARCH, OpenEnd, OpenEndPolicy
from privatile.estimator.plan import Ask, Plan, RoundState
from privatile.estimator.question_policy import information
from privatile.estimator.straddle import STAGES
from privatile.estimator.straddle_schedule import CENTRE

APART = 0.2
"""Standard deviation of the difference in rank between clients, where the search goes on without some of them."""


class OpenMemory(NamedTuple):
    """What a run of this design has learned."""

    policy_state: OpenEnd
    pools: Pools
    """Answers that wait for silent clients."""

    @property
    def waiting(self) -> tuple[int, ...]:
        """Of every client, the records whose answers wait for those of the others."""
        rows = [pool.records for pool in self.pools.values()]
        return tuple(map(sum, zip(*rows, strict=True)))


@dataclass(frozen=True, eq=False)
class OpenPlan(Plan):
    """Search, then straddle the quantile, for as long as anybody answers.

    The caller decides how many records answer a question; `ask` leaves the lengths to the caller. It ends only at a
    number of answers that was fixed beforehand.
    """

    rounds: int = 0
    """Not known."""
    answers: int | None = None
    """Number of answers after which it ends; none: it does not."""

    def __post_init__(self) -> None:
        check_clients(self.clients)
        if self.mode != "cohort":
            raise InputError("design open asks cohorts: leave out mode='local', or take another design.")

    @property
    def open_ended(self) -> bool:
        """Rounds are as long as they become."""
        return True

    def so_far(self, state: RoundState) -> "OpenPlan":
        """The plan of those who have answered, at least one of every client."""
        rows = zip(self.clients, state.asked, strict=True)
        clients = tuple(replace(client, records=max(1, asked), file_records=UNKNOWN_SIZE) for client, asked in rows)
        return replace(self, clients=clients)

    @cached_property
    def policy(self) -> OpenEndPolicy:
        """The rules, with this run's numbers."""
        return OpenEndPolicy(self.level, *working_range(self.scale), self.boundary_shift)

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

    def ask(self, state: RoundState) -> Ask | None:
        """The present question, without lengths; none once the number of answers is reached."""
        return None if self.is_reached(state) else self.present(state)

    def is_reached(self, state: RoundState) -> bool:
        """Whether the number of answers that was fixed beforehand has come."""
        return self.answers is not None and sum(state.asked) >= self.answers

    def present(self, state: RoundState) -> Ask:
        """The question that stands."""
        learned = open_memory(state).policy_state
        stage = int(learned.stage[0])
        return Ask(float(learned.query[0]), (), 0.0, stage != SEARCH, STAGES[stage])

    def learn(self, ask: Ask, state: RoundState) -> OpenMemory:
        """What is known after a round: real answers alone, each once; those of some clients wait for the others.

        The search does not wait: it only decides where to ask, and goes on with those who came.
        """
        learned, pools = open_memory(state)
        learned = _as_asked(learned, ask)
        means = [mean if used == 1 else None for mean, used in zip(state.means, state.used, strict=True)]
        if not ask.averaged:
            guess, variance = self._guess(ask, means)
            learned = learned._replace(query=np.array([ask.query]))
            return OpenMemory(self.policy.learn(learned, np.array([guess]), np.array([variance])), pools)
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
        variance = math.fsum(client.noise(number) for client, number, _ in rows)
        return outermost(ask.stage, pool.places), residual, variance

    def _guess(self, ask: Ask, means: Sequence[float | None]) -> tuple[float, float]:
        """y of those who came as a guess of everybody's, and its variance: the others may differ by `APART` in rank."""
        rows = [
            (client, length, mean)
            for client, length, mean in zip(self.clients, ask.lengths, means, strict=True)
            if mean is not None
        ]
        part = math.fsum(client.weight for client, _, _ in rows)
        guess = math.fsum(client.weight * (mean - (1.0 - self.level_of(client))) for client, _, mean in rows) / part
        noise = math.fsum(client.noise(length) for client, length, _ in rows) / part**2
        return guess, noise + (max(0.0, 1.0 - part) * APART) ** 2

    def standard_error(self, state: RoundState, ask: Ask) -> float:
        """The belief's own error of the quantile; in the window 1/(f·√t), that of the centre at information t."""
        learned = open_memory(state).policy_state
        if not ask.averaged:
            return float(search_belief.summarize(learned.belief).error[0])
        return float(learned.spread[0] / (learned.slope[0] * math.sqrt(float(learned.information[0]))))


def open_memory(state: RoundState) -> OpenMemory:
    """The memory of a run of this design."""
    if not isinstance(state.memory, OpenMemory):
        raise TypeError("this run does not follow the open-ended design")
    return state.memory


def _as_asked(learned: OpenEnd, ask: Ask) -> OpenEnd:
    """The state with the question that was asked: in a replay it may differ from this machine's in the last bits."""
    if ask.stage == "search":
        return learned
    if STAGES.index(ask.stage) == CENTRE:
        return learned._replace(center=np.array([ask.query]))
    sides = learned.sides.copy()
    sides[0, STAGES.index(ask.stage)] = ask.query
    return learned._replace(sides=sides)
