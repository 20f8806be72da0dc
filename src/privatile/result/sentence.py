"""A result in one sentence, and the words for when its interval holds."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from privatile.estimator.values import parse_values

if TYPE_CHECKING:
    from privatile.result.result import QuantileResult

ANY_SHAPE = "whatever the distribution"
SMOOTH = "if the values are continuous and their distribution is smooth around the quantile"
"""When an interval holds, in words."""

LISTED = 5
"""Values of a declared grid that are listed one by one."""


def sentence_of(result: "QuantileResult") -> str:
    """What was estimated, the answer, its confidence and its condition; or, first, why there is no answer."""
    what, low, high = result.estimand, *result.confidence_interval
    percent = f"{100 * result.confidence_level:g}%"
    shown = result.shown(result.estimate, result.digits_width(result.confidence_interval))
    first, last = result.ends_shown(result.confidence_interval)
    known = {caveat.code for caveat in result.caveats}
    if "range" in known and "unbounded" not in known and result.condition == ANY_SHAPE:
        end, beyond = ("lower", "below") if low == result.scale.low else ("upper", "above")
        where = f"is {first}, the {end} end" if low == high else f"lies between {first} and {last}, at the {end} end"
        if low == high == result.scale.high:
            return f"{what} lies above the stated range, which ends at {last}, {ANY_SHAPE} ({percent})."
        return f"{what} {where} of the stated range, or {beyond} it, {ANY_SHAPE} ({percent})."
    if "unbounded" in known and "range" in known:
        return (
            f"{what} probably lies outside the stated range, {first} to {last}: the answers point to its end, {shown}, "
            f"so the {percent} interval, which is the whole range, is not to be relied on."
        )
    if "unbounded" in known:
        return (
            f"{what} is not located by these answers: at {percent} it may lie anywhere in the stated range, {first} to "
            f"{last}."
        )
    if "range" in known:
        return (
            f"{what} probably lies outside the stated range: the answers point to its end, {shown}, so the {percent} "
            f"interval, {first} to {last}, is not to be relied on."
        )
    if "not-located" in known:
        return (
            f"{what} was not located: the search had not settled when it ended, near {shown}, so the {percent} "
            f"interval, {first} to {last}, is not to be relied on."
        )
    if result.interval_so_far is not None:
        shown = result.shown(result.estimate, result.digits_width(result.interval_so_far))
        first, last = result.ends_shown(result.interval_so_far)
        return (
            f"{what} is estimated at {shown} so far; the {percent} interval valid at any time runs from {first} to "
            f"{last}."
        )
    if "unfinished" in known:
        return f"{what} is estimated at {shown} so far; no interval is valid before the planned end yet."
    if result.grid_values is not None:
        every = f"if every value is {parse_values(result.values).grid_in_words}"
        raw = f"{result.condition} it lies between {first} and {last}"
        return f"{what} is {grid_text(result.grid_values)} ({percent}, {every}); {raw}."
    ends = f"{what} is estimated at {shown}; the {percent} interval runs from {first} to {last}"
    return f"{ends}, {result.condition}." if result.condition else f"{ends}."


def grid_text(values: Sequence[float] | None) -> str:
    """The values that a declared grid leaves: a few are listed, more are given by the first and the last.

    >>> grid_text((44.0, 45.0)), grid_text((7.0,)), grid_text(tuple(map(float, range(40, 50))))
    ('44 or 45', '7', 'one of the 10 values from 40 to 49')
    """
    words = [f"{value:,.10g}" for value in values or ()]
    if len(words) > LISTED:
        return f"one of the {len(words):,} values from {words[0]} to {words[-1]}"
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
