"""State in, answers in, state out: one round of the estimator, for both modes.

A client's answer enters through its debiased mean report y_k, an unbiased share of records above q:

    y_k = (n₁/E − (1 − r_k)/2)/r_k
    q ← clip( q + γ·Σ_k p_k·(y_k − (1 − τ)) )

In `local` mode this is Algorithm 1: a client's last iterate depends on its reports only through their count, and
q + (γ/E)(a_k·n₁ − b_k·(E − n₁)) = q + γ(y_k − (1 − τ)). In `cohort` mode all E records answer about the same q.
The server's step is the same; only what the client does inside a round differs.

A silent client never changes the estimand: weights are not renormalised; its last debiased mean stands in, and
the noise it repeats is counted (used c times in a row, its noise weighs c² instead of c).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

import numpy as np

from privatile.core.arrays import Floats
from privatile.core.mechanism import RandomizedResponse
from privatile.core.scale import Scale, clip, working_range
from privatile.errors import InputError, ProtocolError
from privatile.estimator.averaging import Averages, add
from privatile.estimator.schedule import Design, Lengths, Mode

LocalLevel = Literal["global", "own"]


@dataclass(frozen=True)
class Client:
    """What the coordinator knows of a client: all of it public."""

    name: str
    mechanism: RandomizedResponse
    weight: float
    level: float
    records: int
    """Records that may be asked."""
    file_records: int = 0
    """Records the client's file holds, asked earlier or not; 0: those that may be asked."""

    @property
    def held(self) -> int:
        """The size of the file, where the file itself is the target."""
        return max(self.file_records, self.records)


class Ask(NamedTuple):
    """One round to be asked: about which query (working scale), records per client, the step that follows."""

    query: float
    lengths: tuple[int, ...]
    step: float
    averaged: bool
    """Whether the round counts in the average; nothing may adapt once this is true."""
    stage: str = ""
    """What a design that tunes itself does in this round, for people."""


class RoundState(NamedTuple):
    """All that the next step needs."""

    round: int
    """Rounds done."""
    query: float
    """q, on the working scale."""
    means: tuple[float, ...]
    """Each client's last debiased mean report; NaN before its first."""
    noise: tuple[float, ...]
    """p_k²/(4r_k²E_k) of that last report."""
    used: tuple[int, ...]
    """How many rounds in a row that last report has been used."""
    heard: tuple[float, ...]
    """The query, working scale, that it answered."""
    ones: tuple[int, ...]
    asked: tuple[int, ...]
    """Counts over all rounds, for plausibility."""
    window_ones: tuple[int, ...]
    window_asked: tuple[int, ...]
    """Counts over the averaged rounds, for local ranks."""
    averages: Averages
    memory: object = None
    """What a design that tunes itself has learned; fixed tables learn nothing."""


class Plan(Protocol):
    """What a run asks: fixed tables, or a design that tunes itself."""

    @property
    def level(self) -> float:
        """τ = Σ p_k τ_k."""
        ...

    @property
    def clients(self) -> tuple[Client, ...]:
        """The clients, in the order of every list of counts."""
        ...

    @property
    def scale(self) -> Scale:
        """Between units and the working scale."""
        ...

    @property
    def mode(self) -> Mode:
        """What a client does inside a round."""
        ...

    @property
    def local_level(self) -> LocalLevel:
        """Whether clients step with the global level or their own; both have the same root."""
        ...

    @property
    def start(self) -> float:
        """q₀, on the working scale."""
        ...

    @property
    def rounds(self) -> int:
        """How many rounds there will be at most."""
        ...

    def ask(self, state: RoundState) -> Ask | None:
        """The next round, or nothing when the run is over."""
        ...

    def initial_memory(self) -> object:
        """The memory before the first round."""
        ...

    def learn(self, memory: object, ask: Ask, state: RoundState) -> object:
        """The memory after a round: a pure function of the round and what was known before."""
        ...


def check_level(level: float) -> None:
    """A quantile's level lies inside (0, 1)."""
    if not 0.0 < level < 1.0:
        raise InputError(f"q must lie inside (0, 1); got {level!r}. The median is q = 0.5.")


ROUNDED = 1e-6
"""How far from 1 the sum of written weights may be, a client: with six decimals each is off by half of this."""

UNITY = 1e-9
"""How far from 1 the sum of a run's weights may be: the rounding of the sum itself, of up to 10⁶ clients."""


