"""The default design: search for the quantile, then straddle it. The answers so far in, the next question out.

A run asks round by round "is your value above q?". From q and the share that said yes, y = τ − F(q) + noise is formed.

1. `search`: a belief that every answer sharpens (module `search`), until its error is below 8 final standard errors, or
   0.8 local spreads if that is less.
2. the window: all other records, in equal rounds. `low` and `high` questions lie a few standard errors either side of
   the quantile, `centre` questions at it. They are placed anew where a block of the schedule begins, or where a side's
   answers are on the wrong side, from a fit through the window's answers.

Every low question is a candidate for the interval's low end, every high question for its high end, with a running test
that holds whatever the distribution is (`Candidates`). Nothing else here decides what the tests conclude, and nothing
depends on the confidence level that will be reported: the rules use the constants of 95%.

Unit-free throughout: σ is the local spread τ(1 − τ)/f on the working scale, s² = Σp_k²/(4r_k²n_k) the noise that is
left in a rank when every record has answered, se = s·σ₀/F a final standard error.

One run, one `Run`. Live runs, the replay of a run's file and simulations use the same functions (`search.compiled`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from privatile.core.arrays import Floats
from privatile.core.scale import working_range
from privatile.estimator.clients import pooled_noise
from privatile.estimator.plan import Ask, RoundState, round_weight
from privatile.estimator.pools import Heard, Pools, add_round, needs_exact
from privatile.estimator.search import (
    MAX_SEARCH_ROUNDS,
    MAX_SEARCH_SHARE,
    ROOM,
    Belief,
    Summary,
    begin_belief,
    best_question,
    compiled,
    copied,
    learn_in_search,
    records_to_ask,
    search_is_over,
    search_share,
    search_shares,
    summarize,
)
from privatile.estimator.tuned import SelfTuningPlan

LOW, HIGH, CENTRE, SEARCH = 0, 1, 2, 3
STAGES = ("low", "high", "centre", "search")

# The search.

LOCATED_SPREADS, MIN_LOCATED, LOCATED_ERRORS = 0.8, 0.03, 8.0
"""The search ends when its error is below 0.8 local spreads and below 8 final standard errors, or 0.03 spreads."""

SCARCE, SCARCE_SEARCH = 60.0, 0.05
"""Below this information the search gives up at half the usual share of the records: the tests need the rest. At
information 39 the level 0.1 of a Pareto law then has both ends in .93 of runs instead of .84, and they are a third
closer (`studies/any_shape`)."""

# The schedule.

CUTS = np.array(
    (
        *(0.01, 0.02, 0.03, 0.04, 0.05, 0.0625, 0.08, 0.1, 0.125, 0.156),
        *(0.195, 0.244, 0.305, 0.38, 0.477, 0.57, 0.66, 0.76, 0.87),
    )
)
"""Shares of the information at which the questions are placed anew: about a quarter more each time, finer at the
end."""

BEGINS, ENDS = np.concatenate((np.zeros(1), CUTS)), np.concatenate((CUTS, np.ones(1)))

CLOSEST = 4.5
"""A question lies at least this many final standard errors from the centre: a candidate there gathers 4.5·√0.44 = 3.0
of them from one side's records."""

TESTED = 0.04
"""Rounds before this time place the questions only; the tests take the rest."""

# The window's placements.

SLOPE_DOUBT, BEND_DOUBT = 0.8, 0.3
"""Prior relative error of the slope; prior error of the bend, its unit-free size in common laws."""

FLATTEST, STEEPEST = 1.0 / 30.0, 8.0
"""The slope stays within these multiples of the search's."""

FAR = 1e4
"""Spreads from the origin beyond which an answer is left out of the fit: its fourth power would drown all others.
Beside an atom, whose spread is next to nothing, questions lie up to 10⁹ spreads away."""

NEWTON_STEPS = 6
"""Towards the root of the fitted parabola."""

CERTAIN = 2.5
"""Standard errors of pooled answers that tell their side."""

ALIKE = 1e-12
"""Places closer than this share of the largest are one place."""

AGAIN = 1.0
"""Spreads within which answers enter a fit that begins anew, and its prior error."""

REPLACED = 12
"""How often the questions may be placed anew inside a block because a side's answers are on the wrong side."""

REACH = 0.55
"""Questions lie at most this many local spreads from the centre (unless they are pushed): further out a parabola no
longer describes a distribution."""

ACCEPTED = 2.5
"""A candidate whose largest S has reached this needs no further help."""

PUSH, GROWTH = 2.5, 1.3
"""A side that is behind for the m-th placement in a row asks at most 2.5·1.3^(m−1) times as far, …"""

FURTHER = np.array([0, 0, 1, 2, 8, 24, 50])
"""… and these powers of 2 further still: the distribution is then flat beyond anything the search saw."""

TINY = 2e-3
"""A spread below this share of the range is that of an atom. Beside it the flat stretch may be 10⁸ times as long, …"""

BESIDE_ATOM = np.array([0, 0, 3, 16, 50, 50, 50])
"""… so a side that is behind goes out faster there, …"""

