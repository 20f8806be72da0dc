"""Runs whose clients fall silent for stretches of rounds, one by one through the estimator that real runs use."""

import math
from typing import NamedTuple

import numpy as np

from privatile.core.arrays import Floats
from privatile.core.mechanism import yes_probability
from privatile.estimator.plan import RoundState, begin, step
from privatile.estimator.settings import ReportSettings
from privatile.estimator.straddle import StraddlePlan
from privatile.estimator.tuned import AutoPlan, tuned_run
from privatile.inference.reading import Reading, as_displayed, read
from privatile.inference.trajectory import Trajectory
from privatile.laws.ratio import two_sided_z
from privatile.result.diagnostics import warned
from privatile.simulation.default_design import AutoCell, ranks_at, settings_of


class Silence(NamedTuple):
    """How clients fall silent, after a first round that all answer: a two-state chain for each."""

    share: float
    """Share of the rounds that a client misses."""
    spell: float
    """Rounds in a row that it misses, on average."""
    asked_later: bool = False
    """Whether its ledger shows, with its next answer, that no coin was drawn in them."""
    repeats: bool = False
    """A forbidden way, for comparison: the last answer is given once more, as if it were new."""


def silent_run(
    cell: AutoCell, plan: AutoPlan | StraddlePlan, settings: ReportSettings, rng: np.random.Generator, silence: Silence
) -> tuple[Reading, RoundState]:
    """One run to its end."""
    rates, clients = np.array(cell.truth_rates), len(cell.records)
    state, trajectory = begin(plan), Trajectory()
    silent, last = np.zeros(clients, dtype=np.bool_), np.zeros(clients)
    while (ask := plan.ask(state)) is not None:
        if state.round:
            draws = rng.random(clients)
            begins = draws < silence.share / (1.0 - silence.share) / silence.spell
            silent = np.where(silent, draws >= 1.0 / silence.spell, begins)
        lengths = np.array(ask.lengths)
        ranks = ranks_at(cell.populations, np.array([ask.query]))[0]
        counts = rng.binomial(lengths, yes_probability(rates, 1.0 - ranks))
        last = np.where(silent, last, counts / lengths)
        missing = silent & (not silence.repeats)
        given = np.rint(last * lengths).astype(int).tolist()
        came = [None if quiet else count for quiet, count in zip(missing.tolist(), given, strict=True)]
        back = [k for k, one in enumerate(state.records) if silence.asked_later and one.missed and came[k] is not None]
        state = step(state, ask, came, plan, back)
        trajectory.record(ask, state, plan)
    return read(settings, plan, state, trajectory), state


def silent_runs(cell: AutoCell, runs: int, seed: int, share: float, burst: float) -> Floats:
    """One row per run: covered, width over Wald's, error over the bound's, warned.

    What is missed counts as spent. Wald's interval and the bound are those of full attendance.
    """
    rng = np.random.default_rng([seed, 91])
    plan, settings = cell.plan, settings_of(cell, cell.plan)
    wald, bound = 2 * two_sided_z(0.95) * cell.bound, math.sqrt(2 / math.pi) * cell.bound
    found = np.empty((runs, 4))
    for run in range(runs):
        reading, state = silent_run(cell, plan, settings, rng, Silence(share, burst))
        inference = as_displayed(reading.shown, settings, plan.scale)
        low, high = inference.interval(settings.confidence_level)
        warns = reading.fit is None or warned(cell.information, reading.fit, tuned_run(state).gave_up)
        off = abs(inference.center - cell.truth)
        found[run] = low <= cell.truth <= high, (high - low) / wald, off / bound, warns
    return found
