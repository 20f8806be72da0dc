"""The window of the straddling design: what it has learned, where its questions go, what its tests have gathered.

Positions are on the working scale; slopes and bends are unit-free (`window_fit`). Distances of questions are in final
standard errors se = s·σ₀/F.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats, array_namespace
from privatile.estimator.antitonic import CERTAIN, sign_change
from privatile.estimator.candidates import Candidates, add_answer, add_candidate, no_candidates
from privatile.estimator.run_rows import put_rows, take_rows
from privatile.estimator.straddle_schedule import (
    BLOCKS,
    CENTRE,
    CLOSEST,
    CUTS,
    HIGH,
    LOW,
    SIDE_SHARE,
    TESTED,
    block_at,
    clock,
    distances,
    information_gap,
    last_of_its_side,
    shares_left,
)
from privatile.estimator.window_fit import Ridge, begin_fit, offset_of, solve_fit
from privatile.estimator.window_fit import add_answer as add_to_fit

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

REPLACED = 12
"""How often the questions may be placed anew inside a block because a side's answers are on the wrong side."""

REACH = 0.55
"""Questions lie at most this many local spreads from the centre (unless they are pushed): further out a parabola no
longer describes a distribution."""

WANTED = 1.985 + 1.2
"""A candidate is behind where S + √(B·what its side can still gather) is less: the 95% critical value and a margin of
1.2 standard deviations."""

ACCEPTED = 2.5
"""A candidate whose largest S has reached this needs no further help."""

PUSH, GROWTH = 2.5, 1.3
"""A side that is behind for the m-th placement in a row asks at most 2.5·1.3^(m−1) times as far, …"""

PATIENCE = 1
"""… from the third one in a row on 2, 4, 8, 128, 2¹⁵, 2³¹ … times further still: the distribution is then flat beyond
anything the search saw. Beside an atom the flat stretch may be 10⁸ times what the search took for the spread."""

AGAIN = 1.0
"""Spreads within which answers enter a fit that begins anew, and its prior error."""

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

    def inside(self, low: float, high: float) -> "Window":
        """The same with its questions inside the range."""
        xp = array_namespace(self.center)
        return self._replace(center=xp.clip(self.center, low, high), sides=xp.clip(self.sides, low, high))

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
    window: "Window", stage: Ints, asked: "Answers", heard: "Answers", noise: float, boundary_shift: float = 0.0
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
        part = _test_answer(take_rows(window, chosen, UNTESTED), stage[chosen], take_rows(heard, chosen), noise)
        window = put_rows(window, chosen, part, UNTESTED)
    return window._replace(asked=window.asked + 1)


def _weighed(answers: "Answers") -> tuple[Floats, Floats]:
    """Precision p and p·y, both 0 where there is no answer."""
    xp = array_namespace(answers.variance)
    came = xp.isfinite(answers.variance)
    precision = xp.where(came, 1.0 / xp.where(came, answers.variance, 1.0), 0.0)
    return precision, precision * xp.where(came, answers.residual, 0.0)


def _test_answer(window: "Window", side: Ints, heard: "Answers", noise: float) -> "Window":
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
        rates[at, side[new]] = weight_rates(part, some, side[new], place[new], now[new], noise)
        tests = put_rows(tests, new, some._replace(rates=rates))
        fresh[new, side[new]] = False
    # The budget follows the clock, not the precision that came: what silence took away is not waited for.
    share = xp.where(tested, heard.rounds * (1.0 - window.first) / window.rounds, 0.0)
    last = last_of_its_side(window.asked, window.rounds)
    tests = add_answer(tests, side, place, share, outward * heard.residual * xp.sqrt(precision), last)
    return window._replace(tests=tests, fresh=fresh)


def weight_rates(window: "Window", tests: "Candidates", side: Ints, place: Floats, now: Floats, noise: float) -> Floats:
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
    left, reach = shares_left(now), distances(now)
    starts = xp.maximum(xp.array((0.0, *CUTS)), now[:, None])
    block = block_at(now)
    later = xp.arange(BLOCKS) > block[:, None]
    expected = xp.where(later, SIDE_SHARE * left * (reach - information_gap(starts, xp)) ** 2, 0.0)
    moves = xp.sqrt(xp.maximum(1.0 / xp.maximum(now, 1e-3)[:, None] - 1.0 / xp.maximum(starts, 1e-3), 0.01))
    reached = _normal_cdf((distance[:, :, None] - reach[:, None, :]) / moves[:, None, :])
    to_come = (expected[:, None, :] * reached).sum(axis=2)
    power = window.signals[rows, side] ** 2
    here = xp.maximum(SIDE_SHARE * left[rows, block], (1.0 - window.first) / window.rounds)
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


