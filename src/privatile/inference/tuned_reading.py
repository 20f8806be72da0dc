"""The smooth interval of runs that follow the quantile: the curve through all answers, their noise known by design.

    Q̂ ± z·se/√(1 − z²ρ²)

with z corrected for low information (`laws.fieller`), Q̂, se and ρ from `curve.fit_curve`. The noise of a round is
Σ p_k²σ_k²/E_k, σ_k² = (r_k⁻² − (2F_k − 1)²)/4, F_k from the client's own
answers. It costs no privacy beyond the answers themselves. `cohort` mode only: a client that moves its own q inside a
round answers no single question.
"""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from privatile.core.arrays import Floats
from privatile.core.scale import working_range
from privatile.errors import InputError
from privatile.estimator.plan import Plan, RoundState
from privatile.estimator.question_policy import probe_reach
from privatile.inference.bracket import Bracket
from privatile.inference.client_curves import fit_by_client
from privatile.inference.curve import NEAR, CurveFit, fit_curve
from privatile.inference.inference import Inference, from_ends
from privatile.inference.trajectory import ClientAnswers, Trajectory, slope
from privatile.inference.variance import file_share, variance_share
from privatile.laws.fieller import FiellerLaw

BRACKETING = "bracketing questions"


@dataclass(frozen=True, eq=False)
class Curve:
    """The curve through the answers of one run, with the intervals that come from it."""

    fit: CurveFit
    """Of this run alone: its fields are numbers."""
    inference: Inference
    """The smooth interval."""
    answers: Floats
    """Three rows: queries, τ − F̂ there, and its noise."""
    level: float
    file_share: float = 1.0
    """Share of the variance left where the file itself is the target; 1 for a population."""
    clients: ClientAnswers | None = None
    """Every client's own answers, where some were silent."""
    weights: Floats = field(default_factory=lambda: np.ones(1))
    """p_k of these clients."""

    @cached_property
    def stretches(self) -> Bracket:
        """The questions between which the quantile lies, whatever the distribution."""
        queries, drifts, noise = self.answers
        rows, residuals, precisions = queries, drifts[:, None], 1.0 / noise[:, None]
        if self.clients is not None:
            rows, residuals, precisions = self.clients.queries, self.clients.residuals, self.clients.precisions
        reach = probe_reach(self.level, 1.0 / float((1.0 / noise).sum()), float(self.fit.slope))
        return Bracket(rows, residuals, precisions, self.weights, self.inference.center, reach)

    @property
    def bracket(self) -> Inference:
        """Their interval at the planned end of the run."""
        return from_ends(BRACKETING, self.inference.center, self.inference.error_scale, self.stretches.ends)

    def anytime_bracket(self, asked_share: float) -> Inference:
        """Their interval at any look, where `asked_share` of all records have been asked."""
        ends = partial(self.stretches.ends_at_every_look, asked_share=asked_share)
        return from_ends(BRACKETING, self.inference.center, self.inference.error_scale, ends)


def information_in(noise: Floats, level: float) -> float:
    """(τ(1 − τ))²·Σ1/w of the answers so far, w the noise of a round."""
    return (level * (1.0 - level)) ** 2 * float((1.0 / noise).sum())


def curve_of(fit: CurveFit, answers: Floats, level: float, *, file_share: float = 1.0) -> Curve:
    """The curve of one run from its fit."""
    law = FiellerLaw(float(fit.slope_error), information_in(answers[2], level))
    error = float(fit.error) * math.sqrt(file_share)
    inference = Inference("smooth", float(fit.center), error, law.quantile, law.tail)
    return Curve(fit, inference, answers, level, file_share)


def fit_run(
    state: RoundState, trajectory: Trajectory, plan: Plan, *, guess: float | None = None, file: bool = False
) -> Curve:
    """Fit a run's answers: estimate, interval and diagnostics. Silent clients are fitted one by one (`client_curves`).

    `guess` is a first guess of the slope; none: the plain regression over the averaged rounds.
    """
    if plan.mode != "cohort":
        raise InputError("the smooth interval needs cohort mode; take interval='self-normalized' or mode='cohort'.")
    rounds = state.averages.rounds
    if rounds < 2:
        raise InputError(f"an interval needs at least two averaged rounds; there are {rounds}.")
    queries, drifts, noise = answers = trajectory.answers
    first, share = slope(trajectory) if guess is None else guess, variance_share(state, plan)
    low, high = working_range(plan.scale)
    fit = fit_curve(
        queries[None],
        drifts[None],
        noise[None] * share,
        plan.level,
        start=np.array([trajectory.asked.mean()]),
        # Where the answers give no slope: that of a rank that rises evenly over the range.
        slope=np.array([first or 1.0 / (high - low)]),
        window=(np.arange(len(noise)) >= len(noise) - rounds)[None],
    ).of_run(0)
    if guess is None:
        # A guess from the window itself is no second opinion on the slope.
        fit = fit._replace(slope_ratio=np.ones_like(fit.slope_ratio))
    clients, weights = trajectory.clients, np.array([client.weight for client in plan.clients])
    if clients is not None:
        fit = fit_by_client(fit, clients, weights, plan.level, share)
    left = 1.0
    if file:
        left = left_for_file(fit, answers, state, plan)
    curve = curve_of(fit, answers[:, np.isfinite(noise)], plan.level, file_share=left)
    return curve if clients is None else replace(curve, clients=clients, weights=weights)


def left_for_file(fit: CurveFit, answers: Floats, state: RoundState, plan: Plan) -> float:
    """Share of the smooth interval's variance that is left where the file itself is the target."""
    queries, _, noise = answers
    # Mean distance of the questions that count, in rank.
    distance = fit.slope * np.abs(queries - fit.center)
    weights = (distance <= NEAR * plan.level * (1.0 - plan.level)) / noise
    if not weights.any():
        return 1.0
    wander = float(np.average(distance, weights=weights))
    # Without privacy and with every record asked nothing would be left but the wandering.
    inflation = 1.0 / float(fit.used) if fit.used else math.inf
    return max(file_share(state, plan, state.asked, wander, inflation), 0.01)
