"""Compares the result in a record with the result that its counts give.

    settings   what study and counts fix: rounds, records, budgets, levels, weights, what is declared about the values
    figures    every other number: estimate, both intervals, the values of a declared grid that are left, the anytime
               interval, density, diagnostics, ranks of the clients
    words      estimand, method, conditions of the intervals, what is contradicted, caveats and what
               follows from them, date, explanation

Settings and figures must agree whichever version of privatile made the record, figures of another version within
`OTHER_BUILD`. Words must agree only if this program
made it: another version may use other words, and only that version can tell its own words from altered ones, so their
difference is shown and not judged. So is a figure that only one of the two programs knows.
"""

import math
from typing import Any, NamedTuple

from privatile.core.messages import LARGEST_REAL
from privatile.core.scale import LAST_BITS
from privatile.result.result import QuantileResult

SAME = 1e-9
"""Share of its size that a number recomputed on another machine, whose functions round otherwise, may differ by."""

OTHER_BUILD = 1e-3
"""The same where another build made the record: it may have fitted otherwise. A forger gains nothing from so little."""

WORDS = (
    "caveats", "condition", "contradiction", "date", "estimand", "explanation", "method", "reliable",
)  # fmt: skip
SETTINGS = (
    "rounds", "records", "level", "confidence_level", "epsilon", "run", "target", "design", "mode", "simulated",
    "values", "column", "range", "scale", "simultaneous",
)  # fmt: skip
CLIENT_SETTINGS = ("name", "records", "asked", "epsilon", "truth_rate", "weight", "level")
IN_UNITS = ("estimate", "confidence_interval", "anytime_interval")
"""Figures in units of the data: their size is the standard error. A median of 1e-12 may be as wrong as one of 1e12."""


OTHER, ENDS = "other_interval", ("low", "high")


def recorded_facts(result: QuantileResult) -> dict[str, Any]:
    """The facts of a result that a record holds: all but its sentence, which rounds numbers that are there.

    Rounded outward, a number that differs in its last bit on another machine may be another text.
    """
    return {key: value for key, value in result.facts().items() if key != "sentence"}


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
    words: list[str]
    one_sided: list[str]
    """Known to one of the two programs only."""


def differences(recorded: dict[str, Any], recomputed: dict[str, Any], error: float, share: float = SAME) -> Differences:
    """Compare two results as plain JSON: the record's, and the one from here with its standard error.

    `share` is how far figures may differ; settings must be the same.
    """
    fixed = {*SETTINGS, *WORDS, "clients"}
    found = Differences(
        [key for key in SETTINGS if not same(recorded.get(key), recomputed[key])],
        [],
        [key for key in WORDS if not same(recorded.get(key), recomputed[key])],
        sorted((recorded.keys() ^ recomputed.keys()) - fixed),
    )
    if not same(_words_of(recorded.get(OTHER)), _words_of(recomputed[OTHER])):
        found.words.append("words of the other interval")
    for key in sorted((recorded.keys() & recomputed.keys()) - fixed):
        if not _same_figure(key, recorded[key], recomputed[key], error, share):
            found.figures.append(key)
    _compare_clients(found, recorded.get("clients"), recomputed["clients"], share)
    return found


def _words_of(other: object) -> dict[str, Any] | None:
    """What a record says about its other interval, beside its ends."""
    return {key: value for key, value in other.items() if key not in ENDS} if isinstance(other, dict) else None


def _same_figure(key: str, recorded: object, recomputed: object, error: float, share: float) -> bool:
    if key == "grid_values":
        # Multiples of the declared step: no machine computes them otherwise, and the next one is another value.
        return same(recorded, recomputed, 0.0)
    if key == OTHER and isinstance(recorded, dict) and isinstance(recomputed, dict):
        return all(end in recorded and same(recorded[end], recomputed[end], error, share) for end in ENDS)
    if key == "series" and isinstance(recorded, list) and isinstance(recomputed, list):
        pairs = zip(recorded, recomputed, strict=False)
        return len(recorded) == len(recomputed) and all(_same_week(*pair, share) for pair in pairs)
    if key == "density" and isinstance(recorded, dict) and isinstance(recomputed, dict):
        # Per unit of the data: it may be of any size.
        density = recomputed["estimate"]
        return same(recorded, recomputed, share=share) and same(recorded["estimate"], density, abs(density), share)
    return same(recorded, recomputed, error if key in IN_UNITS else None, share)


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
    in_units = ("estimate", "interval")
    return all(
        same(recorded[key], mine, high - low if key in in_units else 0.0, share) for key, mine in recomputed.items()
    )


def _compare_clients(found: Differences, recorded: object, recomputed: list[dict[str, Any]], share: float) -> None:
    """Add what differs in the entries of the clients."""
    entries = recorded if isinstance(recorded, list) and all(isinstance(one, dict) for one in recorded) else []
    if len(entries) != len(recomputed):
        found.settings.append("clients")
        return
    pairs = list(zip(entries, recomputed, strict=True))
    if not all(same(one.get(key), two[key]) for one, two in pairs for key in CLIENT_SETTINGS):
        found.settings.append("clients")
    if not all(
        same(one[key], two[key], share=share)
        for one, two in pairs
        for key in (one.keys() & two.keys()) - {*CLIENT_SETTINGS}
    ):
        found.figures.append("ranks of the clients")
    found.one_sided.extend(sorted({f"{key} of the clients" for one, two in pairs for key in one.keys() ^ two.keys()}))
