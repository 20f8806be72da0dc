"""Many runs of the straddling design at once, through the code that real runs execute."""

from typing import Any, NamedTuple

import numpy as np

from privatile.core.arrays import Floats
from privatile.core.mechanism import debias, rank_noise, yes_probability
from privatile.estimator.straddle import SEARCH, StraddlePolicy, Straddling, level_variance
from privatile.estimator.straddle_window import Answers
from privatile.inference.variance import known_share
from privatile.simulation.auto_simulation import AutoCell, ranks_at


class StraddledRuns(NamedTuple):
    """What many runs of one cell gave; the first axis is runs, rounds the second."""

    queries: Floats
    residuals: Floats
    noise: Floats
    stages: Any
    share: Floats
    """What knowing the clients' ranks takes off the noise."""
    state: Straddling


def policy_of(cell: AutoCell) -> StraddlePolicy:
    """The rules, with a cell's numbers."""
    old = cell.plan.policy
    return StraddlePolicy(old.level, old.low, old.high, old.rounds, old.noise)


def straddle(cell: AutoCell, runs: int, rng: Any, xp: Any = np, policy: StraddlePolicy | None = None) -> StraddledRuns:
    """Run a cell `runs` times; `xp` is the library of the arrays and `rng` a generator of it."""
    policy = policy or policy_of(cell)
    rounds = policy.rounds
    weights, rates = xp.array(cell.shares), xp.array(cell.truth_rates)
    records = xp.array(cell.records, dtype=xp.int64)
    state = policy.begin(runs, xp)
    left = xp.tile(records, (runs, 1))
    queries, residuals, noise = (xp.empty((runs, rounds)) for _ in range(3))
    stages = xp.empty((runs, rounds), dtype=xp.int64)
    ones, window = xp.zeros((runs, len(records))), xp.zeros((runs, len(records)))
    kinds = list(dict.fromkeys(cell.populations))
    which = xp.array([kinds.index(population) for population in cell.populations])
    for m in range(rounds):
        lengths = policy.lengths(state, records, left)
        left -= lengths
        ranks = ranks_at(kinds, state.query)[:, which]
        counts = rng.binomial(lengths, yes_probability(rates, 1.0 - ranks))
        means = debias(rates, counts / lengths)
        queries[:, m], stages[:, m] = state.query, state.stage
        residuals[:, m] = means @ weights - (1.0 - cell.level)
        noise[:, m] = rank_noise(weights, rates, lengths).sum(axis=1)
        now = (state.stage != SEARCH)[:, None]
        ones += xp.where(now, counts, 0)
        window += xp.where(now, lengths, 0)
        at_level = level_variance(cell.level, weights, rates, lengths)
        heard = Answers(state.query, residuals[:, m], at_level, xp.ones(runs))
        state = policy.learn(state, residuals[:, m], noise[:, m], heard)
    local = 1.0 - debias(rates, ones / window)
    share = known_share(weights, rates, records, local, window)
    return StraddledRuns(queries, residuals, noise, stages, share, state)
