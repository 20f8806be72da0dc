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
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats, array_namespace
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

LARGEST_BEND = 0.6
"""… which is sought between minus and plus this."""

NEAR = 1.5
"""Rounds asked within this many local spreads of the quantile enter the fit, in any stage of the run. The probes are
near enough even where the spread was believed to be twice too wide."""

NEAR_ERRORS = 30.0
"""They must also lie within this many standard errors, almost twice the reach of the probes: with more records the fit
uses questions closer to the quantile, so errors of the model further out matter less."""

NEAR_LEAST = 0.2
"""This many spreads are always near enough: errors of the model there change the slope by 1% or 2%, and the questions
of the search stabilise it where the probes lie too close together."""

DRIFT_BIAS = 1.0
"""f̂ exceeds f by about 2ρ²: a path that answers its own noise regresses too steeply, by 4/N (Kendall's bias of an
AR(1)), N/2 being its share of the slope's precision 1/ρ². Half of the bias is removed; Fieller's interval allows for
the rest. In the linear model it then covers .949 to .950 from 27 relaxations on (`studies/coverage/calibrate.py`); with
all of the bias removed it covers .954 to .958 and is 2% wider."""

LARGEST_SLOPE_ERROR = 0.35
"""Above this a 95% interval is 1.4 times as wide as with a known slope, and its law is no longer Fieller's."""

UNKNOWN_SLOPE = 1.0
"""From this relative error on the answers say nothing about the slope: centre and slope stay at their first guesses;
there is no bend and no misfit. What the fit found would be rounding errors, other ones on each machine."""

ON_BORDER = 1e-9
"""A round this close below the border of two groups, in groups, lies on it."""

GROUPS = 8
SUSPECT_MISFIT, LARGEST_MISFIT = 15.5, 22.0
"""Near rounds in eight groups by their question, equal in precision; the squared standardised residuals of the groups
sum to χ² with about 5.9 degrees of freedom where the curve is smooth. The first is exceeded in 1–2% of such runs
(normal, t₃, log-normal, Laplace, uniform, mixtures; information 1,500–600,000) and leads to a warning, the second in
0.1%, and widens the interval. Ages in whole years (spread 12) exceed the first in a quarter of the runs at information
6,000, and both in all runs at 60,000."""

LEAST_SLOPE = 0.45
"""A fitted slope below this share of what search and probes believed leads to a warning. Between two separate humps,
four runs in five are below; of smooth runs with 200 rounds at most 1% (log-normal, τ = 0.8), with 20 rounds 14%. The
interval is not widened: a belief that was too steep looks the same."""

LARGEST_SLOPE_CONTRAST = (-3.5, 5.0)
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
    """The fitted curves, one entry per run; all on the working scale."""

    center: Floats
    """Q̂."""
    error: Floats
    """Its standard error, the slope's bias removed."""
    slope: Floats
    """f̂, bias removed."""
    slope_error: Floats
    """ρ: relative standard error of f̂."""
    bend: Floats
    bend_share: Floats
    """Share of the error's square that stems from not knowing the bend."""
    used: Floats
    """Share of the offered precision that lay near enough."""
    slope_clipped: NDArray[np.bool_]
    """Whether the slope was clipped at the edge of what its first guess allows: the fit is then no estimate."""
    misfit: Floats
    """χ² of the near rounds about the curve; see `LARGEST_MISFIT`."""
    slope_ratio: Floats
    """f̂ as a share of its first guess; see `LEAST_SLOPE`."""
    slope_contrast: Floats
    """Standard errors between the window's own slope and the curve's; see `LARGEST_SLOPE_CONTRAST`."""

    def of_run(self, run: int) -> "CurveFit":
        """The fit of one run: the same fields, as numbers."""
        return CurveFit(*(values[run] for values in self))

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
    def holds(self) -> NDArray[np.bool_]:
        """Whether the diagnostics allow the smooth interval."""
        known = (self.slope_error <= LARGEST_SLOPE_ERROR) & (self.error < math.inf)
        return known & ~self.slope_clipped & self.smooth

    @property
    def smooth(self) -> NDArray[np.bool_]:
        """Whether the answers follow the curve: no step and no flat stretch shows."""
        low, high = LARGEST_SLOPE_CONTRAST
        straight = (self.slope_contrast >= low) & (self.slope_contrast <= high)
        return straight & (self.misfit <= LARGEST_MISFIT)

    @property
    def suspect(self) -> NDArray[np.bool_]:
        """Whether an atom or a gap may be there: the result warns."""
        return ~self.smooth | (self.misfit > SUSPECT_MISFIT) | (self.slope_ratio < LEAST_SLOPE)


