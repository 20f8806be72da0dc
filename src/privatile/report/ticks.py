"""Round numbers along an axis."""

from __future__ import annotations

import math


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten inside [low, high], some `about` of them.

    >>> ticks(0.788, 1.0, 3), ticks(47_512, 53_930), ticks(0.0, 2.65, 3)
    ([0.8, 0.9, 1.0], [48000.0, 50000.0, 52000.0], [0.0, 1.0, 2.0])
    >>> ticks(5.0, 5.0)
    [5.0]
    """
    if not (math.isfinite(low) and math.isfinite(high) and high > low):
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / about))
    step = min((part * power for part in (1.0, 2.0, 2.5, 5.0, 10.0)), key=lambda step: _misfit(low, high, step, about))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    # Multiplied, not added up; digits behind the step's own are rounding.
    return [round(number * step, 12 - math.floor(math.log10(step))) for number in range(first, last + 1)]


def _misfit(low: float, high: float, step: float, about: int) -> int:
    return abs(math.floor(high / step + 1e-9) - math.ceil(low / step - 1e-9) + 1 - about)
