"""The quantile from the whole transcript: the distribution's curve through the answers.

A round asked at q gives y = τ − F(q) + noise, the noise's variance w known by design. Near the quantile Q

    F(q) = L( logit τ + x + κx² ),  x = β(q − Q),  L the logistic function, f = τ(1 − τ)β the slope at Q

Q, β and the bend κ are unknown. Weighted least squares gives them (Gauss–Newton), κ with the prior N(0, 0.3²), its
unit-free size in common laws (at τ = 0.8: normal 0.06, t₃ −0.07, log-normal −0.23, Cauchy −0.39, uniform +0.30). So the
interval includes what the answers do not tell about the bend. Given β and κ, Q̂ is the mean of q + y/f. It is efficient
for any path of questions and needs no relaxation. An error of the slope enters only multiplied by the small distance
between the mean of the questions and Q.

The interval is `laws.fieller`'s, with ρ the relative error of the slope.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats, array_namespace

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
