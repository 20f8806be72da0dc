"""A plan asks the next round; `step` takes its counts to the next state; a run's file is compared with its plan.

The Polyak average and Algorithm 2's normaliser, in O(1) memory and without cancellation.

With q̄_i the query after averaged round i, Q_m their running mean, w_m the round's noise weight (1/E_m when all
clients are alike) and u_m = m²·w_m:

    V_T = Σ_m (r_m − r_{m−1})·(m/T)²·(Q_m − Q_T)² = Σ_m u_m·(Q_m − Q_T)² / (T²·Σ w_m)

The four raw sums of the listing cancel catastrophically for values far from 0. Here every value is first centred on
a point near the trajectory, and the sums are kept about the *current* mean, so nothing large is ever subtracted:
moving the mean by δ turns S = Σ u(Q_i − Q)² into S − 2δR + Pδ², with R = Σ u(Q_i − Q) and P = Σ u.

What becomes of the records of a round that a client missed.

The coordinator knows only that no answer came. Where the client has drawn no coin, its records have not answered and
may be asked later. Where it has, and the answer was lost on the way or came late, they are spent. So records of missed
rounds count as spent, until the client's own ledger shows, with its next answer, that no coin was drawn for them.

Plans: what the next round asks, given the state so far.

A new design gives `ask` and `learn`; `standard_error`, in which a recorded question is compared with its own; and looks
at `boundary_shift` wherever a computed real number decides something (`difference`).

State in, answers in, state out: one round of the estimator, for both modes.

A client's answer enters through its debiased mean report y_k, an unbiased share of records above q:

    y_k = (n₁/E − (1 − r_k)/2)/r_k
    q ← clip( q + γ·Σ_k p_k·(y_k − (1 − τ)) )

In `local` mode this is Algorithm 1: a client's last iterate depends on its reports only through their count, and
q + (γ/E)(a_k·n₁ − b_k·(E − n₁)) = q + γ(y_k − (1 − τ)). In `cohort` mode all E records answer about the same q.
The server's step is the same; only what the client does inside a round differs.

A silent client never changes the estimand: weights are not renormalised. The recursion takes its last debiased mean
once more, and the noise it repeats is counted (used c times in a row, its noise weighs c² instead of c). Where a curve
is fitted (`curve.fit_client_lines`) or a test is made (`pools`), no answer is used twice.

How far what a run file says was asked may differ from what the design itself would ask.

What was asked is data, like the counts: question, lengths, step and stage are read from the file and the run continues
from them. The design's own next round is only compared with it, because two machines do not compute it to the last bit:
numpy's functions, BLAS and the C library round differently between processors and versions.

Continuous parts (question, step) may differ by `slack`, in standard errors of the run at that round. Discrete parts
(lengths, stage, averaged) must be equal. A decision whose deciding quantity lies within `slack` of its boundary may
fall either way: `Plan.with_boundaries_moved` gives the same plan with every boundary moved by that share.

What a coordinator that writes a false file gains from this: every question may be off by `slack` of the standard error
of its round. In the averaged rounds, where that is the error of the result, the path as recorded may leave the path as
asked by `TOLERANCE` standard errors over the whole run; the search counts in its own, larger errors. All of this used,
and always the same way, moves an estimate by less than 1e-4 standard errors (`tests/run/test_transcript.py`). Where
a decision lies within `slack` of its boundary it may be chosen. Nothing else is free but the last bits of the question
itself (`QUESTION_BITS`): a question that is 0.01 standard errors off is refused in every round.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, Self

import numpy as np

from privatile.core.arrays import Floats
from privatile.core.kinds import Normalizer
from privatile.core.scale import Scale, clip, units_inside, working_range
from privatile.errors import InputError, ProtocolError
from privatile.estimator.clients import Client, check_clients
from privatile.estimator.schedule import Design, Lengths, Mode
from privatile.laws.critical import NORMALIZERS


class Averages(NamedTuple):
    """Sums over the averaged rounds; all values are relative to `center`."""

    center: float
    rounds: int = 0
    mean: float = 0.0
    weight: float = 0.0
    """Σ w."""
    moment0: float = 0.0
    """P = Σ u."""
    moment1: float = 0.0
    """R = Σ u·(Q_i − Q)."""
    moment2: float = 0.0
    """S = Σ u·(Q_i − Q)²."""

    @property
    def estimate(self) -> float:
        """The running mean Q_m; NaN before the first averaged round."""
        return self.center + self.mean if self.rounds else math.nan

    @property
    def give_interval(self) -> bool:
        """Whether there are enough averaged rounds for an interval: two."""
        return self.rounds >= 2


def add(sums: Averages, query: float, weight: float) -> Averages:
    """One averaged round: its query after the step and its noise weight.

    >>> sums = add(add(Averages(center=10.0), 10.0, 1.0), 13.0, 1.0)
    >>> sums.estimate, normalizer(sums)  # only m = 1 differs from the mean: ½·(1/2)²·1.5²
    (11.5, 0.28125)
    """
    rounds = sums.rounds + 1
    shift = (query - sums.center - sums.mean) / rounds
    u = weight * rounds * rounds
    # The sums move to the new mean; the new round's own deviation from it is zero.
    moment2 = sums.moment2 - shift * (2.0 * sums.moment1 - shift * sums.moment0)
    moment1 = sums.moment1 - shift * sums.moment0
    return Averages(
        sums.center, rounds, sums.mean + shift, sums.weight + weight, sums.moment0 + u, moment1, max(moment2, 0.0)
    )


def normalizer(sums: Averages) -> float:
    """V of Algorithm 2 so far; NaN before the first averaged round."""
    if not sums.rounds:
        return math.nan
    return sums.moment2 / (sums.weight * sums.rounds * sums.rounds)


def normalizer_of(queries: Floats, weights: Floats, kind: Normalizer = "l2") -> float:
    """The normaliser straight from its definition, for a whole trajectory.

    l2: V = Σ(r_m − r_{m−1})d_m²; l1: Σ(r_m − r_{m−1})|d_m|; sup: max|d_m|; d_m = (m/T)(Q_m − Q_T). The interval's
    half-width is v·√V for l2 and v times the normaliser for l1 and sup. The last two need the whole trajectory: their
    absolute values move with Q_T.

    >>> import numpy as np
    >>> normalizer_of(np.array([10.0, 13.0]), np.array([1.0, 1.0]))
    0.28125
    >>> normalizer_of(np.array([10.0, 13.0]), np.array([1.0, 1.0]), "sup")
    0.75
    """
    if kind not in NORMALIZERS:
        raise InputError(f"normalizer must be one of {', '.join(NORMALIZERS)}; got {kind!r}.")
    if len(queries) != len(weights) or not len(queries):
        raise InputError(f"a normaliser needs one weight per round; got {len(queries)} rounds, {len(weights)} weights.")
    rounds = np.arange(1, len(queries) + 1)
    centred = queries - queries.mean()
    sums = np.cumsum(centred)
    deviations = (sums - rounds * (sums[-1] / rounds[-1])) / rounds[-1]
    shares = weights / weights.sum()
    if kind == "l2":
        return float(shares @ deviations**2)
    if kind == "l1":
        return float(shares @ np.abs(deviations))
    return float(np.abs(deviations).max())


def half_width(value: float, kind: Normalizer) -> float:
    """What multiplies the critical value: √V for l2, the normaliser itself otherwise."""
    return math.sqrt(value) if kind == "l2" else value


class Records(NamedTuple):
    """One client's records, as the coordinator counts them."""

    left: int
    """Those that may still be asked."""
    missed: int = 0
    """Those asked in the rounds that the client has missed since its last answer."""

    def after(self, length: int, *, answered: bool, unspent: bool = False) -> "Records":
        """After a round that asked `length` of them.

        `unspent`: the client's ledger shows that no coin was drawn in the rounds that it has missed before this answer.

        >>> records = Records(100).after(10, answered=True).after(10, answered=False).after(10, answered=False)
        >>> records
        Records(left=70, missed=20)
        >>> records.after(10, answered=True), records.after(10, answered=True, unspent=True)
        (Records(left=60, missed=0), Records(left=80, missed=0))
        """
        if not answered:
            return Records(self.left - length, self.missed + length)
        return Records(self.left - length + (self.missed if unspent else 0))


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

    `levels` is how many such plans the run has: together they may have `MAX_COUNTS` counts.
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
        silent=(0,) * clients,
        ones=(0,) * clients,
        asked=(0,) * clients,
        window_ones=(0,) * clients,
        window_asked=(0,) * clients,
        records=tuple(Records(client.records) for client in plan.clients),
        averages=Averages(center=plan.start),
        memory=plan.initial_memory(),
    )


