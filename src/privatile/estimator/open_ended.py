"""The straddling design where nobody knows how many people will answer: no horizon, valid at every look.

The same search, fit and repairs as in `straddle`; the schedule follows the information t = Σp gathered so far instead
of a share of a total. Questions lie `DISTANCE` standard errors se_t = 1/(f·√t) either side of the centre and are
placed anew whenever the information has grown by 15%; every tenth round asks the centre. The interval holds the
candidates that no running bet has rejected (`Bets`). The number of records in a round is not decided here: everybody
who comes answers the open question.

How many come to a round is up to whoever asks, by the number of people or by the clock. It must never depend on the
answers: a round that is closed because its answers look well would be biased. So it is decided by functions that see
numbers of people and times only, and reaches the plan together with the counts, as `Ask.lengths`.

A run ends by command, by date, by its number of answers, by its width, or never. The anytime interval holds wherever it
ends. An interval for a fixed end exists only where date or number stood in the specification from the beginning, and
only once it is reached: whoever ends a run because of what it shows has chosen the end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from statistics import NormalDist
from typing import Literal, NamedTuple, get_args

import numpy as np

from privatile.core.arrays import Floats
from privatile.core.messages import LARGEST_LENGTH
from privatile.core.scale import working_range
from privatile.core.text import short
from privatile.errors import InputError
from privatile.estimator.clients import UNKNOWN_SIZE, check_clients, pooled_noise
from privatile.estimator.plan import Ask, Plan, RoundState
from privatile.estimator.pools import Pool, Pools, gather, outermost
from privatile.estimator.search import (
    ROOM,
    Belief,
    begin_belief,
    best_question,
    copied,
    forget,
    learn_in_search,
    search_is_over,
    summarize,
)
from privatile.estimator.straddle import (
    CENTRE,
    CERTAIN,
    HIGH,
    LOW,
    SEARCH,
    STAGES,
    Asked,
    Fit,
    add_to_fit,
    begin_fit,
    came,
    note_answer,
    offset_of,
    plausible_center,
    refit,
    side_of,
    sign_change,
    solve_fit,
)
from privatile.estimator.tuned import information

Reason = Literal["command", "date", "answers", "width"]
REASONS: tuple[Reason, ...] = get_args(Reason)
"""Why a run ended: somebody said so; the date or the number of answers of its specification; its width."""


def seconds_of(text: str) -> float:
    """A date, or a date with a time of day, in seconds since 1970; without a zone it is UTC.

    >>> seconds_of("2026-11-16"), seconds_of("2026-11-16T01:00+01:00") - seconds_of("2026-11-16")
    (1794787200.0, 0.0)
    """
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


@dataclass(frozen=True)
class End:
    """An end that was fixed beforehand: a date, or a number of answers at every level; whichever comes first.

    >>> End(date="2027-01-31T18:00:00Z").seconds
    1801418400.0
    >>> End()
    Traceback (most recent call last):
    ...
    privatile.errors.InputError: end must have a date, a number of answers or both. Leave it out where neither is fixed.
    """

    date: str | None = None
    """In UTC, as 2027-01-31T18:00:00Z."""
    answers: int | None = None
    """The run ends with the round in which so many have answered, over all clients. Rounds are never cut short."""

    def __post_init__(self) -> None:
        if self.date is None and self.answers is None:
            raise InputError("end must have a date, a number of answers or both. Leave it out where neither is fixed.")
        if self.date is not None:
            self.seconds  # noqa: B018  a date that is none is refused here
        whole = isinstance(self.answers, int) and not isinstance(self.answers, bool)
        if self.answers is not None and not (whole and 1 <= self.answers <= LARGEST_LENGTH):
            raise InputError(
                f"end.answers must be a whole number from 1 to {LARGEST_LENGTH}; got {short(self.answers)}."
            )

    @property
    def seconds(self) -> float | None:
        """The date in seconds since 1970; none without one."""
        if self.date is None:
            return None
        try:
            return datetime.strptime(self.date, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
        except (ValueError, TypeError, OverflowError):
            raise InputError(
                f"end.date must be a moment in UTC, as 2027-01-31T18:00:00Z; got {short(self.date)}."
            ) from None


MIN_ROUND_LENGTH, SHARE = 25, 50
"""People in the first rounds, and the part of all answers so far that a later round has."""


def round_length(answered: int) -> int:
    """How many people the next round should wait for, by how many have answered so far: a suggestion to whoever asks.

    Short rounds let the search move on. Later ones are a fiftieth of what has come: the questions are placed anew only
    when the information has grown by 15%. It sees numbers of people, never an answer.

    >>> round_length(0), round_length(100_000)
    (25, 2000)
    """
    return max(MIN_ROUND_LENGTH, answered // SHARE)


SEARCH_ROUNDS, SEARCH_BITS = 6, 125
"""What the search for the quantile takes, before there is an interval: rounds, and answers that are never a lie."""


def answers_before_interval(truth_rate: float, level: float, length: int = MIN_ROUND_LENGTH) -> int:
    """About how many answers an open-ended run takes until it has its first interval, with rounds of `length` answers.

    A rule of thumb, measured for ε from 0.5 to 4: for a median and a range of 5 to 20 standard deviations, eight of ten
    simulated runs had one by then, and none had one at a third of it. A wider range takes more.

    >>> import math
    >>> [answers_before_interval(math.tanh(epsilon / 2), 0.5) for epsilon in (0.5, 1, 2)]
    [2240, 740, 370]
    """
    answers = (SEARCH_ROUNDS * length + SEARCH_BITS / truth_rate**2) * 0.25 / (level * (1.0 - level))
    return math.ceil(answers / 10) * 10


TRUST = 16.0
"""κ: the drift is believed to be the expected one within a quarter."""

BETS = 64
"""Candidates of a side and placements in memory. Each placement is 15% more information: 64 of them are a factor of
7,700."""

SETTLED = math.log(1e9)
"""An outermost candidate may be forgotten once its bet has reached this: an error there has probability 1e-9."""


@dataclass
class Bets:
    """Candidate ends of one side where the number of records is not known: a running bet instead of a budget.

    As in `straddle.Candidates`, a candidate c of the low side stands for F(c) ≥ τ, every low answer asked at q ≥ c
    counts, and a new candidate copies the next one above it. Without a last round there is no budget to divide. The
    design expects a drift w > 0 of every answer, known before it comes: its question lies that far, in rank, from
    where the quantile is believed to be. Each candidate bets on the drift θw, the same θ for all answers, normal around
    1 with precision κ and positive: with X = Σw·p·y and T = Σw²·p,

        E = ∫ exp(θX − θ²T/2)·φ_κ(θ − 1) dθ/Φ(√κ) = √(κ/(κ + T))·exp(z²/2 − κ/2)·Φ(z)/Φ(√κ),  z = (X + κ)/√(T + κ)

    Under the hypothesis y has a drift of at most 0, whatever θ > 0, and E is a supermartingale that starts at 1, also
    for finite samples: a round's answer is sub-Gaussian with its own variance bound 1/p. So P(E ever reaches 1/a) ≤ a
    (Ville), at every look and without an end. Φ(z) is replaced by its bound 1 − ½·exp(−z²/2) from below, and E by 0
    where z < 0.

    With an answer as expected, T = X, the bet needs T/2 = log(1/a) + ½·log(1 + T/κ). A large κ trusts the design; a
    small one loses less where the drift is another, beside atoms and in gaps.
    """

    places: Floats = field(default_factory=lambda: np.full(BETS, np.inf))
    """c on the low side, −c on the high side: outward is down on both. Unused room has its place at ∞."""
    sums: Floats = field(default_factory=lambda: np.zeros(BETS))
    """X."""
    totals: Floats = field(default_factory=lambda: np.zeros(BETS))
    """T."""
    peaks: Floats = field(default_factory=lambda: np.zeros(BETS))
    """The largest log E so far; 0 at the start."""
    starts: Floats = field(default_factory=lambda: np.zeros(BETS))
    """Information of the run when the candidate was made."""


def log_bet(total: float, squares: float) -> float:
    """log E from X and T, from below; −∞ where X ≤ −κ.

    >>> round(log_bet(8.0, 8.0), 3)  # as expected: T/2 less ½·log(1 + T/κ)
    3.797
    """
    won = total + TRUST
    if won <= 0.0:
        return -math.inf
    half = 0.5 * won**2 / (squares + TRUST)
    prior = 0.5 * TRUST + math.log(NormalDist().cdf(math.sqrt(TRUST)))
    return 0.5 * math.log(TRUST / (TRUST + squares)) + half - prior + math.log1p(-0.5 * math.exp(-half))


def add_bet(bets: Bets, place: float, information: float) -> None:
    """One new candidate; it copies the next above it, or begins at E = 1.

    If the room is full, the outermost candidate makes way if its bet is settled; else nothing is added, which is valid
    as well.
    """
    above = -1
    for c in range(BETS):
        higher = place <= bets.places[c] < math.inf
        if higher and (above < 0 or bets.places[c] < bets.places[above]):
            above = c
    slot = -1
    for c in range(BETS):
        if slot < 0 and math.isinf(bets.places[c]):
            slot = c
    if slot < 0:
        slot = int(np.argmin(bets.places))
        settled = bets.peaks[slot] >= SETTLED and place > bets.places[slot]
        if not settled or slot == above:
            return
    bets.places[slot] = place
    bets.sums[slot] = bets.sums[above] if above >= 0 else 0.0
    bets.totals[slot] = bets.totals[above] if above >= 0 else 0.0
    bets.peaks[slot] = bets.peaks[above] if above >= 0 else 0.0
    bets.starts[slot] = bets.starts[above] if above >= 0 else information


def bet_on(bets: Bets, place: float, residual: float, precision: float, expected: float) -> None:
    """One answer: ±y with its precision, and the drift w that was expected of it.

    >>> bets = Bets()
    >>> add_bet(bets, 2.0, 20.0)
    >>> bet_on(bets, 2.0, 0.1, 800.0, 0.1)
    >>> round(float(bets.peaks[0]), 3)
    3.797
    """
    for c in range(BETS):
        if bets.places[c] <= place:
            bets.sums[c] += expected * residual * precision
            bets.totals[c] += expected**2 * precision
            bets.peaks[c] = max(bets.peaks[c], log_bet(bets.sums[c], bets.totals[c]))


DISTANCE = 4.5
"""Standard errors at the time of placement; 4.8 of those at the next one. The optimum is flat from 4.2 to 5
(`studies/arrivals/constants.py` measures it and the others)."""

CENTRE_EVERY = 10
"""Every tenth round asks the centre: its rounds bound nothing, but an atom shows there, and they steady the smooth
estimate. At information 6,000 the interval is 1.24 times that with a known number of records; with every fifth 1.31."""

GROWN = 1.15
"""Information after which the questions are placed anew, as a multiple of that at the last placement."""

LOCATED = 0.3
"""The search ends when its error is below this many spreads, …"""

ENOUGH = 200.0
"""… or when (τ(1 − τ))²·t has reached this."""

BEHIND = 4.0
"""A side whose outermost candidate is not accepted at 95% though the information has grown this many times is asked
further out, …"""

PUSH = 1.3
"""… by this factor more at every placement in a row."""

SURE = 4.0
"""Standard errors of a stretch's pooled answer that tell its side (`sign_change`), 2.5 with a known end. Here stretches
are many and begin anew for ever: with 2.5 the quantile lies outside what they leave in 5% to 7% of runs."""

STRAYS = 6
"""Placements in a row of a side whose answers are on the wrong side: then the search begins again. Whoever comes first
and lies may have led it anywhere, and have made it sure of it."""

ACCEPTED = math.log(40.0)


class OpenRules(NamedTuple):
    """What is fixed before the first question."""

    level: float
    low: float
    high: float
    boundary: float = 1.0
    """What the boundary of every decision is multiplied by; see `Plan.with_boundaries_moved`."""


@dataclass
class OpenSide:
    """One side's question now, what its answers said, and its bets."""

    place: float = 0.0
    behind: int = 0
    fresh: bool = False
    total: float = 0.0
    precision: float = 0.0
    """As of `straddle.Side`."""
    bets: Bets = field(default_factory=Bets)


