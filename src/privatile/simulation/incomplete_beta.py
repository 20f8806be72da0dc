"""The regularised incomplete beta function, for Student's t, in numpy alone."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def regularized_beta(a: float, b: float, x: Floats) -> Floats:
    """I_x(a, b) by Lentz's continued fraction, on the side where it converges fast (x < (a+1)/(a+b+2))."""
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    inside = np.clip(x, 1e-300, 1.0)
    swap = inside > (a + 1.0) / (a + b + 2.0)
    with np.errstate(divide="ignore"):
        front = np.exp(log_front + a * np.log(inside) + b * np.log1p(-inside))
    direct = front * _beta_fraction(a, b, np.where(swap, 0.5, inside)) / a
    other = 1.0 - front * _beta_fraction(b, a, np.where(swap, 1.0 - inside, 0.5)) / b
    return np.where(swap, other, direct)


def _beta_fraction(a: float, b: float, x: Floats) -> Floats:
    tiny = 1e-300
    c = np.ones_like(x)
    d = 1.0 / np.where(np.abs(start := 1.0 - (a + b) * x / (a + 1.0)) < tiny, tiny, start)
    value = d.copy()
    for i in range(1, 1000):
        for term in (
            i * (b - i) * x / ((a + 2 * i - 1) * (a + 2 * i)),
            -(a + i) * (a + b + i) * x / ((a + 2 * i) * (a + 2 * i + 1)),
        ):
            d = 1.0 + term * d
            d = 1.0 / np.where(np.abs(d) < tiny, tiny, d)
            c = 1.0 + term / c
            c = np.where(np.abs(c) < tiny, tiny, c)
            change = c * d
            value = value * change
        if np.all(np.abs(change - 1.0) < 1e-15):
            break
    return value
