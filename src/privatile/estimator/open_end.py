"""The straddling design where nobody knows how many people will answer: no horizon, valid at every look.

The same search, fit and repairs as in `straddle`; the schedule follows the information t = Σp gathered so far instead
of a share of a total. Questions lie `DISTANCE` standard errors se_t = 1/(f·√t) either side of the centre and are
placed anew whenever the information has grown by 15%; every tenth round asks the centre. The interval holds the
candidates that no running bet has rejected (`open_candidates`). The number of records in a round is not decided here:
everybody who comes answers the open question.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from privatile.core.arrays import Flags, Floats, Ints, array_namespace
from privatile.estimator import search_belief
from privatile.estimator.antitonic import CERTAIN, sign_change
from privatile.estimator.open_candidates import OpenCandidates, add_bet, add_open_answer, no_bets
from privatile.estimator.question_policy import SPREAD_KNOWN
from privatile.estimator.run_rows import put_rows, put_values, take_rows
from privatile.estimator.search_belief import Belief
from privatile.estimator.straddle_placement import plausible_center, refit
from privatile.estimator.straddle_schedule import CENTRE, HIGH, LOW, side_of
from privatile.estimator.window_fit import Ridge, add_answer, begin_fit, offset_of, solve_fit

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
            search_belief.begin(self.level, self.low, self.high, runs, xp),
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
            belief = belief.put(seeking, search_belief.learn(belief.take(seeking), *answers, self.boundary_shift))
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
        known = search_belief.summarize(belief)
        boundary = 1.0 + self.boundary_shift
        found = (known.error < LOCATED * boundary * known.spread) & (known.spread_error < SPREAD_KNOWN * boundary)
        gathered = (self.level * (1.0 - self.level)) ** 2 * (state.information - state.begun)[runs]
        ends = found | (gathered >= ENOUGH * boundary)
        done = state.done[runs]
        # The mean variance of this run's own answers; of the first one nothing is known.
        typical = xp.where(done > 0, done / xp.maximum(state.information[runs], 1.0), 0.05)
        query, _ = search_belief.best_question(belief, typical, self.boundary_shift)
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
    fit = add_answer(Ridge(state.matrix, state.vector), offset, residual, precision)
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
