"""Figures of a run for print, by matplotlib: colour-blind safe, readable in grey, text stays text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from privatile.errors import InputError, require
from privatile.report.run_page import FIGURE_FORMATS
from privatile.report.view import RunView

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, VERMILION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#7F7F7F"
"""Okabe and Ito's colours: told apart by every common kind of colour vision."""


@contextmanager
def print_style() -> Iterator[None]:
    """Our look, without touching anyone's settings: no display needed, fonts embedded as text, no date in the file."""
    require("matplotlib", "report")
    import matplotlib

    with matplotlib.rc_context(
        {
            "font.size": 9.0,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.25,
            "svg.fonttype": "none",
            "svg.hashsalt": "privatile",
            "pdf.fonttype": 42,
            "savefig.dpi": 200,
            "text.parse_math": False,
        }
    ):
        yield


def trajectory_figure(view: RunView) -> Figure:
    """The estimate and its interval over the rounds, one panel a level."""
    require("matplotlib", "report")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 0.6 + 2.9 * len(view.levels)), layout="constrained")
    axes = figure.subplots(len(view.levels), 1, squeeze=False)[:, 0]
    for level, panel in zip(view.levels, axes, strict=True):
        path = level.path(1200)
        panel.fill_between(
            path.rounds, path.question_low, path.question_high, color=GREY, alpha=0.45, linewidth=0.6, label="question"
        )
        name = f"{100 * view.spec.confidence_level:g}% interval"
        panel.fill_between(path.rounds, path.low, path.high, color=BLUE, alpha=0.25, linewidth=0.8, label=name)
        panel.plot(path.rounds, path.estimate, color=BLUE, linewidth=1.8, label="estimate")
        panel.set_ylim(*path.heights)
        panel.yaxis.set_major_formatter("{x:,.6g}")
        panel.xaxis.set_major_formatter("{x:,.0f}")
        panel.set_ylabel(view.spec.value if len(view.levels) == 1 else f"{view.spec.value}, level {level.level:g}")
        panel.set_xlim(1, max(len(level.history), 2))
    axes[-1].set_xlabel("rounds")
    axes[0].legend(frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    return figure


def write_trajectory(view: RunView, path: str | Path) -> Path:
    """Draw the trajectory to a .svg, .pdf or .png file, without a date: the same run gives the same file."""
    target = Path(path)
    kind = target.suffix.lower()
    if kind not in FIGURE_FORMATS:
        raise InputError(f"a figure must end in {', '.join(FIGURE_FORMATS)}; got {target.name!r}.")
    with print_style():
        figure = trajectory_figure(view)
        figure.savefig(target, metadata={".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(kind))
    return target
