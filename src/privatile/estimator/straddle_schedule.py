"""When the straddling window moves its questions, how far apart they lie, and which round asks what.

The clock v is the share of the information that the records can give, all stages together: v₀ when the window begins, 1
at the end. Distances are in final standard errors, se = s/f. An error of the centre at time v is about 1/√v of them, so
early questions lie far out and late ones near:

    x(v) = 8/(√a + √b), the mean of 4/√v over a block from a to b; at least 4.5 and at most 17

Every fifth round asks the centre, the others low and high in turn.
"""

from typing import Any

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

ERRORS = 4.0
"""Distance in standard errors of the centre at that time, …"""

CLOSEST = 4.5
"""… at least this many final ones: a candidate there gathers 4.5·√0.44 = 3.0 standard errors from one side's records,
…"""

FARTHEST = 17.0
"""… and at most this many."""

TESTED = 0.04
"""Rounds before this time place the questions only; the tests take the rest."""

CENTRE_EVERY = 5
"""Every fifth round asks the centre: without it an atom between the two questions is not seen, and a curve through the
answers rests on it. With every eighth the any-shape interval is 4% narrower, and between unequal humps (information
6,000, level 0.8, 4,000 runs) the smooth estimate's error is 1.14 times the bound instead of 1.11."""

SIDE_SHARE = 0.5 * (CENTRE_EVERY - 1) / CENTRE_EVERY
"""Share of the window's information that each side gets."""

LOW, HIGH, CENTRE = 0, 1, 2


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


def distances(v: Floats) -> Floats:
    """Runs × blocks: the distance x of each block for a window that stands at time v.

    >>> distances(np.array([0.05])).round(2)[0, [0, 5, 15, 19]].tolist()
    [17.0, 16.89, 5.53, 4.5]
    """
    xp = array_namespace(v)
    begins, ends = xp.array((0.0, *CUTS)), xp.array(ENDS)
    start = xp.clip(v[:, None], begins, ends)
    mean = 2.0 * ERRORS / (xp.sqrt(start) + xp.sqrt(ends))
    result: Floats = xp.clip(mean, CLOSEST, FARTHEST)
    return result


def side_of(done: Ints, centre_every: int = CENTRE_EVERY) -> Ints:
    """What the window's round after `done` others asks: low, high or centre.

    >>> side_of(np.arange(10)).tolist()
    [0, 1, 0, 1, 2, 0, 1, 0, 1, 2]
    """
    xp = array_namespace(done)
    asked = done - done // centre_every
    sides: Ints = xp.where(done % centre_every == centre_every - 1, CENTRE, asked % 2)
    return sides


def last_of_its_side(done: Ints, rounds: Ints) -> NDArray[np.bool_]:
    """Whether no later round of the window asks the side that the round after `done` others asks.

    >>> last_of_its_side(np.arange(8), np.full(8, 8)).tolist()
    [False, False, False, False, True, False, True, True]
    """
    side = side_of(done)
    gone = done < 0
    for ahead in range(1, CENTRE_EVERY + 1):
        later = done + ahead
        gone |= (later < rounds) & (side_of(later) == side)
    last: NDArray[np.bool_] = ~gone
    return last


def information_gap(v: Any, xp: Any = np) -> Any:
    """1/√v, the standard error of the centre at time v in final ones; bounded for a window that has just begun."""
    return 1.0 / xp.sqrt(xp.maximum(v, 1e-3))