SAVED = 0.4
"""… and its tests expect this share of the usual signal for its second to fifth time in a row: they keep their budget
for the far side of the stretch."""

AT_END = 1e-9
"""A place this close to an end of the range, as a share of the range, is that end."""

PLACEMENTS = len(ENDS) + REPLACED + 1
"""Room for all that a window can need."""


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


USUAL = Layout(4.0, 3.185, 5, 17.0)
"""With every eighth round at the centre the any-shape interval is 4% narrower, and between unequal humps (information
6,000, level 0.8, 4,000 runs) the smooth estimate's error is 1.14 times the bound instead of 1.11."""

PLENTY, LAYOUT_OF_PLENTY = 5000.0, USUAL._replace(farthest=10.0)
"""From this information on early questions need not lie as far out: at 17 standard errors the bend of the curve moves
the smooth estimate most. Its largest error is 1.11 times the bound instead of 1.17 (information 6,000, three humps,
20,000 runs; with what `inference.smooth` does there). Of smooth laws any-shape intervals are as wide as before within
2%, their 90% point is up to 7% larger, and at 99.9% they are 3% wider. With (3.0, 2.9, 5) the error is no smaller, the
last two are 30% and 70% larger, and there are fewer sets of one or two ages."""

SCANT, LAYOUT_OF_SCANT = 8.0, Layout(2.5, 3.55, 20, 17.0)
"""Where a side cannot show more than this many final standard errors, however far out it asks, its tests need every
answer: they must not expect most of the early ones, a side that is behind goes out earlier, and few rounds ask the
centre. The low side of level 0.1 at information 39 can show 6.9: it is closed in .977 of runs of a Pareto law (20,000
runs), and in .977 at level 0.9 of two values; with the usual layout in .931 and .923. With (3.0, 3.6, 10) these are
.966 and .981, and the interval of the 0.9 quantile of a region's salaries (5,834 people, ε = 1, 2,000 runs) is 202,000
wide in the median, 173,000 here; but the smooth estimate's error is 5% to 10% smaller there. With (2.5, 3.6, 10) that
interval is nearly the range; (2.5, 3.185, 10) closes only .90 of runs of the two values."""


class Rules(NamedTuple):
    """What is fixed before the first question."""

    level: float
    low: float
    high: float
    rounds: int
    noise: float
    """s²."""
    located: float
    """Error of the search, in spreads, at which the window begins."""
    search_share: float
    """Share of the records at which the search gives up."""
    least: float
    most: float
    """Smallest and largest share of the records in one round of the search."""
    layout: Layout
    boundary: float = 1.0
    """What the boundary of every decision is multiplied by; see `Plan.with_boundaries_moved`."""


def rules_of(level: float, low: float, high: float, rounds: int, noise: float, boundary: float = 1.0) -> Rules:
    """The rules of a run from its level, range, number of rounds and noise s².

    A side shows at most τ/s final standard errors (low) or (1 − τ)/s (high): where no value lies beyond its question.

    >>> [round(rules_of(0.5, -9, 9, 200, 0.0625 / i).located, 3) for i in (60, 6_000, 600_000)]
    [0.8, 0.103, 0.03]
    >>> rules_of(0.1, -9, 9, 200, 0.0081 / 39).layout == LAYOUT_OF_SCANT
    True
    """
    information = (level * (1.0 - level)) ** 2 / noise
    located = min(LOCATED_SPREADS, max(MIN_LOCATED, LOCATED_ERRORS / math.sqrt(information)))
    if min(level, 1.0 - level) < SCANT * math.sqrt(noise):
        layout = LAYOUT_OF_SCANT
    else:
        layout = LAYOUT_OF_PLENTY if (level * (1.0 - level)) ** 2 >= PLENTY * noise else USUAL
    gives_up = SCARCE_SEARCH if information < SCARCE else MAX_SEARCH_SHARE
    return Rules(level, low, high, rounds, noise, located, gives_up, *search_shares(noise, rounds), layout, boundary)


# What a run has learned.


@dataclass
class Fit:
    """y = A − F·d − H·d² through the window's answers, d = (q − origin)/spread: normal equations with priors.

    A ~ N(0, (κe₀)²), F ~ N(κ, (0.8κ)²), H ~ N(κ(½ − τ), (0.3κ)²), where κ = τ(1 − τ) and e₀ is the search's error in
    spreads. Its root places the next questions; no interval is taken from it.
    """

    origin: float = math.nan
    spread: float = math.nan
    """What the search believed: Q₀ and σ₀."""
    matrix: Floats = field(default_factory=lambda: np.zeros((3, 3)))
    vector: Floats = field(default_factory=lambda: np.zeros(3))


@dataclass
class Asked:
    """Questions of the window, three to a placement: place, Σp·y and Σp of the answers."""

    places: Floats = field(default_factory=lambda: np.zeros(3 * PLACEMENTS))
    sums: Floats = field(default_factory=lambda: np.zeros(3 * PLACEMENTS))
    precisions: Floats = field(default_factory=lambda: np.zeros(3 * PLACEMENTS))


