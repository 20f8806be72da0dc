"""Simulations of the default designs: they score what results show, by the code of live runs, plain and compiled."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from studies.coverage.heaped import Rounded

from privatile.core.arrays import Floats, Ints
from privatile.core.kinds import IntervalName
from privatile.core.scale import Linear
from privatile.errors import InputError
from privatile.estimator import straddle, tuned
from privatile.estimator.plan import begin, step
from privatile.estimator.pools import Heard
from privatile.estimator.straddle import StraddlePlan
from privatile.estimator.tuned import AutoPlan
from privatile.inference.any_shape import Grid
from privatile.inference.trajectory import Trajectory
from privatile.result.result import ConfidenceInterval
from privatile.result.summary import grid_values, summarize
from privatile.simulation.default_design import (
    AutoCell,
    BinomialAnswers,
    DefaultCell,
    DisplayedIntervals,
    SimulatedRuns,
    displayed_intervals,
    grid_results,
    settings_of,
    simulate,
    simulate_results,
    summarize_default,
)
from privatile.simulation.experiment import parse_experiment
from privatile.simulation.populations import Empirical, Normal, Population
from privatile.simulation.runner import evaluate

AGES = Rounded(Normal(40.2, 12.0))
COLUMN = """
title = "Ages"
replications = 30
clients = 1
[populations]
ages = {{ file = "ages.csv", value = "age"{more} }}
[methods]
default = {{ method = "auto", range = [0, 120]{method} }}
[[grid]]
population = ["ages"]
level = [0.5]
truth_rate = [0.99]
method = ["default"]
records = [400]
"""


class Given:
    """Answers as they are drawn, kept; or those that another simulation was given."""

    def __init__(self, cell: AutoCell, seed: int, kept: Given | None = None) -> None:
        self.drawn, self.again = BinomialAnswers(cell, np.random.default_rng(seed)), kept
        self.rounds: list[tuple[Ints, Ints]] = []

    def counts(self, queries: Floats, lengths: Ints) -> Ints:
        again = self.again
        ones = self.drawn.counts(queries, lengths) if again is None else again.rounds[len(self.rounds)][1]
        self.rounds.append((lengths.copy(), ones))
        return ones


@pytest.mark.parametrize("population", [Normal(40.0, 12.0), AGES])
@pytest.mark.parametrize("interval", ["default", "smooth", "any-shape", "self-normalized", "paper"])
@pytest.mark.parametrize(("design", "records"), [("straddle", 3000), ("straddle", 100), ("tuned", 9000)])
def test_a_simulation_scores_what_a_result_shows(
    population: Population, design: str, records: int, interval: IntervalName
) -> None:
    """The same answers to a live run: it asks the same, and its result shows the same interval."""
    if design == "straddle" and interval in ("self-normalized", "paper"):
        return
    laws, sizes = (population,) * 2, (3 * records, records)
    cell = AutoCell(laws, (0.9,) * 2, sizes, 0.6, (0.75, 0.25), low=0.0, high=120.0, rounds=60)
    plan: AutoPlan | StraddlePlan = cell.plan if design == "tuned" else cell.straddle_plan
    given = Given(cell, 3)
    found = simulate(cell, plan, 2, np.random.default_rng(), answers=given)
    state, trajectory, queries = begin(plan), Trajectory(), []
    for lengths, ones in given.rounds:
        ask = plan.ask(state)
        assert ask is not None
        assert ask.lengths == tuple(lengths[1])
        queries.append(ask.query)
        state = step(state, ask, ones[1].tolist(), plan)
        trajectory.record(ask, state, plan)
    assert found.queries[1] == pytest.approx(queries, rel=1e-9)
    settings = replace(settings_of(cell, plan), interval=interval, confidence_level=0.9)
    shown = summarize(settings, plan, state, trajectory, run="r")
    mine = displayed_intervals(found, (0.9,), found.readings(interval))[0]
    ends = [min(max(float(column[1]), cell.low), cell.high) for column in mine]
    assert [shown.estimate, *shown.confidence_interval] == pytest.approx(ends, rel=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("design", ["straddle", "tuned"])
def test_compiled_runs_decide_as_plain_ones(design: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same answers: questions within 2·10⁻⁶ of the final width, except where a decision was a near tie."""
    pytest.importorskip("numba")
    runs = 1000 if os.environ.get("PRIVATILE_LONG") else 150
    cell = AutoCell((Normal(40.0, 12.0), AGES), (0.5, 0.9), (4000, 2000), 0.4, low=0.0, high=120.0, rounds=40)
    plan: AutoPlan | StraddlePlan = cell.plan if design == "tuned" else cell.straddle_plan
    drawn = Given(cell, 5)
    plain = simulate(cell, plan, runs, np.random.default_rng(), answers=drawn)
    monkeypatch.setattr("privatile.simulation.default_design.WORTH_COMPILING", 0)
    compiled = simulate(cell, plan, runs, np.random.default_rng(), answers=Given(cell, 5, drawn))
    widths = displayed_intervals(plain)[0].half_width * 2.0
    off = np.abs(plain.queries - compiled.queries).max(axis=1)
    apart = np.flatnonzero(~(off <= 2e-6 * np.where(np.isfinite(widths), widths, 120.0)))
    assert len(apart) <= 0.01 * runs
    assert all(is_near_tie(plain, run) for run in apart.tolist())


