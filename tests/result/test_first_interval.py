"""Which interval stands first, and under which condition: one rule, read at one place by text, pages and dashboard."""

from dataclasses import replace
from pathlib import Path

import pytest

from privatile.report.dashboard.live import _level
from privatile.report.run_page import run_page
from privatile.result.result import QuantileResult
from privatile.result.shown import CONDITIONS
from privatile.result.summary import unfinished
from privatile.run.view import RunView
from tests.made_runs import long_run, showing
from tests.result.test_both_readings import AGES, run

RUNS = {
    # Options of a run; the conditions of its own interval, of its anytime interval, and of what stands first.
    "any": ({}, "any-shape", "any-shape", "any-shape"),
    "whole": ({"declared": "whole"}, "any-shape", "any-shape", "grid"),
    "continuous": ({"declared": "continuous"}, "smooth", "smooth", "smooth"),
    # The smooth interval holds at the planned end; what is valid before is the any-shape one.
    "smooth of a straddled run": ({"interval": "smooth"}, "smooth", "any-shape", "any-shape"),
    # A design that follows the quantile has a sequence of its own, which does not rest on the declaration.
    "whole by a tuned step": ({"declared": "whole", "design": "tuned"}, "any-shape", "smooth", "smooth"),
}


@pytest.fixture(scope="module", params=RUNS)
def case(request: pytest.FixtureRequest) -> tuple[QuantileResult, str, str, str]:
    options, condition, anytime, first = RUNS[request.param]
    return run(AGES[:8_000], **options), condition, anytime, first


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> RunView:
    """A small run that is going on, to show the results in."""
    path: Path = tmp_path_factory.mktemp("run") / "run.db"
    return RunView.read(long_run(path, rounds=40, stop=30, length=50, design="auto"), drawn=True)


def test_while_a_run_goes_on_all_places_show_one_interval_under_one_condition(
    case: tuple[QuantileResult, str, str, str], view: RunView
) -> None:
    result, condition, anytime, first = case
    result = unfinished(result, 200)
    shown, grid = result.shown, first == "grid"
    assert (result.condition, result.anytime_condition, shown.first.condition_code) == (condition, anytime, first)
    assert (shown.first.low, shown.first.high) == result.anytime
    low, high = shown.first.ends
    assert result.sentence.endswith(f"valid at any time runs from {low} to {high}, {shown.first.condition}.")
    (row,) = [row for row in result.rows() if row.key == "anytime_interval"]
    assert row.text.endswith(f", however often it is looked at, {CONDITIONS[result.anytime_condition or 'smooth']}")
    # What stands first does not stand beside itself.
    assert result.other is None or result.other.interval != result.anytime

    (level,) = view.levels
    assert level.result is not None
    view = showing(view, replace(result, clients=level.result.clients))
    page = run_page(view)
    assert page.partition('<p class="interval">')[2].partition("</p>")[0].endswith(f"</b>, {shown.first.condition}")
    assert ("If it is not so" in page) == ("without what was declared" in page) == grid

    live = _level(view.levels[0])
    assert (live["anytime"]["low"], live["anytime"]["high"]) == (shown.first.low, shown.first.high)
    assert bool(live["values_left"]) == bool(live["undeclared"]) == grid


def test_at_its_end_the_interval_of_the_run_stands_first(case: tuple[QuantileResult, str, str, str]) -> None:
    result, condition, _, _ = case
    assert result.shown.first is result.shown.own
    assert result.shown.first.condition_code == ("grid" if result.grid_values else condition)
