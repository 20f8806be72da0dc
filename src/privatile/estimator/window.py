"""The straddling window: its schedule, the fit through its answers, and what its tests have gathered.

Some of the runs of a state whose arrays have a leading axis of runs: taken out, and put back.

Where the quantile is and how steep the distribution there, from the answers of the window.

Unit-free: d = (q − Q₀)/σ₀, with Q₀ and the spread σ₀ = τ(1 − τ)/f₀ that the search believed. The answers follow

    y = A − F·d − H·d² + noise

with priors A ~ N(0, (κe₀)²), F ~ N(κ, (0.8κ)²), H ~ N(κ(½ − τ), (0.3κ)²), where κ = τ(1 − τ) and e₀ is the search's
error in spreads. The bend's prior mean is a logistic curve's. The root of the fit places the next questions; no
interval is taken from it. Every array has a leading axis of runs.

When the straddling window moves its questions, how far apart they lie, and which round asks what.

The clock v is the share of the information that the records can give, all stages together: v₀ when the window begins, 1
at the end. Distances are in final standard errors, se = s/f. An error of the centre at time v is about 1/√v of them, so
early questions lie far out and late ones near:

    x(v) = 2e/(√a + √b), the mean of e/√v over a block from a to b; at least 4.5 and at most what the layout says

One round in five, or fewer, asks the centre, the others low and high in turn. That, e, the largest distance and how
hard a side is pushed outward follow from how much the records can say (`layout_of`), which the plan knows before the
first question.

The window of the straddling design: what it has learned and what its tests have gathered.

`straddle_placement` places its questions. Positions are on the working scale; slopes and bends are unit-free
(`window_fit`). Distances of questions are in final standard errors se = s·σ₀/F.
"""

import math
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Flags, Floats, Ints, array_namespace
from privatile.estimator.candidates import Candidates, add_answer, add_candidate, no_candidates
from privatile.estimator.search import CERTAIN

State = TypeVar("State", bound=NamedTuple)


def take_rows(state: State, runs: Ints, keep: tuple[str, ...] = ()) -> State:
    """The rows of some runs, in every array of a named tuple and of those inside it; fields of `keep` stay whole.

    >>> import numpy as np
    >>> from typing import NamedTuple
    >>> class Pair(NamedTuple):
    ...     left: NDArray[np.float64]
    ...     right: NDArray[np.float64]
    >>> pair = Pair(np.arange(4.0), np.arange(4.0) ** 2)
    >>> take_rows(pair, np.array([1, 3]))
    Pair(left=array([1., 3.]), right=array([1., 9.]))
    >>> put_rows(pair, np.array([1, 3]), Pair(np.zeros(2), np.ones(2)))
    Pair(left=array([0., 0., 2., 0.]), right=array([0., 1., 4., 1.]))
    """
    if _is_all(state, runs, keep):
        return state
    parts = (
        value if name in keep else take_rows(value, runs) if hasattr(value, "_fields") else value[runs]
        for name, value in zip(state._fields, state, strict=True)
    )
    return state._make(parts)


def put_rows(state: State, runs: Ints, newer: State, keep: tuple[str, ...] = ()) -> State:
    """The state with the rows of some runs replaced by those of `newer`; fields of `keep` stay as they are."""
    if _is_all(state, runs, keep):
        return newer._replace(**{name: getattr(state, name) for name in keep})
    parts = (
        value if name in keep else (put_rows if isinstance(value, tuple) else put_values)(value, runs, news)
        for name, value, news in zip(state._fields, state, newer, strict=True)
    )
    return state._make(parts)


def _is_all(state: NamedTuple, runs: Ints, keep: tuple[str, ...]) -> bool:
    """Whether these are all runs, which are then in order."""
    arrays = (value for name, value in zip(state._fields, state, strict=True) if name not in keep)
    first = next(value for value in arrays if not isinstance(value, tuple))
    return len(runs) == len(first)


def put_values(values: NDArray[Any], runs: Ints, newer: NDArray[Any]) -> NDArray[Any]:
    """A copy of an array with the rows of some runs replaced.

    >>> import numpy as np
    >>> put_values(np.zeros(3), np.array([0, 2]), np.ones(2)).tolist()
    [1.0, 0.0, 1.0]
    """
    changed = values.copy()
    changed[runs] = newer
    return changed


