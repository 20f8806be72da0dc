"""Candidate ends where the number of records is not known: a running bet instead of a budget.

As in `candidates`, a candidate c of the low side stands for F(c) ≥ τ, every low answer asked at q ≥ c counts, and a
new candidate copies the next one above it. Without a last round there is no budget to divide. The design expects a
drift w > 0 of every answer, known before it comes: its question lies that far, in rank, from where the quantile is
believed to be. Each candidate bets on the drift θw, the same θ for all answers, normal around 1 with precision κ and
positive: with X = Σw·p·y and T = Σw²·p,

    E = ∫ exp(θX − θ²T/2)·φ_κ(θ − 1) dθ/Φ(√κ) = √(κ/(κ + T))·exp(z²/2 − κ/2)·Φ(z)/Φ(√κ),  z = (X + κ)/√(T + κ)

Under the hypothesis y has a drift of at most 0, whatever θ > 0, and E is a supermartingale that starts at 1, also for
finite samples: a round's answer is sub-Gaussian with its own variance bound 1/p. So P(E ever reaches 1/a) ≤ a (Ville),
at every look and without an end. Φ(z) is replaced by its bound 1 − ½·exp(−z²/2) from below, and E by 0 where z < 0.

With an answer as expected, T = X, the bet needs T/2 = log(1/a) + ½·log(1 + T/κ). A large κ trusts the design; a small
one loses less where the drift is another, beside atoms and in gaps.
"""

import math
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from privatile.core.arrays import Floats, Ints, array_namespace

TRUST = 16.0
"""κ: the drift is believed to be the expected one within a quarter."""

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
    return OpenCandidates(xp.full(shape, xp.inf), zeros, zeros, zeros, zeros)


def log_bet(sums: Floats, totals: Floats) -> Floats:
    """log E, from below; −∞ where X ≤ −κ.

    >>> one = np.ones(1)
    >>> round(float(log_bet(8.0 * one, 8.0 * one)[0]), 3)  # as expected: T/2 less ½·log(1 + T/κ)
    3.797
    """
    xp = array_namespace(sums)
    won = sums + TRUST
    half = 0.5 * xp.maximum(won, 0.0) ** 2 / (totals + TRUST)
    prior = 0.5 * TRUST + math.log(NormalDist().cdf(math.sqrt(TRUST)))
    value = 0.5 * xp.log(TRUST / (TRUST + totals)) + half - prior + xp.log1p(-0.5 * xp.exp(-half))
    result: Floats = xp.where(won > 0.0, value, -xp.inf)
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
    tests: "OpenCandidates", side: Ints, place: Floats, residual: Floats, precision: Floats, expected: Floats
) -> "OpenCandidates":
    """One answer per run on its side: ±y with its precision, 0 for none, and the drift w that was expected of it.

    >>> tests = add_bet(no_bets(1, 4), np.array([0]), np.array([2.0]), np.array([20.0]))
    >>> one = np.ones(1)
    >>> tests = add_open_answer(tests, np.array([0]), 2.0 * one, 0.1 * one, 800.0 * one, 0.1 * one)
    >>> round(float(tests.peaks[0, 0, 0]), 3)
    3.797
    """
    xp = array_namespace(place)
    rows = xp.arange(len(place))
    counts = (tests.places[rows, side] <= place[:, None]) & (precision > 0.0)[:, None]
    sums, totals, peaks = tests.sums.copy(), tests.totals.copy(), tests.peaks.copy()
    signal = xp.where(precision > 0.0, expected * residual * precision, 0.0)
    sums[rows, side] += xp.where(counts, signal[:, None], 0.0)
    totals[rows, side] += xp.where(counts, (expected**2 * precision)[:, None], 0.0)
    bet = log_bet(sums[rows, side], totals[rows, side])
    peaks[rows, side] = xp.where(counts, xp.maximum(tests.peaks[rows, side], bet), tests.peaks[rows, side])
    return tests._replace(sums=sums, totals=totals, peaks=peaks)
