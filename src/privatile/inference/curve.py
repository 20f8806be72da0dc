"""The quantile from a curve through the answers: of all clients, of clients that were silent, of a tuned run.

The quantile from the whole transcript: the distribution's curve through the answers.

A round asked at q gives y = τ − F(q) + noise, the noise's variance w known by design. Near the quantile Q

    F(q) = L( logit τ + x + κx² ),  x = β(q − Q),  L the logistic function, f = τ(1 − τ)β the slope at Q

Q, β and the bend κ are unknown. Weighted least squares gives them (Gauss–Newton), κ with the prior N(0, 0.3²), its
unit-free size in common laws (at τ = 0.8: normal 0.06, t₃ −0.07, log-normal −0.23, Cauchy −0.39, uniform +0.30). So the
interval includes what the answers do not tell about the bend. Given β and κ, Q̂ is the mean of q + y/f. It is efficient
for any path of questions and needs no relaxation. An error of the slope enters only multiplied by the small distance
between the mean of the questions and Q.

The interval is `laws.fieller`'s, with ρ the relative error of the slope.

Silent clients: one straight line per client over the rounds it answered; no answer is ever used twice.

Client k answers y_k = F_k(Q*) − F_k(q) + noise, up to a constant that sums to zero over the clients, with weight w =
4r_k²E per round. Near the quantile its answers follow a line with mean (q̄_k, ȳ_k) and slope −b_k, so the mixture's
drift at q is Σp_k(ȳ_k − b_k(q − q̄_k)), and its root is

    Q̂ = (Σp_kȳ_k + Σp_k b_k q̄_k)/f,  f = Σp_k b_k
    Var(Q̂)·f² = Σp_k²/W_k + Σp_k²(q̄_k − Q̂)²/S_k,  ρ² = Σ(p_k²/S_k)/f²

with W_k = Σw and S_k = Σw(q − q̄_k)². Weights p_k never change, so the estimand does not. A client that answered one
question only has no slope of its own and is given the common one. Silence must not depend on the answers' coins.

The rounds of all clients together show how the curve bends (`curve.fit_curve`, from complete rounds and pools);
`fit_by_client` takes that bend off every answer first, so that lines suffice, and adds to the error what the bend
leaves unknown. The slope's bias is removed as there.

The smooth interval of runs that follow the quantile: the curve through all answers, their noise known by design.

    Q̂ ± z·se/√(1 − z²ρ²)

with z corrected for low information (`laws.fieller`), Q̂, se and ρ from `curve.fit_curve`. The noise of a round is
Σ p_k²σ_k²/E_k, σ_k² = (r_k⁻² − (2F_k − 1)²)/4, F_k from the client's own
answers. It costs no privacy beyond the answers themselves. `cohort` mode only: a client that moves its own q inside a
round answers no single question.
"""

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from privatile.core.arrays import Flags, Floats
from privatile.core.scale import working_range
from privatile.errors import InputError
from privatile.estimator.plan import Plan, RoundState
from privatile.estimator.tuned import probe_reach
from privatile.inference.any_shape import Bracket
from privatile.inference.inference import Inference, file_share, from_ends, variance_share
from privatile.inference.trajectory import ClientAnswers, Trajectory, slope
from privatile.laws.ratio import FiellerLaw

BEND = 0.3
"""Prior standard deviation of κ, …"""

MAX_BEND = 0.6
"""… which is sought between minus and plus this."""

NEAR = 1.5
"""Rounds asked within this many local spreads of the quantile enter the fit, in any stage of the run. The probes are
near enough even where the spread was believed to be twice too wide."""

NEAR_ERRORS = 30.0
"""They must also lie within this many standard errors, almost twice the reach of the probes: with more records the fit
uses questions closer to the quantile, so errors of the model further out matter less."""

MIN_NEAR = 0.2
"""This many spreads are always near enough: errors of the model there change the slope by 1% or 2%, and the questions
of the search stabilise it where the probes lie too close together."""

DRIFT_BIAS = 1.0
"""f̂ exceeds f by about 2ρ²: a path that answers its own noise regresses too steeply, by 4/N (Kendall's bias of an
AR(1)), N/2 being its share of the slope's precision 1/ρ². Half of the bias is removed; Fieller's interval allows for
the rest. In the linear model it then covers .949 to .950 from 27 relaxations on (`studies/coverage/calibrate.py`); with
all of the bias removed it covers .954 to .958 and is 2% wider."""

