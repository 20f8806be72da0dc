"""Where the straddling window's questions go, from all of its answers; see `straddle` for the rules.

Distances are in final standard errors se = s·σ₀/F. None of this decides what the tests conclude: they hold wherever the
questions are asked.
"""

import math

from privatile.core.arrays import Flags, Floats, Ints, array_namespace
from privatile.estimator.antitonic import CERTAIN, sign_change
from privatile.estimator.run_rows import put_rows, take_rows
from privatile.estimator.straddle_schedule import (
    CLOSEST,
    HIGH,
    LOW,
    Layout,
    block_at,
    distances,
    information_gap,
    shares_left,
)
from privatile.estimator.straddle_window import Window
from privatile.estimator.window_fit import Ridge, begin_fit, offset_of, solve_fit

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
