"""The default design: search for the quantile, then straddle it; and its plan of a run.

Where the straddling window's questions go, from all of its answers; see `straddle` for the rules.

Distances are in final standard errors se = s·σ₀/F. None of this decides what the tests conclude: they hold wherever the
questions are asked.

The default design: search for the quantile, then straddle it. The answers so far in, the next question out.

1. `search`: place the quantile by a belief that sharpens (`search_belief`), until its error is below 8 final standard
   errors, or 0.8 local spreads if that is less.
2. the window: all other records, in equal rounds. `low` and `high` questions lie a few standard errors either side of
   the quantile and `centre` questions at it, as the run's layout says (`straddle_schedule`). They are placed anew where
   a block of the schedule begins, from a fit through the window's answers (`window_fit`).

Two rules keep a window from going astray, whatever the distribution:

- a centre that contradicts the answers (`antitonic`) moves between the places that they tell apart, or one reach
  beyond the last one known, twice as far each time in a row: a search by doubling and halving;
- a side whose answers are on the wrong side by 2.5 standard errors is placed anew at once, at most `REPLACED` times.

A side whose outermost candidate (`candidates`) is behind what it needs is asked further out. Nothing depends on the
confidence level that will be reported: the rules use the constants of 95%.

Unit-free throughout: σ is the local spread τ(1 − τ)/f on the working scale, s² = Σp_k²/(4r_k²n_k) the noise that is
left in a rank when every record has answered. The arrays have a leading axis of runs.

When the any-shape tests may use the normal law, and the variance that they take for an answer.

A test is a sum of bits with weights. It is as good as normal where no bit has much weight and both kinds of bits are
frequent. Otherwise the tests use Ville's exact bound (`inference.any_shape`), which needs the plain bound of a bit's
variance. Both are decided before the first answer, by public numbers alone.

Rounds that some clients missed: their answers wait until every client has answered; none is used twice.

The mixture's drift at a question needs all clients, Σp_k·y_k with fixed weights. A complete round is used at once. The
answers of an incomplete one wait in a pool of its stage. Once every client has answers there, they are used as one:

    y = Σp_k·ȳ_k − (1 − τ),  ȳ_k the mean over the N_k records of client k in the pool

with the `variance_bound` of these N_k. Its questions may differ. F_k never falls, so under F(c) ≥ τ the sum has mean
at most 0 for every candidate c at or below the lowest of a pool's low questions: that one, the outermost, stands for
the pool. On the high side it is the highest. Silence must not depend on the coins.

Where a pool holds one question only, the weight of its answers is fixed before they come and the tests' bound is exact.
Over several questions it is not proven: the last of them, which decides for which candidates the pool counts, was
placed with the first answers of the pool. Measured where F jumps to exactly τ, ten clients silent in 10% and 30% of the
rounds, ten in a row, 400 runs each (`studies/any_shape/silence.py --jump`): a side errs in .015 and .018 of runs,
allowed is .025.

The straddling design as the plan of a run (`straddle`, for one run).
"""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Flags, Floats, Ints, array_namespace
from privatile.core.mechanism import rank_noise, yes_probability
from privatile.core.scale import working_range
from privatile.estimator import search
from privatile.estimator.clients import Client, pooled_noise
from privatile.estimator.plan import Ask, RoundState, round_weight
from privatile.estimator.search import CERTAIN, Belief, sign_change
from privatile.estimator.tuned import (
    LARGEST_SEARCH_ROUNDS,
    LARGEST_SEARCH_SHARE,
    SPREAD_KNOWN,
    SelfTuningPlan,
    round_lengths,
    search_shares,
)
from privatile.estimator.window import (
    CENTRE,
    CLOSEST,
    HIGH,
    LOW,
    Answers,
    Layout,
    Ridge,
    Window,
    begin_fit,
    begin_window,
    block_at,
    clock,
    distances,
    information_gap,
    layout_of,
    learn_answer,
    offset_of,
    put_rows,
    put_values,
    room_for,
    shares_left,
    side_of,
    solve_fit,
    take_rows,
)

