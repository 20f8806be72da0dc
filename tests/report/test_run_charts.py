"""What a run's page draws and says of questions on both sides of the quantile: bands, strips, axes, values left."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privatile.report.charts import trajectory_chart
from privatile.report.path import ThinPath, thin_path
from privatile.report.run_page import run_page
from privatile.result.caveats import Caveat
from privatile.result.shown import grid_text
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore
from privatile.run.view import RunView
from tests.made_runs import few_days, long_run, showing, viewed
from tests.report.test_run_page import Reader


@pytest.mark.slow
@pytest.mark.parametrize("design", ["auto", "rounds", *(["paper-c1"] if os.environ.get("PRIVATILE_LONG") else [])])
def test_the_band_is_the_interval_a_shorter_run_would_have_reported(tmp_path: Path, design: str) -> None:
    view = viewed(tmp_path / "long.db", rounds=300, design=design)
    level = view.levels[0]
    path = thin_path(level, 2000)
    for number in [number for number, _ in level.snapshots][5::20]:
        store = RunStore.open(long_run(tmp_path / f"{number}.db", rounds=300, stop=number, design=design))
        expected = Coordinator(store).result()
        store.close()
        at = number - 1
        assert (path.low[at], path.high[at]) == pytest.approx(expected.confidence_interval, rel=1e-6)
        estimate = expected.estimate if expected.located else np.nan
        assert path.estimate[at] == pytest.approx(estimate, rel=1e-6, nan_ok=True)
    assert len(level.snapshots) > 50


def test_early_intervals_over_the_whole_range_do_not_flatten_the_drawing() -> None:
    """However long nothing was known, the drawing is at most three times as high as the last interval with margins."""
    count, known = 100, 60
    low, high = np.full(count, 0.0), np.full(count, 1e6)
    low[known:], high[known:] = 48.0, 52.0
    rounds, estimate, none = np.arange(1, count + 1), np.full(count, 50.0), np.full(count, np.nan)
    path = ThinPath(rounds, rounds, estimate, estimate, none, estimate, low, high, low, high, none, none, (0.0, 1e6))
    near = replace(path, question_low=estimate - 0.1, question_high=estimate + 0.1)
    apart = replace(path, question_low=estimate - 1.0, question_high=estimate + 1.0)
    for drawn, seen, most in (
        (path, (48.0, 52.0), (42.2, 57.8)),
        # Nor does an end that the answers do not bound flatten it: it stands at the end of the stated range.
        (replace(path, low=np.zeros(count)), (48.0, 52.0), (40.0, 60.0)),
        # Nor a last interval that is far wider than the questions lie apart; one that is not is seen whole.
        (replace(near, low=estimate - 20.0, high=estimate + 30.0), (49.9, 50.1), (48.5, 51.5)),
        (apart, (48.0, 52.0), (40.0, 60.0)),
    ):
        bottom, top = drawn.heights
        assert most[0] < bottom < seen[0] < seen[1] < top < most[1]


def test_the_search_is_a_strip_beside_what_matters(straddled: RunView) -> None:
    """Its questions go everywhere; no line of the chart does. They are kept in the data."""
    (level,) = straddled.levels
    path, search = thin_path(level, 2000), level.burn_in
    chart = trajectory_chart(path, "age")
    assert chart is not None
    shapes = {
        shape.kind: [tuple(map(float, point.split(","))) for point in shape.points.split()] for shape in chart.shapes
    }
    assert max(y for _, y in shapes["strip"]) - min(y for _, y in shapes["strip"]) <= 14
    end = max(x for x, _ in shapes["strip"])
    assert min(x for x, _ in shapes["walk"]) > end - 1
    assert len(shapes["searched"]) == search == path.to_dict()["search"]
    # Without a search to tell apart, all questions are drawn: the check can see them.
    other = trajectory_chart(replace(path, search=0), "age")
    assert other is not None
    (walk,) = [shape for shape in other.shapes if shape.kind == "walk"]
    assert min(float(point.split(",")[0]) for point in walk.points.split()) < end - 1
    assert not [shape for shape in other.shapes if shape.kind == "strip"]


def test_axes_have_names_and_whole_numbers(straddled: RunView) -> None:
    """Whole numbers where values are declared whole, or where the stated range is whole and wide enough."""
    path = thin_path(straddled.levels[0], 2000)

    def labels(path: ThinPath) -> list[str]:
        chart = trajectory_chart(path, "age")
        assert chart is not None
        return [label.text for label in chart.labels]

    assert path.whole
    texts = labels(path)
    assert {"age", "rounds"} <= {*texts}
    assert not [text for text in texts if "." in text]
    assert path.heights[1] - path.heights[0] >= 3.0
    narrow = replace(path, whole=False, low=path.low * 0 + 54.8, high=path.high * 0 + 55.1, estimate=path.low * 0 + 55)
    assert [text for text in labels(narrow) if "." in text]  # declared nothing, and closer than whole numbers


@pytest.fixture(scope="module")
def straddled(tmp_path_factory: pytest.TempPathFactory) -> RunView:
    """A run of whole numbers, declared as such."""
    path = tmp_path_factory.mktemp("straddled") / "run.db"
    return viewed(path, rounds=80, length=120, design="auto", value_kind="whole", whole=True)


def test_the_page_shows_the_values_left_and_the_interval_beside_them(straddled: RunView) -> None:
    (level,) = straddled.levels
    result = level.result
    assert result is not None
    assert 55.0 in (result.grid_values or ())
    page, shown = run_page(straddled), result.shown
    assert f'<p class="big">{result.estimate:g}</p>' in page
    assert f"95% interval <b>{grid_text(result.grid_values)}</b>, {shown.own.condition}" in page
    assert f"If it is not so: {shown.undeclared}" in page
    assert (shown.own.condition_code, result.condition) == ("grid", "any-shape")
    assert (result.other, result.contradiction) == (None, "")  # the declaration says that they are not continuous
    (facts,) = Reader(page).facts["results"]
    assert (facts["grid_values"], facts["value_kind"]) == (list(result.grid_values or ()), "whole")


def estimate_lines(path: ThinPath) -> list[list[float]]:
    """The horizontal places of every drawn piece of the estimate's line."""
    chart = trajectory_chart(path, "days")
    assert chart is not None
    lines = [shape.points.split() for shape in chart.shapes if shape.kind == "estimate"]
    return [[float(point.split(",")[0]) for point in line] for line in lines]


