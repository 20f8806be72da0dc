"""Which interval stands first, and under which condition: one rule, read at one place by text, pages and dashboard."""

from dataclasses import replace
from pathlib import Path

import pytest

from privatile.cli.see import _answer
from privatile.report.dashboard.live import _level
from privatile.report.run_page import run_page
from privatile.result.result import QuantileResult
from privatile.result.shown import ANY_SHAPE, SMOOTH
from privatile.result.summary import unfinished
from privatile.run.view import RunView
from tests.made_runs import long_run, showing
from tests.result.test_both_readings import AGES, run

WHOLE = "if every value is a whole number"

RUNS = {
    # Options of a run; the conditions of its own interval, of its anytime interval, and of what stands first.
    "any": ({}, ANY_SHAPE, ANY_SHAPE, ANY_SHAPE),
    "whole": ({"declared": "whole"}, ANY_SHAPE, ANY_SHAPE, WHOLE),
    "continuous": ({"declared": "continuous"}, SMOOTH, SMOOTH, SMOOTH),
    # The smooth interval holds at the planned end; what is valid before is the any-shape one.
    "smooth of a straddled run": ({"interval": "smooth"}, SMOOTH, ANY_SHAPE, ANY_SHAPE),
    # A design that follows the quantile has a sequence of its own, which does not rest on the declaration.
    "whole by a tuned step": ({"declared": "whole", "design": "tuned"}, ANY_SHAPE, SMOOTH, SMOOTH),
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
    assert (result.condition, result.anytime_condition, result.first_condition) == (condition, anytime, first)
    assert result.first_interval == result.anytime
    low, high = result.ends_shown(result.first_interval)
    assert result.sentence.endswith(f"valid at any time runs from {low} to {high}, {first}.")
    (row,) = [row for row in result.rows() if row.key == "anytime_interval"]
    assert row.text.endswith(f", however often it is looked at, {anytime}")
    # What stands first does not stand beside itself.
    assert result.other is None or result.other.interval != result.anytime

    (level,) = view.levels
    assert level.result is not None
    view = showing(view, replace(result, clients=level.result.clients))
    page = run_page(view)
    shown = page.partition('<p class="interval">')[2].partition("</p>")[0]
    assert shown.endswith(f"</b>, {first}")
    assert ("If it is not so" in page) == (first == WHOLE)
    assert ("without what was declared" in page) == (first == WHOLE)

    live = _level(view.levels[0])
    assert live["anytime"] == {**result.first_interval._asdict(), "condition": anytime}
    assert bool(live["values_left"]) == bool(live["undeclared"]) == (first == WHOLE)
    watched = str(_answer({"confidence_level": 0.95, "status": "running"}, live))
    assert f"{live['texts']['interval']}, {first}" in watched


def test_at_its_end_the_interval_of_the_run_stands_first(case: tuple[QuantileResult, str, str, str]) -> None:
    result, condition, _, _ = case
    assert result.first_interval == result.confidence_interval
    assert result.first_condition == (WHOLE if result.grid_values else condition)