@dataclass
class Candidates:
    """Candidate ends of one side, each with a running test.

    A candidate c of the low side stands for F(c) ≥ τ, "the quantile is not above c". F never falls, so every answer
    asked at q ≥ c has mean at most 0 under it, and its test is S = Σ a·y·√p, Σ a² ≤ 1, over low rounds with q ≥ c,
    p the round's precision. The weight a is fixed before the answer comes; B = 1 − Σa² is the budget left. A new
    candidate copies the next one above it: both have used the same answers. So for a fixed quantile the smallest
    candidate at or above it carries one martingale to the end, whichever questions came. The high side is the same with
    signs reversed.

    Nothing here depends on a confidence level: `inference.any_shape` reads S, B and M at any.
    """

    count: int = 0
    places: Floats = field(default_factory=lambda: np.full(PLACEMENTS, np.inf))
    """c on the low side, −c on the high side: outward is down on both."""
    scores: Floats = field(default_factory=lambda: np.zeros(PLACEMENTS))
    """S."""
    budgets: Floats = field(default_factory=lambda: np.ones(PLACEMENTS))
    """B."""
    peaks: Floats = field(default_factory=lambda: np.full(PLACEMENTS, -np.inf))
    """M, the largest S so far."""
    rates: Floats = field(default_factory=lambda: np.zeros(PLACEMENTS))
    """a² per share of the information, until the side's question moves; 0 where its answers do not count."""


@dataclass
class Side:
    """One side's question now, what its answers said, and its candidates."""

    place: float = 0.0
    signal: float = 0.0
    """Standard errors that the tests' weights expect of its answers."""
    behind: int = 0
    """For how many placements in a row its outermost candidate has been behind."""
    fresh: bool = False
    """It has not been asked since its question moved."""
    total: float = 0.0
    precision: float = 0.0
    """Σp·y, outward, and Σp since its question moved."""
    candidates: Candidates = field(default_factory=Candidates)


@dataclass
class Window:
    """Where the straddling stands."""

    first: float = 0.0
    """Share of the records that the search took."""
    rounds: int = 0
    asked: int = 0
    """Rounds of the window, and those done."""
    center: float = math.nan
    slope: float = math.nan
    """F̂ where the questions were last placed."""
    block: int = -1
    """Block of the schedule in which they were placed; −1 before the first."""
    placed: int = 0
    replaced: int = 0
    """Placements so far, and those inside a block."""
    beyond: int = 0
    """For how many placements in a row the centre had to go beyond everything asked."""
    astray: bool = False
    """Whether a side's answers contradict its place."""


@dataclass
class Run:
    """All that the next question of one run depends on, and that question."""

    belief: Belief
    stage: int = SEARCH
    query: float = math.nan
    """The next question, on the working scale."""
    share: float = math.nan
    """Share of every client's records that it asks; NaN in the window, whose rounds are equal."""
    done: int = 0
    searched: int = 0
    spent: float = 0.0
    """Rounds done, those of the search, and the share of the records that it has asked."""
    gave_up: bool = False
    """Whether the search ended before it had located the quantile."""
    fit: Fit = field(default_factory=Fit)
    asked: Asked = field(default_factory=Asked)
    window: Window = field(default_factory=Window)
    sides: tuple[Side, Side] = field(default_factory=lambda: (Side(), Side()))


def begin(rules: Rules, room: int = ROOM) -> Run:
    """A run before its first round, with its first question; `room` is that of its belief."""
    run = Run(begin_belief(rules, room))
    next_question(rules, run)
    return run


@compiled
def learn(rules: Rules, run: Run, residual: float, variance: float, heard: Heard) -> None:
    """An answer to the question asked, y = Σp_k·y_k − (1 − τ), and its variance; then the next question.

    An infinite variance says that there was none. What was asked is `run.query`: a run that is replayed from its file
    has the file's question there. `heard` is what the tests take: they take real answers alone, while a place may be
    found with a guess of what silent clients would have said.
    """
    if run.stage == SEARCH:
        learn_in_search(rules, run.belief, run.query, residual, variance)
        run.searched += 1
        run.spent += run.share
    else:
        learn_in_window(rules, run, residual, variance, heard)
    run.done += 1
    next_question(rules, run)


@compiled
def next_question(rules: Rules, run: Run) -> None:
    """Decide stage, question and share of the next round."""
    if run.stage == SEARCH:
        ask_in_search(rules, run)
    if run.stage != SEARCH and run.done < rules.rounds:
        ask_in_window(rules, run)


@compiled
def ask_in_search(rules: Rules, run: Run) -> None:
    """The next question of the search, or the beginning of the window where the quantile is located."""
    known = summarize(rules, run.belief)
    found = search_is_over(rules, known, rules.located)
    out_of_rounds = run.searched >= MAX_SEARCH_ROUNDS * rules.rounds
    if found or out_of_rounds or run.spent >= rules.search_share * rules.boundary:
        run.stage, run.share, run.gave_up = CENTRE, math.nan, not found
        begin_window(rules, run, known)
        return
    query, doubt = best_question(rules, run.belief, rules.noise / rules.most)
    run.query = min(max(query, rules.low), rules.high)
    run.share = search_share(rules.noise, doubt, rules.least, rules.most, rules.boundary)


