"""Plans: what the next round asks, given the state so far.

A new design gives `ask` and `learn`; `standard_error`, in which a recorded question is compared with its own; and looks
at `boundary_shift` wherever a computed real number decides something (`estimator.transcript`).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, Self

import numpy as np

from privatile.core.arrays import Floats
from privatile.core.scale import Scale, working_range
from privatile.errors import InputError
from privatile.estimator.averaging import Averages
from privatile.estimator.clients import Client, check_clients
from privatile.estimator.missed_records import Records
from privatile.estimator.schedule import Design, Lengths, Mode

LocalLevel = Literal["global", "own"]


class Ask(NamedTuple):
    """One round to be asked: about which query (working scale), records per client, the step that follows."""

    query: float
    lengths: tuple[int, ...]
    step: float
    averaged: bool
    """Whether the round counts in the average; nothing may adapt once this is true."""
    stage: str = ""
    """What a design that tunes itself does in this round, in one word."""
    sent: float = math.nan
    """The query in units of the data, as it is sent; whoever sends it fills it in."""


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
    silent: tuple[int, ...]
    """Rounds without a report, over the whole run."""
    ones: tuple[int, ...]
    asked: tuple[int, ...]
    """Counts over all rounds, for plausibility."""
    window_ones: tuple[int, ...]
    window_asked: tuple[int, ...]
    """Counts over the averaged rounds, for local ranks."""
    records: tuple[Records, ...]
    """What may still be asked of every client, and what it has missed."""
    averages: Averages
    memory: object = None
    """What a design that tunes itself has learned; fixed tables learn nothing."""


@dataclass(frozen=True, eq=False)
class Plan(ABC):
    """What a run asks: fixed tables, or a design that tunes itself."""

    clients: tuple[Client, ...]
    """In the order of every list of counts."""
    scale: Scale
    _: KW_ONLY
    mode: Mode = "cohort"
    """What a client does inside a round."""
    local_level: LocalLevel = "global"
    """Whether clients step with the global level or their own; both have the same root."""
    boundary_shift: float = 0.0
    """Share by which the boundary of every decision is moved; see `with_boundaries_moved`."""

    @cached_property
    def level(self) -> float:
        """τ = Σ p_k τ_k."""
        return math.fsum(client.weight * client.level for client in self.clients)

    def level_of(self, client: Client) -> float:
        """The level that a client is asked for and steps with."""
        return client.level if self.local_level == "own" else self.level

    @property
    def start(self) -> float:
        """q₀, on the working scale: the middle of the range."""
        return sum(working_range(self.scale)) / 2

    @property
    @abstractmethod
    def rounds(self) -> int:
        """How many rounds there will be at most."""

    @property
    def open_ended(self) -> bool:
        """Whether a round has as many records as come, and nobody knows beforehand how many rounds there will be."""
        return False

    def so_far(self, state: RoundState) -> "Plan":
        """The plan as a result describes it: where the numbers of records are not known, those that have answered."""
        return self

    @abstractmethod
    def ask(self, state: RoundState) -> Ask | None:
        """The next round; none when the run is over."""

    def initial_memory(self) -> object:
        """The memory before the first round; a fixed plan has none."""
        return None

    def learn(self, ask: Ask, state: RoundState) -> object:
        """The memory after a round: a pure function of the round and what was known before, `state.memory`.

        `ask` is what was asked. A replayed run asks what its file says, which may differ from this plan's own question
        in the last bits: what was asked is what is learned from.
        """
        return None

    def standard_error(self, state: RoundState, ask: Ask) -> float:
        """The error of the question that comes after `state`, working scale: how far chance alone might move it.

        For a recursion: what the noise of the round adds to the query, γ·√(Σp_k²/(4r_k²E_k)).
        """
        noise = math.fsum(client.noise(length) for client, length in zip(self.clients, ask.lengths, strict=True))
        return ask.step * math.sqrt(noise)

    def with_boundaries_moved(self, share: float) -> Self:
        """The same plan with the boundary of every decision moved by a share: a decision that differs was a near one.

        Fixed tables decide nothing.
        """
        return replace(self, boundary_shift=share)


@dataclass(frozen=True, eq=False)
class TablePlan(Plan):
    """A plan whose lengths (clients × rounds) and steps are fixed beforehand."""

    lengths: Lengths
    steps: Floats
    _: KW_ONLY
    burn_in: int = 0
    start: float = math.nan
    """NaN: the middle of the range."""

    def __post_init__(self) -> None:
        check_clients(self.clients)
        shape = (len(self.clients), len(self.steps))
        if self.lengths.shape != shape or not shape[1]:
            raise InputError(f"lengths must have a row per client and a column per round; got {self.lengths.shape}.")
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
            object.__setattr__(self, "start", super().start)

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


def plan_from_design(
    design: Design,
    clients: Sequence[Client],
    scale: Scale,
    *,
    mode: Mode | None = None,
    start: float = math.nan,
    local_level: LocalLevel = "global",
    levels: int = 1,
) -> TablePlan:
    """A design applied to clients: every record is asked once, whatever the clients' sizes.

    `levels` is how many such plans the run has: together they may have `MOST_COUNTS` counts.
    r̄ of the step is the plain mean of the clients' truth rates, as in the paper.
    """
    check_clients(clients)
    lengths = design.client_lengths([client.records for client in clients], levels)
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
