"""The paper's tables as a figure for print: every cell's difference from the printed one, those that differ marked."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from privatile.paper.page import by_protocol, comparisons
from privatile.paper.tables import Comparison
from privatile.report.print_style import BLUE, GREY, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAP = 1.0
"""Between two tables, in columns."""


def differences_figure(folder: Path) -> "Figure":
    """Coverage (ours less printed) and error (ours over printed): a row per protocol, a column per table and method."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    found = [(name, cells) for name, cells in by_protocol(comparisons(folder)).items() if cells]
    figure = Figure(figsize=(7.2, 0.9 + 4.2 * len(found)), layout="constrained")
    axes = figure.subplots(2 * len(found), 1, squeeze=False)[:, 0]
    for number, (protocol, cells) in enumerate(found):
        coverage, error = axes[2 * number], axes[2 * number + 1]
        _points(
            coverage,
            cells,
            [(cell.coverage_like_theirs - cell.theirs.coverage, cell.coverage_differs) for cell in cells],
            0.0,
        )
        _points(error, cells, [(float(cell.ours["mae"]) / cell.theirs.mae, cell.mae_differs) for cell in cells], 1.0)
        coverage.set_ylabel("coverage:\nours − printed")
        error.set_ylabel("mean absolute error:\nours / printed")
        replications = int(cells[0].ours["replications"])
        coverage.set_title(f"{protocol} data, {replications:,} replications", loc="left", fontsize=9.5, pad=16)
        coverage.tick_params(labelbottom=False)  # the panel below has the same columns
    agree = Line2D([], [], color=BLUE, marker="o", linestyle="", markersize=4, fillstyle="none",
                   label="agrees within the two Monte Carlo errors")  # fmt: skip
    differ = Line2D([], [], color=VERMILION, marker="D", linestyle="", markersize=4, label="differs")
    figure.legend(handles=[agree, differ], loc="outside upper center", ncols=2, frameon=False)
    return figure


def _columns(cells: Sequence[Comparison]) -> dict[tuple[str, str], float]:
    """Where each table's methods are on the axis."""
    keys = sorted(dict.fromkeys((cell.table, cell.method) for cell in cells), key=lambda key: key[0])
    tables = list(dict.fromkeys(table for table, _ in keys))
    return {key: number + GAP * tables.index(key[0]) for number, key in enumerate(keys)}


def _points(axis: "Axes", cells: Sequence[Comparison], values: Sequence[tuple[float, bool]], rule: float) -> None:
    """The value of every cell, those marked as different in another colour."""
    axis.axhline(rule, color=GREY, linewidth=1.0, linestyle=(0, (4, 3)))
    columns = _columns(cells)
    members: dict[tuple[str, str], list[tuple[float, bool]]] = {key: [] for key in columns}
    for cell, value in zip(cells, values, strict=True):
        members[cell.table, cell.method].append(value)
    for differs, color, marker, fill in ((False, BLUE, "o", "none"), (True, VERMILION, "D", "full")):
        # The cells of a column side by side, in the table's order.
        drawn = [
            (columns[key] + 0.7 * ((place + 0.5) / len(column) - 0.5), value)
            for key, column in members.items()
            for place, (value, marked) in enumerate(column)
            if marked is differs
        ]
        axis.plot(
            [x for x, _ in drawn], [y for _, y in drawn],
            color=color, marker=marker, fillstyle=fill, linestyle="", markersize=3.2,
        )  # fmt: skip
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