@dataclass
class OpenRun:
    """All that the next question of one run depends on, and that question."""

    belief: Belief
    stage: int = SEARCH
    query: float = math.nan
    """The next question, on the working scale."""
    done: int = 0
    asked: int = 0
    """Rounds that gave an answer, and all those of the window."""
    information: float = 0.0
    """t: Σp of all answers."""
    begun: float = 0.0
    """The information when the present search began."""
    center: float = math.nan
    slope: float = math.nan
    """F̂ where the questions were last placed."""
    placed: int = 0
    placed_at: float = 0.0
    """Placements so far, and the information at the last one."""
    strays: int = 0
    """Placements in a row of a side that was astray."""
    beyond: int = 0
    """Placements in a row for which the centre had to go beyond everything asked."""
    astray: bool = False
    fit: Fit = field(default_factory=Fit)
    answers: Asked = field(default_factory=lambda: Asked(np.zeros(3 * BETS), np.zeros(3 * BETS), np.zeros(3 * BETS)))
    """Questions of the last `BETS` placements: older places are overwritten; they are far out and hold little."""
    sides: tuple[OpenSide, OpenSide] = field(default_factory=lambda: (OpenSide(), OpenSide()))


def begin(rules: OpenRules, room: int = ROOM) -> OpenRun:
    """A run before its first round, with its first question; `room` is that of its belief."""
    run = OpenRun(begin_belief(rules, room))
    search_on(rules, run)
    return run