def round_weight(state: RoundState) -> float:
    """w_m of the round just done: Σ_k (2c_k − 1)·p_k²/(4r_k²E_k), c_k = 1 for a client that answered.

    A report used c times in a row adds c² − (c − 1)² = 2c − 1 times its noise the c-th time.
    """
    rows = zip(state.used, state.noise, strict=True)
    return math.fsum((2 * used - 1) * noise for used, noise in rows if used)


def step(
    state: RoundState, ask: Ask, ones: Sequence[int | None], plan: Plan, unspent: Collection[int] = ()
) -> RoundState:
    """One round: the counts of all clients in, the next state out. `None` is a silent client.

    `unspent` are the places of clients whose ledgers show that no coin was drawn in the rounds they have missed since
    their last answer (`missed_records`).

    >>> import numpy as np
    >>> from privatile.core.mechanism import RandomizedResponse
    >>> from privatile.core.scale import Identity
    >>> from privatile.estimator.clients import Client
    >>> from privatile.estimator.plan import TablePlan
    >>> client = Client("all", RandomizedResponse(0.5), weight=1.0, level=0.5, records=100)
    >>> plan = TablePlan((client,), Identity(-9, 9), np.array([[50, 50]]), np.array([1.0, 1.0]))
    >>> step(begin(plan), plan.ask(begin(plan)), [50], plan).query  # all 50 said yes: y = 1.5
    1.0
    """
    clients = plan.clients
    if len(ones) != len(clients):
        raise ProtocolError(f"a round needs one count per client, {len(clients)}; got {len(ones)}.")
    means, noise, used, heard = list(state.means), list(state.noise), list(state.used), list(state.heard)
    silent, total_ones, total_asked = list(state.silent), list(state.ones), list(state.asked)
    window_ones, window_asked, records = list(state.window_ones), list(state.window_asked), list(state.records)
    for k in unspent:
        if not 0 <= k < len(clients) or ones[k] is None or not records[k].missed:
            raise ProtocolError(
                f"client number {k + 1} gets records of missed rounds back in round {state.round + 1}: it has missed "
                "none before it, or does not answer it."
            )
    for k, (client, count, length) in enumerate(zip(clients, ones, ask.lengths, strict=True)):
        records[k] = records[k].after(length, answered=count is not None, unspent=k in unspent)
        if count is None:
            if not used[k] and not plan.open_ended:
                raise ProtocolError(
                    f"client {client.name} has never answered: the first round needs every client. Wait for its "
                    "first answer, or start a run without it (a new estimand)."
                )
            # A client that has never answered has no last answer; an open-ended run waits for it (`pools`).
            used[k] += used[k] > 0
            silent[k] += 1
        else:
            if not length:
                raise ProtocolError(f"nobody of client {client.name} came: its count must be none; got {count}.")
            if not 0 <= count <= length:
                raise ProtocolError(
                    f"ones of client {client.name} must be a whole number from 0 to {length}; got {count}."
                )
            means[k] = client.mechanism.debias(count, length)
            noise[k] = client.noise(length)
            used[k] = 1
            heard[k] = ask.query
            total_ones[k] += count
            total_asked[k] += length
            if ask.averaged:
                window_ones[k] += count
                window_asked[k] += length
    after = state._replace(
        round=state.round + 1,
        means=tuple(means),
        noise=tuple(noise),
        used=tuple(used),
        heard=tuple(heard),
        silent=tuple(silent),
        ones=tuple(total_ones),
        asked=tuple(total_asked),
        window_ones=tuple(window_ones),
        window_asked=tuple(window_asked),
        records=tuple(records),
    )
    query = clip(plan.scale, ask.query + (ask.step * drift(after, plan) if ask.step else 0.0))
    # Averaging starts where the burn-in ends: centre its sums there.
    averages = add(state.averages, query, round_weight(after)) if ask.averaged else Averages(center=query)
    after = after._replace(query=query, averages=averages)
    return after._replace(memory=plan.learn(ask, after))