SLOPE_DOUBT = 0.8
"""Prior relative error of the slope."""

BEND_DOUBT = 0.3
"""Prior error of the bend: its unit-free size in common laws."""

FLATTEST, STEEPEST = 1.0 / 30.0, 8.0
"""The slope stays within these multiples of the search's."""

FAR = 1e4
"""Spreads from the origin beyond which an answer is left out of the fit: its fourth power would drown all others.
Beside an atom, whose spread is next to nothing, questions lie up to 10⁹ spreads away."""

STEPS = 6
"""Newton steps towards the root of the parabola."""


class Ridge(NamedTuple):
    """The normal equations of every run."""

    matrix: Floats
    """Runs × 3 × 3."""
    vector: Floats
    """Runs × 3."""


class Root(NamedTuple):
    """The fit in three numbers per run, unit-free."""

    center: Floats
    """d where the fitted answers are zero."""
    slope: Floats
    """F there, in ranks per spread."""
    bend: Floats
    """H."""


def begin_fit(level: float, error: Floats) -> "Ridge":
    """The priors, for a search that ended with this error, in spreads."""
    xp = array_namespace(error)
    scale = level * (1.0 - level)
    matrix, vector = xp.zeros((len(error), 3, 3)), xp.zeros((len(error), 3))
    matrix[:, 0, 0] = 1.0 / (scale * error) ** 2
    matrix[:, 1, 1] = 1.0 / (SLOPE_DOUBT * scale) ** 2
    matrix[:, 2, 2] = 1.0 / (BEND_DOUBT * scale) ** 2
    vector[:, 1] = matrix[:, 1, 1] * scale
    vector[:, 2] = matrix[:, 2, 2] * scale * (0.5 - level)
    return Ridge(matrix, vector)


def add_to_fit(fit: "Ridge", offset: Floats, residual: Floats, precision: Floats) -> "Ridge":
    """One answer per run, asked at d = `offset`; precision 0 adds nothing, nor does an answer from too `FAR` away."""
    xp = array_namespace(offset)
    precision = xp.where(xp.abs(offset) <= FAR, precision, 0.0)
    row = xp.stack([xp.ones_like(offset), -offset, -offset * offset], axis=1)
    weighted = precision[:, None] * row
    return Ridge(
        fit.matrix + weighted[:, :, None] * row[:, None, :],
        fit.vector + weighted * xp.where(precision > 0.0, residual, 0.0)[:, None],
    )


def solve_fit(fit: "Ridge", level: float) -> "Root":
    """The root nearest to A/F, at most twice as far, and the slope there.

    >>> import numpy as np
    >>> fit = begin_fit(0.5, np.array([0.5]))
    >>> for d in (-0.3, 0.0, 0.5):
    ...     fit = add_answer(fit, np.array([d]), np.array([0.02 - 0.25 * d]), np.array([1e6]))
    >>> [round(float(value[0]), 3) for value in solve_fit(fit, 0.5)[:2]]
    [0.08, 0.25]
    """
    xp = array_namespace(fit.vector)
    scale = level * (1.0 - level)
    found = xp.linalg.solve(fit.matrix, fit.vector[..., None])[..., 0]
    height, bend = found[:, 0], found[:, 2]
    slope = xp.clip(found[:, 1], FLATTEST * scale, STEEPEST * scale)
    root = height / slope
    limit = 2.0 * xp.abs(root)
    for _ in range(STEPS):
        steep = xp.clip(slope + 2.0 * bend * root, 0.3 * slope, 3.0 * slope)
        root = xp.clip(root + (height - slope * root - bend * root * root) / steep, -limit, limit)
    steep = xp.clip(slope + 2.0 * bend * root, 0.3 * slope, 3.0 * slope)
    return Root(root, steep, bend)