REACH = 0.55
"""Questions lie at most this many local spreads from the centre (unless they are pushed): further out a parabola no
longer describes a distribution."""

ACCEPTED = 2.5
"""A candidate whose largest S has reached this needs no further help."""

PUSH, GROWTH = 2.5, 1.3
"""A side that is behind for the m-th placement in a row asks at most 2.5·1.3^(m−1) times as far, …"""

FURTHER = (0, 0, 1, 2, 8, 24, 50)
"""… and these powers of 2 further still: the distribution is then flat beyond anything the search saw."""

TINY = 2e-3
"""A spread below this share of the range is that of an atom. Beside it the flat stretch may be 10⁸ times as long, …"""

BESIDE_ATOM = (0, 0, 3, 16, 50, 50, 50)
"""… so a side that is behind goes out faster there, …"""

SAVED = 0.4
"""… and its tests expect this share of the usual signal for its third to sixth time in a row: they keep their budget
for the far side of the stretch."""

AT_END = 1e-9
"""A place this close to an end of the range, as a share of the range, is that end."""

AGAIN = 1.0
"""Spreads within which answers enter a fit that begins anew, and its prior error."""


def place_questions(
    window: Window,
    now: Floats,
    level: float,
    noise: float,
    width: float,
    layout: Layout,
    boundary_shift: float = 0.0,
) -> Window:
    """New questions from all answers of the window; `width` is the range's."""
    xp = array_namespace(now)
    rows = xp.arange(len(now))
    root = solve_fit(window.fit, level)
    first = window.placed == 0
    slope = xp.where(first, root.slope, xp.clip(root.slope, window.slope / 2.0, window.slope * 2.0))
    center = window.origin + window.spread * root.center
    low, high = sign_change(window.places, window.sums, window.precisions, CERTAIN * (1.0 + boundary_shift))
    center, beyond, moved = plausible_center(window.sides, window.beyond, center, low, high, first)
    block = block_at(now)
    reach = distances(now, layout)
    basis = reach[rows, block]
    score, budget, peak = window.tests.outermost
    started = window.tests.counts > 0
    largest = REACH * level * (1.0 - level) / math.sqrt(noise)
    can_gather = layout.side_share * (shares_left(now) * xp.minimum(reach, max(largest, CLOSEST)) ** 2).sum(axis=1)
    here = layout.side_share * xp.maximum(shares_left(now)[rows, block], 1e-6)
    tiny = window.spread < TINY * (1.0 + boundary_shift) * width
    error = math.sqrt(noise) / slope
    behind, sides, signals = window.behind.copy(), window.sides.copy(), window.signals.copy()
    for side in (LOW, HIGH):
        at_risk = started[:, side] & (budget[:, side] > 1e-6) & (peak[:, side] < ACCEPTED * (1.0 + boundary_shift))
        hoped = score[:, side] + xp.sqrt(xp.maximum(budget[:, side], 0.0) * can_gather)
        lags = at_risk & (hoped < layout.wanted * (1.0 + boundary_shift))
        needed = (
            (layout.wanted - score[:, side]) ** 2 / xp.maximum(budget[:, side], 1e-6) - can_gather + here * basis**2
        )
        wanted = xp.sqrt(xp.maximum(needed, 0.0) / here)
        row = behind[:, side]
        push = xp.where(lags, _push(row, tiny), 1.0)
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
        signals[:, side] *= xp.where(lags & tiny & (row >= 2) & (row < 6), SAVED, 1.0)
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