def drift(state: RoundState, plan: Plan) -> float:
    """Σ p_k·(y_k − (1 − τ)) of the round just done: an unbiased estimate of τ − F at the query it asked about."""
    return math.fsum(
        client.weight * (mean - (1.0 - plan.level_of(client)))
        for client, mean in zip(plan.clients, state.means, strict=True)
    )


def local_ranks(state: RoundState, plan: Plan) -> tuple[float, ...]:
    """F_k near Q* of every client: 1 − the debiased share of yes over the averaged rounds; NaN without an answer."""
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
            raise ProtocolError(f"the transcript continues after the plan's last round, {state.round}.")
        state = step(state, ask, ones, plan)
    return state


TOLERANCE = 1e-5
"""Standard errors by which all questions of a run together may drift from the design's own: 5e-8 in each of 200 rounds.
Measured with `tests/run/other_machines.py` (AVX-512, AVX2 and SSE kernels of numpy, three kernels of BLAS, the C
library with and without FMA, numpy 2.0 and 2.4) machines differ by at most 2e-11 in one question of 1,000 runs."""


QUESTION_BITS = 256
"""Last bits of a question that are free besides, 6e-14 of it. Where F jumps, the search closes in on the jump until its
error is a few million of them, and a share of that is less than one: of 1,000 runs some differed by 34 between
machines."""


