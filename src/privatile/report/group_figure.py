"""Dots and whiskers for print: one row per group, the largest estimate on top; or one per difference."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from privatile.report.print_style import BLUE, GREY
from privatile.result.group_lines import Line, drawn_range
from privatile.result.groups import GroupResults, level_name
from privatile.result.pairs import Comparisons

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW = 0.24
"""Height of a row, in inches."""


def group_figure(results: GroupResults) -> "Figure":
    """Every group's estimate with its interval, one panel per level."""
    from matplotlib.figure import Figure

    rows = len(results.lines())
    figure = Figure(figsize=(6.4, (0.8 + ROW * rows) * len(results.levels)), layout="constrained")
    panels = figure.subplots(len(results.levels), 1, squeeze=False)[:, 0]
    for index, panel in enumerate(panels):
        lines = results.lines(index)
        _draw(panel, lines, drawn_range(lines, results.range))
        kind = "all together" if results.simultaneous else "each"
        panel.set_xlabel(
            f"{level_name(results.levels[index])} of {results.value}, {100 * results.confidence_level:.4g}% intervals "
            f"({kind})"
        )
    return figure


def pair_figure(results: Comparisons) -> "Figure":
    """Every difference with its interval, beside no difference."""
    from matplotlib.figure import Figure

    lines = results.lines()
    figure = Figure(figsize=(6.4, 0.8 + ROW * len(lines)), layout="constrained")
    panel = figure.subplots(1, 1)
    low, high = drawn_range(lines, results.range)
    _draw(panel, lines, (min(low, 0.0), max(high, 0.0)))
    panel.axvline(0.0, color=GREY, linestyle="--", linewidth=0.9, zorder=0)
    kind = "all together" if results.simultaneous else "each"
    panel.set_xlabel(f"difference in {results.value}, {100 * results.confidence_level:.4g}% intervals ({kind})")
    return figure


def _draw(panel: "Axes", lines: Sequence[Line], ends: tuple[float, float]) -> None:
    for row, line in enumerate(lines):
        if line.is_located:
            low, high = (min(max(end, ends[0]), ends[1]) for end in line.ends)
            panel.plot([low, high], [row, row], color=BLUE, linewidth=1.4, solid_capstyle="butt")
            panel.plot([line.place], [row], color=BLUE, marker="o", markersize=5)
        else:
            panel.text(ends[0], row, f" {line.why.partition(',')[0]}", color=GREY, va="center", fontsize=7.5)
    panel.set_yticks(range(len(lines)), [line.name for line in lines])
    panel.set_ylim(len(lines) - 0.5, -0.5)
    panel.set_xlim(*ends)
    panel.xaxis.set_major_formatter("{x:,.6g}")
    panel.grid(axis="y", visible=False)
    panel.tick_params(axis="y", length=0)