def test_the_chart_has_an_estimate_only_where_the_table_has_one(straddled: RunView, tmp_path: Path) -> None:
    """ "7 or less" is a bar to the end of the range, without a point in it."""
    view = RunView.read(few_days(tmp_path / "few.db"), drawn=True)
    (level,) = view.levels
    assert level.result is not None
    assert level.result.shown.kind == "or_less"
    path = thin_path(level, 2000)
    assert (path.low[-1], path.digits_width) == (0.0, level.result.shown.own.width)
    assert np.isnan(path.estimate).all()
    assert estimate_lines(path) == []
    bottom, top = path.heights
    assert bottom < 0.0 < path.high[-1] < top < 20.0  # the range ends at 80
    assert "it would have reported no estimate, only the interval" in run_page(view)
    # The control: a result with an estimate has its point at the last round, and a gap in a line is not bridged.
    whole = thin_path(straddled.levels[0], 2000)
    assert whole.estimate[-1] == pytest.approx(55.0)
    last = estimate_lines(whole)[-1]
    assert last[-1] == 752.0
    broken = whole.estimate.copy()
    broken[-10:-5] = np.nan
    *_, before, after = estimate_lines(replace(whole, estimate=broken))
    assert (len(before) + len(after), before[0], after[-1]) == (len(last) - 5, last[0], last[-1])


@pytest.mark.parametrize("declared", [False, True])
def test_what_the_answers_contradict_is_said_first(straddled: RunView, declared: bool) -> None:
    """A contradicted declaration is something to look at; without one it only says why there is no smooth interval."""
    (level,) = straddled.levels
    assert level.result is not None
    why = "no smooth interval: the answers do not follow a smooth curve"
    caveats = (Caveat("contradiction", "Declared continuous, but not so."),) if declared else ()
    result = replace(level.result, other=None, contradiction=why, caveats=caveats)
    page = run_page(showing(straddled, result))
    hero = page[page.index('<header class="hero">') : page.index("</header>")]
    # Said once: by the caveat where there is one.
    assert ("No smooth interval: the answers do not follow a smooth curve." in hero) != declared
    assert ("! look here" in hero) == ("Declared continuous, but not so." in hero) == declared
    assert "if smooth" not in page
    assert "other_low" not in Reader(page).facts["trajectories"][0]  # no dashed lines that nothing explains


def test_questions_on_both_sides_are_drawn_as_a_band_with_the_centre_inside(straddled: RunView, tmp_path: Path) -> None:
    (level,) = straddled.levels
    path, search = thin_path(level, 2000), level.burn_in
    assert (path.question_low[:search] == path.question_high[:search]).all()
    window = slice(search + 4, None)
    assert (path.question_low[window] < path.question_high[window]).all()
    # No mean is made, and the interval is drawn all the same.
    assert np.isnan(level.mean).all()
    assert np.isfinite([path.low[window], path.high[window]]).all()
    asked = ~np.isnan(path.question_center)
    assert 8 <= asked.sum() <= 18  # every fifth round of the window
    assert not asked[:search].any()
    # A design that follows the quantile has one question, and no centre.
    (follows,) = viewed(tmp_path / "one.db", rounds=20).levels
    assert np.isnan(thin_path(follows, 99).question_center).all()


def test_no_drawn_interval_is_narrower_than_the_result(straddled: RunView) -> None:
    (level,) = straddled.levels
    assert level.result is not None
    drawn: dict[str, Any] = thin_path(level, 2000).to_dict()
    low, high = level.result.confidence_interval
    first, last = drawn["low"][-1], drawn["high"][-1]
    assert first <= low < high <= last
    assert first == pytest.approx(low, abs=2e-3 * (high - low))
    assert "anytime_low" not in drawn  # the same as the interval itself: not sent twice