def inside_range(window: Window, low: float, high: float, boundary_shift: float = 0.0) -> Window:
    """The same with its questions inside the range, and at its end where the quantile is there.

    Where the answers asked at the low end say that F(low) ≥ τ, by 2.5 standard errors if the outermost candidate of the
    high side is accepted and by 5 if not, the high side asks there too: the interval then closes on that end. The high
    end is the same.
    """
    xp = array_namespace(window.center)
    sides = xp.clip(window.sides, low, high)
    near = AT_END * (high - low)
    boundary = 1.0 + boundary_shift
    _, _, peak = window.tests.outermost
    for side, end, here, outward in (
        (HIGH, low, window.places <= low + near, -1.0),
        (LOW, high, window.places >= high - near, 1.0),
    ):
        total, weight = (xp.where(here, values, 0.0).sum(axis=1) for values in (window.sums, window.precisions))
        certain = xp.where(peak[:, side] >= ACCEPTED * boundary, CERTAIN, 2.0 * CERTAIN) * boundary
        there = (weight > 0.0) & (outward * total >= certain * xp.sqrt(weight))
        sides[:, side] = xp.where(there, end, sides[:, side])
    return window._replace(center=xp.clip(window.center, low, high), sides=sides)


def _push(row: Ints, tiny: Flags) -> Floats:
    """How many times as far a side is asked that has been behind for `row` placements before this one.

    `tiny` says that the believed spread is an atom's.

    >>> import numpy as np
    >>> _push(np.array([0, 1, 2, 3, 4, 3]), np.array([False] * 5 + [True])).round(1).tolist()
    [1.0, 1.3, 3.4, 8.8, 731.2, 143982.6]
    """
    xp = array_namespace(row)
    late = xp.minimum(row, len(FURTHER) - 1)
    pushes: Floats = GROWTH**row * 2.0 ** xp.where(tiny, xp.array(BESIDE_ATOM)[late], xp.array(FURTHER)[late])
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

    >>> import numpy as np
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


SEARCH = 3
"""Stage of a round that places the quantile; the window's stages are those of `straddle_schedule`."""

STAGES = ("low", "high", "centre", "search")

LOCATED_SPREADS, LOCATED_LEAST, LOCATED_ERRORS = 0.8, 0.03, 8.0
"""The search ends when its error is below 0.8 local spreads and below 8 final standard errors, or 0.03 spreads."""

SCARCE, SCARCE_SEARCH = 60.0, 0.05
"""Below this information the search gives up at half the usual share of the records: the tests need the rest. At
information 39 the level 0.1 of a Pareto law then has both ends in .93 of runs instead of .84, and they are a third
closer (`studies/any_shape`)."""


class Straddling(NamedTuple):
    """The state of the policy, one row per run: all that the next question depends on."""

    belief: Belief
    window: Window
    stage: Ints
    done: Ints
    """Rounds done."""
    searched: Ints
    spent: Floats
    """Share of the records spent on the search."""
    gave_up: NDArray[np.bool_]
    """Whether the search ended before it had located the quantile."""
    query: Floats
    """The next question, on the working scale."""
    share: Floats
    """Share of every client's records it asks; NaN in the window, whose rounds are equal."""