# The schedule of the window.
#
# The clock v is the share of the information that the records can give, all stages together. An error of the centre at
# time v is about 1/√v final standard errors, so early questions lie far out and late ones near.


@compiled
def clock(window: Window) -> float:
    """v after the window's rounds so far."""
    return window.first + (1.0 - window.first) * window.asked / max(window.rounds, 1)


@compiled
def block_at(v: float) -> int:
    """The block that time v belongs to; a round that begins within rounding of a cut belongs to the block after it.

    >>> [int(block_at(v)) for v in (0.0, 0.01, 0.5, 0.99)]
    [0, 1, 15, 19]
    """
    return int(np.searchsorted(CUTS, v + 1e-9, side="right"))


@compiled
def shares_left(v: float) -> Floats:
    """How much of the clock each block still has from time v on."""
    left: Floats = np.maximum(ENDS - np.maximum(BEGINS, v), 0.0)
    return left


@compiled
def distances(layout: Layout, v: float) -> Floats:
    """How far out each block's questions lie: the mean of e/√v over what is left of it from a to b, within limits.

    x = 2e/(√a + √b)

    >>> distances(USUAL, 0.05).round(2)[[0, 5, 15, 19]].tolist()
    [17.0, 16.89, 5.53, 4.5]
    """
    starts = np.minimum(np.maximum(v, BEGINS), ENDS)
    means = 2.0 * layout.errors / (np.sqrt(starts) + np.sqrt(ENDS))
    found: Floats = np.minimum(np.maximum(means, CLOSEST), layout.farthest)
    return found


@compiled
def side_share(layout: Layout) -> float:
    """Share of the window's information that each side gets."""
    return 0.5 * (layout.centre_every - 1) / layout.centre_every