MAX_SLOPE_ERROR = 0.35
"""Above this a 95% interval is 1.4 times as wide as with a known slope, and its law is no longer Fieller's."""

UNKNOWN_SLOPE = 1.0
"""From this relative error on the answers say nothing about the slope: centre and slope stay at their first guesses;
there is no bend and no misfit. What the fit found would be rounding errors, other ones on each machine."""

ON_BORDER = 1e-9
"""A round this close below the border of two groups, in groups, lies on it."""

GROUPS = 8
SUSPECT_MISFIT, MAX_MISFIT = 15.5, 22.0
"""Near rounds in eight groups by their question, equal in precision; the squared standardised residuals of the groups
sum to χ² with about 5.9 degrees of freedom where the curve is smooth. The first is exceeded in 1–2% of such runs
(normal, t₃, log-normal, Laplace, uniform, mixtures; information 1,500–600,000) and leads to a warning, the second in
0.1%, and widens the interval. Ages in whole years (spread 12) exceed the first in a quarter of the runs at information
6,000, and both in all runs at 60,000."""

MIN_SLOPE = 0.45
"""A fitted slope below this share of what search and probes believed leads to a warning. Between two separate humps,
four runs in five are below; of smooth runs with 200 rounds at most 1% (log-normal, τ = 0.8), with 20 rounds 14%. The
interval is not widened: a belief that was too steep looks the same."""

SLOPE_CONTRASTS = (-3.5, 5.0)
"""Standard errors between the slope that the window alone shows, in the rounds near enough, and that of the curve.
Smooth runs of 200 rounds stay within (−2.2, 3.3). Above, the path sits on a step; below, it moves over a flat stretch
of the distribution."""

STEPS = 60
"""At most so many Gauss–Newton steps: quadratic convergence from a start within a spread needs five, a fit far from its
answers tens. Eight left 4 of 1,000 odd runs on their way, where machines differ by 1e-5 standard errors."""

SETTLED = 1e-11
"""A fit whose last step was smaller than this, in local spreads and as a share of the slope, has settled."""

WORSE = 1e-12
"""A step that raises the sum of squares by more than this share is taken back and damped (Levenberg and Marquardt)."""


class CurveFit(NamedTuple):
    """The fitted curve, on the working scale."""

    center: float
    """Q̂."""
    error: float
    """Its standard error, the slope's bias removed."""
    slope: float
    """f̂, bias removed."""
    slope_error: float
    """ρ: relative standard error of f̂."""
    bend: float
    bend_share: float
    """Share of the error's square that stems from not knowing the bend."""
    used: float
    """Share of the offered precision that lay near enough."""
    slope_clipped: bool
    """Whether the slope was clipped at the edge of what its first guess allows: the fit is then no estimate."""
    misfit: float
    """χ² of the near rounds about the curve; see `MAX_MISFIT`."""
    slope_ratio: float
    """f̂ as a share of its first guess; see `MIN_SLOPE`."""
    slope_contrast: float
    """Standard errors between the window's own slope and the curve's; see `SLOPE_CONTRASTS`."""

    def with_boundaries_moved(self, share: float) -> "CurveFit":
        """The same fit with its diagnostics a share nearer to a good one, or, below zero, further from it."""
        factor = 1.0 + share
        return self._replace(
            slope_error=self.slope_error / factor,
            misfit=self.misfit / factor,
            slope_ratio=self.slope_ratio * factor,
            slope_contrast=self.slope_contrast / factor,
        )

    @property
    def holds(self) -> bool:
        """Whether the diagnostics allow the smooth interval."""
        known = self.slope_error <= MAX_SLOPE_ERROR and self.error < math.inf
        return known and not self.slope_clipped and self.smooth

    @property
    def smooth(self) -> bool:
        """Whether the answers follow the curve: no step and no flat stretch shows."""
        low, high = SLOPE_CONTRASTS
        return low <= self.slope_contrast <= high and self.misfit <= MAX_MISFIT

    @property
    def suspect(self) -> bool:
        """Whether an atom or a gap may be there: the result warns."""
        return not self.smooth or self.misfit > SUSPECT_MISFIT or self.slope_ratio < MIN_SLOPE