@dataclass(frozen=True)
class StraddlePolicy:
    """The rules for a level, a range, a number of rounds and the noise s² of `pooled_noise`."""

    level: float
    low: float
    high: float
    rounds: int
    noise: float
    boundary_shift: float = 0.0
    """Share by which the boundary of every decision is moved; see `Plan.with_boundaries_moved`."""

    @property
    def information(self) -> float:
        """(τ(1 − τ))²/s²."""
        return (self.level * (1.0 - self.level)) ** 2 / self.noise

    @property
    def located(self) -> float:
        """Error of the search, in spreads, at which the window begins.

        >>> [round(StraddlePolicy(0.5, -9, 9, 200, 0.0625 / i).located, 3) for i in (60, 6_000, 600_000)]
        [0.8, 0.103, 0.03]
        """
        return min(LOCATED_SPREADS, max(LOCATED_LEAST, LOCATED_ERRORS / math.sqrt(self.information)))

    @cached_property
    def layout(self) -> Layout:
        """How the window's questions are laid out: a rule of the specification alone."""
        return layout_of(self.level, self.noise)

    @property
    def search_share(self) -> float:
        """Share of the records at which the search gives up."""
        return SCARCE_SEARCH if self.information < SCARCE else LARGEST_SEARCH_SHARE

    @property
    def shares(self) -> tuple[float, float]:
        """Smallest and largest share of the records in one round of the search."""
        return search_shares(self.noise, self.rounds)

    def begin(self, runs: int = 1, xp: Any = np) -> Straddling:
        """Before the first round; `xp` is the library of the arrays."""
        whole, none = xp.zeros(runs, dtype=xp.int64), xp.full(runs, math.nan)
        state = Straddling(
            search.begin(self.level, self.low, self.high, runs, xp),
            begin_window(self.level, runs, room_for(self.rounds), xp),
            xp.full(runs, SEARCH, dtype=xp.int64),
            whole,
            whole,
            xp.zeros(runs),
            xp.zeros(runs, dtype=xp.bool_),
            none,
            none,
        )
        return self._ask(state)

    def learn(
        self, state: Straddling, residuals: Floats, variances: Floats, heard: Answers | None = None
    ) -> Straddling:
        """Answers to the questions asked: y = Σp_k·y_k − (1 − τ) and their variances; then the next questions.

        An infinite variance says that the round gave no answer. What was asked is `state.query`: a run that is
        replayed from its file has the file's question there. `heard` is what the tests take: the same answers with
        their `variance_bound`, or what `attendance` makes of a round that clients missed.
        """
        xp = array_namespace(residuals)
        searching = state.stage == SEARCH
        belief, window = state.belief, state.window
        active = xp.flatnonzero(searching)
        if len(active):
            answers = (state.query[active], residuals[active], variances[active])
            belief = belief.put(active, search.learn(belief.take(active), *answers, self.boundary_shift))
        inside = xp.flatnonzero(~searching)
        if len(inside):
            asked = take_rows(Answers(state.query, residuals, variances, xp.ones_like(residuals)), inside)
            tested = asked if heard is None else take_rows(heard, inside)
            part = take_rows(window, inside)
            newer = learn_answer(part, state.stage[inside], asked, tested, self.noise, self.layout, self.boundary_shift)
            window = put_rows(window, inside, newer)
        return self._ask(
            state._replace(
                belief=belief,
                window=window,
                done=state.done + 1,
                searched=state.searched + searching,
                spent=state.spent + xp.where(searching, state.share, 0.0),
            )
        )

    def _ask(self, state: Straddling) -> Straddling:
        """Decide stage, question and share of the next round."""
        xp = array_namespace(state.query)
        seeking = xp.flatnonzero(state.stage == SEARCH)
        if len(seeking):
            state = self._search(state, seeking)
        inside = xp.flatnonzero((state.stage != SEARCH) & (state.done < self.rounds))
        return self._straddle(state, inside) if len(inside) else state

    def _search(self, state: Straddling, runs: Ints) -> Straddling:
        """The next question of the search, or the beginning of the window where the quantile is located."""
        xp = array_namespace(state.query)
        belief = state.belief.take(runs)
        known = search.summarize(belief)
        boundary = 1.0 + self.boundary_shift
        found = known.error < self.located * boundary * known.spread
        found &= known.spread_error < SPREAD_KNOWN * boundary
        out = state.searched[runs] >= LARGEST_SEARCH_ROUNDS * self.rounds
        out |= state.spent[runs] >= self.search_share * boundary
        ends = found | out
        least, most = self.shares
        query, doubt = search.best_question(belief, self.noise / most, self.boundary_shift)
        # Moved as well: how many records a share is, is rounded.
        share = xp.clip(1.2 * boundary * self.noise / xp.maximum(doubt, 1e-12), least, most)
        state = state._replace(
            stage=put_values(state.stage, runs, xp.where(ends, CENTRE, SEARCH)),
            gave_up=put_values(state.gave_up, runs, ends & ~found),
            query=put_values(state.query, runs, xp.clip(query, self.low, self.high)),
            share=put_values(state.share, runs, xp.where(ends, math.nan, share)),
        )
        chosen = xp.flatnonzero(ends)
        if not len(chosen):
            return state
        starting = runs[chosen]
        window = take_rows(state.window, starting).starting(
            self.level,
            origin=known.quantile[chosen],
            spread=known.spread[chosen],
            error=xp.minimum(known.error / known.spread, 3.0)[chosen],
            # With a handful of records the share asked for may exceed what there is: some of the clock must be left.
            first=xp.minimum(state.spent[starting], 0.9),
            rounds=self.rounds - state.done[starting],
        )
        return state._replace(window=put_rows(state.window, starting, window))

    def _straddle(self, state: Straddling, runs: Ints) -> Straddling:
        """The next question of the window; where a block begins or a side must move, all are placed anew."""
        xp = array_namespace(state.query)
        window = take_rows(state.window, runs)
        now = clock(window.first, window.rounds, window.asked)
        moving = xp.flatnonzero((block_at(now) != window.block) | window.astray)
        if len(moving):
            placed = place_questions(
                take_rows(window, moving),
                now[moving],
                self.level,
                self.noise,
                self.high - self.low,
                self.layout,
                self.boundary_shift,
            )
            window = put_rows(window, moving, inside_range(placed, self.low, self.high, self.boundary_shift))
        stage = side_of(window.asked, self.layout.centre_every)
        query = xp.where(
            stage == CENTRE, window.center, xp.where(stage == LOW, window.sides[:, LOW], window.sides[:, HIGH])
        )
        return state._replace(
            window=put_rows(state.window, runs, window),
            stage=put_values(state.stage, runs, stage),
            query=put_values(state.query, runs, query),
        )

    def lengths(self, state: Straddling, records: Ints, left: Ints) -> Ints:
        """Records to ask of every client (runs × clients), at least one, leaving one for every later round."""
        return round_lengths(state.share, state.stage != SEARCH, self.rounds - state.done, records, left)


