"""The words of a report are true for the run it is about."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from privatile.report.run_page import WORDS, findings, how_read, looking, run_page
from privatile.run.view import RunView
from tests.made_runs import viewed
from tests.report.test_caveats import made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "method"),
    [
        ({}, "questions"),
        ({"value_kind": "continuous"}, "smooth"),
        ({"interval": "self-normalized"}, "mean"),
        # The law of each look's own path takes seconds.
        *([({"design": "paper-c1", "interval": "paper"}, "mean")] if os.environ.get("PRIVATILE_LONG") else []),
        ({"design": "rounds"}, "any-shape"),
        ({"until_width": 40.0}, "questions"),
        ({"until_width": 12.0, "value_kind": "continuous"}, "anytime"),
    ],
)
def test_the_chart_says_where_the_estimate_comes_from(tmp_path: Path, options: dict[str, Any], method: str) -> None:
    result = made(tmp_path / "run.db", **options)
    view = RunView.read(tmp_path / "run.db", drawn=True)
    page, paper = run_page(view), "paper-c1" in options.values()
    since = "" if paper else " since then"
    assert how_read(result) == WORDS["method"][method].format(since=since)
    assert how_read(result) in page
    (row,) = [row.text for row in result.rows() if row.key == "rounds"]
    assert ("averaged" in row) == (method == "mean")
    fixed = "until_width" not in options and method != "questions"
    assert (looking(view.spec, result) == WORDS["looking"]["fixed"]) == (WORDS["looking"]["fixed"] in page) == fixed
    assert ("The method:" in page) == paper
    if options == {"until_width": 40.0}:
        assert looking(view.spec, result) == WORDS["looking"]["width"].format(width=40.0)
        assert view.done < view.planned
        assert f"<b>{view.done} of {view.planned}</b>" in page


@pytest.mark.slow
def test_several_levels_are_told_apart(tmp_path: Path) -> None:
    """Each level has its chart, its clients and its own remarks; what holds for all is said once."""
    view = viewed(tmp_path / "run.db", rounds=300, levels=(0.25, 0.5, 0.9))
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
    view = viewed(tmp_path / "run.db", rounds=60)
    marks = re.findall(r'<li class="(good|note|worry)">', run_page(view))
    assert "worry" in marks
    order = {"worry": 0, "good": 1, "note": 2}
    assert [order[mark] for mark in marks] == sorted(order[mark] for mark in marks)
