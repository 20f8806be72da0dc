"""Silent clients: one straight line per client over the rounds it answered; no answer is ever used twice.

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
"""

from typing import NamedTuple

import numpy as np

from privatile.core.arrays import Floats
from privatile.errors import InputError
from privatile.inference.curve import DRIFT_BIAS, NEAR, NEAR_ERRORS, NEAR_LEAST, UNKNOWN_SLOPE, CurveFit
from privatile.inference.trajectory import ClientAnswers


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
