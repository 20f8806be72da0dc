"""Self-normalised intervals: the average of a path, with the path's own spread as the measure of its error."""

import math

import numpy as np

from privatile.core.kinds import Normalizer
from privatile.errors import InputError
from privatile.estimator.plan import Plan, RoundState, half_width, normalizer, normalizer_of
from privatile.inference.inference import Inference, file_share
from privatile.inference.trajectory import Trajectory, slope
from privatile.laws.critical import statistic_law
from privatile.laws.linear_model import linear_law

LEAD = 3.0
"""Relaxations put before a window, so that it starts from its stationary spread."""

MAX_LEAD = 20_000
"""A first step this far from one relaxation has no stationary spread to start from; v(∞) serves."""


def self_normalized(
    state: RoundState, trajectory: Trajectory, kind: Normalizer = "l2", variance_share: float = 1.0
) -> Inference:
    """Q_T ± v·√V (Corollary 3.2), v exact for the rounds' own noise weights.

    `variance_share` is below 1 where the file itself is the target; see `endpoint_variance`.
    """
    sums, weights = state.averages, trajectory.weights
    if len(weights) < 2:
        raise InputError(f"an interval needs at least two averaged rounds; there are {len(weights)}.")
    value = normalizer(sums) if kind == "l2" else normalizer_of(trajectory.queries, weights, kind)
    law = statistic_law(weights=weights, normalizer=kind, endpoint_variance=variance_share)
    return Inference("self-normalized", sums.estimate, half_width(value, kind), law.quantile, law.tail)


def finite_self_normalized(state: RoundState, trajectory: Trajectory, density: float) -> Inference:
    """Q_T ± v·√V with v for the relaxations that the averaged rounds had, f known to be about `density`.

    The window is taken to start from its stationary spread: three relaxations of its first step are put before it.
    """
    sums, steps, weights = state.averages, trajectory.steps, trajectory.weights
    rate = float(steps[0] * density)
    before = math.ceil(LEAD / rate) if rate > 0.0 else 0
    if not 0.0 < rate < 2.0 or before > MAX_LEAD:
        return self_normalized(state, trajectory)
    law = linear_law(
        np.concatenate([np.full(before, steps[0]), steps]),
        np.concatenate([np.full(before, weights[0]), weights]),
        density,
        burn_in=before,
    )
    return Inference("self-normalized", sums.estimate, half_width(normalizer(sums), "l2"), law.quantile, law.tail)


def endpoint_variance(state: RoundState, plan: Plan, trajectory: Trajectory) -> float:
    """Share of the variance of the path's end that is left when the file itself is the target; see `file_share`.

    Only the end of the path changes: what is subtracted is a straight line in the round number, and detrending by
    m/T removes it, so the normaliser keeps its law.
    """
    if not all(state.window_asked):
        return 1.0
    averages, weights = state.averages, trajectory.weights
    wander = slope(trajectory) * float(np.abs(trajectory.asked - averages.estimate).mean())
    # Rounds of unequal length are noisier than equal ones by ν; the weights of the rounds know by how much.
    even = math.fsum(client.noise(asked) for client, asked in zip(plan.clients, state.window_asked, strict=True))
    nu = averages.weight / (averages.rounds**2 * even)
    # No path has less than this at its end: the part of the end that detrending leaves in the normaliser.
    least = 1.0 - averages.rounds**2 / float(weights.sum() * (1.0 / weights).sum())
    return max(file_share(state, plan, state.window_asked, wander, nu), least + 1e-9)