MANY_ROUNDS = 100
"""What counts as all rounds of a run whose end is not known. Its questions do not drift: each is computed from what was
asked and answered, never from the design's own questions before it."""


def slack(plan: Plan) -> float:
    """How far one round may be off, in standard errors and as a share of a boundary: `TOLERANCE` over all rounds."""
    return TOLERANCE / (MANY_ROUNDS if plan.open_ended else plan.rounds)


def as_sent(plan: Plan, ask: Ask | None) -> Ask | None:
    """A round with its question in units of the data, as it is sent: inside the range, whatever the rounding."""
    return None if ask is None else ask._replace(sent=units_inside(plan.scale, ask.query))


def difference(plan: Plan, state: RoundState, own: Ask, asked: Ask) -> str:
    """In words, what a recorded round asks that this plan would not; empty where they are the same up to rounding."""
    if own == asked:
        return ""
    for name, planned, found in (
        ("stage", own.stage or "none", asked.stage or "none"),
        # How many came to an open-ended round is data, like the counts.
        ("lengths", asked.lengths if plan.open_ended else own.lengths, asked.lengths),
        ("averaging", own.averaged, asked.averaged),
    ):
        if planned != found:
            return f"its {name} would be {_words(planned)}, not {_words(found)}"
    share, error = slack(plan), plan.standard_error(state, own)
    scale, off = plan.scale, abs(asked.query - own.query)
    # Last bits of the question, never of the range: a design computes it either by plain arithmetic, which is the same
    # everywhere, or as a mean over the belief, whose terms are as large as the question and the standard error.
    # Written so that NaN is refused.
    if not off <= share * error + QUESTION_BITS * math.ulp(own.query) + scale.end_rounding():
        return f"its question is {off / error if error else math.inf:.2g} standard errors from the design's own"
    if not abs(asked.step - own.step) <= share * own.step:
        return f"its step would be {own.step:.6g}, not {asked.step:.6g}"
    units = units_inside(scale, asked.query)
    if not abs(asked.sent - units) <= share * error * scale.slope(asked.query) + scale.rounding(asked.query):
        return f"its question in units would be {units:.9g}, not {asked.sent:.9g}"
    return ""


def _words(part: object) -> str:
    return ", ".join(map(str, part)) if isinstance(part, tuple) else str(part)