@compiled
def side_of(done: int, centre_every: int) -> int:
    """What the window's round after `done` others asks: low and high in turn, and now and then the centre.

    >>> [side_of(done, 5) for done in range(10)]
    [0, 1, 0, 1, 2, 0, 1, 0, 1, 2]
    """
    return CENTRE if done % centre_every == centre_every - 1 else (done - done // centre_every) % 2


@compiled
def is_last_of_its_side(done: int, rounds: int, centre_every: int) -> bool:
    """Whether no later round of the window asks the side that the round after `done` others asks.

    >>> [is_last_of_its_side(done, 8, 5) for done in range(8)]
    [False, False, False, False, True, False, True, True]
    """
    side, last = side_of(done, centre_every), True
    for later in range(done + 1, min(done + centre_every + 1, rounds)):
        last = last and side_of(later, centre_every) != side
    return last


# The window: its questions and answers.


@compiled
def begin_window(rules: Rules, run: Run, known: Summary) -> None:
    """Around what the search found."""
    run.fit.spread = known.spread
    begin_fit(run.fit, rules.level, known.quantile, min(known.error / known.spread, 3.0))
    run.window.center = known.quantile
    run.window.slope = rules.level * (1.0 - rules.level)
    # With a handful of records the search's share may exceed what there is: some of the clock must be left.
    run.window.first = min(run.spent, 0.9)
    run.window.rounds = rules.rounds - run.done


@compiled
def ask_in_window(rules: Rules, run: Run) -> None:
    """The next question; where a block begins or a side is astray, all are placed anew."""
    window = run.window
    if window.astray or block_at(clock(window)) != window.block:
        place_questions(rules, run)
    run.stage = side_of(window.asked, rules.layout.centre_every)
    run.query = window.center if run.stage == CENTRE else run.sides[run.stage].place


@compiled
def learn_in_window(rules: Rules, run: Run, residual: float, variance: float, heard: Heard) -> None:
    """One answer to the fit, to what is known of its place, and `heard` to the tests of its side."""
    window = run.window
    precision = 1.0 / variance if math.isfinite(variance) else 0.0
    signal = precision * residual if precision > 0.0 else 0.0
    add_to_fit(run.fit, run.query, precision, signal)
    note_answer(run.asked, 3 * (window.placed - 1) + run.stage, run.query, precision, signal)
    if run.stage != CENTRE:
        side, outward = run.sides[run.stage], 1.0 if run.stage == LOW else -1.0
        side.total += outward * signal
        side.precision += precision
        score = side.total / math.sqrt(max(side.precision, 1e-300))
        if score < -CERTAIN * rules.boundary and window.replaced < REPLACED:
            window.astray = True
        if math.isfinite(heard.variance):
            weigh_answer(rules, run, side, outward, heard)
    window.asked += 1


@compiled
def note_answer(asked: Asked, slot: int, place: float, precision: float, signal: float) -> None:
    """An answer to the question of a slot."""
    asked.places[slot] = place
    asked.sums[slot] += signal
    asked.precisions[slot] += precision


# The fit.


@compiled
def begin_fit(fit: Fit, level: float, origin: float, error: float) -> None:
    """Priors around `origin`, with its error in spreads; the bend's prior mean is a logistic curve's."""
    scale = level * (1.0 - level)
    fit.origin = origin
    fit.matrix[:, :] = 0.0
    fit.matrix[0, 0] = 1.0 / (scale * error) ** 2
    fit.matrix[1, 1] = 1.0 / (SLOPE_DOUBT * scale) ** 2
    fit.matrix[2, 2] = 1.0 / (BEND_DOUBT * scale) ** 2
    fit.vector[0] = 0.0
    fit.vector[1] = fit.matrix[1, 1] * scale
    fit.vector[2] = fit.matrix[2, 2] * scale * (0.5 - level)


@compiled
def add_to_fit(fit: Fit, place: float, precision: float, signal: float) -> None:
    """Answers from one place, Σp and Σp·y."""
    d = (place - fit.origin) / fit.spread
    if abs(d) > FAR:
        return
    row = (1.0, -d, -d * d)
    for i in range(3):
        fit.vector[i] += row[i] * signal
        for j in range(3):
            fit.matrix[i, j] += precision * row[i] * row[j]


@compiled
def refit(fit: Fit, asked: Asked, level: float, center: float) -> None:
    """Begun anew around a centre that the old fit did not find, from the answers near it.

    A parabola around a place far away says nothing here.
    """
    begin_fit(fit, level, center, AGAIN)
    for k in range(len(asked.places)):
        if asked.precisions[k] > 0.0 and abs(asked.places[k] - center) <= AGAIN * fit.spread:
            add_to_fit(fit, asked.places[k], asked.precisions[k], asked.sums[k])


@compiled
def solve_fit(fit: Fit, level: float) -> tuple[float, float, float]:
    """Where the fitted answers are zero, the slope there, and the bend: the root nearest to A/F, at most twice as far.

    >>> fit = Fit(0.0, 1.0)
    >>> begin_fit(fit, 0.5, 0.0, 0.5)
    >>> for d in (-0.3, 0.0, 0.5):
    ...     add_to_fit(fit, d, 1e6, 1e6 * (0.02 - 0.25 * d))
    >>> [round(float(value), 3) for value in solve_fit(fit, 0.5)[:2]]
    [0.08, 0.25]
    """
    scale = level * (1.0 - level)
    height, slope, bend = np.linalg.solve(fit.matrix, fit.vector)
    slope = min(max(slope, FLATTEST * scale), STEEPEST * scale)
    root = height / slope
    limit = 2.0 * abs(root)
    for _ in range(NEWTON_STEPS):
        steep = min(max(slope + 2.0 * bend * root, 0.3 * slope), 3.0 * slope)
        root = min(max(root + (height - slope * root - bend * root * root) / steep, -limit), limit)
    return root, min(max(slope + 2.0 * bend * root, 0.3 * slope), 3.0 * slope), bend


@compiled
def offset_of(distance: float, slope: float, bend: float, sign: float) -> float:
    """The u > 0 whose predicted rank is `distance`·slope away on one side, within [0.6, 1.8]·distance.

    u ± (H/F)·u² = distance, + above (sign = 1) and − below (sign = −1).

    >>> offset_of(1.0, 1.0, 0.0, 1.0), offset_of(1.0, 1.0, 2.0, 1.0)
    (1.0, 0.6)
    """
    tilt = sign * bend / slope
    if abs(tilt * distance) < 1e-9:
        return distance
    under = 1.0 + 4.0 * tilt * distance
    reach = (math.sqrt(under) - 1.0) / (2.0 * tilt) if under > 0.0 else 1.8 * distance
    return min(max(reach, 0.6 * distance), 1.8 * distance)


# The placement of the questions. The tests hold wherever they are asked.


@compiled
def place_questions(rules: Rules, run: Run) -> None:
    """New questions from all answers of the window."""
    window, fit, now, layout = run.window, run.fit, clock(run.window), rules.layout
    root, slope, bend = solve_fit(fit, rules.level)
    # With the spread of before: a fit that begins anew keeps it.
    center = fit.origin + fit.spread * root
    below, above = sign_change(run.asked, CERTAIN * rules.boundary)
    if window.placed > 0:
        slope = min(max(slope, window.slope / 2.0), window.slope * 2.0)
        places = (run.sides[LOW].place, run.sides[HIGH].place)
        center, window.beyond, contradicted = plausible_center(center, places, window.beyond, below, above)
        if contradicted:
            refit(fit, run.asked, rules.level, center)
    block, left, reach = block_at(now), shares_left(now), distances(layout, now)
    largest = REACH * rules.level * (1.0 - rules.level) / math.sqrt(rules.noise)
    can_gather = side_share(layout) * (left * np.minimum(reach, max(largest, CLOSEST)) ** 2).sum()
    here, basis = side_share(layout) * max(left[block], 1e-6), reach[block]
    tiny = fit.spread < TINY * rules.boundary * (rules.high - rules.low)
    for which in (LOW, HIGH):
        side, sign = run.sides[which], -1.0 if which == LOW else 1.0
        push, distance = 1.0, basis
        lags, missing = behind(rules, side.candidates, can_gather, here * basis**2)
        if lags:
            push = push_of(side.behind, tiny)
            distance = min(max(basis * push, math.sqrt(missing / here)), PUSH * push * basis)
        limit = max(largest * push, CLOSEST)
        offset = offset_of(min(distance, limit) * math.sqrt(rules.noise) / slope, slope, bend, sign)
        place = center + sign * fit.spread * offset
        if lags and which == LOW and below > -math.inf:
            place = min(place, below)
        if lags and which == HIGH and above < math.inf:
            place = max(place, above)
        side.place = inside_range(rules, run.asked, side.candidates, sign, place)
        # Weights expect the distance before any push: pushing adds signal and spends no more of the budget.
        side.signal = max(min(basis, limit) - 1.0 / math.sqrt(max(now, 1e-3)), 0.5)
        side.behind = side.behind + 1 if lags else 0
        if tiny and 2 <= side.behind <= 5:
            side.signal *= SAVED
        side.fresh, side.total, side.precision = True, 0.0, 0.0
    window.slope = slope
    window.center = min(max(center, rules.low), rules.high)
    window.replaced += 1 if window.block == block else 0
    window.block = block
    window.placed += 1
    window.astray = False


@compiled
def behind(rules: Rules, candidates: Candidates, can_gather: float, planned: float) -> tuple[bool, float]:
    """Whether the outermost candidate will not be accepted as things go, and what this block must gather instead."""
    outermost = np.argmin(candidates.places)
    score, budget = candidates.scores[outermost], candidates.budgets[outermost]
    accepted = candidates.peaks[outermost] >= ACCEPTED * rules.boundary
    if candidates.count == 0 or budget <= 1e-6 or accepted:
        return False, 0.0
    wanted = rules.layout.wanted
    hoped = score + math.sqrt(budget * can_gather)
    missing = (wanted - score) ** 2 / budget - can_gather + planned
    return hoped < wanted * rules.boundary, max(missing, 0.0)


@compiled
def push_of(row: int, tiny: bool) -> float:
    """How many times as far a side is asked that has been behind for `row` placements before this one.

    `tiny` says that the believed spread is an atom's.

    >>> [round(float(push_of(*given)), 1) for given in ((0, False), (1, False), (3, False), (3, True))]
    [1.0, 1.3, 8.8, 143982.6]
    """
    late = min(row, len(FURTHER) - 1)
    return GROWTH**row * 2.0 ** (BESIDE_ATOM[late] if tiny else FURTHER[late])  # type: ignore[no-any-return]


@compiled
def inside_range(rules: Rules, asked: Asked, candidates: Candidates, sign: float, place: float) -> float:
    """A side's question inside the range, and at its other end where the quantile is there.

    Where the answers asked at the low end say that F(low) ≥ τ, by 2.5 standard errors if the outermost candidate of the
    high side is accepted and by 5 if not, the high side asks there too: the interval then closes on that end. The high
    end is the same.
    """
    end = rules.low if sign > 0.0 else rules.high
    total, precision, near = 0.0, 0.0, AT_END * (rules.high - rules.low)
    for k in range(len(asked.places)):
        if sign * (asked.places[k] - end) <= near:
            total -= sign * asked.sums[k]
            precision += asked.precisions[k]
    peak = candidates.peaks[np.argmin(candidates.places)]
    certain = (CERTAIN if peak >= ACCEPTED * rules.boundary else 2.0 * CERTAIN) * rules.boundary
    if precision > 0.0 and total >= certain * math.sqrt(precision):
        return end
    return min(max(place, rules.low), rules.high)


@compiled
def plausible_center(
    center: float, places: tuple[float, float], beyond: int, below: float, above: float
) -> tuple[float, int, bool]:
    """The fit's centre where the answers allow it: between the last place known to be below and the first above.

    `places` are the sides' last questions. Where one of the two is not known yet (∓∞), the centre goes one reach beyond
    what was asked, twice as far each time in a row (`beyond`): a search by doubling and halving. Returns the centre,
    that count, and whether the answers contradict the fit.

    >>> plausible_center(0.5, (-1.0, 1.0), 1, 1.0, math.inf)  # all that was asked lies below
    (5.0, 2, True)
    """
    reach = places[1] - places[0]
    center = min(max(center, places[0] - reach), places[1] + reach)
    if below >= above or below <= center <= above:
        return center, 0, False
    if below > -math.inf and above < math.inf:
        return 0.5 * (below + above), 0, True
    step = reach * 2.0**beyond
    return below + step if center < below else above - step, beyond + 1, True


@compiled
def sign_change(asked: Asked, certain: float) -> tuple[float, float]:
    """The last place certainly below the quantile (−∞: none) and the first certainly above (∞: none).

    τ − F never rises. The falling step function nearest to the answers pools neighbours that would rise (pool adjacent
    violators); a stretch whose pooled answer is `certain` standard errors above zero lies below the quantile. This
    places questions; it is no test.

    >>> asked = Asked(np.array([1.0, 2.0, 3.0, 4.0]), np.array([30.0, 20.0, 25.0, -50.0]), np.full(4, 100.0))
    >>> [float(place) for place in sign_change(asked, CERTAIN)]
    [3.0, 4.0]
    """
    # First the steps: answers to one question, asked at several times. Then the stretches of steps, pooled.
    size = len(asked.places)
    first, last, sums, precisions = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    close, steps = 0.0, 0
    for k in range(size):
        if asked.precisions[k] > 0.0:
            close = max(close, ALIKE * abs(asked.places[k]))
    for k in np.argsort(asked.places, kind="mergesort"):
        if asked.precisions[k] <= 0.0:
            continue
        if steps > 0 and asked.places[k] - first[steps - 1] <= close:
            sums[steps - 1] += asked.sums[k]
            precisions[steps - 1] += asked.precisions[k]
        else:
            first[steps], sums[steps], precisions[steps] = asked.places[k], asked.sums[k], asked.precisions[k]
            steps += 1
    stretches = 0
    for k in range(steps):
        begin, end, total, precision = first[k], first[k], sums[k], precisions[k]
        while stretches > 0 and sums[stretches - 1] / precisions[stretches - 1] <= total / precision:
            stretches -= 1
            total, precision = total + sums[stretches], precision + precisions[stretches]
            begin = first[stretches]
        first[stretches], last[stretches], sums[stretches], precisions[stretches] = begin, end, total, precision
        stretches += 1
    below, above = -math.inf, math.inf
    for k in range(stretches):
        score = sums[k] / math.sqrt(precisions[k])
        if score >= certain:
            below = last[k]
        if score <= -certain:
            above = min(above, first[k])
    return below, above


# The tests of a side's candidates.


@compiled
def weigh_answer(rules: Rules, run: Run, side: Side, outward: float, heard: Heard) -> None:
    """An answer of a side enters the tests of its candidates at its place and further out."""
    window, place, now = run.window, outward * heard.place, clock(run.window)
    if now < TESTED - 1e-9:
        return
    if side.fresh or not (side.candidates.places == place).any():
        add_candidate(side.candidates, place)
        divide_budgets(rules, run, side, outward, place)
        side.fresh = False
    # The budget follows the clock, not the precision that came: what silence took away is not waited for.
    share = heard.rounds * (1.0 - window.first) / window.rounds
    last = is_last_of_its_side(window.asked, window.rounds, rules.layout.centre_every)
    score = outward * heard.residual * math.sqrt(1.0 / heard.variance)
    add_answer(side.candidates, place, share, score, last)


@compiled
def add_answer(candidates: Candidates, place: float, share: float, score: float, last: bool) -> None:
    """One answer, asked at `place` (sign as in `places`).

    `share` is its precision as a share of all information and `score` = ±y·√p its standardised value. The side's last
    answer takes all of the budget that is left.
    """
    for c in range(candidates.count):
        if candidates.places[c] <= place:
            budget = candidates.budgets[c]
            spent = budget if last else min(candidates.rates[c] * share, budget)
            candidates.scores[c] += math.sqrt(spent) * score
            candidates.budgets[c] = budget - spent
            candidates.peaks[c] = max(candidates.peaks[c], candidates.scores[c])


@compiled
def add_candidate(candidates: Candidates, place: float) -> None:
    """A new candidate copies the next one above it, or begins with no score and the whole budget.

    >>> candidates = Candidates()
    >>> add_candidate(candidates, 2.0)
    >>> add_answer(candidates, 2.0, 0.5, 1.0, True)
    >>> add_candidate(candidates, 1.0)
    >>> candidates.places[:2].tolist(), candidates.scores[:2].tolist(), candidates.budgets[:2].tolist()
    ([2.0, 1.0], [1.0, 1.0], [0.0, 0.0])
    """
    new, above = candidates.count, -1
    for c in range(candidates.count):
        if candidates.places[c] >= place and (above < 0 or candidates.places[c] < candidates.places[above]):
            above = c
    candidates.places[new] = place
    if above >= 0:
        candidates.scores[new] = candidates.scores[above]
        candidates.budgets[new] = candidates.budgets[above]
        candidates.peaks[new] = candidates.peaks[above]
    candidates.count += 1


@compiled
def divide_budgets(rules: Rules, run: Run, side: Side, outward: float, place: float) -> None:
    """The weights a² of every candidate of the side, from here to the next placement.

    A candidate divides its budget between the rounds at hand and those to come in proportion to the squared signal
    expected of each: (x − 1/√v)² per share, and for a later block times the chance that its question will lie at or
    above the candidate.
    """
    window, candidates, layout, now = run.window, side.candidates, rules.layout, clock(run.window)
    error = math.sqrt(rules.noise) * run.fit.spread / window.slope
    left, reach, block = shares_left(now), distances(layout, now), block_at(now)
    gaps = 1.0 / np.maximum(np.maximum(BEGINS, now), 1e-3)
    expected = side_share(layout) * left * (reach - np.sqrt(gaps)) ** 2
    expected[: block + 1] = 0.0
    moves = np.sqrt(np.maximum(1.0 / max(now, 1e-3) - gaps, 0.01))
    # A side that asks the centre itself is at an end of the range, and stays there; others lie 2.7 errors from it.
    at_center = abs(place - outward * window.center) <= 1e-3 * error
    here = max(side_share(layout) * left[block], (1.0 - window.first) / window.rounds)
    power = side.signal**2
    for c in range(candidates.count):
        if candidates.places[c] > place:
            candidates.rates[c] = 0.0
            continue
        distance = (outward * window.center - candidates.places[c]) / error
        to_come = expected.sum() if at_center else (expected * normal_cdf((distance - reach) / moves)).sum()
        candidates.rates[c] = candidates.budgets[c] * power / (power * here + to_come)


@compiled
def normal_cdf(z: Floats) -> Floats:
    """Φ within 0.0003: a plan needs no more, and the exact one would import scipy into every run."""
    return 0.5 * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * z * (1.0 + 0.044715 * z * z)))


