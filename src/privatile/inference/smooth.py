"""The smooth reading of a straddling run: a curve through the same answers, for values declared continuous.

`curve.fit_curve` fits all answers near the quantile, started inside the places where the answers change sign
(`straddle.sign_change`): a curve that left them has not converged and is moved back. The interval is Fieller's, with
its correction for low information (`laws.ratio`).

What speaks against the reading is in `reading.reason_against`.
"""

import math
from typing import NamedTuple

import numpy as np

from privatile.core.arrays import Floats
from privatile.estimator.open_ended import SURE, OpenRun
from privatile.estimator.straddle import CERTAIN, PLENTY, Run, sign_change
from privatile.inference.curve import MAX_BEND, NEAR_ERRORS, CurveFit, fit_curve

PLACED = 1.03
"""The questions were placed by the same answers that are fitted. To second order, whatever the information, that
makes the centre's error 3% to 4% larger than the fit says (27 cells at information 60,000: .943 covered without it)."""

BEND_DOUBT = 0.45
"""Prior standard deviation of the bend κ here, 0.3 elsewhere: the questions lie further out, where κ = 0.7 between two
humps moves the centre by half a standard error. At information 6,000, in 27 smooth cells of 1,000 runs with every
eighth round at the centre, the error over the bound is 1.058 in the median and 1.15 at most;
with 0.3 it is 1.055 and 1.17, with 0.6 1.063 and 1.15."""

FREER_BEND_DOUBT, FREER_MAX_BEND, FREER_NEAR_ERRORS = 0.75, 1.2, 70.0
"""From information `PLENTY` on: κ is 0.9 among three humps, and answers of the search, up to 70 standard errors away,
tell it. Together with the layout there and with surer places of the centre (`fit_smooth`) that brings the largest error
over the bound from 1.17 to 1.11 (20,000 runs, information 6,000), and the median over all smooth laws from 1.052 to
1.046."""

OPEN_BEND_DOUBT = 0.35
"""The same without a known end. There every tenth round asks the centre, not every fifth, and the doubt about κ widens
intervals more. At information 6,300, 1,000 runs a law, 0.45 covers .947 (two humps) to .967 (Laplace), 0.3 .932 to
.966; and nothing is added for the placement: errors of the centre are what the fit says, within 2%."""


class SmoothFits(NamedTuple):
    """The curve that is read, and the one that it has to agree with."""

    curve: CurveFit
    nearer: CurveFit
    """A stiffer one through nearer answers alone, from information `PLENTY` on; below, the curve itself."""

    @property
    def apart(self) -> float:
        """Standard errors of the nearer slope between the two slopes."""
        one, other = (math.log(max(abs(fit.slope), 1e-300)) for fit in self)
        return abs(one - other) / max(self.nearer.slope_error, 1e-300)


def placement_factor(run: Run | OpenRun) -> float:
    """By how much the placement of the questions makes the centre's error larger than the fit says."""
    return 1.0 if isinstance(run, OpenRun) else PLACED


def fit_smooth(
    queries: Floats,
    residuals: Floats,
    variances: Floats,
    level: float,
    run: Run | OpenRun,
    information: float,
    *,
    at_every_look: bool = False,
) -> SmoothFits:
    """The curve through the answers of a run; an infinite variance leaves a round out.

    The window of the `run` gives the first guesses, `information` is that of all records of a plan with a known end. A
    centre outside the places where the answers change sign is replaced by the window's own, moved between them. Without
    a known end, from information `PLENTY` on, and where the curve is read at every look, the places must be `SURE` (4
    standard errors): with 2.5 they exclude the quantile in 1% to 2% of the runs, and the error over the bound is .02
    larger (information 6,000, 20,000 runs).
    """
    if isinstance(run, OpenRun):
        is_open, asked, center, slope = True, run.answers, run.center, run.slope
    else:
        is_open, asked, center, slope = False, run.asked, run.window.center, run.window.slope
    plenty = not is_open and information >= PLENTY
    below, above = sign_change(asked, SURE if is_open or plenty or at_every_look else CERTAIN)
    start = min(max(center, below), above)

    def fitted(bend_doubt: float, largest_bend: float, near_errors: float) -> CurveFit:
        fit = fit_curve(
            queries,
            residuals,
            variances,
            level,
            start=start,
            slope=slope / run.fit.spread,
            window=np.isfinite(variances),
            bend_doubt=bend_doubt,
            largest_bend=largest_bend,
            near_errors=near_errors,
        )
        stray = not below <= fit.center <= above
        return fit._replace(center=start if stray else fit.center, error=placement_factor(run) * fit.error)

    nearer = fitted(OPEN_BEND_DOUBT if is_open else BEND_DOUBT, MAX_BEND, NEAR_ERRORS)
    if not plenty:
        return SmoothFits(nearer, nearer)
    return SmoothFits(fitted(FREER_BEND_DOUBT, FREER_MAX_BEND, FREER_NEAR_ERRORS), nearer)