def shares(weights: Mapping[str, float]) -> dict[str, float]:
    """Weights as people write them, divided by their sum; refused where they are no shares.

    The run's level is Σp_kτ_k: what rounding leaves over would move it.

    >>> shares({"north": 0.333333, "east": 0.333333, "south": 0.333333})["south"] == 1 / 3
    True
    >>> shares({"north": 0.5, "south": 0.4})
    Traceback (most recent call last):
    ...
    privatile.errors.InputError: weights must sum to 1; they sum to 0.9. Divide each by 0.9.
    """
    for name, weight in weights.items():
        if not (math.isfinite(weight) and weight > 0):
            raise InputError(f"weights must be positive; got {weight!r} for {name!r}. Leave a client out instead.")
    total = math.fsum(weights.values())
    if abs(total - 1.0) > ROUNDED * len(weights):
        raise InputError(f"weights must sum to 1; they sum to {total:.8g}. Divide each by {total:.8g}.")
    return {name: weight / total for name, weight in weights.items()}


def check_clients(clients: Sequence[Client]) -> None:
    """Names differ, weights are shares that sum to one, levels lie inside (0, 1)."""
    if not clients:
        raise InputError("a run needs at least one client.")
    ((name, times),) = Counter(client.name for client in clients).most_common(1)
    if times > 1:
        raise InputError(f"client names must differ; {name!r} appears {times} times.")
    for client in clients:
        if not (math.isfinite(client.weight) and client.weight > 0):
            raise InputError(f"weight of client {client.name} must be positive; got {client.weight!r}.")
        if not 0.0 < client.level < 1.0:
            raise InputError(f"level of client {client.name} must lie inside (0, 1); got {client.level!r}.")
    total = math.fsum(client.weight for client in clients)
    if abs(total - 1.0) > UNITY:
        raise InputError(f"weights must sum to 1; they sum to {total:.12g}. Divide each by {total:.12g}.")


@dataclass(frozen=True, eq=False)
class TablePlan:
    """A plan whose lengths (clients × rounds) and steps are fixed beforehand."""

    clients: tuple[Client, ...]
    scale: Scale
    lengths: Lengths
    steps: Floats
    mode: Mode = "cohort"
    burn_in: int = 0
    start: float = math.nan
    """NaN: the middle of the range."""
    local_level: LocalLevel = "global"

    def __post_init__(self) -> None:
        check_clients(self.clients)
        shape = (len(self.clients), len(self.steps))
        if self.lengths.shape != shape or not shape[1]:
            raise InputError(f"lengths must have one row a client and one column a round; got {self.lengths.shape}.")
        if int(self.lengths.min()) < 1:
            raise InputError("every round must ask at least one record of every client.")
        for client, asked in zip(self.clients, self.lengths.sum(axis=1), strict=True):
            if asked > client.records:
                raise InputError(
                    f"the schedule asks {int(asked)} records of client {client.name}, which has {client.records}. "
                    "Ask for fewer or shorter rounds."
                )
        if not bool(np.all(self.steps > 0)):
            raise InputError("every step must be positive.")
        if not 0 <= self.burn_in < shape[1] - 1:
            raise InputError(f"burn-in must leave at least two of {shape[1]} rounds; got {self.burn_in}.")
        if math.isnan(self.start):
            object.__setattr__(self, "start", sum(working_range(self.scale)) / 2)

    @cached_property
    def level(self) -> float:
        """τ = Σ p_k τ_k."""
        return math.fsum(client.weight * client.level for client in self.clients)

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return len(self.steps)

    def ask(self, state: RoundState) -> Ask | None:
        """Read the tables."""
        done = state.round
        if done >= self.rounds:
            return None
        lengths = tuple(self.lengths[:, done].tolist())
        return Ask(state.query, lengths, float(self.steps[done]), done >= self.burn_in)

    def initial_memory(self) -> object:
        """Nothing: tables do not learn."""
        return None

    def learn(self, memory: object, ask: Ask, state: RoundState) -> object:
        """Nothing: tables do not learn."""
        return None


def plan_from_design(
    design: Design,
    clients: Sequence[Client],
    scale: Scale,
    *,
    mode: Mode | None = None,
    start: float = math.nan,
    local_level: LocalLevel = "global",
) -> TablePlan:
    """A design applied to clients: every record is asked once, whatever the clients' sizes.

    r̄ of the step is the plain mean of the clients' truth rates, as in the paper.
    """
    check_clients(clients)
    lengths = design.client_lengths([client.records for client in clients])
    rounds = lengths.shape[1]
    mean_rate = math.fsum(client.mechanism.truth_rate for client in clients) / len(clients)
    return TablePlan(
        tuple(clients),
        scale,
        lengths,
        design.steps(rounds, mean_rate),
        mode=mode or design.mode,
        burn_in=round(design.burn_in * rounds),
        start=start,
        local_level=local_level,
    )


