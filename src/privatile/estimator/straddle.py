"""The default design: search for the quantile, then straddle it. The answers so far in, the next question out.

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
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats, Ints, array_namespace
from privatile.core.mechanism import rank_noise
from privatile.estimator import search_belief
from privatile.estimator.question_policy import (
    LARGEST_SEARCH_ROUNDS,
    LARGEST_SEARCH_SHARE,
    SPREAD_KNOWN,
    round_lengths,
    search_shares,
)
from privatile.estimator.run_rows import put_rows, put_values, take_rows
from privatile.estimator.search_belief import Belief
from privatile.estimator.straddle_placement import inside_range, place_questions
from privatile.estimator.straddle_schedule import CENTRE, HIGH, LOW, Layout, block_at, clock, layout_of, side_of
from privatile.estimator.straddle_window import (
    Answers,
    Window,
    begin_window,
    learn_answer,
    room_for,
)

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
            search_belief.begin(self.level, self.low, self.high, runs, xp),
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
            belief = belief.put(active, search_belief.learn(belief.take(active), *answers, self.boundary_shift))
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
        known = search_belief.summarize(belief)
        boundary = 1.0 + self.boundary_shift
        found = known.error < self.located * boundary * known.spread
        found &= known.spread_error < SPREAD_KNOWN * boundary
        out = state.searched[runs] >= LARGEST_SEARCH_ROUNDS * self.rounds
        out |= state.spent[runs] >= self.search_share * boundary
        ends = found | out
        least, most = self.shares
        query, doubt = search_belief.best_question(belief, self.noise / most, self.boundary_shift)
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