def learn(rules: OpenRules, run: OpenRun, residual: float, variance: float) -> None:
    """An answer to the question asked, y, and its variance (∞: none); then the next question."""
    precision = 1.0 / variance if math.isfinite(variance) else 0.0
    seeking = run.stage == SEARCH
    if seeking:
        learn_in_search(rules, run.belief, run.query, residual, variance)
    run.done += 1 if precision > 0.0 else 0
    run.information += precision
    if not seeking:
        learn_in_window(rules, run, residual, precision)
        if run.astray and run.strays >= STRAYS:
            search_again(rules, run)
    if run.stage == SEARCH:
        search_on(rules, run)
    if run.stage != SEARCH:
        straddle_on(rules, run)


def search_again(rules: OpenRules, run: OpenRun) -> None:
    """Forget what placed the questions, but none of the bets: they hold wherever the questions lie."""
    forget(rules, run.belief)
    run.stage, run.begun = SEARCH, run.information
    run.placed, run.placed_at, run.strays, run.beyond, run.astray = 0, 0.0, 0, 0, False
    run.answers.places[:] = 0.0
    run.answers.sums[:] = 0.0
    run.answers.precisions[:] = 0.0
    for which in (LOW, HIGH):
        side = run.sides[which]
        side.place, side.behind, side.fresh, side.total, side.precision = 0.0, 0, False, 0.0, 0.0


