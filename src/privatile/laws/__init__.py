"""Exact distributions: the law of the self-normalised statistic on a schedule, its linear model, the normal one.

`critical` is the entrance; `brownian` and `simulated_law` compute its laws, `linear_model` that of a run with few
relaxations, and `ratio_law` holds the integral that they share.
"""

from privatile.laws.critical import CriticalValue, Normalizer, critical_value, statistic_law
from privatile.laws.linear_model import linear_law
from privatile.laws.normal import two_sided_z
from privatile.laws.ratio_law import RatioLaw
from privatile.laws.simulated_law import SimulatedLaw

__all__ = [
    "CriticalValue",
    "Normalizer",
    "RatioLaw",
    "SimulatedLaw",
    "critical_value",
    "linear_law",
    "statistic_law",
    "two_sided_z",
]