def fit_curve(
    queries: Floats,
    residuals: Floats,
    variances: Floats,
    level: float,
    *,
    start: float,
    slope: float,
    window: Flags,
    bend_doubt: float = BEND,
    near_errors: float = NEAR_ERRORS,
    largest_bend: float = MAX_BEND,
) -> CurveFit:
    """Fit the answers of all rounds; an infinite variance leaves a round out.

    `start` and `slope` are first guesses of Q and f; the slope is sought within a factor of 8 of its guess. `window`
    marks the rounds that followed the recursion, `bend_doubt` is the prior standard deviation of κ, `largest_bend` the
    largest |κ|, and rounds within `near_errors` standard errors enter.

    >>> q = np.linspace(-0.2, 0.4, 41)
    >>> y = 0.5 - 1 / (1 + np.exp(-4 * (q - 0.1)))  # f = 1 at Q = 0.1, no noise
    >>> fit = fit_curve(q, y, np.full(41, 1e-2), 0.5, start=0.0, slope=0.5, window=np.ones(41, dtype=bool))
    >>> [round(float(value), 2) for value in (fit.center, fit.slope, fit.slope_error, fit.bend)]
    [0.1, 0.99, 0.11, 0.0]
    """
    scale = level * (1.0 - level)
    first = slope / scale
    center, steep, bend, slope_clipped = float(start), float(first), 0.0, False
    precision = np.where(np.isfinite(variances), 1.0 / variances, 0.0)
    # Nothing offered: nobody of a client has answered yet.
    offered = max(float(precision.sum()), 1e-300)
    weights = precision
    near = min(NEAR, max(MIN_NEAR, near_errors / (scale * math.sqrt(offered))))
    eye, prior = np.eye(3), np.diag([0.0, 0.0, bend_doubt**-2])
    damping, best = 0.0, math.inf
    kept = (center, steep, bend, slope_clipped, np.zeros((3, 3)), np.zeros(3))
    for turn in range(STEPS):
        x = steep * (queries - center)
        if turn == 2:
            # Which rounds are near is settled after two steps, then kept: a moving choice need not converge.
            weights = precision * (np.abs(x) <= near)
        x = np.clip(x, -2.0, 2.0)
        ranks = _ranks(level, x, bend)
        gap, density = residuals - (level - ranks), ranks * (1.0 - ranks)
        along = density * (1.0 + 2.0 * bend * x)
        # In unit-free unknowns βQ, log β and κ, so that the matrix is well scaled.
        slopes = np.stack([along, -along * x, -density * x**2])
        weighted = weights * slopes
        matrix, gradient = weighted @ slopes.T + prior, weighted @ gap
        gradient[2] -= bend / bend_doubt**2
        squares = float((weights * gap**2).sum()) + (bend / bend_doubt) ** 2
        if squares > best * (1.0 + WORSE) and turn > 2:
            damping = max(8.0 * damping, 0.1)
        else:
            damping, best = damping / 8.0 if damping > 1e-3 else 0.0, squares
            kept = (center, steep, bend, slope_clipped, matrix, gradient)
        center, steep, bend, slope_clipped, matrix, gradient = kept
        ridge = 1e-12 * np.trace(matrix) * eye
        change = np.linalg.solve(matrix * (1.0 + damping * eye) + ridge, gradient)
        if turn > 2 and not (np.abs(change) > SETTLED).any():
            break
        center += min(max(float(change[0]), -2.0), 2.0) / steep
        wanted = steep * math.exp(min(max(float(change[1]), -1.0), 1.0))
        steep = min(max(wanted, first / 8.0), first * 8.0)
        slope_clipped = wanted != steep
        bend = min(max(bend + float(change[2]), -largest_bend), largest_bend)
    spread = np.linalg.inv(matrix + 1e-12 * np.trace(matrix) * eye)
    relative, center_variance = math.sqrt(spread[1, 1]), float(spread[0, 0])
    straight = matrix[1, 1] / (matrix[0, 0] * matrix[1, 1] - matrix[0, 1] ** 2 + 1e-300)
    unbiased = max(1.0 - DRIFT_BIAS * relative**2, 0.1)
    known = relative < UNKNOWN_SLOPE
    misfit = lack_of_fit(queries, residuals, weights, level, center, steep, bend)
    return CurveFit(
        center=center if known else start,
        error=math.sqrt(center_variance) / (steep * unbiased) if known else 1.0 / (slope * math.sqrt(offered)),
        slope=scale * steep * unbiased if known else slope,
        slope_error=relative,
        bend=bend if known else 0.0,
        bend_share=min(max(float(1.0 - straight / center_variance), 0.0), 1.0) if known else 0.0,
        used=float(weights.sum()) / offered,
        slope_clipped=slope_clipped,
        misfit=misfit if known or math.isinf(misfit) else 0.0,
        slope_ratio=steep * unbiased / first,
        slope_contrast=slope_contrast_of(queries, residuals, np.where(window, weights, 0.0), scale * steep),
    )


