"""An experiment's rows as what is drawn: one panel per setting, one line per method, one point per size.

Page and print figure draw the same series.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

Row = dict[str, Any]

SIZES = {"records": "records per client", "rounds": "rounds"}
"""Labels of sizes, and what they count."""

HIGHEST_ERROR = 6.0
"""Multiples of the bound that are drawn; a larger error is drawn at the edge, and its number is in the table."""


class Point(NamedTuple):
    """One cell of an experiment."""

    size: float
    value: float
    error: float
    """Monte Carlo standard error."""

    @property
    def low(self) -> float:
        """Two Monte Carlo standard errors below."""
        return self.value - 2 * self.error

    @property
    def high(self) -> float:
        """Two Monte Carlo standard errors above."""
        return self.value + 2 * self.error


class Panel(NamedTuple):
    """One setting: a line for each method, in the design's order."""

    setting: str
    lines: tuple[tuple[Point, ...], ...]


class Measure(NamedTuple):
    """Coverage or error of all cells."""

    title: str
    name: str
    """Short, for an axis."""
    panels: tuple[Panel, ...]
    heights: tuple[float, float]
    """What every panel shows from bottom to top."""
    rule: float
    """Where a method should be."""


class ExperimentSeries(NamedTuple):
    """All that is drawn of an experiment."""

    sizes: list[float]
    size_name: str
    """What the sizes count: records per client, or rounds."""
    methods: list[str]
    shared: str
    """What all cells have in common, said once; empty where there is nothing."""
    measures: tuple[Measure, ...]

    @classmethod
    def of(cls, rows: Sequence[Row], confidence_level: float) -> Self:
        """The series of an experiment's finished cells, of which there is at least one.

        >>> row = {"population": "normal", "level": "0.5", "method": "C1", "records": "200", "replications": 1000}
        >>> row |= {"coverage": 0.95, "coverage_error": 0.007, "rmse": 0.12, "bound": 0.1}
        >>> series = ExperimentSeries.of([row, {**row, "population": "cauchy"}], 0.95)
        >>> series.shared, [panel.setting for panel in series.measures[0].panels]
        ('level 0.5', ['population normal', 'population cauchy'])
        """
        methods = list(dict.fromkeys(row["method"] for row in rows))
        labels = [name for name, value in rows[0].items() if isinstance(value, str) and name not in (*SIZES, "method")]
        varying = [name for name in labels if len({row[name] for row in rows}) > 1]
        settings: dict[str, list[Row]] = {}
        for row in rows:
            settings.setdefault(_setting(row, varying) or "all cells", []).append(row)

        def panels(point: Callable[[Row], Point]) -> tuple[Panel, ...]:
            return tuple(
                Panel(
                    setting,
                    tuple(_points(point, [row for row in cells if row["method"] == name]) for name in methods),
                )
                for setting, cells in settings.items()
            )

        coverages, errors = [_coverage(row) for row in rows], [_error(row) for row in rows]
        lowest = max(0.0, min(*(point.low for point in coverages), confidence_level) - 0.01)
        measures = [Measure("Coverage", "coverage", panels(_coverage), (lowest, 1.0), confidence_level)]
        known = [point.high for point in errors if math.isfinite(point.value)]
        if known:  # a column of values has no density, so no least error is known
            title, highest = "Error, as a multiple of the least that any method can reach", max(known) * 1.05
            measures.append(Measure(title, "error / bound", panels(_error), (0.0, min(highest, HIGHEST_ERROR)), 1.0))
        return cls(
            sorted({_size(row) for row in rows}),
            next(words for name, words in SIZES.items() if name in rows[0]),
            methods,
            _setting(rows[0], [name for name in labels if name not in varying]),
            tuple(measures),
        )


def _points(point: Callable[[Row], Point], rows: Sequence[Row]) -> tuple[Point, ...]:
    """The points of one line that can be drawn."""
    return tuple(sorted(made for made in map(point, rows) if math.isfinite(made.value)))


def _setting(row: Row, labels: Sequence[str]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {row[name]}" for name in labels)


def _size(row: Row) -> float:
    return next(float(row[name]) for name in SIZES if name in row)


def _coverage(row: Row) -> Point:
    return Point(_size(row), row["coverage"], row["coverage_error"])


def _error(row: Row) -> Point:
    ratio = row["rmse"] / row["bound"]
    # The root mean square of n normal errors has the standard error σ/√(2n).
    return Point(_size(row), ratio, ratio / math.sqrt(2 * row["replications"]))