def begin(plan: Plan) -> RoundState:
    """The state before the first round."""
    clients = len(plan.clients)
    return RoundState(
        round=0,
        query=plan.start,
        means=(math.nan,) * clients,
        noise=(math.nan,) * clients,
        used=(0,) * clients,
        heard=(math.nan,) * clients,
        ones=(0,) * clients,
        asked=(0,) * clients,
        window_ones=(0,) * clients,
        window_asked=(0,) * clients,
        averages=Averages(center=plan.start),
        memory=plan.initial_memory(),
    )


def round_weight(state: RoundState) -> float:
    """w_m of the round just done: Σ_k (2c_k − 1)·p_k²/(4r_k²E_k), c_k = 1 for a client that answered.

    A report used c times in a row adds c² − (c − 1)² = 2c − 1 times its noise the c-th time.
    """
    return math.fsum((2 * used - 1) * noise for used, noise in zip(state.used, state.noise, strict=True))


def step(state: RoundState, ask: Ask, ones: Sequence[int | None], plan: Plan) -> RoundState:
    """One round: the counts of all clients in, the next state out. `None` is a silent client.

    >>> from privatile.core.scale import Identity
    >>> client = Client("all", RandomizedResponse(0.5), weight=1.0, level=0.5, records=100)
    >>> plan = TablePlan((client,), Identity(-9, 9), np.array([[50, 50]]), np.array([1.0, 1.0]))
    >>> step(begin(plan), plan.ask(begin(plan)), [50], plan).query  # all 50 said yes: y = 1.5
    1.0
    """
    clients = plan.clients
    if len(ones) != len(clients):
        raise ProtocolError(f"a round needs one count a client, {len(clients)}; got {len(ones)}.")
    means, noise, used, heard = list(state.means), list(state.noise), list(state.used), list(state.heard)
    total_ones, total_asked = list(state.ones), list(state.asked)
    window_ones, window_asked = list(state.window_ones), list(state.window_asked)
    for k, (client, count, length) in enumerate(zip(clients, ones, ask.lengths, strict=True)):
        if count is None:
            if not used[k]:
                raise ProtocolError(
                    f"client {client.name} has never answered: nothing can stand in for it. Wait for its first "
                    "answer, or start a run without it (a new estimand)."
                )
            used[k] += 1
        else:
            if not 0 <= count <= length:
                raise ProtocolError(
                    f"ones of client {client.name} must be a whole number from 0 to {length}; got {count}."
                )
            rate = client.mechanism.truth_rate
            means[k] = client.mechanism.debias(count, length)
            noise[k] = (client.weight / rate) ** 2 / (4.0 * length)
            used[k] = 1
            heard[k] = ask.query
            total_ones[k] += count
            total_asked[k] += length
            if ask.averaged:
                window_ones[k] += count
                window_asked[k] += length
    after = RoundState(
        state.round + 1,
        state.query,
        tuple(means),
        tuple(noise),
        tuple(used),
        tuple(heard),
        tuple(total_ones),
        tuple(total_asked),
        tuple(window_ones),
        tuple(window_asked),
        state.averages,
        state.memory,
    )
    query = clip(plan.scale, ask.query + ask.step * drift(after, plan))
    # Averaging starts where the burn-in ends: centre its sums there.
    averages = add(state.averages, query, round_weight(after)) if ask.averaged else Averages(center=query)
    after = after._replace(query=query, averages=averages)
    return after._replace(memory=plan.learn(state.memory, ask, after))


def drift(state: RoundState, plan: Plan) -> float:
    """Σ p_k·(y_k − (1 − τ)) of the round just done: an unbiased reading of τ − F at the query it asked about."""
    own = plan.local_level == "own"
    return math.fsum(
        client.weight * (mean - (1.0 - (client.level if own else plan.level)))
        for client, mean in zip(plan.clients, state.means, strict=True)
    )


def local_ranks(state: RoundState, plan: Plan) -> tuple[float, ...]:
    """F_k near Q*, one a client: 1 − the debiased share of yes over the averaged rounds; NaN without an answer."""
    return tuple(
        1.0 - client.mechanism.debias(ones, asked) if asked else math.nan
        for client, ones, asked in zip(plan.clients, state.window_ones, state.window_asked, strict=True)
    )


def replay(plan: Plan, rounds: Iterable[Sequence[int | None]]) -> RoundState:
    """The state that a transcript of counts leads to: everything after the reports is this pure function."""
    state = begin(plan)
    for ones in rounds:
        ask = plan.ask(state)
        if ask is None:
            raise ProtocolError(f"the transcript goes on after the plan's last round, {state.round}.")
        state = step(state, ask, ones, plan)
    return state
