"""Runs whose clients fall silent for stretches of rounds, one by one through the estimator that real runs use."""

from __future__ import annotations

import math

import numpy as np

from privatile.core.arrays import Floats
from privatile.core.mechanism import RandomizedResponse
from privatile.core.scale import Identity
from privatile.estimator.auto import AutoPlan, memory_of
from privatile.estimator.clients import Client
from privatile.estimator.step import begin, step
from privatile.inference.inference import Trajectory
from privatile.inference.plug_in import plug_in
from privatile.laws.normal import two_sided_z
from privatile.result.diagnostics import troubled
from privatile.simulation.auto_simulation import AutoCell


def silent_runs(cell: AutoCell, runs: int, seed: int, share: float, burst: float) -> Floats:
    """Covered, width over Wald's, error over the bound's and warned, a row a run.

    Every client is silent for a `share` of the rounds, `burst` rounds at a time on average (a two-state chain), after
    a first round that all answer. Wald's interval and the bound are those of full attendance.
    """
    rng = np.random.default_rng([seed, 91])
    rows = zip(cell.truth_rates, cell.shares, cell.records, strict=True)
    clients = tuple(Client(f"c{k}", RandomizedResponse(r), p, cell.level, n) for k, (r, p, n) in enumerate(rows))
    plan = AutoPlan(clients, Identity(cell.low, cell.high), cell.rounds)
    kinds = list(dict.fromkeys(cell.populations))
    which = [kinds.index(population) for population in cell.populations]
    rates = np.array(cell.truth_rates)
    z = two_sided_z(0.95)
    found = np.empty((runs, 4))
    for run in range(runs):
        state, trajectory = begin(plan), Trajectory()
        silent = np.zeros(len(clients), dtype=np.bool_)
        while (ask := plan.ask(state)) is not None:
            if state.round:
                draws = rng.random(len(clients))
                silent = np.where(silent, draws >= 1.0 / burst, draws < share / (1.0 - share) / burst)
            ranks = np.array([kind.cdf(ask.query) for kind in kinds])[which]
            counts = rng.binomial(ask.lengths, (1.0 - rates) / 2.0 + rates * (1.0 - ranks)).tolist()
            came = [None if quiet else count for quiet, count in zip(silent.tolist(), counts, strict=True)]
            state = step(state, ask, came, plan)
            trajectory.record(ask, state, plan)
        tuning = memory_of(state).tuning
        curve = plug_in(state, trajectory, plan, guess=float(tuning.slope[0]))
        low, high = curve.inference.interval(0.95)
        unsure = troubled(
            cell.information,
            np.array([curve.slope_error]),
            np.array([curve.bend_share]),
            np.array([curve.held]),
            tuning.gave_up,
            np.array([curve.suspect]),
        )
        off = abs(curve.inference.center - cell.truth)
        bound = math.sqrt(2 / math.pi) * cell.bound
        found[run] = low <= cell.truth <= high, (high - low) / (2 * z * cell.bound), off / bound, bool(unsure[0])
    return found