def _ranks(level: float, x: Floats, bend: float) -> Floats:
    """F = L(logit τ + x + κx²)."""
    return 0.5 * (1.0 + np.tanh(0.5 * (math.log(level / (1.0 - level)) + x + bend * x**2)))


def slope_contrast_of(queries: Floats, residuals: Floats, weights: Floats, slope: float) -> float:
    """(f_w − f)/s.e., f_w minus the slope of the answers on the questions of the window alone; 0 where it has none."""
    off = queries - (weights * queries).sum() / max(float(weights.sum()), 1e-300)
    precision = float((weights * off**2).sum())
    drop = -float((weights * off * residuals).sum())
    return (drop - slope * precision) / math.sqrt(precision) if precision > 0.0 else 0.0


def lack_of_fit(
    queries: Floats, residuals: Floats, weights: Floats, level: float, center: float, steep: float, bend: float
) -> float:
    """χ² of the answers about the curve, rounds grouped by their question; infinite where no round is near.

    Single rounds would drown a step of the curve in their own noise; groups add up what leans one way.
    """
    order = np.argsort(queries, kind="stable")
    x = np.clip(steep * (queries - center), -2.0, 2.0)
    gap, weights = (residuals - (level - _ranks(level, x, bend)))[order], weights[order]
    total = float(weights.sum())
    if not total > 0.0:
        return math.inf
    before = (np.cumsum(weights) - 0.5 * weights) / total
    # Rounds of equal length lie exactly on the borders: rounding must not decide on which side.
    group = np.minimum((before * GROUPS + ON_BORDER).astype(int), GROUPS - 1)
    sums, masses = np.bincount(group, weights * gap, GROUPS), np.bincount(group, weights, GROUPS)
    return float((sums**2 / np.maximum(masses, 1e-300)).sum())


class ClientLines(NamedTuple):
    """What the lines of all clients give together, on the working scale."""

    center: float
    """Q̂."""
    error: float
    """Its standard error, for a known slope."""
    slope: float
    """f."""
    slope_error: float
    """ρ: relative standard error of f."""


def fit_by_client(fit: CurveFit, answers: ClientAnswers, weights: Floats, level: float, share: float) -> CurveFit:
    """The fit of one run with silent clients: centre, slope and their errors are those of the clients' own lines.

    `fit` is the curve through complete rounds and pools; its bend and its diagnostics stay. `weights` are p_k; `share`
    is what knowing the clients' ranks leaves of the noise (`variance_share`).
    """
    if not fit.slope_error < UNKNOWN_SLOPE:
        return fit
    queries, precisions = answers.queries, answers.precisions / share
    scale = level * (1.0 - level)
    x = fit.slope / scale * (queries - fit.center)
    offered = 1.0 / float((weights**2 / precisions.sum(axis=0)).sum())
    near = np.abs(x) <= min(NEAR, max(MIN_NEAR, NEAR_ERRORS / (scale * offered**0.5)))
    kept = np.where(near[:, None], precisions, 0.0)
    if not bool(np.all(kept.sum(axis=0) > 0.0)):
        # A client was silent wherever it would have counted: nothing bounds the error.
        return fit._replace(error=math.inf, slope_error=math.inf)
    clipped = np.clip(x, -2.0, 2.0)
    logits = np.log(level / (1.0 - level)) + clipped + fit.bend * clipped**2
    bent = 1.0 / (1.0 + np.exp(-logits)) - level - scale * clipped
    lines = fit_client_lines(queries, answers.residuals + bent[:, None], kept, weights)
    unbiased = max(1.0 - DRIFT_BIAS * lines.slope_error**2, 0.1)
    known = max(1.0 - fit.bend_share, 0.1)
    return fit._replace(
        center=lines.center,
        error=lines.error / (unbiased * known**0.5),
        slope=lines.slope * unbiased,
        slope_error=lines.slope_error,
    )


