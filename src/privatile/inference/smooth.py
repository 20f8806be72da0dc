"""The smooth reading of a straddling run: a curve through the same answers, for values declared continuous.

`curve.fit_curve` fits all answers near the quantile, started inside the places where the answers change sign
(`estimator.antitonic`): a curve that left them has not converged and is moved back. The interval is Fieller's, with its
correction for low information (`laws.fieller`).

What speaks against the reading is in `readings.reason_against`.
"""

from typing import NamedTuple

from privatile.core.arrays import Floats, array_namespace
from privatile.estimator.open_ended import SURE, OpenEnd
from privatile.estimator.search import CERTAIN, sign_change
from privatile.estimator.window import PLENTY, Window
from privatile.inference.curve import LARGEST_BEND, NEAR_ERRORS, CurveFit, fit_curve

PLACED = 1.03
"""The questions were placed by the same answers that are fitted. To second order, whatever the information, that
makes the centre's error 3% to 4% larger than the fit says (27 cells at information 60,000: .943 covered without it)."""

BEND_DOUBT = 0.45
"""Prior standard deviation of the bend κ here, 0.3 elsewhere: the questions lie further out, where κ = 0.7 between two
humps moves the centre by half a standard error. At information 6,000, in 27 smooth cells of 1,000 runs with every
eighth round at the centre, the error over the bound is 1.058 in the median and 1.15 at most;
with 0.3 it is 1.055 and 1.17, with 0.6 1.063 and 1.15."""

FREER_BEND_DOUBT, FREER_LARGEST_BEND, FREER_NEAR_ERRORS = 0.75, 1.2, 70.0
"""From information `PLENTY` on: κ is 0.9 among three humps, and answers of the search, up to 70 standard errors away,
tell it. Together with the layout there and with surer places of the centre (`fit_smooth`) that brings the largest error
over the bound from 1.17 to 1.11 (20,000 runs, information 6,000), and the median over all smooth laws from 1.052 to
1.046."""

OPEN_BEND_DOUBT = 0.35
"""The same without a known end. There every tenth round asks the centre, not every fifth, and the doubt about κ widens
intervals more. At information 6,300, 1,000 runs a law, 0.45 covers .947 (two humps) to .967 (Laplace), 0.3 .932 to
.966; and nothing is added for the placement: errors of the centre are what the fit says, within 2%."""


Straddled = Window | OpenEnd
"""What a straddling window has learned, with or without a known end."""


def placement_factor(window: Straddled) -> float:
    """By how much the placement of the questions makes the centre's error larger than the fit says."""
    return 1.0 if isinstance(window, OpenEnd) else PLACED


class SmoothFits(NamedTuple):
    """The curve that is read, and the one that it has to agree with."""

    curve: CurveFit
    nearer: CurveFit
    """A stiffer one through nearer answers alone, from information `PLENTY` on; below, the curve itself."""

    @property
    def apart(self) -> Floats:
        """Standard errors of the nearer slope between the two slopes."""
        xp = array_namespace(self.curve.center)
        logs = [xp.log(xp.maximum(xp.abs(fit.slope), 1e-300)) for fit in self]
        result: Floats = xp.abs(logs[0] - logs[1]) / xp.maximum(self.nearer.slope_error, 1e-300)
        return result

    def of_run(self, run: int) -> "SmoothFits":
        """The fits of one run."""
        return SmoothFits(self.curve.of_run(run), self.nearer.of_run(run))


def fit_smooth(
    queries: Floats,
    residuals: Floats,
    variances: Floats,
    level: float,
    window: Straddled,
    information: float,
    *,
    at_every_look: bool = False,
) -> SmoothFits:
    """The curve through the answers of every run (runs × rounds; an infinite variance leaves a round out).

    `window` gives the first guesses, `information` is that of all records of a plan with a known end. A centre outside
    the places where the answers change sign is replaced by the window's own, moved between them. Without a known end,
    from information `PLENTY` on, and where the curve is read at every look, the places must be `SURE` (4 standard
    errors): with 2.5 they exclude the quantile in 1% to 2% of the runs, and the error over the bound is .02 larger
    (information 6,000, 20,000 runs).
    """
    xp = array_namespace(queries)
    is_open = isinstance(window, OpenEnd)
    plenty = not is_open and information >= PLENTY
    z = SURE if is_open or plenty or at_every_look else CERTAIN
    below, above = sign_change(window.places, window.sums, window.precisions, z)
    start = xp.clip(window.center, below, above)

    def fitted(bend_doubt: float, largest_bend: float, near_errors: float) -> CurveFit:
        # A window that has not begun has no slope of its own; NaN stays NaN and the fit reports an infinite error.
        fit = fit_curve(
            queries,
            residuals,
            variances,
            level,
            start=start,
            slope=window.slope / window.spread,
            window=xp.isfinite(variances),
            bend_doubt=bend_doubt,
            largest_bend=largest_bend,
            near_errors=near_errors,
        )
        stray = (fit.center < below) | (fit.center > above)
        return fit._replace(center=xp.where(stray, start, fit.center), error=placement_factor(window) * fit.error)

    nearer = fitted(OPEN_BEND_DOUBT if is_open else BEND_DOUBT, LARGEST_BEND, NEAR_ERRORS)
    if not plenty:
        return SmoothFits(nearer, nearer)
    return SmoothFits(fitted(FREER_BEND_DOUBT, FREER_LARGEST_BEND, FREER_NEAR_ERRORS), nearer)
