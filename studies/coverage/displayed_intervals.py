"""The interval a result shows, for thousands of runs at once: the rules of `reading.read`, defaults everywhere.

The plug-in interval where its diagnostics hold; elsewhere the hull with the self-normalised one and, where the answers
do not follow a smooth curve, with the questions that bracket the quantile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.estimator.averaging import half_width, normalizer_of
from privatile.estimator.question_policy import probe_reach
from privatile.inference.curve import Bracket
from privatile.inference.inference import LEAD
from privatile.inference.plug_in import LARGEST_SLOPE_ERROR
from privatile.laws.critical import statistic_law
from privatile.laws.linear_model import linear_law
from privatile.laws.normal import two_sided_z
from privatile.simulation.auto_simulation import AutoCell, AutoRuns, fieller_reach


class DisplayedIntervals(NamedTuple):
    """Estimates and intervals of many runs at one confidence; an end may be infinite, a result cuts it at the range."""

    center: Floats
    low: Floats
    high: Floats

    def covers(self, truth: float) -> NDArray[np.bool_]:
        """Which intervals hold the truth."""
        return (self.low <= truth) & (truth <= self.high)

    @property
    def half_width(self) -> Floats:
        """Half of every interval's length."""
        return (self.high - self.low) / 2.0


def shown(cell: AutoCell, runs: AutoRuns, levels: Sequence[float] = (0.95,)) -> list[DisplayedIntervals]:
    """What the results of all runs show at these confidence levels."""
    fit = runs.fit
    found = []
    for level in levels:
        reaches = fieller_reach(fit, two_sided_z(level))
        found.append(DisplayedIntervals(fit.center.copy(), fit.center - reaches, fit.center + reaches))
    for i in np.flatnonzero(~holds(runs)).tolist():
        mean, unit, noise = path(runs, i)
        law = statistic_law(weights=noise)
        broken = bool(fit.held[i]) or not bool(fit.smooth[i])
        bracket = bracket_of(runs, i, cell.level) if broken else None
        center = mean if fit.held[i] else float(fit.center[i])
        for level, interval in zip(levels, found, strict=True):
            reach = law.quantile(level) * unit
            ends = [(interval.low[i], interval.high[i]), (mean - reach, mean + reach), (center, center)]
            if bracket is not None:
                ends.append(bracket.ends(level))
            interval.center[i] = center
            interval.low[i] = min(low for low, _ in ends)
            interval.high[i] = max(high for _, high in ends)
    return found


def bracket_of(runs: AutoRuns, run: int, quantile_level: float) -> Bracket:
    """The questions that bracket the quantile in one run."""
    noise, fit = runs.noise[run], runs.fit
    reach = probe_reach(quantile_level, 1.0 / float((1.0 / noise).sum()), float(fit.slope[run]))
    return Bracket(runs.queries[run], runs.residuals[run], noise, float(fit.center[run]), reach)


def holds(runs: AutoRuns) -> NDArray[np.bool_]:
    """Where the plug-in interval's diagnostics allow it as it is."""
    fit = runs.fit
    known = (fit.slope_error <= LARGEST_SLOPE_ERROR) & ~fit.held & np.isfinite(fit.error)
    allowed: NDArray[np.bool_] = known & fit.smooth
    return allowed


def path(runs: AutoRuns, run: int) -> tuple[float, float, Floats]:
    """Mean and √V of one run's averaged rounds, and the noise of each."""
    averaged = runs.averaged[run]
    after, noise = runs.after[run, averaged], runs.noise[run, averaged]
    return float(after.mean()), half_width(normalizer_of(after, noise), "l2"), noise


KNOTS = 24


def self_normalized(runs: AutoRuns, level: float = 0.95) -> DisplayedIntervals:
    """Q_T ± v(N̂)·√V of the runs in which the plug-in's diagnostics hold, NaN elsewhere.

    v depends smoothly on rate and length of the window (its step is one constant, its rounds are equal): it is computed
    at 24 rates for the shortest and the longest window, and interpolated.
    """
    usable = np.flatnonzero(holds(runs))
    rates, lengths = (runs.tuning.step * runs.fit.slope)[usable], runs.averaged.sum(axis=1)[usable]
    knots = np.geomspace(rates.min() * 0.999, rates.max() * 1.001, KNOTS)
    shortest, longest = int(lengths.min()), int(lengths.max())
    values = [[window_value(rate, rounds, level) for rate in knots.tolist()] for rounds in (shortest, longest)]
    short, long = (np.interp(np.log(rates), np.log(knots), row) for row in values)
    part = (lengths - shortest) / max(longest - shortest, 1)
    value = short + part * (long - short)
    center, reach = np.full(len(runs.after), math.nan), np.full(len(runs.after), math.nan)
    for i, v in zip(usable.tolist(), value.tolist(), strict=True):
        mean, unit, _ = path(runs, i)
        center[i], reach[i] = mean, v * unit
    return DisplayedIntervals(center, center - reach, center + reach)


def window_value(rate: float, rounds: int, level: float) -> float:
    """v of a window of equal rounds with γf = rate, started from its stationary spread."""
    before = math.ceil(LEAD / rate)
    return linear_law(np.full(before + rounds, rate), np.ones(before + rounds), 1.0, burn_in=before).quantile(level)
