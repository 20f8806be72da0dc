"""The paper's two figures, from our runs: SVG and PNG."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.core.mechanism import yes_probability
from privatile.errors import InputError
from privatile.estimator.averaging import Averages, add, normalizer
from privatile.paper.published import paper_experiment
from privatile.report.print_style import BLUE, GREEN, GREY, VERMILION, print_style, save_figure
from privatile.simulation.cells import Cell
from privatile.simulation.engine import Outcome, run_cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = (
    ("table2", "Hete L", "0.5", "0.9", "Different distributions (Hete L), r = 0.9, τ = 0.5"),
    ("table1", "homogeneous", "low", "hetero", "Different levels (τ_low), truth rates from 0.25 to 0.9"),
)
"""The two panels of Figure 2, by the cells they show."""


def _save(figure: "Figure", folder: Path, name: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    return [save_figure(figure, folder / f"{name}{suffix}") for suffix in (".svg", ".png")]


@dataclass(frozen=True)
class Trajectory:
    """One run as it goes: Q_m with its interval against the records asked of a client."""

    records: NDArray[np.int64]
    means: Floats
    half_widths: Floats
    truth: float


def path_queries(outcome: Outcome) -> Floats:
    """The query after every round, from the running means that an outcome kept: a column per replication."""
    if outcome.paths is None:
        raise InputError("these replications keep no trajectory.")
    sums = np.arange(1, len(outcome.paths) + 1)[:, None] * outcome.paths
    return np.diff(sums, axis=0, prepend=0.0)


def trajectory(cell: Cell, seed: int) -> Trajectory:
    """One replication of a cell, round by round; the critical value is that of the whole schedule."""
    if cell.skip:
        raise InputError("a trajectory is drawn from the first round on: use a design without burn-in.")
    queries = path_queries(run_cell(cell, 1, seed, keep_paths=True))[:, 0]
    sums = Averages(center=float(queries.mean()))
    path = [sums := add(sums, *entry) for entry in zip(queries.tolist(), cell.round_weights.tolist(), strict=True)]
    half = cell.critical_value * np.sqrt([normalizer(sums) for sums in path])
    return Trajectory(np.cumsum(cell.lengths[0]), np.array([sums.estimate for sums in path]), half, cell.truth)


@print_style()
def figure2(folder: Path) -> list[Path]:
    """Two trajectories with their intervals and the truth."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.4), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, (table, population, level, rate, title) in zip(axes, PANELS, strict=True):
        labels = {"population": population, "level": level, "truth_rate": rate, "method": "C1", "records": "10000"}
        cell = next(entry.scheduled for entry in paper_experiment(table).entries if dict(entry.labels) == labels)
        run = trajectory(cell, seed=7)
        # The first 2% lead away from the start; the picture begins where the interval means something. About 800
        # points are more than a printed line can show.
        shown = slice(run.means.size // 50, None, max(1, run.means.size // 800))
        records, means, half = run.records[shown], run.means[shown], run.half_widths[shown]
        axis.fill_between(records, means - half, means + half, color=BLUE, alpha=0.2, lw=0, label="95% interval")
        axis.plot(records, means, color=BLUE, lw=1.2, label="estimate")
        axis.axhline(run.truth, color=VERMILION, ls=":", lw=1.4, label="truth Q*")
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("records answered per client")
        axis.set_ylim(run.truth - 0.3, run.truth + 0.3)
    axes[0].set_ylabel("q")
    axes[0].legend(loc="upper right", frameon=False)
    return _save(figure, folder, "figure2")


@print_style()
def figure1(clients: dict[str, Floats], folder: Path) -> list[Path]:
    """How clients differ: salaries by region, and what a report still says at three privacy budgets."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
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
    left.set_xlabel("salary, thousand dollars per year: median and middle half")
    left.set_title("Data heterogeneity: regions as clients", fontsize=9)
    q = np.linspace(10_000.0, 120_000.0, 221)
    everyone = np.concatenate(list(clients.values()))
    above = 1.0 - np.searchsorted(np.sort(everyone), q, side="right") / everyone.size
    for rate, color, style in ((1.0, GREY, ":"), (0.9, BLUE, "-"), (0.6, GREEN, "--"), (0.25, VERMILION, "-.")):
        budget = "no privacy" if rate == 1.0 else f"r = {rate:g}, ε = {2.0 * math.atanh(rate):.2f}"
        right.plot(q / 1000.0, yes_probability(rate, above), color=color, ls=style, label=budget)
    right.set_xlabel("question: is your salary above … thousand dollars?")
    right.set_ylabel("share of reports that say yes")
    right.set_ylim(0.0, 1.0)
    right.legend(frameon=False)
    right.set_title("Privacy heterogeneity: what a report still says", fontsize=9)
    return _save(figure, folder, "figure1")
