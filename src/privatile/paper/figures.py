"""The paper's two figures, from our runs: SVG and PNG."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from privatile.core.arrays import Floats
from privatile.errors import require
from privatile.paper.published import paper_experiment
from privatile.paper.trajectories import Trajectory, trajectory

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
"""Okabe and Ito's colours: told apart by colour-blind readers, and in print."""

PANELS = (
    ("table2", "Hete L", "0.5", "0.9", "Different distributions (Hete L), r = 0.9, τ = 0.5"),
    ("table1", "homogeneous", "low", "hetero", "Different levels (τ_low), truth rates from 0.25 to 0.9"),
)
"""The two panels of Figure 2, by the cells they show."""


def _pyplot() -> Any:
    matplotlib = require("matplotlib", "report")
    # Drawing to files needs no display; text stays text in the SVG; a fixed salt keeps the file the same every time.
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "privatile", "font.size": 9})
    return require("matplotlib.pyplot", "report")


def _save(figure: Any, folder: Path, name: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{name}.svg", folder / f"{name}.png"]
    for file in files:
        metadata = {"Date": None} if file.suffix == ".svg" else {}
        figure.savefig(file, dpi=150, metadata=metadata)
    require("matplotlib.pyplot", "report").close(figure)
    return files


def figure2_panels(seed: int = 7) -> list[tuple[str, Trajectory]]:
    """The runs behind Figure 2: titles and trajectories."""
    found = []
    for table, population, level, rate, title in PANELS:
        labels = {"population": population, "level": level, "truth_rate": rate, "method": "C1", "records": "10000"}
        entry = next(entry for entry in paper_experiment(table).entries if dict(entry.labels) == labels)
        found.append((title, trajectory(entry.cell, seed)))
    return found


def figure2(folder: Path, seed: int = 7) -> list[Path]:
    """Two trajectories with their intervals and the truth."""
    plot = _pyplot()
    figure, axes = plot.subplots(1, 2, figsize=(9.0, 3.4), layout="constrained")
    for axis, (title, run) in zip(axes, figure2_panels(seed), strict=True):
        # The first 2% are the way from the start; the picture begins where the interval means something. Some 800
        # points are more than a printed line can show.
        shown = slice(run.means.size // 50, None, max(1, run.means.size // 800))
        records, means, half = run.records[shown], run.means[shown], run.half_widths[shown]
        axis.fill_between(records, means - half, means + half, color=BLUE, alpha=0.2, lw=0, label="95% interval")
        axis.plot(records, means, color=BLUE, lw=1.2, label="estimate")
        axis.axhline(run.truth, color=ORANGE, ls=":", lw=1.4, label="truth Q*")
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("records answered per client")
        axis.set_ylim(run.truth - 0.3, run.truth + 0.3)
    axes[0].set_ylabel("q")
    axes[0].legend(loc="upper right", frameon=False)
    return _save(figure, folder, "figure2")


def figure1(clients: dict[str, Floats], folder: Path) -> list[Path]:
    """How clients differ: salaries by region, and what a report still says at three privacy budgets."""
    plot = _pyplot()
    figure, (left, right) = plot.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
    names = sorted(clients, key=lambda name: float(np.median(clients[name])))
    for place, name in enumerate(names):
        low, middle, high = np.quantile(clients[name], [0.25, 0.5, 0.75]) / 1000.0
        left.plot([low, high], [place, place], color=GREY, lw=2.0, solid_capstyle="round")
        left.plot(middle, place, "o", color=BLUE)
        left.annotate(
            f"{middle:.1f}", (middle, place), textcoords="offset points", xytext=(0, 5), ha="center", fontsize=7
        )
    left.set_yticks(range(len(names)), [f"{name} ({clients[name].size:,})" for name in names])
    left.set_ylim(-0.6, len(names) - 0.3)
    left.set_xlabel("salary, thousand dollars a year: median and middle half")
    left.set_title("Data heterogeneity: regions as clients", fontsize=9)
    q = np.linspace(10_000.0, 120_000.0, 221)
    everyone = np.concatenate(list(clients.values()))
    above = 1.0 - np.searchsorted(np.sort(everyone), q, side="right") / everyone.size
    for rate, color, style in ((1.0, GREY, ":"), (0.9, BLUE, "-"), (0.6, GREEN, "--"), (0.25, ORANGE, "-.")):
        budget = "no privacy" if rate == 1.0 else f"r = {rate:g}, ε = {2.0 * math.atanh(rate):.2f}"
        right.plot(q / 1000.0, (1.0 - rate) / 2.0 + rate * above, color=color, ls=style, label=budget)
    right.set_xlabel("question: is your salary above … thousand dollars?")
    right.set_ylabel("share of reports that say yes")
    right.set_ylim(0.0, 1.0)
    right.legend(frameon=False)
    right.set_title("Privacy heterogeneity: what a report still says", fontsize=9)
    return _save(figure, folder, "figure1")