def search_on(rules: OpenRules, run: OpenRun) -> None:
    """The next question of the search, or the beginning of the window."""
    known = summarize(rules, run.belief)
    scale = rules.level * (1.0 - rules.level)
    gathered = scale**2 * (run.information - run.begun)
    if search_is_over(rules, known, LOCATED) or gathered >= ENOUGH * rules.boundary:
        run.stage, run.center, run.slope, run.fit.spread = CENTRE, known.quantile, scale, known.spread
        begin_fit(run.fit, rules.level, known.quantile, min(known.error / known.spread, 3.0))
        return
    # The mean variance of this run's own answers; of the first one nothing is known.
    typical = run.done / max(run.information, 1.0) if run.done > 0 else 0.05
    query, _ = best_question(rules, run.belief, typical)
    run.query = min(max(query, rules.low), rules.high)


def straddle_on(rules: OpenRules, run: OpenRun) -> None:
    """The next question of the window; all are placed anew where the information has grown or a side is astray."""
    grown = run.information - run.begun >= GROWN * rules.boundary * (run.placed_at - run.begun)
    if run.placed == 0 or (grown and run.asked > 0) or run.astray:
        place_questions(rules, run)
    run.stage = side_of(run.asked, CENTRE_EVERY)
    run.query = run.center if run.stage == CENTRE else run.sides[run.stage].place


def place_questions(rules: OpenRules, run: OpenRun) -> None:
    """New questions from all answers of the window."""
    fit = run.fit
    root, slope, bend = solve_fit(fit, rules.level)
    center = fit.origin + fit.spread * root
    if run.placed > 0:
        slope = min(max(slope, run.slope / 2.0), run.slope * 2.0)
        below, above = sign_change(run.answers, SURE * rules.boundary)
        places = (run.sides[LOW].place, run.sides[HIGH].place)
        center, run.beyond, contradicted = plausible_center(center, places, run.beyond, below, above)
        if contradicted:
            refit(fit, run.answers, rules.level, center)
    distance = DISTANCE / (math.sqrt(run.information - run.begun) * slope)
    for which in (LOW, HIGH):
        side, sign = run.sides[which], -1.0 if which == LOW else 1.0
        outermost = np.argmin(side.bets.places)
        start, accepted = side.bets.starts[outermost], side.bets.peaks[outermost] >= ACCEPTED * rules.boundary
        late = start > 0.0 and not accepted and run.information > BEHIND * rules.boundary * start
        side.behind = side.behind + 1 if late else 0
        offset = offset_of(distance * PUSH**side.behind, slope, bend, sign)
        side.place = min(max(center + sign * fit.spread * offset, rules.low), rules.high)
        side.fresh, side.total, side.precision = True, 0.0, 0.0
    run.slope, run.center = slope, min(max(center, rules.low), rules.high)
    run.strays = run.strays + 1 if run.astray else 0
    # What an older placement left in the places of this one.
    for slot in range(3 * (run.placed % BETS), 3 * (run.placed % BETS) + 3):
        run.answers.sums[slot], run.answers.precisions[slot] = 0.0, 0.0
    run.placed += 1
    run.placed_at, run.astray = run.information, False