class StraddleMemory(NamedTuple):
    """What a run of this design has learned."""

    run: Run
    pools: Pools
    """Answers that wait for silent clients."""


@dataclass(frozen=True, eq=False)
class StraddlePlan(SelfTuningPlan):
    """Search, then straddle the quantile, as the plan of a run.

    A stored round needs nothing beyond what every round has. The stage is `search`, `low`, `high` or `centre`; the step
    is 0; the rounds of the window count as averaged.
    """

    @cached_property
    def rules(self) -> Rules:
        """The rules, with this run's numbers."""
        low, high = working_range(self.scale)
        return rules_of(self.level, low, high, self.rounds, pooled_noise(self.clients), 1.0 + self.boundary_shift)

    @cached_property
    def exact(self) -> bool:
        """Whether the any-shape tests are exact instead of by the normal law."""
        return needs_exact(self.clients)

    @property
    def start(self) -> float:
        """The first question: the middle of the range, where a flat belief asks first."""
        return begin(self.rules).query

    def initial_memory(self) -> StraddleMemory:
        """Nothing learned, nothing asked."""
        return StraddleMemory(begin(self.rules), {})

    def ask(self, state: RoundState) -> Ask | None:
        """The next question, asked of its share of every client's records."""
        if state.round >= self.rounds:
            return None
        run, left = straddle_memory(state).run, self.rounds - state.round
        rows = zip(self.clients, state.records, strict=True)
        lengths = tuple(records_to_ask(run.share, left, client.records, one.left) for client, one in rows)
        return Ask(float(run.query), lengths, 0.0, run.stage != SEARCH, STAGES[run.stage])

    def learn(self, ask: Ask, state: RoundState) -> StraddleMemory:
        """What is known after a round.

        Where to ask next may use a guess of what a silent client would have answered: its last answer, moved along the
        slope to this question. The tests take real answers alone, each once.
        """
        run, pools = straddle_memory(state)
        run = copied(run, shared="" if run.stage == SEARCH else "belief")
        # What was asked counts: in a replay it may differ from this machine's own question in the last bits.
        run.query = ask.query
        if ask.stage == "centre":
            run.window.center = ask.query
        elif ask.averaged:
            run.sides[STAGES.index(ask.stage)].place = ask.query
        slope = 0.0 if math.isnan(run.window.slope) else run.window.slope / run.fit.spread
        guess = math.fsum(
            client.weight * (mean - slope * (ask.query - heard) - (1.0 - self.level_of(client)))
            for client, mean, heard in zip(self.clients, state.means, state.heard, strict=True)
        )
        pools, heard = add_round(
            pools, ask.stage, ask.query, ask.lengths, came(state), self.clients, self.level, exact=self.exact
        )
        learn(self.rules, run, guess, round_weight(state), heard)
        return StraddleMemory(run, pools)

    def standard_error(self, state: RoundState, ask: Ask) -> float:
        """The belief's own error of the quantile; in the window s/(f·√v), that of the centre at time v."""
        run = straddle_memory(state).run
        if not ask.averaged:
            return summarize(self.rules, run.belief).error
        return math.sqrt(self.rules.noise / max(clock(run.window), 1e-3)) * run.fit.spread / run.window.slope


def came(state: RoundState) -> Sequence[float | None]:
    """The debiased means of the round just done; none of a client that was silent."""
    return [mean if used == 1 else None for mean, used in zip(state.means, state.used, strict=True)]


def straddle_memory(state: RoundState) -> StraddleMemory:
    """The memory of a run of this design."""
    if not isinstance(state.memory, StraddleMemory):
        raise TypeError("this run does not follow the straddling design")
    return state.memory