def offset_of(distance: Floats, slope: Floats, bend: Floats, side: float) -> Floats:
    """The u > 0 whose predicted rank is `distance`·slope away from the level on one side, within [0.6, 1.8]·distance.

    u ± (H/F)·u² = distance, + above (side = 1) and − below (side = −1).

    >>> import numpy as np
    >>> one = np.ones(1)
    >>> offset_of(one, one, 0 * one, 1.0).tolist(), offset_of(one, one, 2 * one, 1.0).tolist()
    ([1.0], [0.6])
    """
    xp = array_namespace(distance)
    tilt = side * bend / slope
    straight = xp.abs(tilt * distance) < 1e-9
    safe = xp.where(straight, 1.0, tilt)
    under = 1.0 + 4.0 * tilt * distance
    bent = (xp.sqrt(xp.maximum(under, 0.0)) - 1.0) / (2.0 * safe)
    reach = xp.where(straight, distance, xp.where(under > 0.0, bent, 1.8 * distance))
    result: Floats = xp.clip(reach, 0.6 * distance, 1.8 * distance)
    return result


CUTS = (
    *(0.01, 0.02, 0.03, 0.04, 0.05, 0.0625, 0.08, 0.1, 0.125, 0.156),
    *(0.195, 0.244, 0.305, 0.38, 0.477, 0.57, 0.66, 0.76, 0.87),
)
"""Shares v at which the questions are placed anew: about a quarter more information each time, finer at the end."""

ENDS = (*CUTS, 1.0)
BLOCKS = len(ENDS)

CLOSEST = 4.5
"""A question lies at least this many final standard errors from the centre: a candidate there gathers 4.5·√0.44 = 3.0
of them from one side's records."""

TESTED = 0.04
"""Rounds before this time place the questions only; the tests take the rest."""

LOW, HIGH, CENTRE = 0, 1, 2


class Layout(NamedTuple):
    """How a run lays out its questions."""

    errors: float
    """Distance of a side's question, in standard errors of the centre at that time."""
    wanted: float
    """A candidate is behind where S + √(B·what its side can still gather) is less: the 95% critical value, 1.985, and
    a margin."""
    centre_every: int
    """One round in so many asks the centre: without it an atom between the two questions is not seen, and a curve
    through the answers rests on it."""
    farthest: float
    """A question lies at most this many final standard errors from the centre."""

    @property
    def side_share(self) -> float:
        """Share of the window's information that each side gets."""
        return 0.5 * (self.centre_every - 1) / self.centre_every


USUAL = Layout(4.0, 3.185, 5, 17.0)
"""With every eighth round at the centre the any-shape interval is 4% narrower, and between unequal humps (information
6,000, level 0.8, 4,000 runs) the smooth estimate's error is 1.14 times the bound instead of 1.11."""

PLENTY, LAYOUT_OF_PLENTY = 5000.0, USUAL._replace(farthest=10.0)
"""From this information on early questions need not lie as far out: at 17 standard errors the bend of the curve moves
the smooth estimate most. Its largest error is 1.11 times the bound instead of 1.17 (information 6,000, three humps,
20,000 runs; with what `smooth_reading` does there). Of smooth laws any-shape intervals are as wide as before within 2%,
their 90% point is up to 7% larger, and at 99.9% they are 3% wider. With (3.0, 2.9, 5) the error is no smaller, the last
two are 30% and 70% larger, and there are fewer sets of one or two ages."""

SCANT, LAYOUT_OF_SCANT = 8.0, Layout(2.5, 3.55, 20, 17.0)
"""Where a side cannot show more than this many final standard errors, however far out it asks, its tests need every
answer: they must not expect most of the early ones, a side that is behind goes out earlier, and few rounds ask the
centre. The low side of level 0.1 at information 39 can show 6.9: it is closed in .977 of runs of a Pareto law (20,000
runs), and in .977 at level 0.9 of two values; with the usual layout in .931 and .923. With (3.0, 3.6, 10) these are
.966 and .981, and the interval of the 0.9 quantile of a region's salaries (5,834 people, ε = 1, 2,000 runs) is 202,000
wide in the median, 173,000 here; but the smooth estimate's error is 5% to 10% smaller there. With (2.5, 3.6, 10) that
interval is nearly the range; (2.5, 3.185, 10) closes only .90 of runs of the two values."""