def fit_curve(
    queries: Floats,
    residuals: Floats,
    variances: Floats,
    level: float,
    *,
    start: Floats,
    slope: Floats,
    window: NDArray[np.bool_],
    bend_doubt: float = BEND,
    near_errors: float = NEAR_ERRORS,
    largest_bend: float = LARGEST_BEND,
) -> "CurveFit":
    """Fit runs × rounds of answers; an infinite variance leaves a round out.

    `start` and `slope` are first guesses of Q and f; the slope is sought within a factor of 8 of its guess. `window`
    marks the rounds that followed the recursion, `bend_doubt` is the prior standard deviation of κ, `largest_bend` the
    largest |κ|, and rounds within `near_errors` standard errors enter.

    >>> q = np.linspace(-0.2, 0.4, 41)[None]
    >>> y = 0.5 - 1 / (1 + np.exp(-4 * (q - 0.1)))  # f = 1 at Q = 0.1, no noise
    >>> guesses = {"start": np.array([0.0]), "slope": np.array([0.5]), "window": np.ones((1, 41), dtype=bool)}
    >>> fit = fit_curve(q, y, np.full((1, 41), 1e-2), 0.5, **guesses)
    >>> [round(float(value[0]), 2) for value in (fit.center, fit.slope, fit.slope_error, fit.bend)]
    [0.1, 0.99, 0.11, 0.0]
    """
    xp = array_namespace(queries)
    scale = level * (1.0 - level)
    first = slope / scale
    center, steep, bend = start.astype(float), first.astype(float), xp.zeros(len(start))
    precision = xp.where(xp.isfinite(variances), 1.0 / variances, 0.0)
    # Nothing offered: nobody of a client has answered yet.
    offered = xp.maximum(precision.sum(axis=1), 1e-300)
    weights = precision
    near = xp.minimum(NEAR, xp.maximum(NEAR_LEAST, near_errors / (scale * xp.sqrt(offered))))
    eye, prior = xp.eye(3), xp.diag([0.0, 0.0, bend_doubt**-2])
    slope_clipped = xp.zeros(len(start), dtype=xp.bool_)
    matrix = xp.zeros((len(start), 3, 3))
    damping, best = xp.zeros(len(start)), xp.full(len(start), math.inf)
    kept: tuple[NDArray[Any], ...] = (center, steep, bend, slope_clipped, matrix, xp.zeros((len(start), 3)))
    for turn in range(STEPS):
        x = steep[:, None] * (queries - center[:, None])
        if turn >= 2:
            # Which rounds are near is settled after two steps, then kept: a moving choice need not converge.
            weights = precision * (xp.abs(x) <= near[:, None]) if turn == 2 else weights
        x = xp.clip(x, -2.0, 2.0)
        ranks = _ranks(level, x, bend)
        gap = residuals - (level - ranks)
        density = ranks * (1.0 - ranks)
        along = density * (1.0 + 2.0 * bend[:, None] * x)
        # In unit-free unknowns βQ, log β and κ, so that the matrix is well scaled.
        slopes = xp.stack([along, -along * x, -density * x**2], axis=-1)
        weighted = weights[..., None] * slopes
        matrix = xp.einsum("rmi,rmj->rij", weighted, slopes) + prior
        gradient = xp.einsum("rmi,rm->ri", weighted, gap)
        gradient[:, 2] -= bend / bend_doubt**2
        squares = (weights * gap**2).sum(axis=1) + (bend / bend_doubt) ** 2
        worse = (squares > best * (1.0 + WORSE)) & (turn > 2)
        damping = xp.where(worse, xp.maximum(8.0 * damping, 0.1), xp.where(damping > 1e-3, damping / 8.0, 0.0))
        best = xp.where(worse, best, squares)
        found = (center, steep, bend, slope_clipped, matrix, gradient)
        if bool(worse.any()):
            kept = tuple(
                xp.where(worse.reshape(-1, *(1,) * (new.ndim - 1)), old, new)
                for old, new in zip(kept, found, strict=True)
            )
        else:
            kept = found
        center, steep, bend, slope_clipped, matrix, gradient = kept
        ridge = 1e-12 * xp.trace(matrix, axis1=1, axis2=2)[:, None, None] * eye
        change = xp.linalg.solve(matrix * (1.0 + damping[:, None, None] * eye) + ridge, gradient[..., None])[..., 0]
        if turn > 2 and not bool((xp.abs(change) > SETTLED).any()):
            break
        center = center + xp.clip(change[:, 0], -2.0, 2.0) / steep
        wanted = steep * xp.exp(xp.clip(change[:, 1], -1.0, 1.0))
        steep = xp.clip(wanted, first / 8.0, first * 8.0)
        slope_clipped = wanted != steep
        bend = xp.clip(bend + change[:, 2], -largest_bend, largest_bend)
    spread = xp.linalg.inv(matrix + 1e-12 * xp.trace(matrix, axis1=1, axis2=2)[:, None, None] * eye)
    relative = xp.sqrt(spread[:, 1, 1])
    pair = matrix[:, :2, :2]
    straight = pair[:, 1, 1] / (pair[:, 0, 0] * pair[:, 1, 1] - pair[:, 0, 1] ** 2 + 1e-300)
    unbiased = xp.maximum(1.0 - DRIFT_BIAS * relative**2, 0.1)
    known = relative < UNKNOWN_SLOPE
    misfit = lack_of_fit(queries, residuals, weights, level, center, steep, bend)
    return CurveFit(
        xp.where(known, center, start),
        xp.where(known, xp.sqrt(spread[:, 0, 0]) / (steep * unbiased), 1.0 / (slope * xp.sqrt(offered))),
        xp.where(known, scale * steep * unbiased, slope),
        relative,
        xp.where(known, bend, 0.0),
        xp.where(known, xp.clip(1.0 - straight / spread[:, 0, 0], 0.0, 1.0), 0.0),
        weights.sum(axis=1) / offered,
        slope_clipped,
        xp.where(known | xp.isinf(misfit), misfit, 0.0),
        steep * unbiased / first,
        slope_contrast_of(queries, residuals, xp.where(window, weights, 0.0), scale * steep),
    )