def fit_client_lines(queries: Floats, residuals: Floats, precisions: Floats, weights: Floats) -> "ClientLines":
    """The root of the clients' lines.

    Rounds × clients: y_k − (1 − τ_k) and its precision 4r_k²E, 0 where the client was silent; `weights` are p_k.
    Each client has answered at least once.

    >>> q = np.linspace(-0.4, 0.4, 9)
    >>> y = np.stack([0.1 - 0.5 * q, -0.1 - 1.0 * q], axis=1)
    >>> precision = np.full((9, 2), 100.0)
    >>> precision[::2, 1] = 0.0  # the second client misses every other round
    >>> lines = fit_client_lines(q, y, precision, np.array([0.5, 0.5]))
    >>> round(lines.center, 9), round(lines.slope, 9)
    (0.0, 0.75)
    """
    total = precisions.sum(axis=0)
    asked = (precisions * queries[:, None]).sum(axis=0) / total
    means = (precisions * residuals).sum(axis=0) / total
    off = queries[:, None] - asked
    spread = (precisions * off**2).sum(axis=0)
    falls = -(precisions * off * residuals).sum(axis=0)
    known = spread > 0.0
    if not bool(known.any()):
        return ClientLines(float(weights @ asked), np.inf, 0.0, np.inf)
    safe = np.where(known, spread, 1.0)
    slopes = np.where(known, falls / safe, falls.sum() / spread.sum())
    variances = 1.0 / np.where(known, spread, spread.sum())
    slope = float(weights @ slopes)
    if not slope > 0.0:
        return ClientLines(float(weights @ asked), np.inf, max(slope, 0.0), np.inf)
    center = float(weights @ means + weights @ (slopes * asked)) / slope
    variance = float((weights**2 / total).sum() + (weights**2 * (asked - center) ** 2 * variances).sum())
    relative = float((weights**2 * variances).sum()) ** 0.5 / slope
    return ClientLines(center, variance**0.5 / slope, slope, relative)


BRACKETING = "bracketing questions"


@dataclass(frozen=True, eq=False)
class Curve:
    """The curve through the answers of one run, with the intervals that come from it."""

    fit: CurveFit
    inference: Inference
    """The smooth interval."""
    answers: Floats
    """Three rows: queries, τ − F̂ there, and its noise."""
    level: float
    clients: ClientAnswers | None
    """Every client's own answers, where some were silent."""
    weights: Floats
    """p_k of these clients."""

    @cached_property
    def stretches(self) -> Bracket:
        """The questions between which the quantile lies, whatever the distribution."""
        queries, drifts, noise = self.answers
        rows, residuals, precisions = queries, drifts[:, None], 1.0 / noise[:, None]
        if self.clients is not None:
            rows, residuals, precisions = self.clients.queries, self.clients.residuals, self.clients.precisions
        reach = probe_reach(self.level, 1.0 / float((1.0 / noise).sum()), self.fit.slope)
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


def fit_run(
    state: RoundState, trajectory: Trajectory, plan: Plan, *, guess: float | None = None, file: bool = False
) -> Curve:
    """Fit a run's answers: estimate, interval and diagnostics. Silent clients are fitted one by one.

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
        queries,
        drifts,
        noise * share,
        plan.level,
        start=float(trajectory.asked.mean()),
        # Where the answers give no slope: that of a rank that rises evenly over the range.
        slope=first or 1.0 / (high - low),
        window=np.arange(len(noise)) >= len(noise) - rounds,
    )
    if guess is None:
        # A guess from the window itself is no second opinion on the slope.
        fit = fit._replace(slope_ratio=1.0)
    clients, weights = trajectory.clients, np.array([client.weight for client in plan.clients])
    if clients is not None:
        fit = fit_by_client(fit, clients, weights, plan.level, share)
    heard = answers[:, np.isfinite(noise)]
    law = FiellerLaw(fit.slope_error, information_in(heard[2], plan.level))
    error = fit.error * math.sqrt(left_for_file(fit, answers, state, plan) if file else 1.0)
    inference = Inference("smooth", fit.center, error, law.quantile, law.tail)
    # The mixture is one client, unless some were silent.
    return Curve(fit, inference, heard, plan.level, clients, np.ones(1) if clients is None else weights)


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
    inflation = 1.0 / fit.used if fit.used else math.inf
    return max(file_share(state, plan, state.asked, wander, inflation), 0.01)