def is_near_tie(found: SimulatedRuns, run: int) -> bool:
    """Whether a plain run decides otherwise where the last bits of its answers change."""
    plan, rng = found.plan, np.random.default_rng(run)
    for _ in range(6):
        own: Any = straddle.begin(plan.rules) if isinstance(plan, StraddlePlan) else tuned.begin(plan.rules)
        for query, answer, variance in zip(found.queries[run], found.residuals[run], found.noise[run], strict=True):
            if abs(own.query - query) > 1e-9:
                return True
            own.belief.make_room()
            shaken = answer * (1.0 + 1e-14 * rng.standard_normal())
            if isinstance(plan, StraddlePlan):
                straddle.learn(plan.rules, own, shaken, variance, Heard(own.query, shaken, variance))
            else:
                tuned.learn(plan.rules, own, shaken, variance)
    return False


def test_the_headline_covers_where_the_smooth_interval_does_not() -> None:
    """Whole years: no smooth curve runs through their steps, and its interval misses."""
    cell = AutoCell((AGES,), (0.9,), (60_000,), low=0.0, high=120.0, rounds=80)
    shown = simulate_results(cell, "any", 40, np.random.default_rng(1))
    assert shown.headline.covers(cell.truth).mean() >= 0.95
    assert shown.other.covers(cell.truth).mean() < 0.8
    years = simulate_results(cell, "whole", 40, np.random.default_rng(1))
    assert years.headline.covers(cell.truth).mean() >= 0.95
    assert np.median(years.sizes) <= 2
    assert np.isnan(shown.sizes).all()


def test_declared_continuous_is_asked_by_the_tuned_design() -> None:
    cell = AutoCell((Normal(),), (0.9,), (4000,), rounds=80)
    shown = simulate_results(cell, "continuous", 40, np.random.default_rng(2))
    assert shown.headline.covers(0.0).mean() > 0.8
    wide = simulate_results(cell, "any", 40, np.random.default_rng(2))
    assert np.median(wide.headline.half_width) > 2 * np.median(shown.headline.half_width)
    assert (shown.other.half_width >= shown.headline.half_width - 1e-12).all()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ages = np.rint(np.random.default_rng(1).normal(40.2, 12.0, 999)).astype(int)
    rows = [f"{age},{'north' if k % 3 else 'south'}" for k, age in enumerate(ages)]
    (tmp_path / "ages.csv").write_text("\n".join(["age,place", *rows, ",north"]) + "\n")
    return tmp_path


def test_a_column_of_a_file_is_a_population(folder: Path) -> None:
    ages = np.array([int(row.split(",")[0]) for row in (folder / "ages.csv").read_text().split()[1:-1]])
    (entry,) = parse_experiment(COLUMN.format(more="", method=', value_kind = "whole"'), folder=folder).entries
    assert isinstance(entry.cell, DefaultCell)
    assert entry.cell.truth == float(np.quantile(ages, 0.5, method="inverted_cdf"))
    assert math.isnan(entry.cell.bound)
    _, summary, _ = evaluate(0, entry.cell, 30, seed=1)
    assert summary.coverage >= 0.9
    assert summary.values_left >= 1
    assert summary == evaluate(0, entry.cell, 30, seed=1, threads=2)[1]
    assert summary != evaluate(0, entry.cell, 30, seed=2)[1]
    by_place = COLUMN.format(more=', client = "place"', method="").replace("clients = 1", "clients = 2")
    (entry,) = parse_experiment(by_place, folder=folder).entries
    assert [len(law.values) for law in entry.cell.populations] == [666, 333]  # type: ignore[attr-defined]


