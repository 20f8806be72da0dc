"""The figure of an experiment for print: coverage and error against size, method by method."""

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from privatile.errors import InputError
from privatile.report.experiment_series import ExperimentSeries, Measure, Panel
from privatile.report.print_style import GREY, LINES
from privatile.simulation.store import ExperimentStore

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
