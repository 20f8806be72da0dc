"""The straddling design without a known end: when it ends, its bets, its policy and its plan.

When an open-ended run ends, and what was fixed about it before the first answer.

A run ends by command, by date, by its number of answers, by its width, or never. The anytime interval holds wherever it
ends. An interval for a fixed end exists only where date or number stood in the specification from the beginning, and
only once it is reached: whoever ends a run because of what it shows has chosen the end.

Candidate ends where the number of records is not known: a running bet instead of a budget.

As in `candidates`, a candidate c of the low side stands for F(c) ≥ τ, every low answer asked at q ≥ c counts, and a
new candidate copies the next one above it. Without a last round there is no budget to divide. The design expects a
drift w > 0 of every answer, known before it comes: its question lies that far, in rank, from where the quantile is
believed to be. Each candidate bets on the drift θw, the same θ for all answers, normal around 1 with precision κ and
positive: with X = Σw·p·y and T = Σw²·p,

    E = ∫ exp(θX − θ²T/2)·φ_κ(θ − 1) dθ/Φ(√κ) = √(κ/(κ + T))·exp(z²/2 − κ/2)·Φ(z)/Φ(√κ),  z = (X + κ)/√(T + κ)

Under the hypothesis y has a drift of at most 0, whatever θ > 0, and E is a supermartingale that starts at 1, also for
finite samples: a round's answer is sub-Gaussian with its own variance bound 1/p. So P(E ever reaches 1/a) ≤ a (Ville),
at every look and without an end. Φ(z) is replaced by its bound 1 − ½·exp(−z²/2) from below, and E by 0 where z < 0.

With an answer as expected, T = X, the bet needs T/2 = log(1/a) + ½·log(1 + T/κ). A large κ trusts the design; a small
one loses less where the drift is another, beside atoms and in gaps.

The straddling design where nobody knows how many people will answer: no horizon, valid at every look.

The same search, fit and repairs as in `straddle`; the schedule follows the information t = Σp gathered so far instead
of a share of a total. Questions lie `DISTANCE` standard errors se_t = 1/(f·√t) either side of the centre and are
placed anew whenever the information has grown by 15%; every tenth round asks the centre. The interval holds the
candidates that no running bet has rejected (`open_candidates`). The number of records in a round is not decided here:
everybody who comes answers the open question.

The straddling design without a known end as a plan: whoever comes answers the present question (`open_end`).

How many come to a round is up to whoever asks, by the number of people or by the clock. It must never depend on the
answers: a round that is closed because its answers look well would be biased. So it is decided by functions that see
numbers of people and times only, and reaches the plan together with the counts, as `Ask.lengths`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from statistics import NormalDist
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from privatile.core.arrays import Flags, Floats, Ints, array_namespace
from privatile.core.messages import LARGEST_LENGTH
from privatile.core.scale import working_range
from privatile.core.text import short
from privatile.errors import InputError
from privatile.estimator import search
from privatile.estimator.clients import UNKNOWN_SIZE, check_clients, pooled_noise
from privatile.estimator.plan import Ask, Plan, RoundState
from privatile.estimator.search import CERTAIN, Belief, sign_change
from privatile.estimator.straddle import STAGES, Pool, Pools, gather, outermost, plausible_center, refit
from privatile.estimator.tuned import SPREAD_KNOWN, information
from privatile.estimator.window import (
    CENTRE,
    HIGH,
    LOW,
    Ridge,
    add_to_fit,
    begin_fit,
    offset_of,
    put_rows,
    put_values,
    side_of,
    solve_fit,
    take_rows,
)

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


SHORTEST, SHARE = 25, 50
"""People in the first rounds, and the part of all answers so far that a later round has."""


def round_length(answered: int) -> int:
    """How many people the next round should wait for, by how many have answered so far: a suggestion to whoever asks.

    Short rounds let the search move on. Later ones are a fiftieth of what has come: the questions are placed anew only
    when the information has grown by 15%. It sees numbers of people, never an answer.

    >>> round_length(0), round_length(100_000)
    (25, 2000)
    """
    return max(SHORTEST, answered // SHARE)


SEARCH_ROUNDS, SEARCH_BITS = 6, 125
"""What the search for the quantile takes, before there is an interval: rounds, and answers that are never a lie."""


def answers_before_interval(truth_rate: float, level: float, length: int = SHORTEST) -> int:
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

SETTLED = math.log(1e9)
"""An outermost candidate may be forgotten once its bet has reached this: an error there has probability 1e-9."""


class OpenCandidates(NamedTuple):
    """The bets of every run and side: runs × 2 × room. Unused room has its place at ∞."""

    places: Floats
    """c on the low side, −c on the high side: outward is down on both."""
    sums: Floats
    """X."""
    totals: Floats
    """T."""
    peaks: Floats
    """The largest log E so far; 0 at the start."""
    starts: Floats
    """Information of the run when the candidate was made."""

    @property
    def outermost(self) -> tuple[Floats, Floats]:
        """Largest log E and start of the outermost candidate of every side (runs × 2); without one (0, 0)."""
        xp = array_namespace(self.places)
        first = xp.argmin(self.places, axis=2)[..., None]
        peak, start = (xp.take_along_axis(values, first, axis=2)[..., 0] for values in (self.peaks, self.starts))
        return peak, start


def no_bets(runs: int, room: int, xp: Any = np) -> "OpenCandidates":
    """Before the first question of the window."""
    shape = (runs, 2, room)
    zeros = xp.zeros(shape)
    return OpenCandidates(xp.full(shape, xp.inf), zeros, zeros, zeros, zeros)


def log_bet(sums: Floats, totals: Floats) -> Floats:
    """log E, from below; −∞ where X ≤ −κ.

    >>> one = np.ones(1)
    >>> round(float(log_bet(8.0 * one, 8.0 * one)[0]), 3)  # as expected: T/2 less ½·log(1 + T/κ)
    3.797
    """
    xp = array_namespace(sums)
    won = sums + TRUST
    half = 0.5 * xp.maximum(won, 0.0) ** 2 / (totals + TRUST)
    prior = 0.5 * TRUST + math.log(NormalDist().cdf(math.sqrt(TRUST)))
    value = 0.5 * xp.log(TRUST / (TRUST + totals)) + half - prior + xp.log1p(-0.5 * xp.exp(-half))
    result: Floats = xp.where(won > 0.0, value, -xp.inf)
    return result


def add_bet(tests: "OpenCandidates", side: Ints, place: Floats, information: Floats) -> "OpenCandidates":
    """One new candidate per run on its side; it copies the next above it, or begins at E = 1.

    Where the room is full, the outermost candidate makes way if its bet is settled; else nothing is added, which is
    valid as well.
    """
    xp = array_namespace(place)
    rows = xp.arange(len(place))
    have = tests.places[rows, side]
    higher = xp.where(have >= place[:, None], have, xp.inf)
    above = xp.argmin(higher, axis=1)
    none = xp.isinf(higher[rows, above])
    free = xp.isinf(have)
    outermost = xp.argmin(have, axis=1)
    settled = tests.peaks[rows, side, outermost] >= SETTLED
    full = ~free.any(axis=1)
    slot = xp.where(full, outermost, xp.argmax(free, axis=1))
    adds = ~full | (settled & (place > have[rows, outermost]) & (none | (slot != above)))
    fresh = (
        (place, None),
        (xp.zeros_like(place), tests.sums),
        (xp.zeros_like(place), tests.totals),
        (xp.zeros_like(place), tests.peaks),
        (information, tests.starts),
    )
    changed = []
    for values, (begin, copied) in zip(tests, fresh, strict=True):
        newer = begin if copied is None else xp.where(none, begin, copied[rows, side, above])
        column = values.copy()
        column[rows, side, slot] = xp.where(adds, newer, values[rows, side, slot])
        changed.append(column)
    return OpenCandidates(*changed)


def add_open_answer(
    tests: "OpenCandidates", side: Ints, place: Floats, residual: Floats, precision: Floats, expected: Floats
) -> "OpenCandidates":
    """One answer per run on its side: ±y with its precision, 0 for none, and the drift w that was expected of it.

    >>> tests = add_bet(no_bets(1, 4), np.array([0]), np.array([2.0]), np.array([20.0]))
    >>> one = np.ones(1)
    >>> tests = add_open_answer(tests, np.array([0]), 2.0 * one, 0.1 * one, 800.0 * one, 0.1 * one)
    >>> round(float(tests.peaks[0, 0, 0]), 3)
    3.797
    """
    xp = array_namespace(place)
    rows = xp.arange(len(place))
    counts = (tests.places[rows, side] <= place[:, None]) & (precision > 0.0)[:, None]
    sums, totals, peaks = tests.sums.copy(), tests.totals.copy(), tests.peaks.copy()
    signal = xp.where(precision > 0.0, expected * residual * precision, 0.0)
    sums[rows, side] += xp.where(counts, signal[:, None], 0.0)
    totals[rows, side] += xp.where(counts, (expected**2 * precision)[:, None], 0.0)
    bet = log_bet(sums[rows, side], totals[rows, side])
    peaks[rows, side] = xp.where(counts, xp.maximum(tests.peaks[rows, side], bet), tests.peaks[rows, side])
    return tests._replace(sums=sums, totals=totals, peaks=peaks)


SEARCH = 3
"""Stage of a round that places the quantile; the others are those of `straddle_schedule`."""

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

ROOM = 64
"""Candidates of a side and placements in memory. Each placement is 15% more information: 64 of them are a factor of
7,700. Older places are overwritten; they are far out and hold little."""

BEHIND = 4.0
"""A side whose outermost candidate is not accepted at 95% though the information has grown this many times is asked
further out, …"""

PUSH = 1.3
"""… by this factor more at every placement in a row."""

SURE = 4.0
"""Standard errors of a stretch's pooled answer that tell its side (`antitonic`), 2.5 with a known end. Here stretches
are many and begin anew for ever: with 2.5 the quantile lies outside what they leave in 5% to 7% of runs."""

STRAYS = 6
"""Placements in a row of a side whose answers are on the wrong side: then the search begins again. Whoever comes first
and lies may have led it anywhere, and have made it sure of it."""

ACCEPTED = math.log(40.0)


class OpenEnd(NamedTuple):
    """The state of the policy, one row per run."""

    belief: Belief
    stage: Ints
    done: Ints
    """Rounds that gave an answer, and all those of the window."""
    asked: Ints
    information: Floats
    """t: Σp of all answers."""
    origin: Floats
    spread: Floats
    matrix: Floats
    vector: Floats
    """Q₀, σ₀ and the normal equations of the fit."""
    slope: Floats
    center: Floats
    sides: Floats
    """F̂ and the questions now: centre, and runs × (low, high)."""
    placed: Ints
    placed_at: Floats
    """Placements so far, and the information at the last one."""
    begun: Floats
    strays: Ints
    """The information when the present search began, and placements in a row of a side that was astray."""
    beyond: Ints
    behind: Ints
    fresh: Flags
    astray: Flags
    side_sums: Floats
    side_precisions: Floats
    places: Floats
    sums: Floats
    precisions: Floats
    tests: OpenCandidates
    query: Floats
    """The next question, on the working scale."""


_WHOLE = ("belief",)
"""What a part of the runs in the window leaves alone."""


@dataclass(frozen=True)
class OpenEndPolicy:
    """The rules for a level and a range."""

    level: float
    low: float
    high: float
    boundary_shift: float = 0.0
    """Share by which the boundary of every decision is moved; see `Plan.with_boundaries_moved`."""

    def begin(self, runs: int = 1, xp: Any = np) -> OpenEnd:
        """Before the first round; `xp` is the library of the arrays."""
        zeros, none, whole = xp.zeros(runs), xp.full(runs, math.nan), xp.zeros(runs, dtype=xp.int64)
        pairs, flags = xp.zeros((runs, 2)), xp.zeros(runs, dtype=xp.bool_)
        fit, slots = begin_fit(self.level, xp.ones(runs)), xp.zeros((runs, 3 * ROOM))
        state = OpenEnd(
            search.begin(self.level, self.low, self.high, runs, xp),
            *(xp.full(runs, SEARCH, dtype=xp.int64), whole, whole, zeros),
            *(none, none, fit.matrix, fit.vector, none, none, pairs),
            *(whole, zeros, zeros, whole, whole, xp.zeros((runs, 2), dtype=xp.int64)),
            *(xp.zeros((runs, 2), dtype=xp.bool_), flags, pairs, pairs, slots, slots, slots),
            no_bets(runs, ROOM, xp),
            none,
        )
        return self._search(state, xp.arange(runs))

    def learn(self, state: OpenEnd, residuals: Floats, variances: Floats) -> OpenEnd:
        """Answers to the questions asked: y and their variances (∞: no answer); then the next questions."""
        xp = array_namespace(residuals)
        came = xp.isfinite(variances)
        precision = xp.where(came, 1.0 / xp.where(came, variances, 1.0), 0.0)
        seeking, inside = xp.flatnonzero(state.stage == SEARCH), xp.flatnonzero(state.stage != SEARCH)
        belief = state.belief
        if len(seeking):
            answers = (state.query[seeking], residuals[seeking], variances[seeking])
            belief = belief.put(seeking, search.learn(belief.take(seeking), *answers, self.boundary_shift))
        state = state._replace(belief=belief, done=state.done + came, information=state.information + precision)
        if len(inside):
            some = _learn_inside(
                take_rows(state, inside, _WHOLE), residuals[inside], precision[inside], self.boundary_shift
            )
            state = put_rows(state, inside, some, _WHOLE)
        lost = xp.flatnonzero((state.stage != SEARCH) & state.astray & (state.strays >= STRAYS))
        if len(lost):
            state = self._search_again(state, lost)
        seeking = xp.concatenate([seeking, lost])
        if len(seeking):
            state = self._search(state, seeking)
        inside = xp.flatnonzero(state.stage != SEARCH)
        if not len(inside):
            return state
        return put_rows(state, inside, self._straddle(take_rows(state, inside, _WHOLE)), _WHOLE)

    def _search_again(self, state: OpenEnd, runs: Ints) -> OpenEnd:
        """Forget what placed the questions, but none of the bets: they hold wherever the questions lie."""
        xp = array_namespace(state.query)
        kept = {name: getattr(state, name)[runs] for name in ("done", "asked", "information")}
        tests = take_rows(state.tests, runs)
        again = self.begin(len(runs), xp)._replace(begun=state.information[runs], tests=tests, **kept)
        return put_rows(state._replace(belief=state.belief.forgotten(runs)), runs, again, _WHOLE)

    def _search(self, state: OpenEnd, runs: Ints) -> OpenEnd:
        """The next question of the search, or the beginning of the window."""
        xp = array_namespace(state.query)
        belief = state.belief.take(runs)
        known = search.summarize(belief)
        boundary = 1.0 + self.boundary_shift
        found = (known.error < LOCATED * boundary * known.spread) & (known.spread_error < SPREAD_KNOWN * boundary)
        gathered = (self.level * (1.0 - self.level)) ** 2 * (state.information - state.begun)[runs]
        ends = found | (gathered >= ENOUGH * boundary)
        done = state.done[runs]
        # The mean variance of this run's own answers; of the first one nothing is known.
        typical = xp.where(done > 0, done / xp.maximum(state.information[runs], 1.0), 0.05)
        query, _ = search.best_question(belief, typical, self.boundary_shift)
        fit = begin_fit(self.level, xp.minimum(known.error / known.spread, 3.0))
        scale = self.level * (1.0 - self.level)
        return state._replace(
            stage=put_values(state.stage, runs, xp.where(ends, CENTRE, SEARCH)),
            query=put_values(state.query, runs, xp.clip(query, self.low, self.high)),
            origin=put_values(state.origin, runs, known.quantile),
            center=put_values(state.center, runs, known.quantile),
            spread=put_values(state.spread, runs, known.spread),
            slope=put_values(state.slope, runs, xp.full_like(known.spread, scale)),
            matrix=put_values(state.matrix, runs, fit.matrix),
            vector=put_values(state.vector, runs, fit.vector),
        )

    def _straddle(self, state: OpenEnd) -> OpenEnd:
        """The next question of the window; all are placed anew where the information has grown or a side is astray."""
        xp = array_namespace(state.query)
        grown = state.information - state.begun >= GROWN * (1.0 + self.boundary_shift) * (state.placed_at - state.begun)
        moving = xp.flatnonzero((state.placed == 0) | (grown & (state.asked > 0)) | state.astray)
        if len(moving):
            state = put_rows(state, moving, self._placed(take_rows(state, moving, _WHOLE)), _WHOLE)
        stage = side_of(state.asked, CENTRE_EVERY)
        sides = xp.where(stage == LOW, state.sides[:, LOW], state.sides[:, HIGH])
        return state._replace(stage=stage, query=xp.where(stage == CENTRE, state.center, sides))

    def _placed(self, state: OpenEnd) -> OpenEnd:
        """New questions from all answers of the window."""
        xp = array_namespace(state.query)
        root = solve_fit(Ridge(state.matrix, state.vector), self.level)
        first, boundary = state.placed == 0, 1.0 + self.boundary_shift
        slope = xp.where(first, root.slope, xp.clip(root.slope, state.slope / 2.0, state.slope * 2.0))
        low, high = sign_change(state.places, state.sums, state.precisions, SURE * boundary)
        center = state.origin + state.spread * root.center
        center, beyond, moved = plausible_center(state.sides, state.beyond, center, low, high, first)
        peak, start = state.tests.outermost
        late = (start > 0.0) & (peak < ACCEPTED * boundary) & (state.information[:, None] > BEHIND * boundary * start)
        behind = xp.where(late, state.behind + 1, 0)
        distance = DISTANCE / (xp.sqrt(state.information - state.begun) * slope)
        sides = state.sides.copy()
        for side, sign in ((LOW, -1.0), (HIGH, 1.0)):
            offset = offset_of(distance * PUSH ** behind[:, side], slope, root.bend, sign)
            sides[:, side] = xp.clip(center + sign * state.spread * offset, self.low, self.high)
        fit = refit(state.places, state.sums, state.precisions, center, state.spread, self.level)
        return state._replace(
            slope=slope,
            center=xp.clip(center, self.low, self.high),
            sides=sides,
            beyond=beyond,
            strays=xp.where(state.astray, state.strays + 1, 0),
            placed=state.placed + 1,
            placed_at=state.information,
            behind=behind,
            origin=xp.where(moved, center, state.origin),
            matrix=xp.where(moved[:, None, None], fit.matrix, state.matrix),
            vector=xp.where(moved[:, None], fit.vector, state.vector),
            fresh=xp.ones_like(state.fresh),
            astray=xp.zeros_like(state.astray),
            side_sums=xp.zeros_like(state.side_sums),
            side_precisions=xp.zeros_like(state.side_precisions),
            sums=_emptied(state, state.sums),
            precisions=_emptied(state, state.precisions),
        )


def _emptied(state: OpenEnd, values: Floats) -> Floats:
    """The three places of the next placement, emptied of what an older one left there."""
    xp = array_namespace(values)
    rows = xp.arange(len(values))[:, None]
    slots = 3 * (state.placed % ROOM)[:, None] + xp.arange(3)
    changed = values.copy()
    changed[rows, slots] = 0.0
    return changed


def _learn_inside(state: OpenEnd, residual: Floats, precision: Floats, boundary_shift: float) -> OpenEnd:
    """One answer per run to the window's question."""
    xp = array_namespace(residual)
    rows = xp.arange(len(residual))
    came = precision > 0.0
    signal = xp.where(came, residual, 0.0) * precision
    offset = (state.query - state.origin) / state.spread
    fit = add_to_fit(Ridge(state.matrix, state.vector), offset, residual, precision)
    slot = 3 * ((state.placed - 1) % ROOM) + state.stage
    places, sums, precisions = state.places.copy(), state.sums.copy(), state.precisions.copy()
    places[rows, slot] = state.query
    sums[rows, slot] += signal
    precisions[rows, slot] += precision
    tests, fresh, astray = state.tests, state.fresh.copy(), state.astray
    side_sums, side_precisions = state.side_sums.copy(), state.side_precisions.copy()
    chosen = xp.flatnonzero((state.stage != CENTRE) & came)
    if len(chosen):
        side = state.stage[chosen]
        outward = xp.where(side == LOW, 1.0, -1.0)
        place = outward * state.query[chosen]
        side_sums[chosen, side] += outward * signal[chosen]
        side_precisions[chosen, side] += precision[chosen]
        score = side_sums[chosen, side] / xp.sqrt(side_precisions[chosen, side])
        astray = put_values(astray, chosen, astray[chosen] | (score < -CERTAIN * (1.0 + boundary_shift)))
        new = chosen[fresh[chosen, side]]
        if len(new):
            begun = add_bet(take_rows(tests, new), state.stage[new], place[fresh[chosen, side]], state.information[new])
            tests = put_rows(tests, new, begun)
            fresh[new, state.stage[new]] = False
        # Of a side that is asked further out because it is behind, no more is expected: it adds signal.
        expected = DISTANCE / xp.sqrt((state.placed_at - state.begun)[chosen])
        answers = (outward * residual[chosen], precision[chosen], expected)
        tests = put_rows(tests, chosen, add_open_answer(take_rows(tests, chosen), side, place, *answers))
    return state._replace(
        matrix=fit.matrix,
        vector=fit.vector,
        places=places,
        sums=sums,
        precisions=precisions,
        tests=tests,
        fresh=fresh,
        astray=astray,
        asked=state.asked + 1,
        side_sums=side_sums,
        side_precisions=side_precisions,
    )


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
            return float(search.summarize(learned.belief).error[0])
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
