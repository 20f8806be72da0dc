"""Runs whose clients fall silent for stretches of rounds, one by one through the estimator that real runs use."""

import math

import numpy as np

from privatile.core.arrays import Floats
from privatile.core.mechanism import yes_probability
from privatile.estimator.auto import memory_of
from privatile.estimator.step import begin, step
from privatile.inference.choice import as_displayed, choose_interval, gather_evidence
from privatile.inference.trajectory import Trajectory
from privatile.laws.normal import two_sided_z
from privatile.result.diagnostics import warned
from privatile.simulation.auto_simulation import AutoCell, ranks_at
from privatile.simulation.displayed_intervals import settings_of


def silent_runs(cell: AutoCell, runs: int, seed: int, share: float, burst: float) -> Floats:
    """One row per run: covered, width over Wald's, error over the bound's, warned.

    Every client is silent for a `share` of the rounds, `burst` rounds at a time on average (a two-state chain), after
    a first round that all answer. Wald's interval and the bound are those of full attendance.
    """
    rng = np.random.default_rng([seed, 91])
    plan, settings, rates = cell.plan, settings_of(cell), np.array(cell.truth_rates)
    wald, bound = 2 * two_sided_z(0.95) * cell.bound, math.sqrt(2 / math.pi) * cell.bound
    found = np.empty((runs, 4))
    for run in range(runs):
        state, trajectory = begin(plan), Trajectory()
        silent = np.zeros(len(rates), dtype=np.bool_)
        while (ask := plan.ask(state)) is not None:
            if state.round:
                draws = rng.random(len(rates))
                silent = np.where(silent, draws >= 1.0 / burst, draws < share / (1.0 - share) / burst)
            ranks = ranks_at(cell.populations, np.array([ask.query]))[0]
            counts = rng.binomial(ask.lengths, yes_probability(rates, 1.0 - ranks)).tolist()
            came = [None if quiet else count for quiet, count in zip(silent.tolist(), counts, strict=True)]
            state = step(state, ask, came, plan)
            trajectory.record(ask, state, plan)
        evidence = gather_evidence(settings, plan, state, trajectory)
        inference = as_displayed(choose_interval(settings, evidence), settings, plan.scale)
        low, high = inference.interval(settings.confidence_level)
        gave_up = memory_of(state).tuning.gave_up[0]
        warns = evidence.curve is None or warned(cell.information, evidence.curve.fit, gave_up)
        off = abs(inference.center - cell.truth)
        found[run] = low <= cell.truth <= high, (high - low) / wald, off / bound, warns
    return found
