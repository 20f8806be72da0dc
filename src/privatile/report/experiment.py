"""The report of a Monte Carlo experiment, and its figure for print.

The figure of an experiment for print: coverage and error against size, method by method.

The report of a Monte Carlo experiment: coverage and error against size, method by method, and every cell.
"""

import math
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privatile import __version__
from privatile.errors import InputError
from privatile.report.charts import Chart, ExperimentSeries, Measure, Panel, Row, dots_axis, dots_chart, panel_chart
from privatile.report.pages import GREY, LINES, render_page
from privatile.simulation.runner import MARK_AT, ExperimentStore, coverage_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


COLUMNS = 3
"""Panels side by side: as many as a page's width keeps readable."""


def experiment_figure(path: Path) -> "Figure":
    """Panels over the sizes of an experiment's store; an experiment of one size lists its settings instead."""
    with ExperimentStore.open_existing(path) as store:
        rows = store.rows()
    if not rows:
        raise InputError("there is no finished cell to draw yet.")
    series = ExperimentSeries.of(rows, store.confidence_level)
    several = len(series.sizes) > 1
    figure = _over_sizes(series) if several else _by_setting(series)
    name = series.size_name if several else f"{series.sizes[0]:,.0f} {series.size_name}"
    figure.supxlabel(name + (f"; all with {series.shared}" if series.shared else ""), fontsize=9)
    _legend(figure, series.methods)
    return figure


