"""The window of the straddling design: what it has learned and what its tests have gathered.

`straddle_placement` places its questions. Positions are on the working scale; slopes and bends are unit-free
(`window_fit`). Distances of questions are in final standard errors se = s·σ₀/F.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from privatile.core.arrays import Flags, Floats, Ints, array_namespace
from privatile.estimator.antitonic import CERTAIN
from privatile.estimator.candidates import Candidates, add_answer, add_candidate, no_candidates
from privatile.estimator.run_rows import put_rows, take_rows
from privatile.estimator.straddle_schedule import (
    BLOCKS,
    CENTRE,
    CUTS,
    LOW,
    TESTED,
    Layout,
    block_at,
    clock,
    distances,
    information_gap,
    last_of_its_side,
    shares_left,
)
from privatile.estimator.window_fit import Ridge, begin_fit
from privatile.estimator.window_fit import add_answer as add_to_fit

REPLACED = 12
"""How often the questions may be placed anew inside a block because a side's answers are on the wrong side."""

UNTESTED = ("matrix", "vector", "places", "sums", "precisions")
"""Fields of a window that no test looks at: they are not copied for one."""


class Window(NamedTuple):
    """The window of every run."""

    origin: Floats
    spread: Floats
    """Q₀ and σ₀: what the search believed."""
    first: Floats
    """v₀: share of the records that the search took."""
    rounds: Ints
    asked: Ints
    """Rounds of the window, and those done."""
    matrix: Floats
    vector: Floats
    """The normal equations of the fit."""
    slope: Floats
    """F̂ where the questions were last placed."""
    center: Floats
    sides: Floats
    """The questions now: centre, and runs × (low, high)."""
    signals: Floats
    """Runs × 2: standard errors that the tests' weights expect of a side's answers."""
    block: Ints
    """Block of the schedule in which they were placed; −1 before the first."""
    placed: Ints
    replaced: Ints
    """Placements so far, and those inside a block."""
    behind: Ints
    """Runs × 2: for how many placements in a row the side's outermost candidate has been behind."""
    beyond: Ints
    """For how many placements in a row the centre had to go beyond everything asked."""
    fresh: Flags
    """Runs × 2: the side has not been asked since its question moved."""
    astray: Flags
    """Whether a side's answers contradict its place."""
    side_sums: Floats
    side_precisions: Floats
    """Runs × 2: Σp·y and Σp of a side since its question moved."""
    places: Floats
    sums: Floats
    precisions: Floats
    """Runs × room: every question of the window with Σp·y and Σp of its answers."""
    tests: Candidates

    def starting(
        self, level: float, *, origin: Floats, spread: Floats, error: Floats, first: Floats, rounds: Ints
    ) -> "Window":
        """The same before its first question, around what the search found; `error` is in spreads."""
        xp = array_namespace(origin)
        fit = begin_fit(level, error)
        slope = xp.full_like(origin, level * (1.0 - level))
        return self._replace(
            origin=origin,
            spread=spread,
            first=first,
            rounds=rounds,
            matrix=fit.matrix,
            vector=fit.vector,
            slope=slope,
            center=origin,
        )

    @property
    def fit(self) -> Ridge:
        """The normal equations."""
        return Ridge(self.matrix, self.vector)


def room_for(rounds: int) -> int:
    """Placements that a window may need, and one more."""
    return min(BLOCKS + REPLACED, rounds) + 1


def begin_window(level: float, runs: int, room: int, xp: Any = np) -> "Window":
    """Nothing asked yet, nothing known."""
    zeros, none, whole = xp.zeros(runs), xp.full(runs, math.nan), xp.zeros(runs, dtype=xp.int64)
    fit = begin_fit(level, xp.ones(runs))
    pairs, flags = xp.zeros((runs, 2)), xp.zeros((runs, 2), dtype=xp.bool_)
    slots = xp.zeros((runs, 3 * room))
    return Window(
        *(none, none, zeros, whole, whole, fit.matrix, fit.vector, none, none),
        *(pairs, pairs, whole - 1, whole, whole, xp.zeros((runs, 2), dtype=xp.int64), whole),
        *(flags, xp.zeros(runs, dtype=xp.bool_), pairs, pairs, slots, slots, slots),
        no_candidates(runs, room, xp),
    )


class Answers(NamedTuple):
    """One answer per run: asked at a place, y = τ − F(place) + noise of a variance; an infinite one is none."""

    place: Floats
    residual: Floats
    variance: Floats
    rounds: Floats
    """How many rounds of its side it stands for: 1, or more where answers had to wait for silent clients."""