def place_questions(window: "Window", now: Floats, level: float, noise: float, boundary_shift: float = 0.0) -> "Window":
    """New questions from all answers of the window."""
    xp = array_namespace(now)
    rows = xp.arange(len(now))
    root = solve_fit(window.fit, level)
    first = window.placed == 0
    slope = xp.where(first, root.slope, xp.clip(root.slope, window.slope / 2.0, window.slope * 2.0))
    center = window.origin + window.spread * root.center
    low, high = sign_change(window.places, window.sums, window.precisions, CERTAIN * (1.0 + boundary_shift))
    center, beyond, moved = plausible_center(window.sides, window.beyond, center, low, high, first)
    block = block_at(now)
    reach = distances(now)
    basis = reach[rows, block]
    score, budget, peak = window.tests.outermost
    started = window.tests.counts > 0
    can_gather = SIDE_SHARE * (shares_left(now) * reach**2).sum(axis=1)
    here = SIDE_SHARE * xp.maximum(shares_left(now)[rows, block], 1e-6)
    largest = REACH * level * (1.0 - level) / math.sqrt(noise)
    error = math.sqrt(noise) / slope
    behind, sides, signals = window.behind.copy(), window.sides.copy(), window.signals.copy()
    for side in (LOW, HIGH):
        at_risk = started[:, side] & (budget[:, side] > 1e-6) & (peak[:, side] < ACCEPTED * (1.0 + boundary_shift))
        hoped = score[:, side] + xp.sqrt(xp.maximum(budget[:, side], 0.0) * can_gather)
        lags = at_risk & (hoped < WANTED * (1.0 + boundary_shift))
        needed = (WANTED - score[:, side]) ** 2 / xp.maximum(budget[:, side], 1e-6) - can_gather + here * basis**2
        wanted = xp.sqrt(xp.maximum(needed, 0.0) / here)
        row = behind[:, side]
        push = xp.where(lags, _push(row), 1.0)
        x = xp.where(lags, xp.minimum(xp.maximum(basis * push, wanted), PUSH * push * basis), basis)
        behind[:, side] = xp.where(lags, row + 1, 0)
        limit = xp.maximum(largest * push, CLOSEST)
        sign = -1.0 if side == LOW else 1.0
        offset = offset_of(xp.minimum(x, limit) * error, slope, root.bend, sign)
        question = center + sign * window.spread * offset
        if side == LOW:
            sides[:, side] = xp.where(lags & xp.isfinite(low), xp.minimum(question, low), question)
        else:
            sides[:, side] = xp.where(lags & xp.isfinite(high), xp.maximum(question, high), question)
        # Weights expect the distance before any push: pushing adds signal and spends no more of the budget.
        signals[:, side] = xp.maximum(xp.minimum(basis, limit) - information_gap(now, xp), 0.5)
    again = xp.flatnonzero(moved)
    if len(again):
        some = take_rows(window, again)
        fit = refit(some.places, some.sums, some.precisions, center[again], some.spread, level)
        renewed = some._replace(origin=center[again], matrix=fit.matrix, vector=fit.vector)
        window = put_rows(window, again, renewed)
    return window._replace(
        slope=slope,
        center=center,
        sides=sides,
        signals=signals,
        block=block,
        placed=window.placed + 1,
        behind=behind,
        beyond=beyond,
        replaced=window.replaced + (window.block == block),
        fresh=xp.ones_like(window.fresh),
        astray=xp.zeros_like(window.astray),
        side_sums=xp.zeros_like(window.side_sums),
        side_precisions=xp.zeros_like(window.side_precisions),
    )


def _push(row: Ints) -> Floats:
    """How many times as far a side is asked that has been behind for `row` placements before this one.

    >>> _push(np.array([0, 1, 2, 3, 4, 5])).round(1).tolist()
    [1.0, 1.3, 3.4, 8.8, 22.8, 475.3]
    """
    xp = array_namespace(row)
    late = xp.clip(row - PATIENCE, 0, 7)
    pushes: Floats = GROWTH**row * 2.0 ** xp.minimum(xp.maximum(late, 2 ** xp.maximum(late - 1, 0) - 1), 50)
    return pushes


def refit(places: Floats, sums: Floats, precisions: Floats, center: Floats, spread: Floats, level: float) -> Ridge:
    """The fit begun anew around a centre that the old one did not find, from the answers within `AGAIN` spreads of it.

    A parabola around a place far away says nothing here.
    """
    xp = array_namespace(center)
    offsets = (places - center[:, None]) / spread[:, None]
    near = (xp.abs(offsets) <= AGAIN) & (precisions > 0.0)
    offsets = xp.where(near, offsets, 0.0)
    rows = xp.stack([xp.ones_like(offsets), -offsets, -offsets * offsets], axis=2)
    fit = begin_fit(level, xp.full_like(center, AGAIN))
    weights = xp.where(near, precisions, 0.0)
    return Ridge(
        fit.matrix + xp.einsum("rs,rsi,rsj->rij", weights, rows, rows),
        fit.vector + xp.einsum("rs,rsi->ri", xp.where(near, sums, 0.0), rows),
    )


def plausible_center(
    sides: Floats, beyond: Ints, center: Floats, low: Floats, high: Floats, first: Flags
) -> tuple[Floats, Ints, Flags]:
    """The fit's centre where the answers allow it: between the last place known to be below and the first above.

    `sides` are the last questions, `low` and `high` those places (∓∞: none). Where one of them is not known yet, the
    centre goes one reach beyond what was asked, twice as far each time in a row (`beyond`). Returns the centre, that
    count, and where the answers contradicted the fit. At the first placement nothing has been asked.

    >>> sides, one = np.array([[-1.0, 1.0]]), np.ones(1)
    >>> never = np.array([False])
    >>> plausible_center(sides, np.array([1]), 0.5 * one, one, np.inf * one, never)  # all that was asked lies below
    (array([5.]), array([2]), array([ True]))
    """
    xp = array_namespace(center)
    reach = sides[:, HIGH] - sides[:, LOW]
    near = xp.clip(center, sides[:, LOW] - reach, sides[:, HIGH] + reach)
    known = low < high
    below, above = known & (near < low), known & (near > high)
    both = xp.isfinite(low) & xp.isfinite(high)
    step = reach * 2.0**beyond
    middle = 0.5 * (xp.where(both, low, 0.0) + xp.where(both, high, 0.0))
    moved = xp.where(below, low + step, xp.where(above, high - step, near))
    moved = xp.where((below | above) & both, middle, moved)
    contradicted = (below | above) & ~first
    lone = contradicted & ~both
    return xp.where(first, center, moved), xp.where(lone, beyond + 1, 0), contradicted
