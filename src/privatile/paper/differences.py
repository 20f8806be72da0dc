"""The paper's tables as a figure for print: every cell's difference from the printed one, those that differ marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from privatile.errors import require
from privatile.paper.page import comparisons
from privatile.paper.tables import Comparison
from privatile.report.print_style import BLUE, GREY, VERMILION, figure_path, print_style, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAP = 1.0
"""Between two tables, in columns."""


def differences_figure(found: Sequence[tuple[str, Sequence[Comparison]]]) -> Figure:
    """Coverage (ours less printed) and error (ours over printed), a row a protocol, a column a table and method."""
    require("matplotlib", "report")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 0.9 + 4.2 * len(found)), layout="constrained")
    axes = figure.subplots(2 * len(found), 1, squeeze=False)[:, 0]
    for number, (protocol, cells) in enumerate(found):
        coverage, error = axes[2 * number], axes[2 * number + 1]
        columns = _columns(cells)
        _points(coverage, cells, columns, [cell.coverage_like_theirs - cell.theirs.coverage for cell in cells],
                [cell.coverage_differs for cell in cells], 0.0)  # fmt: skip
        _points(error, cells, columns, [float(cell.ours["mae"]) / cell.theirs.mae for cell in cells],
                [cell.mae_differs for cell in cells], 1.0)  # fmt: skip
        coverage.set_ylabel("coverage:\nours − printed")
        error.set_ylabel("mean absolute error:\nours / printed")
        replications = int(cells[0].ours["replications"])
        coverage.set_title(f"{protocol} data, {replications:,} replications", loc="left", fontsize=9.5, pad=16)
        coverage.tick_params(labelbottom=False)  # the panel below has the same columns
    from matplotlib.lines import Line2D

    agree = Line2D([], [], color=BLUE, marker="o", linestyle="", markersize=4, fillstyle="none",
                   label="agrees within the two Monte Carlo errors")  # fmt: skip
    differ = Line2D([], [], color=VERMILION, marker="D", linestyle="", markersize=4, label="differs")
    figure.legend(handles=[agree, differ], loc="outside upper center", ncols=2, frameon=False)
    return figure


def write_differences(folder: Path, path: str | Path) -> Path:
    """Draw the tables of a folder of `privatile paper` to a .svg, .pdf or .png file."""
    target = figure_path(path)
    by_protocol: dict[str, list[Comparison]] = {}
    for table in comparisons(folder):
        by_protocol.setdefault(table.protocol, []).extend(table.cells)
    with print_style():
        return save_figure(differences_figure([(name, cells) for name, cells in by_protocol.items() if cells]), target)


def _columns(cells: Sequence[Comparison]) -> dict[tuple[str, str], float]:
    """Where a table's method stands on the axis."""
    places: dict[tuple[str, str], float] = {}
    at, last = 0.0, ""
    for table, method in dict.fromkeys((cell.table, cell.method) for cell in sorted(cells, key=lambda c: c.table)):
        at += GAP if last not in ("", table) else 0.0
        last = table
        places[table, method] = at
        at += 1.0
    return places


def _points(
    axis: Axes,
    cells: Sequence[Comparison],
    columns: dict[tuple[str, str], float],
    values: Sequence[float],
    marked: Sequence[bool],
    rule: float,
) -> None:
    axis.axhline(rule, color=GREY, linewidth=1.0, linestyle=(0, (4, 3)))
    counts: dict[tuple[str, str], int] = {}
    sizes = {key: sum((cell.table, cell.method) == key for cell in cells) for key in columns}
    for differs, color, marker, fill in ((False, BLUE, "o", "none"), (True, VERMILION, "D", "full")):
        xs, ys = [], []
        counts.clear()
        for cell, value, mark in zip(cells, values, marked, strict=True):
            key = (cell.table, cell.method)
            counts[key] = counts.get(key, 0) + 1
            if mark is differs:
                # The cells of a column side by side, in the table's order.
                xs.append(columns[key] + 0.7 * ((counts[key] - 0.5) / sizes[key] - 0.5))
                ys.append(value)
        axis.plot(xs, ys, color=color, marker=marker, fillstyle=fill, linestyle="", markersize=3.2)
    axis.set_xticks(list(columns.values()), [method for _, method in columns], fontsize=7.5)
    if len(columns) > 6:
        axis.tick_params(axis="x", labelrotation=90)
    axis.grid(visible=False, axis="x")
    for table in dict.fromkeys(table for table, _ in columns):
        middle = [at for (name, _), at in columns.items() if name == table]
        axis.annotate(
            table.replace("table", "Table "), (sum(middle) / len(middle), 1.0), xycoords=("data", "axes fraction"),
            ha="center", va="bottom", fontsize=8,
        )  # fmt: skip
