"""Numbers as people read them: as many digits as an interval deserves, its ends rounded outward."""

import math


def significant(value: float, width: float) -> str:
    """A number with as many digits as its interval deserves: two of the width.

    >>> significant(49512.3456, 812.0), significant(0.123456, 0.02), significant(3.0, 0.0)
    ('49,510', '0.123', '3')
    """
    if not math.isfinite(value):
        return str(value)
    if not (math.isfinite(width) and width > 0):
        return f"{value:,.6g}"
    digits = digits_shown(value, width)
    return f"{round(value, digits):,.{max(digits, 0)}f}"


def digits_shown(value: float, width: float) -> int:
    """Decimals that a value deserves: two digits of the width, and no more than nine of the value.

    >>> digits_shown(60.0, 8e-10), digits_shown(49_512.0, 812.0)
    (7, -1)
    """
    largest = 8 - math.floor(math.log10(abs(value))) if value else 12
    return min(1 - math.floor(math.log10(width)), largest)


def outward(value: float, width: float, *, up: bool) -> str:
    """An end of an interval, rounded away from the inside: what is shown is never narrower than what holds.

    >>> outward(47_934.0, 2_456.0, up=False), outward(50_301.0, 2_456.0, up=True), significant(50_301.0, 2_456.0)
    ('47,900', '50,400', '50,300')
    """
    if not (math.isfinite(value) and math.isfinite(width)):
        return significant(value, width)
    if width <= 0.0 and float(f"{value:.6g}") == value:
        return significant(value, width)
    digits = digits_shown(value, max(width, 1e-300))
    rounded = round(value, digits)
    if rounded < value if up else rounded > value:
        rounded = round(rounded + (1 if up else -1) * 10.0**-digits, digits)
    return f"{rounded:,.{max(digits, 0)}f}"


def finite(value: float) -> float | None:
    """JSON has no infinity: nothing stands for it."""
    return value if math.isfinite(value) else None


def epsilon_text(value: float) -> str:
    """ε for people."""
    return f"{value:.4g}" if math.isfinite(value) else "∞ (not private)"


def rank_text(value: float) -> str:
    """A shift in rank for people."""
    return f"±{value:.3f} in rank" if math.isfinite(value) else "no bound"
