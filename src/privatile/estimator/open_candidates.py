"""Candidate ends where the number of records is not known: a running bet instead of a budget.

As in `candidates`, a candidate c of the low side stands for F(c) ≥ τ, every low answer asked at q ≥ c counts, and a
new candidate copies the next one above it. Without a last round there is no budget to divide. Each candidate bets on
a positive drift θ, half-normal with precision ρ: with X = Σp·y and T = Σp,

    E = ∫ exp(θX − θ²T/2)·2φ_ρ(θ) dθ = 2·√(ρ/(ρ + T))·exp(z²/2)·Φ(z),  z = X/√(T + ρ)

Under the hypothesis E is a supermartingale that starts at 1, also for finite samples: a round's answer is
sub-Gaussian with its own variance bound 1/p. So P(E ever reaches 1/a) ≤ a (Ville), at every look and without an end.
Φ(z) is replaced by its bound 1 − ½·exp(−z²/2) from below, and a negative X counts as 0. ρ is a twentieth of the
information at the candidate's start: the bet is best when its side has gathered about three to ten times ρ.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats, array_namespace

Ints = NDArray[np.int64]

PRECISION = 0.05
"""ρ as a share of the information at the candidate's start."""

SETTLED = math.log(1e9)
"""An outermost candidate may be forgotten once its bet has reached this: an error there has probability 1e-9."""


class OpenCandidates(NamedTuple):
    """The bets of every run and side: runs × 2 × room. Unused room has its place at ∞."""

    places: Floats
    """c on the low side, −c on the high side: outward is down on both."""
    sums: Floats
    """X."""
    totals: Floats
    """T."""
    precisions: Floats
    """ρ."""
    peaks: Floats
    """The largest log E so far; 0 at the start."""
    starts: Floats
    """Information of the run when the candidate was made."""

    @property
    def outermost(self) -> tuple[Floats, Floats]:
        """Largest log E and start of the outermost candidate of every side (runs × 2); without one (0, 0)."""
        xp = array_namespace(self.places)
        first = xp.argmin(self.places, axis=2)[..., None]
        peak, start = (xp.take_along_axis(values, first, axis=2)[..., 0] for values in (self.peaks, self.starts))
        return peak, start


def no_bets(runs: int, room: int, xp: Any = np) -> "OpenCandidates":
    """Before the first question of the window."""
    shape = (runs, 2, room)
    zeros = xp.zeros(shape)
    return OpenCandidates(xp.full(shape, xp.inf), zeros, zeros, xp.ones(shape), zeros, zeros)


def log_bet(sums: Floats, totals: Floats, precisions: Floats) -> Floats:
    """log E, from below; −∞ where X ≤ 0.

    >>> one = np.ones(1)
    >>> round(float(log_bet(8.0 * one, 4.0 * one, one)[0]), 3)  # z = 3.58
    6.288
    """
    xp = array_namespace(sums)
    z = xp.maximum(sums, 0.0) / xp.sqrt(totals + precisions)
    half = 0.5 * z * z
    value = math.log(2.0) + 0.5 * xp.log(precisions / (precisions + totals)) + half + xp.log1p(-0.5 * xp.exp(-half))
    result: Floats = xp.where(sums > 0.0, value, -xp.inf)
    return result


def add_bet(tests: "OpenCandidates", side: Ints, place: Floats, information: Floats) -> "OpenCandidates":
    """One new candidate per run on its side; it copies the next above it, or begins at E = 1.

    Where the room is full, the outermost candidate makes way if its bet is settled; else nothing is added, which is
    valid as well.
    """
    xp = array_namespace(place)
    rows = xp.arange(len(place))
    have = tests.places[rows, side]
    higher = xp.where(have >= place[:, None], have, xp.inf)
    above = xp.argmin(higher, axis=1)
    none = xp.isinf(higher[rows, above])
    free = xp.isinf(have)
    outermost = xp.argmin(have, axis=1)
    settled = tests.peaks[rows, side, outermost] >= SETTLED
    full = ~free.any(axis=1)
    slot = xp.where(full, outermost, xp.argmax(free, axis=1))
    adds = ~full | (settled & (place > have[rows, outermost]) & (none | (slot != above)))
    fresh = (
        (place, None),
        (xp.zeros_like(place), tests.sums),
        (xp.zeros_like(place), tests.totals),
        (PRECISION * information, tests.precisions),
        (xp.zeros_like(place), tests.peaks),
        (information, tests.starts),
    )
    changed = []
    for values, (begin, copied) in zip(tests, fresh, strict=True):
        newer = begin if copied is None else xp.where(none, begin, copied[rows, side, above])
        column = values.copy()
        column[rows, side, slot] = xp.where(adds, newer, values[rows, side, slot])
        changed.append(column)
    return OpenCandidates(*changed)


def add_open_answer(
    tests: "OpenCandidates", side: Ints, place: Floats, residual: Floats, precision: Floats
) -> "OpenCandidates":
    """One answer per run on its side: ±y with its precision, 0 for none.

    >>> tests = add_bet(no_bets(1, 4), np.array([0]), np.array([2.0]), np.array([20.0]))
    >>> tests = add_open_answer(tests, np.array([0]), np.array([2.0]), np.array([2.0]), np.array([4.0]))
    >>> round(float(tests.peaks[0, 0, 0]), 3)
    6.288
    """
    xp = array_namespace(place)
    rows = xp.arange(len(place))
    counts = (tests.places[rows, side] <= place[:, None]) & (precision > 0.0)[:, None]
    sums, totals, peaks = tests.sums.copy(), tests.totals.copy(), tests.peaks.copy()
    signal = xp.where(precision > 0.0, residual * precision, 0.0)
    sums[rows, side] += xp.where(counts, signal[:, None], 0.0)
    totals[rows, side] += xp.where(counts, precision[:, None], 0.0)
    bet = log_bet(sums[rows, side], totals[rows, side], tests.precisions[rows, side])
    peaks[rows, side] = xp.where(counts, xp.maximum(tests.peaks[rows, side], bet), tests.peaks[rows, side])
    return tests._replace(sums=sums, totals=totals, peaks=peaks)
