"""Many runs of the default design at once, through the code that real runs execute, and both intervals of each.

The questions are `StraddlePolicy`'s, the ends `inference.any_shape`'s, the curve `inference.smooth_reading`'s, and the
headline follows `inference.readings`. Only the loop is written here: arrays with a leading axis of runs take the place
of one run's state.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats, array_namespace
from privatile.core.mechanism import debias, rank_noise
from privatile.estimator.exact_tests import variance_bound
from privatile.estimator.straddle import SEARCH, StraddlePolicy, Straddling
from privatile.estimator.straddle_window import Answers
from privatile.inference.any_shape import CHECKED_AT
from privatile.inference.readings import known_end, reason_against
from privatile.inference.smooth_reading import fit_smooth
from privatile.inference.variance import known_share
from privatile.laws.fieller import fieller_reach, low_information_factor
from privatile.laws.normal import two_sided_z
from privatile.simulation.auto_simulation import AutoCell, Drawn, on_host
from privatile.simulation.displayed_intervals import DisplayedIntervals


class StraddledRuns(NamedTuple):
    """What many runs of one cell gave; the first axis is runs, rounds the second."""

    queries: Floats
    residuals: Floats
    noise: Floats
    stages: NDArray[np.int64]
    share: Floats
    """What knowing the clients' ranks takes off the noise."""
    state: Straddling


def straddle(
    cell: AutoCell,
    runs: int,
    rng: Any,
    xp: Any = np,
    *,
    policy: StraddlePolicy | None = None,
    answers: Any = None,
) -> StraddledRuns:
    """Run a cell `runs` times; `xp` is the library of the arrays and `rng` a generator of it.

    `answers` has another way to answer than `Drawn`, as a fixed file does.
    """
    policy = policy or cell.straddle_plan.policy
    answers = answers or Drawn(cell, rng, xp)
    rounds = policy.rounds
    weights, rates = xp.array(cell.shares), xp.array(cell.truth_rates)
    records = xp.array(cell.records, dtype=xp.int64)
    state = policy.begin(runs, xp)
    left = xp.tile(records, (runs, 1))
    queries, residuals, noise = (xp.empty((runs, rounds)) for _ in range(3))
    stages = xp.empty((runs, rounds), dtype=xp.int64)
    ones, window = xp.zeros((runs, len(records))), xp.zeros((runs, len(records)))
    for m in range(rounds):
        lengths = policy.lengths(state, records, left)
        left -= lengths
        counts = answers.counts(state.query, lengths)
        means = debias(rates, counts / lengths)
        queries[:, m], stages[:, m] = state.query, state.stage
        residuals[:, m] = means @ weights - (1.0 - cell.level)
        noise[:, m] = rank_noise(weights, rates, lengths).sum(axis=1)
        now = (state.stage != SEARCH)[:, None]
        ones += xp.where(now, counts, 0)
        window += xp.where(now, lengths, 0)
        tested = variance_bound(cell.level, weights, rates, lengths, exact=cell.straddle_plan.exact)
        heard = Answers(state.query, residuals[:, m], tested, xp.ones(runs))
        state = policy.learn(state, residuals[:, m], noise[:, m], heard)
    local = 1.0 - debias(rates, ones / window)
    share = known_share(weights, rates, records, local, window)
    return StraddledRuns(queries, residuals, noise, stages, share, state)


class StraddledReadings(NamedTuple):
    """Both intervals of many runs at one confidence level; an end may be infinite, a result cuts it at the range."""

    any_shape: DisplayedIntervals
    """What the results show first: values declared continuous are asked by another design."""
    smooth: DisplayedIntervals
    reason: NDArray[np.int64]
    """What contradicts a smooth distribution: a place in `readings.REASONS`, 0 for nothing."""

    @classmethod
    def joined(cls, parts: "Sequence[StraddledReadings]") -> "StraddledReadings":
        """Several blocks of runs as one."""
        return cls(
            DisplayedIntervals.joined([part.any_shape for part in parts]),
            DisplayedIntervals.joined([part.smooth for part in parts]),
            np.concatenate([part.reason for part in parts]),
        )


def read_straddled(
    cell: AutoCell, found: StraddledRuns, levels: Sequence[float] = (0.95,)
) -> "list[StraddledReadings]":
    """Both readings of every run at these confidence levels, as `readings.readings` gives them for one run."""
    xp = array_namespace(found.queries)
    plan = cell.straddle_plan
    shape, variances = known_end(plan, found.state.window.tests), found.noise * found.share[:, None]
    fits = fit_smooth(found.queries, found.residuals, variances, cell.level, found.state.window, plan.information)
    fit, reason = fits.curve, on_host(reason_against(fits, *shape.every_end(CHECKED_AT), plan.information))
    inside, ends = shape.around(xp.clip(fit.center, cell.low, cell.high))
    known = on_host((cell.level * (1.0 - cell.level)) ** 2 * (1.0 / found.noise).sum(axis=1))
    center, error, slope_error = (on_host(column) for column in (fit.center, fit.error, fit.slope_error))
    parts = []
    for level in levels:
        z = two_sided_z(level) * low_information_factor(known)
        reach = fieller_reach(z, slope_error) * error
        any_shape = DisplayedIntervals(*on_host((inside, *ends(level))))
        parts.append(StraddledReadings(any_shape, DisplayedIntervals(center, center - reach, center + reach), reason))
    return parts