def learn_answer(
    window: "Window",
    stage: Ints,
    asked: "Answers",
    heard: "Answers",
    noise: float,
    layout: Layout,
    boundary_shift: float = 0.0,
) -> "Window":
    """One round of the window: `asked` places the next questions, `heard` enters the tests.

    They differ only where clients were silent: a place may be found with a guess of what they would have answered, a
    test takes real answers alone (`attendance`).
    """
    xp = array_namespace(asked.place)
    rows = xp.arange(len(stage))
    precision, signal = _weighed(asked)
    fit = add_to_fit(window.fit, (asked.place - window.origin) / window.spread, asked.residual, precision)
    slot = 3 * (window.placed - 1) + stage
    places, sums, precisions = window.places.copy(), window.sums.copy(), window.precisions.copy()
    places[rows, slot] = asked.place
    sums[rows, slot] += signal
    precisions[rows, slot] += precision
    # What a side says about its own place; the centre is on no side.
    sided = stage != CENTRE
    side = xp.where(sided, stage, LOW)
    outward = xp.where(side == LOW, 1.0, -1.0)
    side_sums, side_precisions = window.side_sums.copy(), window.side_precisions.copy()
    side_sums[rows, side] += xp.where(sided, outward * signal, 0.0)
    side_precisions[rows, side] += xp.where(sided, precision, 0.0)
    score = side_sums[rows, side] / xp.sqrt(xp.maximum(side_precisions[rows, side], 1e-300))
    window = window._replace(
        matrix=fit.matrix,
        vector=fit.vector,
        places=places,
        sums=sums,
        precisions=precisions,
        side_sums=side_sums,
        side_precisions=side_precisions,
        astray=window.astray | (sided & (score < -CERTAIN * (1.0 + boundary_shift)) & (window.replaced < REPLACED)),
    )
    chosen = xp.flatnonzero(sided & xp.isfinite(heard.variance))
    if len(chosen):
        part = take_rows(window, chosen, UNTESTED)
        part = _test_answer(part, stage[chosen], take_rows(heard, chosen), noise, layout)
        window = put_rows(window, chosen, part, UNTESTED)
    return window._replace(asked=window.asked + 1)


def _weighed(answers: "Answers") -> tuple[Floats, Floats]:
    """Precision p and p·y, both 0 where there is no answer."""
    xp = array_namespace(answers.variance)
    came = xp.isfinite(answers.variance)
    precision = xp.where(came, 1.0 / xp.where(came, answers.variance, 1.0), 0.0)
    return precision, precision * xp.where(came, answers.residual, 0.0)


def _test_answer(window: "Window", side: Ints, heard: "Answers", noise: float, layout: Layout) -> "Window":
    """An answer of a side enters the tests of its candidates."""
    xp = array_namespace(heard.place)
    rows = xp.arange(len(side))
    outward = xp.where(side == LOW, 1.0, -1.0)
    place = outward * heard.place
    precision = 1.0 / heard.variance
    now = clock(window.first, window.rounds, window.asked)
    tests, fresh = window.tests, window.fresh.copy()
    tested = now >= TESTED - 1e-9
    unknown = ~(tests.places[rows, side] == place[:, None]).any(axis=1)
    new = xp.flatnonzero((fresh[rows, side] | unknown) & tested)
    if len(new):
        some = add_candidate(take_rows(tests, new), side[new], place[new])
        rates = some.rates.copy()
        at, part = xp.arange(len(new)), take_rows(window, new, UNTESTED)
        rates[at, side[new]] = weight_rates(part, some, side[new], place[new], now[new], noise, layout)
        tests = put_rows(tests, new, some._replace(rates=rates))
        fresh[new, side[new]] = False
    # The budget follows the clock, not the precision that came: what silence took away is not waited for.
    share = xp.where(tested, heard.rounds * (1.0 - window.first) / window.rounds, 0.0)
    last = last_of_its_side(window.asked, window.rounds, layout.centre_every)
    tests = add_answer(tests, side, place, share, outward * heard.residual * xp.sqrt(precision), last)
    return window._replace(tests=tests, fresh=fresh)


def weight_rates(
    window: "Window", tests: "Candidates", side: Ints, place: Floats, now: Floats, noise: float, layout: Layout
) -> Floats:
    """a² per share of information for every candidate of the side (runs × room), from here to the next placement.

    A candidate divides its budget between the rounds at hand and those to come in proportion to the squared signal
    expected of each: (x − 1/√v)² per share, and for a later block times the chance that its question will lie at or
    above the candidate.
    """
    xp = array_namespace(place)
    rows = xp.arange(len(place))
    have = tests.places[rows, side]
    outward = xp.where(side == LOW, 1.0, -1.0)
    error = math.sqrt(noise) * window.spread / window.slope
    distance = xp.where(xp.isinf(have), 0.0, (outward * window.center)[:, None] - have) / error[:, None]
    left, reach = shares_left(now), distances(now, layout)
    starts = xp.maximum(xp.array((0.0, *CUTS)), now[:, None])
    block = block_at(now)
    later = xp.arange(BLOCKS) > block[:, None]
    expected = xp.where(later, layout.side_share * left * (reach - information_gap(starts, xp)) ** 2, 0.0)
    moves = xp.sqrt(xp.maximum(1.0 / xp.maximum(now, 1e-3)[:, None] - 1.0 / xp.maximum(starts, 1e-3), 0.01))
    reached = _normal_cdf((distance[:, :, None] - reach[:, None, :]) / moves[:, None, :])
    # A side that asks the centre itself is at an end of the range, and stays there; others lie 2.7 errors from it.
    at_center = xp.abs(place - outward * window.center) <= 1e-3 * error
    reached = xp.where(at_center[:, None, None], 1.0, reached)
    to_come = (expected[:, None, :] * reached).sum(axis=2)
    power = window.signals[rows, side] ** 2
    here = xp.maximum(layout.side_share * left[rows, block], (1.0 - window.first) / window.rounds)
    counts = have <= place[:, None]
    rates: Floats = xp.where(
        counts, tests.budgets[rows, side] * power[:, None] / ((power * here)[:, None] + to_come), 0.0
    )
    return rates


def _normal_cdf(z: Floats) -> Floats:
    """Φ within 0.0003: a plan needs no more, and the exact one would import scipy into every run."""
    xp = array_namespace(z)
    share: Floats = 0.5 * (1.0 + xp.tanh(math.sqrt(2.0 / math.pi) * z * (1.0 + 0.044715 * z * z)))
    return share
