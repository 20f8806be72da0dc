"""Exact distributions: the law of the self-normalised statistic on a schedule, its linear model, Fieller's, the normal.

`critical` is the entrance; `brownian` and `simulated` compute its laws, `linear_model` that of a run with few
relaxations. `ratio` holds the integral that they share, the law of an estimate that was divided by an estimated slope,
and the normal distribution's critical values.
"""

from privatile.laws.critical import CriticalValue, critical_value, statistic_law
from privatile.laws.linear_model import linear_law
from privatile.laws.ratio import FiellerLaw, RatioLaw, fieller_reach, one_sided_z, two_sided_z
from privatile.laws.simulated import SimulatedLaw

__all__ = [
    "CriticalValue",
    "FiellerLaw",
    "RatioLaw",
    "SimulatedLaw",
    "critical_value",
    "fieller_reach",
    "linear_law",
    "one_sided_z",
    "statistic_law",
    "two_sided_z",
]
