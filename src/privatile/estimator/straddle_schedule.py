"""When the straddling window moves its questions, how far apart they lie, and which round asks what.

The clock v is the share of the information that the records can give, all stages together: v₀ when the window begins, 1
at the end. Distances are in final standard errors, se = s/f. An error of the centre at time v is about 1/√v of them, so
early questions lie far out and late ones near:

    x(v) = 2e/(√a + √b), the mean of e/√v over a block from a to b; at least 4.5 and at most what the layout says

One round in five, or fewer, asks the centre, the others low and high in turn. That, e, the largest distance and how
hard a side is pushed outward follow from how much the records can say (`layout_of`), which the plan knows before the
first question.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats, Ints, array_namespace

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