def learn_in_window(rules: OpenRules, run: OpenRun, residual: float, precision: float) -> None:
    """One answer to the window's question; a precision of 0 says that there was none."""
    signal = precision * residual if precision > 0.0 else 0.0
    add_to_fit(run.fit, run.query, precision, signal)
    note_answer(run.answers, 3 * ((run.placed - 1) % BETS) + run.stage, run.query, precision, signal)
    run.asked += 1
    if run.stage == CENTRE or precision == 0.0:
        return
    side, outward = run.sides[run.stage], 1.0 if run.stage == LOW else -1.0
    side.total += outward * signal
    side.precision += precision
    if side.total / math.sqrt(side.precision) < -CERTAIN * rules.boundary:
        run.astray = True
    if side.fresh:
        add_bet(side.bets, outward * run.query, run.information)
        side.fresh = False
    # Of a side that is asked further out because it is behind, no more is expected: it adds signal.
    expected = DISTANCE / math.sqrt(run.placed_at - run.begun)
    bet_on(side.bets, outward * run.query, outward * residual, precision, expected)


APART = 0.2
"""Standard deviation of the difference in rank between clients, where the search goes on without some of them."""


class OpenMemory(NamedTuple):
    """What a run of this design has learned."""

    run: OpenRun
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
    def rules(self) -> OpenRules:
        """The rules, with this run's numbers."""
        return OpenRules(self.level, *working_range(self.scale), 1.0 + self.boundary_shift)

    @property
    def start(self) -> float:
        """The first question: the middle of the range, where a flat belief asks first."""
        return begin(self.rules).query

    @property
    def information(self) -> float:
        """How much the records of `clients` say at this level."""
        return information(self.level, pooled_noise(self.clients))

    def initial_memory(self) -> OpenMemory:
        """Nothing learned."""
        return OpenMemory(begin(self.rules), {})

    def ask(self, state: RoundState) -> Ask | None:
        """The present question, without lengths; none once the number of answers is reached."""
        return None if self.is_reached(state) else self.present(state)

    def is_reached(self, state: RoundState) -> bool:
        """Whether the number of answers that was fixed beforehand has come."""
        return self.answers is not None and sum(state.asked) >= self.answers

    def present(self, state: RoundState) -> Ask:
        """The question that stands."""
        run = open_memory(state).run
        return Ask(float(run.query), (), 0.0, run.stage != SEARCH, STAGES[run.stage])

    def learn(self, ask: Ask, state: RoundState) -> OpenMemory:
        """What is known after a round: real answers alone, each once; those of some clients wait for the others.

        The search does not wait: it only decides where to ask, and goes on with those who came.
        """
        run, pools = open_memory(state)
        run = copied(run)
        means = came(state)
        if ask.averaged:
            # What was asked counts: in a replay it may differ from this machine's own question in the last bits.
            if ask.stage == "centre":
                run.center = ask.query
            else:
                run.sides[STAGES.index(ask.stage)].place = ask.query
            pools, pool = gather(pools, ask.stage, ask.query, ask.lengths, means)
            run.query, residual, variance = self._heard(ask, pool)
        else:
            run.query, (residual, variance) = ask.query, self._guess(ask, means)
        learn(self.rules, run, residual, variance)
        return OpenMemory(run, pools)

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
        run = open_memory(state).run
        if not ask.averaged:
            return summarize(self.rules, run.belief).error
        return run.fit.spread / (run.slope * math.sqrt(run.information))


def open_memory(state: RoundState) -> OpenMemory:
    """The memory of a run of this design."""
    if not isinstance(state.memory, OpenMemory):
        raise TypeError("this run does not follow the open-ended design")
    return state.memory
