"""A result in a record beside the one that the counts give.

    settings   what study and counts fix, and codes: rounds, records, budgets, levels, weights, what is declared about
               the values, method, caveats
    figures    every other number: estimate, both intervals, the values of a declared grid that are left, the anytime
               interval, density, diagnostics, ranks of the clients

Settings must be the same, figures nearly so: another machine rounds otherwise, another build may have fitted otherwise.
"""

import math
from typing import Any, NamedTuple

from privatile.core.messages import LARGEST_REAL
from privatile.core.scale import LAST_BITS

SAME = 1e-9
"""Share of its size that a number recomputed on another machine, whose functions round otherwise, may differ by."""

OTHER_BUILD = 1e-3
"""The same where another build made the record: it may have fitted otherwise. A forger gains nothing from so little."""

SETTINGS = {
    "rounds", "records", "level", "confidence_level", "epsilon", "run", "target", "design", "mode", "simulated",
    "value_kind", "column", "range", "scale", "simultaneous", "missing", "date", "method", "condition",
    "anytime_condition", "caveats", "contradicted", "reliable",
}  # fmt: skip
CLIENT_SETTINGS = {"name", "records", "asked", "epsilon", "truth_rate", "weight", "level"}
IN_UNITS = {"estimate", "confidence_interval", "anytime_interval", "other_interval"}
"""Figures in units of the data: their size is the standard error. A median of 1e-12 may be as wrong as one of 1e12."""


def same(recorded: object, recomputed: object, size: float | None = None, share: float = SAME) -> bool:
    """Whether two JSON values are the same, their real numbers within `share` of `size` and `LAST_BITS` roundings.

    Without a size it is the number itself, and at least 1.

    >>> same({"a": [1, 0.1 + 0.2]}, {"a": [1, 0.3]}), same({"a": 1}, {"a": 2}), same([1], [1, 1]), same("1", 1)
    (True, False, False, False)
    >>> same(5.0 + 1e-12, 5.0, 0.1), same(5.0 + 1e-9, 5.0, 0.1), same(2e-12, 1e-12, 1e-12), same(10**400, 0.5)
    (True, False, False, False)
    """
    one, two = recorded, recomputed
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key], size, share) for key in two)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(same(*pair, size, share) for pair in zip(one, two, strict=True))
    real = {type(one), type(two)} in ({float}, {float, int})
    if real and isinstance(one, int | float) and isinstance(two, int | float):
        # A whole number beyond the largest double is written by nobody but a forger, and has no double to compare.
        if max(abs(one), abs(two)) > LARGEST_REAL:
            return False
        # Written so that NaN is not the same as anything.
        return abs(one - two) <= share * (max(1.0, abs(two)) if size is None else size) + LAST_BITS * math.ulp(two)
    return type(one) is type(two) and one == two


class Differences(NamedTuple):
    """What differs between the result in a record and the one from here, by name."""

    settings: list[str]
    figures: list[str]


def differences(recorded: dict[str, Any], recomputed: dict[str, Any], error: float, share: float = SAME) -> Differences:
    """Compare two results as plain JSON: the record's, and the one from here with its standard error.

    `share` is how far figures may differ; settings must be the same. What only one of the two has differs.
    """
    found = Differences([], [])
    for key in sorted((recorded.keys() | recomputed.keys()) - {"clients", "classes"}):
        if key not in recorded or key not in recomputed or not _same_fact(key, recorded, recomputed, error, share):
            (found.settings if key in SETTINGS else found.figures).append(key)
    for key in ("clients", "classes"):  # classes of weights, where there are any
        if key in recorded or key in recomputed:
            _compare_clients(found, key, recorded.get(key), recomputed.get(key, []), share)
    return found


def _same_fact(key: str, recorded: dict[str, Any], recomputed: dict[str, Any], error: float, share: float) -> bool:
    one, two = recorded[key], recomputed[key]
    if key in SETTINGS:
        return same(one, two)
    if key == "grid_values":
        # Multiples of the declared step: no machine computes them otherwise, and the next one is another value.
        return same(one, two, 0.0)
    if key == "series" and isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(_same_week(*pair, share) for pair in zip(one, two, strict=True))
    if key == "density" and isinstance(one, dict) and isinstance(two, dict):
        # Per unit of the data: it may be of any size.
        density = two["estimate"]
        return same(one, two, share=share) and same(one["estimate"], density, abs(density), share)
    return same(one, two, error if key in IN_UNITS else None, share)


def _same_week(recorded: object, recomputed: dict[str, Any], share: float) -> bool:
    """Whether two weeks of a series are the same: what is in units of the data within a share of the week's width.

    Numbers of answers are counts: no machine computes them otherwise.

    >>> week = {"week": "2025-W01", "answers": 90, "estimate": 1e-4, "interval": [5e-5, 2e-4]}
    >>> [_same_week({**week, **told}, week, 1e-3) for told in ({}, {"estimate": 1.001e-4}, {"estimate": 2e-4})]
    [True, True, False]
    >>> _same_week({**week, "answers": 90.5}, week, 1e-3), _same_week({"week": "2025-W01"}, week, 1e-3)
    (False, False)
    """
    if not isinstance(recorded, dict) or recorded.keys() != recomputed.keys():
        return False
    low, high = recomputed["interval"] or (0.0, 0.0)
    sizes = {"estimate": high - low, "interval": high - low}
    return all(same(recorded[key], mine, sizes.get(key, 0.0), share) for key, mine in recomputed.items())


def _compare_clients(
    found: Differences, name: str, recorded: object, recomputed: list[dict[str, Any]], share: float
) -> None:
    """Add what differs in the entries of the clients, or of their classes."""
    entries = recorded if isinstance(recorded, list) and all(isinstance(one, dict) for one in recorded) else []
    if not recomputed or [one.keys() for one in entries] != [two.keys() for two in recomputed]:
        found.settings.append(name)
        return
    for one, two in zip(entries, recomputed, strict=True):
        if not all(same(one[key], two[key]) for key in CLIENT_SETTINGS):
            found.settings.append(name)
        if not all(same(one[key], two[key], share=share) for key in two.keys() - CLIENT_SETTINGS):
            found.figures.append(f"ranks of the {name}")
