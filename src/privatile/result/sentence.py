"""A result in one sentence, and the words for when its interval holds."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from privatile.result.number_words import plain

if TYPE_CHECKING:
    from privatile.result.result import QuantileResult

ANY_SHAPE = "whatever the distribution"
SMOOTH = "if the values are continuous and their distribution is smooth around the quantile"
"""When an interval holds, in words."""

LISTED = 5
"""Values of a declared grid that are listed one by one."""


HEADLINES = {
    "estimate": "{}",
    "or_less": "{} or less",
    "or_more": "{} or more",
    "above": "above {}",
    "beyond": "at or beyond an end of the range",
    "not_located": "not located",
}
"""What can stand first on a page, around its number; pages in other languages have words of their own."""


def headline_parts(result: "QuantileResult") -> tuple[str, str]:
    """What stands first on a page: one of `HEADLINES`, and the number in it, empty where it has none.

    A number that is not to be relied on is not printed large.
    """
    low, high = result.confidence_interval
    known, lost = {caveat.code for caveat in result.caveats}, (result.scale.low, result.scale.high)
    if "range" in known and result.condition == ANY_SHAPE and low == high in lost:
        return ("or_less", plain(low)) if low == lost[0] else ("above", plain(high))
    one_side = result.condition == ANY_SHAPE and (low <= lost[0]) != (high >= lost[1])
    if "range" in known and not one_side:
        return "beyond", ""
    if known & {"range", "half-open"} and "unbounded" not in known:
        first, last = result.ends_shown(result.confidence_interval)
        return ("or_less", last) if low <= lost[0] else ("or_more", first)
    if not result.located:
        return "not_located", ""
    return "estimate", result.estimate_shown(result.first_interval)


def headline_of(result: "QuantileResult") -> str:
    """What stands first on a page: the estimate, or in a few words why there is none."""
    kind, number = headline_parts(result)
    return HEADLINES[kind].format(number)


def sentence_of(result: "QuantileResult") -> str:
    """What was estimated, the answer, its confidence and its condition; or, first, why there is no answer."""
    what, low, high = result.estimand, *result.confidence_interval
    percent = f"{100 * result.confidence_level:g}%"
    shown = result.estimate_shown(result.confidence_interval)
    first, last = result.ends_shown(result.confidence_interval)
    known, condition = {caveat.code for caveat in result.caveats}, result.condition_shown
    whole = " (the whole stated range)" if (low, high) == (result.scale.low, result.scale.high) else ""
    if "range" in known and "unbounded" not in known and result.condition == ANY_SHAPE:
        end, beyond = ("lower", "below") if low == result.scale.low else ("upper", "above")
        where = f"is {first}, the {end} end" if low == high else f"lies between {first} and {last}, at the {end} end"
        if low == high == result.scale.high:
            return f"{what} lies above the stated range, which ends at {last}, with {percent} confidence, {ANY_SHAPE}."
        return f"{what} {where} of the stated range, or {beyond} it, with {percent} confidence, {condition}."
    if "range" in known:
        return (
            f"{what} probably lies outside the stated range: the answers point to its end, {shown}. The {percent} "
            f"interval, {first} to {last}{whole}, is not to be relied on."
        )
    if "unbounded" in known:
        sure = f"with {percent} confidence it lies anywhere from {first} to {last}{whole}"
        return f"{what} is not located by these answers: {sure}."
    if "half-open" in known:
        bound, side = (f"{last} or less", "below") if low <= result.scale.low else (f"{first} or more", "above")
        needs = f"with {percent} confidence, {condition}" if condition else f"with {percent} confidence"
        return f"{what} is {bound} {needs}; these answers do not bound it from {side}."
    if "not-located" in known:
        return (
            f"{what} was not located: the search had not settled when it ended, so the {percent} interval, {first} to "
            f"{last}, is not to be relied on."
        )
    if result.interval_so_far is not None:
        shown = result.estimate_shown(result.interval_so_far)
        first, last = result.ends_shown(result.interval_so_far)
        return (
            f"{what} is estimated at {shown} so far; the {percent} interval valid at any time runs from {first} to "
            f"{last}, {result.first_condition}."
        )
    if "unfinished" in known:
        return f"{what} is estimated at {shown} so far; no interval is valid before the planned end yet."
    runs = f"runs from {first} to {last}"
    if result.grid_values and len(result.grid_values) <= LISTED:
        runs = f"is {grid_text(result.grid_values)}"
    ends = f"{what} is estimated at {shown}; the {percent} interval {runs}"
    if not result.reliable:
        return f"{ends}, and is not to be relied on."
    return f"{ends}, {condition}." if condition else f"{ends}."


def grid_text(values: Sequence[float] | None) -> str:
    """The values that a declared grid leaves: a few are listed, more are given by the first and the last.

    >>> grid_text((44.0, 45.0)), grid_text((7.0,)), grid_text(tuple(map(float, range(40, 50))))
    ('44 or 45', '7', 'one of the 10 values from 40 to 49')
    """
    words = [f"{value:,.10g}" for value in values or ()]
    if len(words) > LISTED:
        return f"one of the {len(words):,} values from {words[0]} to {words[-1]}"
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