def test_a_log_scale_is_scored_in_units() -> None:
    text = COLUMN.format(more="", method=', scale = "log"').replace("[0, 120]", "[0.1, 120]")
    text = text.replace('{ file = "ages.csv", value = "age" }', '{ family = "lognormal", location = 3, scale = 0.4 }')
    (entry,) = parse_experiment(text).entries
    assert isinstance(entry.cell, DefaultCell)
    assert entry.cell.truth == pytest.approx(math.exp(3))
    found = summarize_default(entry.cell, entry.cell.run(30, seed=1))
    assert found.coverage >= 0.9
    assert found.rmse < 4 * entry.cell.bound


@pytest.mark.parametrize(
    ("more", "method", "message"),
    [
        ("", ", lengths = 5", "chooses its own rounds: leave out lengths"),
        ("", ', value_kind = "often"', "value_kind: must be any, continuous, whole or step=NUMBER"),
        ("", ', scale = "log"', "a log scale needs a range above zero"),
        (', rows = "all"', "", "a column is {file = …, value = …}"),
        (', client = "place"', "", "must give one population per client, 1; place has 2 names"),
    ],
)
def test_a_design_that_cannot_be_run_is_refused(folder: Path, more: str, method: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        parse_experiment(COLUMN.format(more=more, method=method), folder=folder)
    assert message in str(error.value)


def test_a_range_or_a_file_that_does_not_fit_is_refused(folder: Path) -> None:
    text = COLUMN.format(more="", method="")
    for wrong, message in (
        (text.replace("[0, 120]", "[50, 120]"), "does not hold the quantile"),
        (text.replace(", range = [0, 120]", ""), "needs range"),
        (text.replace('value = "age"', 'value = "agee"'), "agee"),
        (text.replace('method = "auto", range = [0, 120]', "range = [0, 1]"), 'goes with method = "auto" only'),
        (text.replace("ages.csv", "none.csv"), "none.csv"),
    ):
        with pytest.raises(InputError) as error:
            parse_experiment(wrong, folder=folder)
        assert message in str(error.value)


def test_a_result_and_a_simulation_leave_the_same_grid_values() -> None:
    """Contradicted grids have no set: nothing is covered. An end of the range is left, whichever reads it."""
    scale = Linear(0.0, 120.0)
    raw = [(43.8, 45.3), (43.2, 43.7), (-math.inf, 1.5), (0.0, 0.4), (118.5, math.inf), (-math.inf, math.inf), (0, 0)]
    low, high = np.array(raw).T
    shown = grid_results(DisplayedIntervals(low, low, high), DisplayedIntervals(low, low, high), Grid(1.0), 0.0, 120.0)
    for k, (first, last) in enumerate(raw):
        values, words = grid_values("whole", ConfidenceInterval(max(first, 0.0), min(last, 120.0)), scale)
        if values is None:
            assert np.isinf(shown.sizes[k]) == (not words)
            assert np.isnan(shown.sizes[k]) == bool(words)
        else:
            assert (shown.headline.low[k], shown.headline.high[k]) == (values[0], values[-1])
            assert shown.sizes[k] == len(values)
    # The neighbours outside would have covered the truth 44 where the answers rule out every whole number.
    assert not shown.headline.covers(44.0)[1]
    assert np.isnan(shown.sizes[1])


def test_a_grid_on_a_log_scale_is_one_of_units() -> None:
    """Whole years up to 120 have logarithms below 5: a grid of logarithms would leave one value and miss."""
    people = Empirical(np.rint(np.random.default_rng(1).normal(40.2, 12.0, 999)).clip(1, 110))
    cell = DefaultCell((people,), (0.9,), (1.0,), (20_000,), 0.5, 1.0, 120.0, "whole", "log")
    shown = cell.run(20, seed=1)
    assert shown.headline.covers(cell.truth).mean() >= 0.9
    assert (shown.headline.low % 1.0 == 0.0).all()
