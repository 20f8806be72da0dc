"""Numbers as people read them: as many digits as an interval deserves, its ends rounded outward."""

import math

SMALLEST_WIDTH = 1e-300
"""Stands for no width at all: the number then gets all the digits that it deserves by itself."""


def significant(value: float, width: float) -> str:
    """A number with as many digits as its interval deserves: two of the width.

    >>> significant(49512.3456, 812.0), significant(0.123456, 0.02), significant(3.0, 0.0)
    ('49,510', '0.123', '3')
    """
    if not math.isfinite(value):
        return str(value)
    if not (math.isfinite(width) and width > 0):
        return f"{value:,.10g}"
    digits = digits_shown(value, width)
    return f"{round(value, digits):,.{max(digits, 0)}f}"


def digits_shown(value: float, width: float) -> int:
    """Decimals that a value deserves: two digits of the width, and no more than nine of the value.

    >>> digits_shown(60.0, 8e-10), digits_shown(49_512.0, 812.0)
    (7, -1)
    """
    largest = 8 - math.floor(math.log10(abs(value))) if value else 12
    return min(1 - math.floor(math.log10(width)), largest)


def outward(value: float, width: float, *, up: bool, limits: tuple[float, float] = (-math.inf, math.inf)) -> str:
    """An end of an interval, rounded away from the inside: what is shown is never narrower than what holds.

    `limits` are the ends of the stated range. An end that is one of them is shown as it is. Every other end gets as
    many digits as show it inside: a reader takes the end of the range for "the answers say nothing here".

    >>> outward(47_934.0, 2_456.0, up=False), outward(50_301.0, 2_456.0, up=True), significant(50_301.0, 2_456.0)
    ('47,900', '50,400', '50,300')
    >>> wide = {"width": 998_740.0, "limits": (1_000.0, 1_000_000.0)}
    >>> outward(1_260.0, up=False, **wide), outward(1_000.0, up=False, **wide), outward(999_990.0, up=True, **wide)
    ('1,200', '1,000', '999,990')
    """
    if not (math.isfinite(value) and math.isfinite(width)):
        return significant(value, width)
    if value in limits or (width <= 0.0 and float(f"{value:.10g}") == value):
        return plain(value)
    digits, most = digits_shown(value, max(width, SMALLEST_WIDTH)), digits_shown(value, SMALLEST_WIDTH)
    rounded = outward_to(value, digits, up=up)
    while not limits[0] < rounded < limits[1]:
        if digits >= most:
            return plain(limits[up])
        digits += 1
        rounded = outward_to(value, digits, up=up)
    return f"{rounded:,.{max(digits, 0)}f}"


def outward_to(value: float, digits: int, *, up: bool) -> float:
    """A number rounded up or down to so many decimals.

    >>> outward_to(0.1234, 3, up=False), outward_to(0.1234, 3, up=True), outward_to(0.123, 3, up=True)
    (0.123, 0.124, 0.123)
    """
    rounded = round(value, digits) if math.isfinite(value) else value
    if rounded < value if up else rounded > value:
        rounded = round(rounded + (1 if up else -1) * 10.0**-digits, digits)
    return rounded


def nearest_inside(value: float, ends: tuple[str, str], width: float, limits: tuple[float, float]) -> str:
    """An estimate with the digits that an interval of this width deserves.

    It gets more where it would leave the interval, whose ends are given as they are shown, or where it would look like
    an end of the stated range (`limits`).

    >>> nearest_inside(49_512.3, ("49,100", "49,900"), 812.0, (0.0, 1e6))
    '49,510'
    >>> nearest_inside(1_400.0, ("1,000", "900,000"), 899_000.0, (1_000.0, 1e6))
    '1,400'
    """
    if value in limits or not (math.isfinite(value) and math.isfinite(width) and width > 0.0):
        return plain(value)
    low, high = (float(end.replace(",", "")) for end in ends)
    digits, most = digits_shown(value, width), digits_shown(value, SMALLEST_WIDTH)
    while digits < most:
        rounded = round(value, digits)
        if low <= rounded <= high and limits[0] < rounded < limits[1]:
            break
        digits += 1
    return f"{round(value, digits):,.{max(digits, 0)}f}"


def plain(value: float) -> str:
    """A number as it was given: all of its digits, none more.

    >>> plain(1_000_000.0), plain(0.1), plain(1_234_567.891234)
    ('1,000,000', '0.1', '1,234,567.891234')
    """
    text = f"{value:,.15g}"
    return text if not math.isfinite(value) or float(text.replace(",", "")) == value else f"{value:,.17g}"


def finite(value: float) -> float | None:
    """JSON has no infinity: nothing stands for it."""
    return value if math.isfinite(value) else None


def epsilon_text(value: float) -> str:
    """ε for people."""
    return f"{value:.4g}" if math.isfinite(value) else "∞ (not private)"


def p_value_text(value: float) -> str:
    """A p-value for people: four decimals, and no more.

    >>> p_value_text(0.01234), p_value_text(1e-9), p_value_text(1.0)
    ('p = 0.0123', 'p < 0.0001', 'p = 1')
    """
    return "p < 0.0001" if value < 1e-4 else f"p = {value:.4f}" if value < 0.99995 else "p = 1"


def share_text(value: float) -> str:
    """A share that noisy answers give: for few of them it may lie outside 0 to 1, and is then one of these.

    >>> share_text(0.51234), share_text(-0.013), share_text(1.2), share_text(math.nan)
    ('0.512', 'about 0', 'about 1', 'not known')
    """
    if math.isnan(value):
        return "not known"
    return f"{value:.3f}" if 0.0 <= value <= 1.0 else "about 0" if value < 0.0 else "about 1"


def rank_text(value: float) -> str:
    """A bound of a shift in rank for people, rounded up."""
    return f"±{outward_to(value, 3, up=True):.3f} in rank" if math.isfinite(value) else "no bound"