def layout_of(level: float, noise: float) -> Layout:
    """The layout of a run, from its level and the noise s² that is left when every record has answered.

    A side shows at most τ/s final standard errors (low) or (1 − τ)/s (high): where no value lies beyond its question.

    >>> layout_of(0.5, 0.0625 / 600) == USUAL, layout_of(0.1, 0.0081 / 600) == USUAL
    (True, True)
    >>> layout_of(0.1, 0.0081 / 39) == LAYOUT_OF_SCANT, layout_of(0.5, 0.0625 / 6000) == LAYOUT_OF_PLENTY
    (True, True)
    """
    if min(level, 1.0 - level) < SCANT * math.sqrt(noise):
        return LAYOUT_OF_SCANT
    return LAYOUT_OF_PLENTY if (level * (1.0 - level)) ** 2 >= PLENTY * noise else USUAL


def clock(first: Floats, rounds: Ints, done: Ints) -> Floats:
    """v after `done` of the window's equal rounds.

    >>> clock(np.array([0.2]), np.array([100]), np.array([50]))
    array([0.6])
    """
    xp = array_namespace(first)
    shares: Floats = first + (1.0 - first) * done / xp.maximum(rounds, 1)
    return shares


def block_at(v: Floats) -> Ints:
    """The block that time v belongs to, counted from 0.

    >>> block_at(np.array([0.0, 0.01, 0.5, 0.99])).tolist()
    [0, 1, 15, 19]
    """
    xp = array_namespace(v)
    # A round that begins within rounding of a cut belongs to the block after it.
    passed: Ints = (v[:, None] + 1e-9 >= xp.array(CUTS)).sum(axis=1)
    return passed


def shares_left(v: Floats) -> Floats:
    """Runs × blocks: how much of the clock each block still has from time v on.

    >>> shares_left(np.array([0.9])).round(3)[0, -2:].tolist()
    [0.0, 0.1]
    """
    xp = array_namespace(v)
    begins, ends = xp.array((0.0, *CUTS)), xp.array(ENDS)
    left: Floats = xp.maximum(ends - xp.maximum(begins, v[:, None]), 0.0)
    return left


def distances(v: Floats, layout: Layout) -> Floats:
    """Runs × blocks: the distance x of each block for a window that stands at time v.

    >>> distances(np.array([0.05]), USUAL).round(2)[0, [0, 5, 15, 19]].tolist()
    [17.0, 16.89, 5.53, 4.5]
    """
    xp = array_namespace(v)
    begins, ends = xp.array((0.0, *CUTS)), xp.array(ENDS)
    start = xp.clip(v[:, None], begins, ends)
    mean = 2.0 * layout.errors / (xp.sqrt(start) + xp.sqrt(ends))
    result: Floats = xp.clip(mean, CLOSEST, layout.farthest)
    return result


def side_of(done: Ints, centre_every: int) -> Ints:
    """What the window's round after `done` others asks: low, high or centre.

    >>> side_of(np.arange(10), 5).tolist()
    [0, 1, 0, 1, 2, 0, 1, 0, 1, 2]
    """
    xp = array_namespace(done)
    asked = done - done // centre_every
    sides: Ints = xp.where(done % centre_every == centre_every - 1, CENTRE, asked % 2)
    return sides


def last_of_its_side(done: Ints, rounds: Ints, centre_every: int) -> NDArray[np.bool_]:
    """Whether no later round of the window asks the side that the round after `done` others asks.

    >>> last_of_its_side(np.arange(8), np.full(8, 8), 5).tolist()
    [False, False, False, False, True, False, True, True]
    """
    side = side_of(done, centre_every)
    gone = done < 0
    for ahead in range(1, centre_every + 1):
        later = done + ahead
        gone |= (later < rounds) & (side_of(later, centre_every) == side)
    last: NDArray[np.bool_] = ~gone
    return last


def information_gap(v: Any, xp: Any = np) -> Any:
    """1/√v, the standard error of the centre at time v in final ones; bounded for a window that has just begun."""
    return 1.0 / xp.sqrt(xp.maximum(v, 1e-3))


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
