"""The figure of a run for print: the estimate and its interval over the rounds."""

from typing import TYPE_CHECKING

import numpy as np

from privatile.report.method_words import OTHER_NAMES
from privatile.report.print_style import BLUE, GREY
from privatile.report.view import RunView

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def trajectory_figure(view: RunView) -> "Figure":
    """The estimate and its interval over the rounds, one panel per level."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(6.4, 0.6 + 2.9 * len(view.levels)), layout="constrained")
    axes = figure.subplots(len(view.levels), 1, squeeze=False)[:, 0]
    for level, panel in zip(view.levels, axes, strict=True):
        path, result = level.shown_path(1200), level.result
        questions, alpha = ("low and high question", 0.22) if level.history.straddles else ("question", 0.45)
        asked = ~path.searched
        panel.fill_between(
            path.rounds, path.question_low, path.question_high, where=asked, color=GREY, alpha=alpha, linewidth=0.6,
            label=questions,
        )  # fmt: skip
        if path.search:
            panel.axvspan(1, path.search, 0, 0.03, color=GREY, alpha=0.45, linewidth=0, label="search")
        name = f"{100 * view.spec.confidence_level:g}% interval"
        if result is not None:
            name += f", {result.condition if result.interval_so_far is None else result.anytime_condition}"
        panel.fill_between(path.rounds, path.low, path.high, color=BLUE, alpha=0.25, linewidth=0.8, label=name)
        if result is not None and result.other is not None:
            for ends, text in ((path.other_low, OTHER_NAMES[result.other.method]), (path.other_high, None)):
                panel.plot(path.rounds, ends, color=BLUE, linewidth=0.9, linestyle=(0, (5, 3)), label=text)
        panel.plot(path.rounds, path.question_center, color=GREY, linestyle="none", marker=".", markersize=2.5)
        if not np.isnan(path.estimate).all():  # an interval that is open on one side has none
            panel.plot(path.rounds, path.estimate, color=BLUE, linewidth=1.8, label="estimate")
        panel.set_ylim(*path.heights)
        panel.yaxis.set_major_locator(MaxNLocator(6, integer=path.whole_ticks))
        panel.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        panel.yaxis.set_major_formatter("{x:,.6g}")
        panel.xaxis.set_major_formatter("{x:,.0f}")
        panel.set_ylabel(view.spec.value if len(view.levels) == 1 else f"{view.spec.value}, level {level.level:g}")
        panel.set_xlim(1, max(len(level.history), 2))
    axes[-1].set_xlabel("rounds")
    axes[0].legend(frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    return figure
