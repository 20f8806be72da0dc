"""The normal distribution's critical values."""

from statistics import NormalDist

# The standard library's, exact to 1e-15: scipy.special takes 0.2 s to import, more than a small run takes.
_STANDARD = NormalDist()


def one_sided_z(alpha: float) -> float:
    """The z with P(N(0, 1) > z) = alpha.

    >>> round(one_sided_z(0.025), 6)
    1.959964
    """
    return -_STANDARD.inv_cdf(alpha)


def two_sided_z(confidence_level: float) -> float:
    """The z with P(|N(0, 1)| ≤ z) = confidence_level.

    >>> round(two_sided_z(0.95), 6)
    1.959964
    """
    return _STANDARD.inv_cdf(0.5 + confidence_level / 2.0)