def level_variance(level: float, weights: Floats, rates: Floats, records: NDArray[Any]) -> Floats:
    """The largest variance of y = Σp_k·y_k where the mixture's rank is τ, whatever the clients' own ranks.

    A client's answers have variance p_k²(r_k⁻² − (2F_k − 1)²)/(4n_k). With Σp_kF_k = τ the second term is least where
    2F_k − 1 is in proportion to n_k/p_k, and the sum is

        Σp_k²/(4r_k²n_k) − (2τ − 1)²/(4Σn_k)

    The tests may take it for every answer: on their boundary the rank is τ, and beyond it the drift falls faster than
    the variance can rise. For one client at τ = 0.9 and ε = 1 it is 14% below the bound without it. Clients are along
    the last axis.

    >>> one, people = np.array([1.0]), np.array([100])
    >>> round(float(level_variance(0.9, one, 0.4621 * one, people) / level_variance(0.5, one, 0.4621 * one, people)), 3)
    0.863
    """
    spread: Floats = rank_noise(weights, rates, records).sum(axis=-1) - (2.0 * level - 1.0) ** 2 / (
        4.0 * records.sum(axis=-1)
    )
    return spread


LEAST_ANSWERS = 500.0
"""With fewer effective answers the tests are exact.

The error of a side by the normal law, allowed .025, where one question is asked all the time and F = τ there: 60,000
runs each at 8 settings with 500 to 650 effective answers (τ = .5 to .99, ε = 1, 3 and 7.6). Largest .0273, both sides
together at most .0517 of .05. From 1,000 on .0261, from 250 on .0279. With 600 records, one client: .033 (τ = .95, 35
effective answers), .033 (τ = .99, ε = 3, 40) and .030 (τ = .9, ε = 3, 123): these are exact now."""