def _ranks(level: float, x: Floats, bend: Floats) -> Floats:
    """F = L(logit τ + x + κx²)."""
    target_logit = math.log(level / (1.0 - level))
    ranks: Floats = 0.5 * (1.0 + array_namespace(x).tanh(0.5 * (target_logit + x + bend[:, None] * x**2)))
    return ranks


def slope_contrast_of(queries: Floats, residuals: Floats, weights: Floats, slope: Floats) -> Floats:
    """(f_w − f)/s.e., f_w minus the slope of the answers on the questions of the window alone; 0 where it has none."""
    xp = array_namespace(queries)
    total = xp.maximum(weights.sum(axis=1), 1e-300)[:, None]
    off = queries - (weights * queries).sum(axis=1)[:, None] / total
    precision = (weights * off**2).sum(axis=1)
    drop = -(weights * off * residuals).sum(axis=1)
    contrast: Floats = xp.where(
        precision > 0.0, (drop - slope * precision) / xp.sqrt(xp.maximum(precision, 1e-300)), 0.0
    )
    return contrast


def lack_of_fit(
    queries: Floats, residuals: Floats, weights: Floats, level: float, center: Floats, steep: Floats, bend: Floats
) -> Floats:
    """χ² of the answers about the curve, rounds grouped by their question; infinite where no round is near.

    Single rounds would drown a step of the curve in their own noise; groups add up what leans one way.
    """
    xp = array_namespace(queries)
    x = xp.clip(steep[:, None] * (queries - center[:, None]), -2.0, 2.0)
    ranks = _ranks(level, x, bend)
    order = xp.argsort(queries, axis=1, kind="stable")
    weights = xp.take_along_axis(weights, order, axis=1)
    gap = xp.take_along_axis(residuals - (level - ranks), order, axis=1)
    total = weights.sum(axis=1)
    before = (xp.cumsum(weights, axis=1) - 0.5 * weights) / xp.maximum(total, 1e-300)[:, None]
    # Rounds of equal length lie exactly on the borders: rounding must not decide on which side.
    group = xp.minimum((before * GROUPS + ON_BORDER).astype(int), GROUPS - 1)
    found = xp.zeros(len(queries))
    for k in range(GROUPS):
        part = xp.where(group == k, weights, 0.0)
        found += (part * gap).sum(axis=1) ** 2 / xp.maximum(part.sum(axis=1), 1e-300)
    misfit: Floats = xp.where(total > 0.0, found, xp.inf)
    return misfit


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
    if not float(fit.slope_error) < UNKNOWN_SLOPE:
        return fit
    queries, precisions = answers.queries, answers.precisions / share
    scale = level * (1.0 - level)
    x = float(fit.slope) / scale * (queries - float(fit.center))
    offered = 1.0 / float((weights**2 / precisions.sum(axis=0)).sum())
    near = np.abs(x) <= min(NEAR, max(NEAR_LEAST, NEAR_ERRORS / (scale * offered**0.5)))
    kept = np.where(near[:, None], precisions, 0.0)
    if not bool(np.all(kept.sum(axis=0) > 0.0)):
        # A client was silent wherever it would have counted: nothing bounds the error.
        return fit._replace(error=np.asarray(np.inf), slope_error=np.asarray(np.inf))
    clipped = np.clip(x, -2.0, 2.0)
    logits = np.log(level / (1.0 - level)) + clipped + float(fit.bend) * clipped**2
    bent = 1.0 / (1.0 + np.exp(-logits)) - level - scale * clipped
    lines = fit_client_lines(queries, answers.residuals + bent[:, None], kept, weights)
    unbiased = max(1.0 - DRIFT_BIAS * lines.slope_error**2, 0.1)
    known = max(1.0 - float(fit.bend_share), 0.1)
    return fit._replace(
        center=np.asarray(lines.center),
        error=np.asarray(lines.error / (unbiased * known**0.5)),
        slope=np.asarray(lines.slope * unbiased),
        slope_error=np.asarray(lines.slope_error),
    )


def fit_client_lines(queries: Floats, residuals: Floats, precisions: Floats, weights: Floats) -> "ClientLines":
    """The root of the clients' lines.

    Rounds × clients: y_k − (1 − τ_k) and its precision 4r_k²E, 0 where the client was silent; `weights` are p_k.

    >>> q = np.linspace(-0.4, 0.4, 9)
    >>> y = np.stack([0.1 - 0.5 * q, -0.1 - 1.0 * q], axis=1)
    >>> precision = np.full((9, 2), 100.0)
    >>> precision[::2, 1] = 0.0  # the second client misses every other round
    >>> lines = fit_client_lines(q, y, precision, np.array([0.5, 0.5]))
    >>> round(lines.center, 9), round(lines.slope, 9)
    (0.0, 0.75)
    """
    total = precisions.sum(axis=0)
    if not bool(np.all(total > 0.0)):
        silent = np.flatnonzero(total == 0.0)
        raise InputError(
            f"client number {int(silent[0]) + 1} has not answered near the quantile: its rank there is not known. "
            "Wait for its answers, or leave it out (a new estimand)."
        )
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
