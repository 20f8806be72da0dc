"""The smooth reading of a straddling run: a curve through the same answers, for values declared continuous.

`curve.fit_curve` fits all answers near the quantile, started inside the places where the answers change sign
(`estimator.antitonic`): a curve that left them has not converged and is moved back. The interval is Fieller's, with its
correction for low information (`laws.fieller`).

The reading is withdrawn where it contradicts the any-shape interval of the same answers: a centre outside of it.
"""

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats, array_namespace
from privatile.estimator.antitonic import sign_change
from privatile.estimator.straddle_window import Window
from privatile.inference.curve import CurveFit, fit_curve

PLACED = 1.03
"""The questions were placed by the same answers that are fitted. To second order, whatever the information, that
makes the centre's error 3% to 4% larger than the fit says (27 cells at information 60,000: .943 covered without it)."""


def fit_smooth(queries: Floats, residuals: Floats, variances: Floats, level: float, window: Window) -> CurveFit:
    """The curve through the answers of every run (runs × rounds; an infinite variance leaves a round out).

    `window` gives the first guesses. A centre outside the places where the answers change sign is replaced by the
    window's own, moved between them.
    """
    xp = array_namespace(queries)
    below, above = sign_change(window.places, window.sums, window.precisions)
    start = xp.clip(window.center, below, above)
    # A window that has not begun has no slope of its own; NaN stays NaN and the fit reports an infinite error.
    fit = fit_curve(
        queries,
        residuals,
        variances,
        level,
        start=start,
        slope=window.slope / window.spread,
        window=xp.isfinite(variances),
    )
    stray = (fit.center < below) | (fit.center > above)
    return fit._replace(center=xp.where(stray, start, fit.center), error=PLACED * fit.error)


def withdrawn(center: Floats, low: Floats, high: Floats) -> NDArray[np.bool_]:
    """Whether the any-shape interval contradicts a smooth centre: it lies outside."""
    outside: NDArray[np.bool_] = (center < low) | (center > high)
    return outside