def effective_answers(clients: Sequence[Client]) -> float:
    """How many answers of a fair coin would make a sum as near to normal as all answers of these clients do.

    (Σσ²)³/(Σρ)², σ² the variance and ρ the third absolute moment of what each record adds, at the client's own level:
    the square of the ratio in Lyapunov's condition. One client has n·pq/(p² + q²)², p the chance of the rarer bit: n at
    p = ½, and the number of rarer bits where they are rare. A small client with a large weight gives few.

    >>> from privatile.core.mechanism import RandomizedResponse
    >>> def one(level: float, rate: float, records: int, weight: float = 1.0) -> Client:
    ...     return Client("all", RandomizedResponse(rate), weight, level, records)
    >>> settings = ((0.5, 0.462), (0.95, 0.999), (0.9, 0.905))
    >>> [round(effective_answers([one(level, rate, 600)])) for level, rate in settings]
    [600, 35, 123]
    >>> round(effective_answers([one(0.5, 0.462, 60, 0.5), one(0.5, 0.462, 60_000, 0.5)]))
    60
    """
    weights, rates, levels, records = np.array(
        [(client.weight, client.mechanism.truth_rate, client.level, client.records) for client in clients]
    ).T
    yes = yes_probability(rates, 1.0 - levels)
    each, variance = weights / (rates * records), yes * (1.0 - yes)
    spread = (records * each**2 * variance).sum()
    third = (records * each**3 * variance * (yes**2 + (1.0 - yes) ** 2)).sum()
    return float(spread**3 / third**2) if third > 0.0 else 0.0


def needs_exact(clients: Sequence[Client]) -> bool:
    """Whether a run of these clients has too few effective answers for the normal law.

    500 records of one client at the median are enough on every machine: rounding does not decide.
    """
    return effective_answers(clients) < LEAST_ANSWERS * (1.0 - 1e-9)


def variance_bound(level: float, weights: Floats, rates: Floats, records: NDArray[np.int64], *, exact: bool) -> Floats:
    """The variance that the tests take for y = Σp_k·y_k over these records of the clients, along the last axis.

    The plain bound Σp_k²/(4r_k²n_k) for exact tests, round by round; otherwise `level_variance`.
    """
    if not exact:
        return level_variance(level, weights, rates, records)
    plain: Floats = rank_noise(weights, rates, records).sum(axis=-1)
    return plain


class Heard(NamedTuple):
    """What a round gives the tests: an answer at a place, or none (an infinite variance)."""

    place: float
    residual: float
    variance: float
    rounds: int = 1
    """How many rounds of its stage it stands for."""


class Pool(NamedTuple):
    """Answers of one stage that wait for the other clients."""

    records: tuple[int, ...]
    """N_k."""
    sums: tuple[float, ...]
    """Σ of debiased answers, N_k·ȳ_k."""
    asked: tuple[float, ...]
    """Σ of the questions that its records answered, N_k·q̄_k."""
    places: tuple[float, ...] = ()
    """The questions of all."""

    @property
    def is_complete(self) -> bool:
        """Whether every client has answered."""
        return all(self.records)


Pools = dict[str, Pool]
"""By stage."""


def no_pool(clients: int) -> "Pool":
    """Nothing waits."""
    return Pool((0,) * clients, (0.0,) * clients, (0.0,) * clients)


def outermost(stage: str, places: Sequence[float]) -> float:
    """The place that stands for answers to several questions: the one furthest out; the mean of a centre's.

    >>> outermost("low", [1.0, 2.0]), outermost("high", [1.0, 2.0]), outermost("centre", [1.0, 2.0])
    (1.0, 2.0, 1.5)
    """
    if stage == "low":
        return min(places)
    return max(places) if stage == "high" else math.fsum(places) / len(places)


