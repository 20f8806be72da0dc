"""The words of a report are true for the run it is about."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from markupsafe import escape

from privatile.report.run_page import findings, how_read, looking, run_page
from privatile.run.view import RunView
from tests.made_runs import long_run
from tests.report.test_caveats import made

BOTH_SIDES = "the innermost questions that the answers place below and above the quantile"
CURVE, MEAN = "the curve through all answers", "The estimate is the mean of the questions"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said", "unsaid"),
    [
        ({}, BOTH_SIDES, MEAN),
        ({"value_kind": "continuous"}, CURVE, MEAN),
        ({"interval": "self-normalized"}, MEAN, CURVE),
        # The law of each look's own path takes seconds.
        *([({"design": "paper-c1", "interval": "paper"}, MEAN, CURVE)] if os.environ.get("PRIVATILE_LONG") else []),
        ({"design": "rounds"}, CURVE, MEAN),
        ({"until_width": 40.0}, BOTH_SIDES, MEAN),
        ({"until_width": 12.0, "value_kind": "continuous"}, "at every look at once", MEAN),
    ],
)
def test_the_chart_says_where_the_estimate_comes_from(
    tmp_path: Path, options: dict[str, object], said: str, unsaid: str
) -> None:
    result = made(tmp_path / "run.db", **options)
    page = run_page(RunView.read(tmp_path / "run.db", drawn=True))
    assert said in how_read(result)
    assert said in page
    assert unsaid not in page
    text = " ".join(result.to_text().split())  # its lines are folded
    averaged = "are averaged" in text or "all of them averaged" in text
    assert averaged == (said == MEAN)
    assert ("since then" in page) == (said == MEAN and "paper-c1" not in options.values())
    assert ("voids its confidence" in page) == ("until_width" not in options and said != BOTH_SIDES)
    assert ("The method:" in page) == ("paper-c1" in options.values())


def test_a_run_that_stops_by_its_width_may_be_watched(tmp_path: Path) -> None:
    made(tmp_path / "run.db", until_width=40.0)
    view = RunView.read(tmp_path / "run.db", drawn=True)
    assert view.done < view.planned
    (level,) = view.levels
    assert level.result is not None
    assert "at most 40 wide" in looking(view.spec, level.result)
    assert f"<b>{view.done} of {view.planned}</b>" in run_page(view)


@pytest.mark.slow
def test_several_levels_are_told_apart(tmp_path: Path) -> None:
    """Each level has its chart, its clients and its own remarks; what holds for all is said once."""
    view = RunView.read(long_run(tmp_path / "run.db", rounds=300, levels=(0.25, 0.5, 0.9)), drawn=True)
    page = run_page(view)
    assert page.count('<table class="clients') == 3
    for name in ("The lower quartile", "The median", "The 0.9 quantile"):
        assert page.count(f'<th scope="row">{name}</th>') == 1
    shared = [each for each in findings(view, view.levels[0]) if each.code == "everybody"]
    assert len(shared) == 1
    assert page.count(f"<p>{escape(shared[0].text)}</p>") == 1
    facts = re.search(r'class="facts stack">(.*?)</table>', page, re.S)
    assert facts is not None
    assert facts[1].count('scope="col"') == 3
    assert 'colspan="3"' in facts[1]


def test_trouble_comes_first(tmp_path: Path) -> None:
    view = RunView.read(long_run(tmp_path / "run.db", rounds=60), drawn=True)
    marks = re.findall(r'<li class="(good|note|worry)">', run_page(view))
    assert "worry" in marks
    order = {"worry": 0, "good": 1, "note": 2}
    assert [order[mark] for mark in marks] == sorted(order[mark] for mark in marks)