def _over_sizes(series: ExperimentSeries) -> "Figure":
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    count = len(series.measures[0].panels)
    columns = min(COLUMNS, count)
    bands = math.ceil(count / columns)
    rows = len(series.measures)
    figure = Figure(figsize=(max(4.2, 2.5 * columns), 0.7 + 1.8 * rows * bands), layout="constrained")
    axes = figure.subplots(rows * bands, columns, squeeze=False, sharex=True)
    # Three sizes fit beside each other under a small panel, the ends among them.
    ends = sorted({series.sizes[0], series.sizes[len(series.sizes) // 2], series.sizes[-1]})
    for place in range(columns * bands):
        band, column = divmod(place, columns)
        for row, measure in enumerate(series.measures):
            axis = axes[rows * band + row, column]
            if place >= count:
                axis.set_axis_off()
                continue
            _panel(axis, measure.panels[place], measure)
            axis.set_xscale("log")
            axis.xaxis.set_major_locator(FixedLocator(ends))
            axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            axis.xaxis.set_minor_locator(NullLocator())
            axis.tick_params(labelbottom=row == rows - 1)
            if column == 0:
                axis.set_ylabel(measure.name)
            if row == 0:
                axis.set_title(textwrap.fill(measure.panels[place].setting, 34), fontsize=8.5, loc="left")
    return figure


def _panel(axis: "Axes", panel: Panel, measure: Measure) -> None:
    axis.axhline(measure.rule, color=GREY, linewidth=1.0, linestyle=(0, (4, 3)))
    for number, points in enumerate(panel.lines):
        color, marker, dash = LINES[number % len(LINES)]
        # Neighbouring methods are drawn a little apart, so that no bar hides another.
        nudge = 1.0 + 0.03 * (number - (len(panel.lines) - 1) / 2)
        axis.errorbar(
            [point.size * nudge for point in points],
            [point.value for point in points],
            yerr=[2 * point.error for point in points],
            color=color, marker=marker, linestyle=dash, markersize=4, linewidth=1.3, elinewidth=1.0,
        )  # fmt: skip
    axis.set_ylim(*measure.heights)


def _by_setting(series: ExperimentSeries) -> "Figure":
    from matplotlib.figure import Figure

    names = [panel.setting for panel in series.measures[0].panels]
    longest = max(len(name) for name in names)
    figure = Figure(figsize=(4.6 + 0.06 * longest, 1.1 + 0.3 * len(names)), layout="constrained")
    axes = figure.subplots(1, len(series.measures), sharey=True, squeeze=False)[0]
    for axis, measure in zip(axes, series.measures, strict=True):
        axis.axvline(measure.rule, color=GREY, linewidth=1.0, linestyle=(0, (4, 3)))
        for place, panel in enumerate(measure.panels):
            for number, points in enumerate(panel.lines):
                color, marker, _ = LINES[number % len(LINES)]
                at = place + 0.16 * (number - (len(panel.lines) - 1) / 2)
                for point in points:
                    axis.errorbar(
                        point.value, at, xerr=2 * point.error, color=color, marker=marker, markersize=4, elinewidth=1.0
                    )
        low, high = measure.heights
        axis.set_xlim(low, high + 0.004)  # a marker at the end stays whole
        axis.set_xlabel(measure.name)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set_ylim(len(names) - 0.4, -0.6)
    return figure


def _legend(figure: "Figure", names: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    entries = []
    for number, name in enumerate(names):
        color, marker, dash = LINES[number % len(LINES)]
        entries.append(Line2D([], [], color=color, marker=marker, linestyle=dash, markersize=4, label=name))
    entries.append(Line2D([], [], color=GREY, linestyle=(0, (4, 3)), linewidth=1.0, label="where it should be"))
    figure.legend(handles=entries, loc="outside upper center", ncols=min(len(entries), 4), frameon=False)


MAX_ROWS = 500


def experiment_page(path: Path) -> str:
    """The whole page, from a store as it is now."""
    with ExperimentStore.open_existing(path) as store:
        rows, confidence_level = store.rows(), store.confidence_level
    facts = {
        "kind": "privatile experiment",
        "format": 1,
        "privatile": __version__,
        "title": store.title,
        "design": store.digest,
        "protocol": store.protocol,
        "replications": store.replications,
        "cells": store.cells,
        "confidence_level": confidence_level,
        "rows": [plain_row(row) for row in rows[:MAX_ROWS]],
    }
    return render_page(
        "experiment.html.j2",
        store.title,
        facts,
        ("save.js",),
        rows=rows,
        coverages=[row["coverage"] for row in rows],
        ratios=[ratio for row in rows if math.isfinite(ratio := row["rmse"] / row["bound"])],
        too_low=sum(verdict(row, confidence_level) == "too low" for row in rows),
        level_text=f"{100 * confidence_level:g}",
        created=time.strftime("%Y-%m-%d", time.gmtime(store.created)),
        seconds=sum(row["seconds"] for row in rows),
        **(_drawn(rows, confidence_level) if rows else {}),
    )


def plain_row(row: Row) -> Row:
    """A row for JSON, which knows no NaN: six significant digits, more than any Monte Carlo error leaves.

    >>> plain_row({"coverage": 0.94921875, "coverage_beside": math.nan, "method": "C1"})
    {'coverage': 0.949219, 'coverage_beside': None, 'method': 'C1'}
    """

    def plain(value: Any) -> Any:
        if not isinstance(value, float):
            return value
        return float(f"{value:.6g}") if math.isfinite(value) else None

    return {name: plain(value) for name, value in row.items()}


def verdict(row: Row, confidence_level: float) -> str:
    """Whether a cell covers as stated: empty, `too low` or `too high`, judged by its Monte Carlo error."""
    # The error at the stated level: that of the estimate itself is zero where every interval covers.
    error = math.sqrt(confidence_level * (1.0 - confidence_level) / row["replications"])
    apart = row["coverage"] - confidence_level
    return "" if abs(apart) <= MARK_AT * error else "too low" if apart < 0 else "too high"


def decimals(error: float) -> int:
    """Decimal places that a number with this Monte Carlo error deserves: two digits of the error.

    >>> decimals(0.00123), decimals(25.0), decimals(float("nan"))
    (4, 0, 4)
    """
    return max(0, 1 - math.floor(math.log10(error))) if error > 0 else 4


def _drawn(rows: Sequence[Row], confidence_level: float) -> dict[str, Any]:
    """The charts and the table of an experiment with finished cells."""
    series = ExperimentSeries.of(rows, confidence_level)
    several = len(series.sizes) > 1
    labels = [name for name, value in rows[0].items() if isinstance(value, str)]
    heads = [*labels, "coverage", "", "mean abs. error", "bias", "mean width", "error / bound"]
    return {
        "several": several,
        "chart_title": f"Against the number of {series.size_name}"
        if several
        else f"With {series.sizes[0]:,.0f} {series.size_name}",
        "shared": series.shared,
        "methods": series.methods,
        "measures": [
            {
                "title": measure.title,
                "axis": dots_axis(measure.heights),
                "panels": [
                    {"setting": panel.setting, "chart": _chart(panel, measure, several)} for panel in measure.panels
                ],
            }
            for measure in series.measures
        ],
        "heads": [name.replace("_", " ") for name in heads],
        "cells": [_cell(row, labels, confidence_level) for row in rows[:MAX_ROWS]],
    }


def _chart(panel: Panel, measure: Measure, several: bool) -> Chart:
    if several:
        return panel_chart(panel.lines, measure.heights, measure.rule)
    dots = [[(point.value, point.low, point.high) for point in points] for points in panel.lines]
    return dots_chart(dots, measure.heights, measure.rule)


def _cell(row: Row, labels: Sequence[str], confidence_level: float) -> dict[str, Any]:
    digits, ratio = decimals(row["mae_error"]), row["rmse"] / row["bound"]
    return {
        "labels": [row[name] for name in labels],
        "coverage": coverage_text(row["coverage"], row["coverage_error"]),
        "verdict": verdict(row, confidence_level),
        "error": f"{row['mae']:.{digits}f} ± {row['mae_error']:.{digits}f}",
        "bias": f"{row['bias']:+.{digits}f}",
        "width": f"{row['width']:.4g}",
        "ratio": f"{ratio:.3f}" if math.isfinite(ratio) else "–",
    }
