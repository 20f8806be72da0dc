"""Runs that are watched: how often the confidence sequence ever misses, and what stopping by its width does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.inference.curve import CurveFit
from privatile.inference.plug_in import LARGEST_SLOPE_ERROR
from privatile.inference.sequence import RATE, threshold
from privatile.result.summary import FIRST_LOOK
from privatile.simulation.auto_simulation import AutoCell, AutoRuns, fieller_reach, fit_runs


def ever_missed(cell: AutoCell, runs: AutoRuns, looks: int = 16, confidence_level: float = 0.95) -> Floats:
    """Whether the sequence missed Q* at any of `looks` looks, evenly spread over the window, in each run."""
    rounds = runs.queries.shape[1]
    missed = np.zeros(len(runs.queries))
    for fit, _, z in looks_of(cell, runs, np.linspace(0, rounds - 1, looks + 1, dtype=np.int64)[1:], confidence_level):
        missed = np.maximum(missed, np.abs(fit.center - cell.truth) > fieller_reach(fit, z))
    return missed


def mixture_bounds(times: Floats, confidence_level: float) -> Floats:
    """`sequence.mixture_bound` for many looks at once."""
    grown = 1.0 + RATE * np.minimum(times, 1.0)
    bounds: Floats = np.sqrt(2.0 * grown / (grown - 1.0) * (threshold(1.0 - confidence_level) + 0.5 * np.log(grown)))
    return bounds


class Stopped(NamedTuple):
    """Runs that stopped when their sequence was narrow enough."""

    coverage: float
    """Of the interval shown at the stop."""
    stopped: float
    """Share of the runs that stopped before their records were used up."""
    asked: float
    """Mean share of the records asked."""
    ever_missed: float
    """Share of the runs whose sequence missed at any look, had they gone on."""


def stopping(
    cell: AutoCell, runs: AutoRuns, half_width: float, confidence_level: float = 0.95, every: int = 1
) -> Stopped:
    """Stop every run at the first look at which the sequence is narrow enough; a look `every` so many rounds.

    As `summary.narrow_enough` does, but without the bracket that widens a sequence whose answers fit no smooth curve.
    """
    rounds = runs.queries.shape[1]
    first = int(np.argmax(runs.averaged.any(axis=0)))
    open_ = np.ones(len(runs.queries), dtype=np.bool_)
    covered, missed, asked = np.zeros(len(open_)), np.zeros(len(open_)), np.ones(len(open_))
    early = np.zeros(len(open_))
    for fit, last, z in looks_of(cell, runs, np.arange(rounds - 1, first, -every)[::-1], confidence_level):
        reach = fieller_reach(fit, np.where(np.isfinite(z), z, 1e100))
        off = np.abs(fit.center - cell.truth)
        missed = np.maximum(missed, off > reach)
        final = last == rounds - 1
        holds = fit.smooth & ~fit.held & (fit.slope_error <= LARGEST_SLOPE_ERROR)
        stops = open_ & ((holds & (reach <= half_width)) | final)
        covered, asked = np.where(stops, off <= reach, covered), np.where(stops, runs.asked[:, last], asked)
        early = np.where(stops & (not final), 1.0, early)
        open_ = open_ & ~stops
    return Stopped(float(covered.mean()), float(early.mean()), float(asked.mean()), float(missed.mean()))


def looks_of(
    cell: AutoCell, runs: AutoRuns, rounds: NDArray[np.int64], confidence_level: float
) -> Iterator[tuple[CurveFit, int, Floats]]:
    """The fit, the round and the mixture bound at each look; runs not yet averaging have an infinite bound."""
    for last in rounds.tolist():
        seen = np.arange(runs.queries.shape[1]) <= last
        window = runs.averaged & seen
        noise = np.where(seen, runs.noise, np.inf)
        fit = fit_runs(cell, runs.queries, runs.residuals, noise, window, runs.share, runs.tuning)
        z = np.where(window.sum(axis=1) >= FIRST_LOOK, mixture_bounds(runs.asked[:, last], confidence_level), np.inf)
        yield fit, last, z
