"""The pictures of "How it works", drawn by the library itself: `python docs/figures.py`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import privatile
from privatile.core.mechanism import RandomizedResponse
from privatile.core.scale import make_scale, units_inside
from privatile.estimator.clients import Client
from privatile.estimator.plan import TablePlan, begin, step
from privatile.estimator.schedule import DecayingStep
from privatile.report.pages import BLUE, GREEN, GREY, VERMILION, print_style

TRUTH = 55.0
SPREAD = 10.0


def one_bit() -> Figure:
    """What one record sends, at three budgets."""
    figure = Figure(figsize=(6.4, 2.4), layout="constrained")
    axis = figure.subplots()
    budgets = (0.5, 1.0, 2.0, 4.0)
    for row, epsilon in enumerate(budgets):
        truth = (1 + RandomizedResponse.from_epsilon(epsilon).truth_rate) / 2
        axis.barh(row, truth, color=BLUE, height=0.62)
        axis.barh(row, 1 - truth, left=truth, color=VERMILION, height=0.62, hatch="///", edgecolor="white")
        axis.text(truth / 2, row, f"{truth:.0%} the true bit", color="white", ha="center", va="center")
        if truth < 0.8:
            axis.text((1 + truth) / 2, row, f"{1 - truth:.0%} its opposite", color="black", ha="center", va="center",
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5, "alpha": 0.85})  # fmt: skip
    axis.set_yticks(range(len(budgets)), [f"ε = {epsilon:g}" for epsilon in budgets])
    axis.invert_yaxis()
    axis.set_xlim(0, 1)
    axis.set_xticks([])
    axis.grid(visible=False)
    axis.set_title("“Are you above q?”  What leaves the record", loc="left")
    return figure


def _walk(rounds: int, seed: int, size: int = 14) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The questions of a small run, one per round."""
    rng = np.random.default_rng(seed)
    site = RandomizedResponse.from_epsilon(1.0)
    scale, client = make_scale("linear", 0, 100), Client("all", site, 1.0, 0.5, rounds * size)
    paper = DecayingStep.paper(site.truth_rate)
    steps = np.array([paper.at(done) for done in range(rounds)])
    plan = TablePlan((client,), scale, np.full((1, rounds), size), steps)
    state, asked = begin(plan), []
    while (ask := plan.ask(state)) is not None:
        asked.append(units_inside(scale, ask.query))
        truths = rng.normal(TRUTH, SPREAD, size) > asked[-1]
        coins = rng.integers(0, 2**64, size=size, dtype=np.uint64)
        state = step(state, ask, [int(site.respond(truths, coins).sum())], plan)
    return np.array(asked)


def moving_question() -> Figure:
    """Yes from more than half: up; from fewer: down."""
    figure = Figure(figsize=(6.4, 2.9), layout="constrained")
    people, path = figure.subplots(1, 2, width_ratios=(1, 2.6), sharey=True)
    values = np.linspace(20, 90, 400)
    density = np.exp(-0.5 * ((values - TRUTH) / SPREAD) ** 2)
    people.fill_betweenx(values, -density, 0, color=GREY, alpha=0.45)
    people.set_xticks([])
    people.grid(visible=False)
    people.set_ylabel("value")
    people.set_title("people", loc="left")
    asked = _walk(60, 4)
    path.step(range(1, 61), asked, where="mid", color=BLUE)
    path.plot(range(1, 61), asked, ".", color=BLUE, markersize=4)
    for axis in (people, path):
        axis.axhline(TRUTH, color=GREEN, linestyle="--", linewidth=1.2)
    path.text(60, TRUTH + 0.6, "the median, unknown", color=GREEN, ha="right", va="bottom")
    path.set_xlabel("round")
    path.set_title("the question q, round by round", loc="left")
    path.set_ylim(44, 62)
    return figure


def average() -> Figure:
    """The question wanders for ever; its average settles."""
    figure = Figure(figsize=(6.4, 2.6), layout="constrained")
    axis = figure.subplots()
    asked = _walk(600, 4)
    rounds = np.arange(1, len(asked) + 1)
    kept = asked[60:]
    axis.plot(rounds, asked, color=GREY, linewidth=0.8, label="question")
    axis.plot(rounds[60:], np.cumsum(kept) / np.arange(1, len(kept) + 1), color=BLUE, linewidth=2.2, label="average")
    axis.axhline(TRUTH, color=GREEN, linestyle="--", linewidth=1.2, label="the median, unknown")
    axis.axvspan(0, 60, color=GREY, alpha=0.12, linewidth=0)
    axis.text(30, 60.6, "burn-in", ha="center", color="black")
    axis.set_ylim(48, 62)
    axis.set_xlim(0, 600)
    axis.set_xlabel("round")
    axis.legend(frameon=False, ncols=3, loc="lower right")
    return figure


def interval(runs: int = 60) -> Figure:
    """Runs over as many samples of people: about one interval in twenty misses."""
    figure = Figure(figsize=(6.4, 2.6), layout="constrained")
    axis = figure.subplots()
    missed = 0
    for run in range(runs):
        # As many people as the coverage study asks for at this budget: a result without a warning.
        people = {"all": np.random.default_rng(run).normal(TRUTH, SPREAD, 30_000)}
        result = privatile.estimate(people, q=0.5, epsilon=1, range=(0, 100), simulate=True, rng=1000 + run)
        low, high = result.confidence_interval
        inside = low <= TRUTH <= high
        missed += not inside
        axis.plot(
            [run + 1, run + 1], [low, high], color=BLUE if inside else VERMILION, linewidth=2.4 if inside else 3.4
        )
        axis.plot(run + 1, result.estimate, "o" if inside else "X", color=BLUE if inside else VERMILION, markersize=3.4)
    axis.axhline(TRUTH, color=GREEN, linestyle="--", linewidth=1.2)
    axis.set_xlabel(f"run: {missed} of {runs} intervals miss the median; at 95% about {0.05 * runs:.0f} should")
    axis.set_ylabel("value")
    axis.set_xlim(0, runs + 1)
    return figure


def main(folder: Path, runs: int = 60) -> list[Path]:
    """Draw them all."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with print_style():
        figures = {
            "one-bit": one_bit(),
            "moving-question": moving_question(),
            "average": average(),
            "interval": interval(runs),
        }
        for name, figure in figures.items():
            path = folder / f"{name}.svg"
            figure.savefig(path, metadata={"Date": None, "Creator": "privatile"})
            written.append(path)
    return written


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "_static" / "how"
    for path in main(target, *map(int, sys.argv[2:3])):
        print(path)
