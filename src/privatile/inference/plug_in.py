"""The plug-in interval: the curve through all answers of a run, their noise known by design.

    Q̂ ± z·se/√(1 − z²ρ²)

with Q̂, se and ρ from `curve.fit_curve`. The noise of a round is Σ p_k²σ_k²/E_k, σ_k² = (r_k⁻² − (2F_k − 1)²)/4, F_k
from the client's own answers. It costs no privacy beyond the answers themselves. `cohort` mode only: a client that
moves its own q inside a round answers no single question.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.core.scale import working_range
from privatile.errors import InputError
from privatile.estimator.plan import Plan, RoundState
from privatile.estimator.question_policy import probe_reach
from privatile.estimator.step import local_ranks
from privatile.inference.curve import NEAR, Bracket, FiellerLaw, fit_curve
from privatile.inference.inference import Inference, IntervalInference, Trajectory, slope

LARGEST_SLOPE_ERROR = 0.35
"""Above this a 95% interval is 1.4 times as wide as with a known slope, and its law is no longer Fieller's."""


class Curve(NamedTuple):
    """What the fit says about a run, beside its interval."""

    inference: Inference
    slope: float
    """f̂ on the working scale."""
    slope_error: float
    bend: float
    bend_share: float
    """Share of the squared error that stems from not knowing how the curve bends."""
    near: float
    """Share of the offered precision asked near enough to count."""
    holds: bool
    """Whether the diagnostics allow the interval as the default."""
    held: bool
    """Whether the slope sits at the edge of what its guess allows."""
    smooth: bool
    """Whether the answers follow the curve; else heaps, an atom or a gap show."""
    suspect: bool
    """Whether they may not."""
    misfit: float
    """χ² of the answers about the curve."""
    file_share: float
    """Share of the variance left where the file itself is the target; 1 for a population."""
    bracket: Inference
    """The questions between which the quantile lies, whatever the distribution."""


def plug_in(
    state: RoundState, trajectory: Trajectory, plan: Plan, *, guess: float | None = None, file: bool = False
) -> Curve:
    """Fit a run's answers and read estimate, interval and diagnostics from the curve.

    `guess` is a first guess of the slope; none: the plain regression over the averaged rounds.
    """
    if plan.mode != "cohort":
        raise InputError("the plug-in interval needs cohort mode; take --interval self-normalized or --mode cohort.")
    rounds = state.averages.rounds
    if rounds < 2:
        raise InputError(f"an interval needs at least two averaged rounds; there are {rounds}.")
    queries, drifts, noise = trajectory.answers
    first = slope(trajectory) if guess is None else guess
    fit = fit_curve(
        queries[None],
        drifts[None],
        noise[None] * variance_share(state, plan),
        plan.level,
        start=np.array([trajectory.asked.mean()]),
        slope=np.array([first or flat_slope(plan)]),
        window=(np.arange(len(noise)) >= len(noise) - rounds)[None],
    )
    if guess is None:
        # A guess from the window itself is no second opinion on the slope.
        fit = fit._replace(kept=np.ones(1))
    center, density, relative = float(fit.center[0]), float(fit.slope[0]), float(fit.slope_error[0])
    # Answers that stood in for silent clients repeat their noise; the fit has weighed them as fresh, by 1/noise.
    standing = noise[len(noise) - rounds :]
    repeated = float((trajectory.weights / standing**2).sum() / (1.0 / standing).sum())
    fit = fit._replace(misfit=fit.misfit / repeated, lean=fit.lean / math.sqrt(repeated))
    kept = 1.0
    if file:
        # Mean distance of the questions that count, probes included, in rank.
        distance = density * np.abs(queries - center)
        wander = float(np.average(distance, weights=(distance <= NEAR * plan.level * (1.0 - plan.level)) / noise))
        kept = file_share(state, plan, near=float(fit.used[0]), wander=wander)
    error = float(fit.error[0]) * math.sqrt(repeated * kept)
    law = FiellerLaw(relative)
    smooth = bool(fit.smooth[0])
    reach = probe_reach(plan.level, 1.0 / float((1.0 / noise).sum()), density)
    bracket = Bracket(queries, drifts, noise * repeated, center, reach)
    return Curve(
        inference=Inference("plug-in", center, error, law.quantile, law.tail),
        slope=density,
        slope_error=relative,
        bend=float(fit.bend[0]),
        bend_share=float(fit.bend_share[0]),
        near=float(fit.used[0]),
        holds=relative <= LARGEST_SLOPE_ERROR and not bool(fit.held[0]) and math.isfinite(error) and smooth,
        held=bool(fit.held[0]),
        smooth=smooth,
        suspect=bool(fit.suspect[0]),
        misfit=float(fit.misfit[0]),
        file_share=kept,
        bracket=IntervalInference.of("bracketing questions", center, error, bracket.ends),
    )


def flat_slope(plan: Plan) -> float:
    """The slope of a rank that rises evenly over the range: a guess where the answers give none."""
    low, high = working_range(plan.scale)
    return 1.0 / (high - low)


def variance_share(state: RoundState, plan: Plan) -> float:
    """What knowing the clients' ranks takes off the noise of a run; see `known_share`."""
    if not all(state.window_asked):
        return 1.0
    clients = plan.clients
    return float(
        known_share(
            np.array([client.weight for client in clients]),
            np.array([client.mechanism.truth_rate for client in clients]),
            np.array([client.records for client in clients]),
            np.array(local_ranks(state, plan)),
            np.array(state.window_asked),
        )
    )


def known_share(weights: Floats, rates: Floats, records: NDArray[Any], ranks: Floats, asked: NDArray[Any]) -> Floats:
    """Σp_k²σ_k²/n_k over Σp_k²/(4r_k²n_k), clients along the last axis.

    σ_k² = (r_k⁻² − (2F_k − 1)²)/4; (2F_k − 1)² is estimated from the client's own answers, its upward bias 4·Var(F̂_k)
    removed.

    >>> one = np.array([1.0])
    >>> round(float(known_share(one, 0.5 * one, 100 * one, 0.9 * one, 1e9 * one)), 4)  # 1 − r²(2F − 1)²
    0.84
    """
    inside = np.clip(ranks, 0.0, 1.0)
    doubt = (rates**-2 - (2.0 * inside - 1.0) ** 2) / (4.0 * asked)
    tilt = np.clip((2.0 * ranks - 1.0) ** 2 - 4.0 * doubt, 0.0, 1.0)
    part = weights**2 / records
    share: Floats = (part * (rates**-2 - tilt)).sum(axis=-1) / (part / rates**2).sum(axis=-1)
    return share


def file_share(state: RoundState, plan: Plan, near: float, wander: float) -> float:
    """Share of the variance that is left when the file itself is the target.

    Of a record's σ² its own F(1 − F) cancels for the share φ of the file that was asked, as far as it was asked about
    the quantile itself: (r⁻² − 1)/4 + (1 − φ)F(1 − F) + φ·f·mean|q − Q| remain.
    """
    whole = saved = 0.0
    for client, rank, asked in zip(plan.clients, local_ranks(state, plan), state.asked, strict=True):
        if not asked or math.isnan(rank):
            return 1.0
        share = min(max(rank, 0.0), 1.0)
        whole += client.weight**2 * client.mechanism.variance(share) / (asked * near)
        saved += client.weight**2 * max(0.0, share * (1.0 - share) - wander) / client.file_size
    # Without privacy and with every record asked nothing would be left but the wandering.
    return max(1.0 - saved / whole, 0.01)