def gather(
    pools: Pools,
    stage: str,
    query: float,
    lengths: Sequence[int],
    means: Sequence[float | None],
    *,
    keeps_place: bool = True,
) -> "tuple[Pools, Pool]":
    """One round further: what still waits, and this round's pool, complete or not. None is a silent client.

    A round completes a pool where every client has answers in the two together. A round that all have answered stands
    alone where its question is not the outermost: what waits would move it outwards. A fit, which takes the mean of the
    questions, has nothing to keep and puts them together.

    >>> pools, pool = gather({}, "low", 1.0, (10, 10), (0.5, None))
    >>> pool.is_complete, pools["low"].records
    (False, (10, 0))
    >>> pools, pool = gather(pools, "low", 2.0, (10, 10), (0.9, 0.7))
    >>> pool.places, pools["low"].records
    ((2.0,), (10, 0))
    >>> pools, pool = gather(pools, "low", 3.0, (10, 20), (None, 0.7))
    >>> pool.records, pool.places, pools["low"].records
    ((10, 20), (1.0, 3.0), (0, 0))
    """
    here = [(0, 0.0) if mean is None else (length, mean) for length, mean in zip(lengths, means, strict=True)]
    came = Pool(
        tuple(number for number, _ in here),
        tuple(number * mean for number, mean in here),
        tuple(number * query for number, _ in here),
        (query,) if any(number for number, _ in here) else (),
    )
    waits = pools.get(stage, no_pool(len(here)))
    if came.is_complete and (not waits.places or (keeps_place and outermost(stage, (*waits.places, query)) != query)):
        return pools, came
    pool = Pool(
        tuple(map(operator.add, waits.records, came.records)),
        tuple(map(operator.add, waits.sums, came.sums)),
        tuple(map(operator.add, waits.asked, came.asked)),
        waits.places + came.places,
    )
    return {**pools, stage: no_pool(len(here)) if pool.is_complete else pool}, pool


def add_round(
    pools: Pools,
    stage: str,
    query: float,
    lengths: Sequence[int],
    means: Sequence[float | None],
    clients: Sequence[Client],
    level: float,
    *,
    exact: bool = False,
) -> "tuple[Pools, Heard]":
    """One round further: the pools after it, and what the tests hear. `means` are debiased; None is a silent client.

    `exact` tests hear the plain bound of the variance (`exact_tests`).

    >>> from privatile.core.mechanism import RandomizedResponse
    >>> two = [Client(name, RandomizedResponse(0.5), 0.5, 0.5, 100) for name in ("a", "b")]
    >>> pools, heard = add_round({}, "low", 1.0, (10, 10), (0.5, None), two, 0.5)
    >>> heard.variance
    inf
    >>> pools, heard = add_round(pools, "low", 0.5, (10, 10), (None, 0.7), two, 0.5)
    >>> heard.place, round(heard.residual, 6), round(heard.variance, 6), heard.rounds, pools["low"].places
    (0.5, 0.1, 0.05, 2, ())
    """
    pools, pool = gather(pools, stage, query, lengths, means)
    if not pool.is_complete:
        return pools, Heard(query, math.nan, math.inf)
    rows = zip(clients, pool.records, pool.sums, strict=True)
    drift = math.fsum(client.weight * total / number for client, number, total in rows)
    weights = np.array([client.weight for client in clients])
    rates = np.array([client.mechanism.truth_rate for client in clients])
    variance = float(variance_bound(level, weights, rates, np.array(pool.records), exact=exact))
    return pools, Heard(outermost(stage, pool.places), drift - (1.0 - level), variance, len(pool.places))


class StraddleMemory(NamedTuple):
    """What a run of this design has learned."""

    policy_state: Straddling
    pools: Pools
    """Answers that wait for silent clients."""


