"""The default design: a plan that tunes itself (`question_policy`, for one run).

It lies outside Assumptions 2–3: its step depends on the number of rounds and on the answers. The evidence for it is the
coverage study (`studies/coverage`), not the paper's theorems.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from privatile.core.scale import working_range
from privatile.errors import ClientTooSmall, InputError
from privatile.estimator import search_belief
from privatile.estimator.clients import check_clients, pooled_noise
from privatile.estimator.plan import Ask, Plan, RoundState
from privatile.estimator.question_policy import AVERAGE, STAGES, QuestionPolicy, Tuning, information
from privatile.estimator.step import drift, round_weight

ROUNDS = 200
"""Rounds when none are asked for: 10,000 would lower the error by less than 3%."""

FEWEST_ROUNDS = 20
"""Half of them place the quantile and probe; fewer leave nothing to average."""

SHORTEST = 4
"""Records per round of the smallest client where the design may choose: with fewer the search costs whole percents."""

SUPPORTED = 150.0
"""Least information (τ(1 − τ))²/Σ(p_k²/4r_k²n_k) for which the study validates the smooth interval. Below it only the
any-shape interval is shown."""


def supported(have: float) -> bool:
    """Whether the smooth interval is validated with this information; the tolerance keeps rounding from deciding."""
    return have >= SUPPORTED * (1.0 - 1e-9)


class Memory(NamedTuple):
    """What a run of this design has learned."""

    tuning: Tuning


def chosen_rounds(wanted: int | None, smallest: int, whose: str = "") -> int:
    """The rounds asked for, or as many of 200 as the smallest client can fill with four records each.

    >>> chosen_rounds(None, 10_000), chosen_rounds(None, 240), chosen_rounds(50, 100)
    (200, 60, 50)
    """
    if smallest < FEWEST_ROUNDS:
        rule = f"design auto needs at least {FEWEST_ROUNDS} records at every client, for each level; "
        if not whose:
            raise InputError(f"{rule}there are {smallest}. Ask more people.")
        cure = "Leave it out, or merge it with another: both change whose quantile it is."
        raise ClientTooSmall(f"{rule}{whose} has {smallest}.", whose, cure)
    if wanted is None:
        return min(ROUNDS, max(smallest // SHORTEST, min(smallest, 2 * FEWEST_ROUNDS)))
    if not FEWEST_ROUNDS <= wanted <= smallest:
        raise InputError(
            f"rounds must be at least {FEWEST_ROUNDS} for design auto (design='rounds' takes fewer) and at most the "
            f"number of records of the smallest client, {smallest}; got {wanted}. Ask for fewer or more rounds."
        )
    return wanted


@dataclass(frozen=True, eq=False)
class SelfTuningPlan(Plan):
    """A plan that chooses the number of rounds, unless one is wanted, and asks cohorts."""

    wanted: int | None = None

    def __post_init__(self) -> None:
        check_clients(self.clients)
        if self.mode != "cohort":
            raise InputError("design auto asks cohorts: leave out mode='local', or take another design.")
        self.rounds  # noqa: B018  a number of rounds that does not fit is refused here

    @cached_property
    def rounds(self) -> int:
        """How many rounds there are."""
        smallest = min(self.clients, key=lambda client: client.records)
        return chosen_rounds(self.wanted, smallest.records, smallest.held_by if len(self.clients) > 1 else "")


@dataclass(frozen=True, eq=False)
class AutoPlan(SelfTuningPlan):
    """Search, probe, average: see `QuestionPolicy`."""

    @cached_property
    def policy(self) -> QuestionPolicy:
        """The rules, with this run's numbers."""
        low, high = working_range(self.scale)
        return QuestionPolicy(
            self.level, low, high, self.rounds, pooled_noise(self.clients), boundary_shift=self.boundary_shift
        )

    @property
    def start(self) -> float:
        """The first question: the middle of the range, where a flat belief asks first."""
        return float(self.policy.begin().query[0])

    @property
    def information(self) -> float:
        """How much the records can say at this level; see `information`."""
        return information(self.level, self.policy.noise)

    def initial_memory(self) -> Memory:
        """Nothing learned, nothing asked."""
        return Memory(self.policy.begin())

    def ask(self, state: RoundState) -> Ask | None:
        """The policy's next question, asked of its share of every client's records."""
        if state.round >= self.rounds:
            return None
        tuning = memory_of(state).tuning
        records = np.array([client.records for client in self.clients])
        lengths = self.policy.lengths(tuning, records, np.array([[one.left for one in state.records]]))[0]
        averaged = bool(tuning.stage[0] == AVERAGE)
        return Ask(
            query=float(tuning.query[0]),
            lengths=tuple(lengths.tolist()),
            step=float(tuning.step[0]) if averaged else 0.0,
            averaged=averaged,
            stage=STAGES[int(tuning.stage[0])],
        )

    def learn(self, ask: Ask, state: RoundState) -> Memory:
        """The belief after a round."""
        tuning = memory_of(state).tuning
        # What was asked counts: in a replay it may differ from this machine's own question in the last bits.
        step = np.array([ask.step]) if ask.averaged else tuning.step
        tuning = tuning._replace(query=np.array([ask.query]), step=step)
        return Memory(self.policy.learn(tuning, np.array([drift(state, self)]), np.array([round_weight(state)])))

    def standard_error(self, state: RoundState, ask: Ask) -> float:
        """The belief's own error of the quantile; in the window, whose step is fixed, the run's final error s/f."""
        tuning = memory_of(state).tuning
        if ask.averaged:
            return math.sqrt(self.policy.noise) / float(tuning.slope[0])
        return float(search_belief.summarize(tuning.belief).error[0])


def memory_of(state: RoundState) -> Memory:
    """The memory of a run of this design."""
    if not isinstance(state.memory, Memory):
        raise TypeError("this run does not follow design auto")
    return state.memory
