"""A study's rows as what is drawn: one panel a setting, one line a method, one point a size.

Page and print figure draw the same panels; only the pen differs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

Measure = Literal["coverage", "error"]
TITLES: dict[Measure, str] = {
    "coverage": "Coverage",
    "error": "Error, as a multiple of the least that any method can reach",
}
SIZES = ("records", "rounds")
HIGHEST_ERROR = 6.0
"""Multiples of the bound that are drawn; a method further off is drawn at the edge, and its number is in the table."""


class Point(NamedTuple):
    """One cell of a study."""

    size: float
    value: float
    error: float
    """Monte Carlo standard error."""


class Panel(NamedTuple):
    """One setting: a line for each method."""

    setting: str
    lines: tuple[tuple[str, tuple[Point, ...]], ...]


def size_name(rows: Sequence[dict[str, Any]]) -> str:
    """What the cells' size counts: records of a client, or rounds."""
    return next((name for name in SIZES if name in rows[0]), "size")


def sizes(rows: Sequence[dict[str, Any]]) -> list[float]:
    """All sizes, smallest first."""
    return sorted({_size(row) for row in rows})


def methods(rows: Sequence[dict[str, Any]]) -> list[str]:
    """In the order of the design."""
    return list(dict.fromkeys(str(row.get("method", "all")) for row in rows))


def shared_setting(rows: Sequence[dict[str, Any]]) -> str:
    """What all cells have in common, said once instead of over every panel; empty where nothing is.

    >>> shared_setting([{"level": "0.5", "population": name, "method": "C1", "records": "9"} for name in "ab"])
    'level 0.5'
    """
    return ", ".join(_label(name, rows[0][name]) for name in _labels(rows) if len({row[name] for row in rows}) == 1)


def panels(rows: Sequence[dict[str, Any]], measure: Measure) -> list[Panel]:
    """The panels of one measure."""
    varying = [name for name in _labels(rows) if len({row[name] for row in rows}) > 1]
    settings: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        name = ", ".join(_label(label, row[label]) for label in varying) or "all cells"
        settings.setdefault(name, []).append(row)
    return [
        Panel(
            setting,
            tuple(
                (method, tuple(sorted(_point(row, measure) for row in cells if row.get("method", "all") == method)))
                for method in methods(rows)
            ),
        )
        for setting, cells in settings.items()
    ]


def heights(rows: Sequence[dict[str, Any]], measure: Measure, confidence_level: float) -> tuple[float, float]:
    """What a panel shows from bottom to top, the same for all of them."""
    points = [_point(row, measure) for row in rows]
    if measure == "error":
        return 0.0, min(max(point.value + 2 * point.error for point in points) * 1.05, HIGHEST_ERROR)
    low = min(*(point.value - 2 * point.error for point in points), confidence_level)
    return max(0.0, low - 0.01), 1.0


def rule(measure: Measure, confidence_level: float) -> float:
    """Where a method should be."""
    return confidence_level if measure == "coverage" else 1.0


def _labels(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [name for name, value in rows[0].items() if isinstance(value, str) and name not in (*SIZES, "method")]


def _label(name: str, value: str) -> str:
    return f"{name.replace('_', ' ')} {value}"


def _size(row: dict[str, Any]) -> float:
    return float(next((row[name] for name in SIZES if name in row), 1.0))


def _point(row: dict[str, Any], measure: Measure) -> Point:
    if measure == "coverage":
        return Point(_size(row), row["coverage"], row["coverage_error"])
    ratio = row["rmse"] / row["bound"]
    # The root mean square of n normal errors has the standard error σ/√(2n).
    return Point(_size(row), ratio, ratio / math.sqrt(2 * row["replications"]))