@dataclass(frozen=True, eq=False)
class StraddlePlan(SelfTuningPlan):
    """Search, then straddle the quantile: see `StraddlePolicy`.

    A stored round needs nothing beyond what every round has. The stage is `search`, `low`, `high` or `centre`; the step
    is 0; the rounds of the window count as averaged.
    """

    @cached_property
    def policy(self) -> StraddlePolicy:
        """The rules, with this run's numbers."""
        low, high = working_range(self.scale)
        return StraddlePolicy(self.level, low, high, self.rounds, pooled_noise(self.clients), self.boundary_shift)

    @cached_property
    def exact(self) -> bool:
        """Whether the any-shape tests are exact instead of by the normal law."""
        return needs_exact(self.clients)

    @property
    def start(self) -> float:
        """The first question: the middle of the range, where a flat belief asks first."""
        return float(self.policy.begin().query[0])

    @property
    def information(self) -> float:
        """How much the records can say at this level."""
        return self.policy.information

    def initial_memory(self) -> StraddleMemory:
        """Nothing learned, nothing asked."""
        return StraddleMemory(self.policy.begin(), {})

    def ask(self, state: RoundState) -> Ask | None:
        """The policy's next question, asked of its share of every client's records."""
        if state.round >= self.rounds:
            return None
        learned = straddle_memory(state).policy_state
        records = np.array([client.records for client in self.clients])
        lengths = self.policy.lengths(learned, records, np.array([[one.left for one in state.records]]))[0]
        stage = int(learned.stage[0])
        return Ask(float(learned.query[0]), tuple(lengths.tolist()), 0.0, stage != SEARCH, STAGES[stage])

    def learn(self, ask: Ask, state: RoundState) -> StraddleMemory:
        """What is known after a round.

        Where to ask next may use a guess of what a silent client would have answered: its last answer, moved along the
        slope to this question. The tests take real answers alone, each once.
        """
        learned, pools = straddle_memory(state)
        learned = _as_asked(learned, ask)
        slope = float(learned.window.slope[0] / learned.window.spread[0])
        slope = 0.0 if math.isnan(slope) else slope
        rows = list(zip(self.clients, state.means, state.heard, state.used, strict=True))
        guess = math.fsum(
            client.weight * (mean - slope * (ask.query - heard) - (1.0 - self.level_of(client)))
            for client, mean, heard, _ in rows
        )
        means = [mean if used == 1 else None for _, mean, _, used in rows]
        pools, heard = add_round(
            pools, ask.stage, ask.query, ask.lengths, means, self.clients, self.level, exact=self.exact
        )
        answers = Answers(*(np.array([float(value)]) for value in heard))
        learned = self.policy.learn(learned, np.array([guess]), np.array([round_weight(state)]), answers)
        return StraddleMemory(learned, pools)

    def standard_error(self, state: RoundState, ask: Ask) -> float:
        """The belief's own error of the quantile; in the window s/(f·√v), that of the centre at time v."""
        learned = straddle_memory(state).policy_state
        if not ask.averaged:
            return float(search.summarize(learned.belief).error[0])
        window = learned.window
        done = max(float(clock(window.first, window.rounds, window.asked)[0]), 1e-3)
        return math.sqrt(self.policy.noise / done) * float(window.spread[0] / window.slope[0])


def straddle_memory(state: RoundState) -> StraddleMemory:
    """The memory of a run of this design."""
    if not isinstance(state.memory, StraddleMemory):
        raise TypeError("this run does not follow the straddling design")
    return state.memory


def _as_asked(learned: Straddling, ask: Ask) -> Straddling:
    """The state with the question that was asked: in a replay it may differ from this machine's in the last bits."""
    query, window = np.array([ask.query]), learned.window
    if ask.stage == "centre":
        window = window._replace(center=query)
    elif ask.stage != "search":
        sides = window.sides.copy()
        sides[0, STAGES.index(ask.stage)] = ask.query
        window = window._replace(sides=sides)
    return learned._replace(query=query, window=window)
