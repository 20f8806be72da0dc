"""The page of groups in a real browser: readable on a desk and on a phone, in light and dark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from privatile.report.groups import report_groups
from privatile.result.groups import GroupOutcome, GroupResults

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two groups with an estimate, one of them with a long name, and one that nobody was asked in."""
    from tests.api.test_groups import simulated

    made = simulated(seed=2)
    groups = (*made.groups, GroupOutcome("east", (), 12, "too small at this ε: nobody there is asked"))
    shown = GroupResults(**{**vars(made), "groups": (groups[0]._replace(name="north " * 15), *groups[1:])})
    return report_groups(shown, tmp_path_factory.mktemp("groups") / "groups.html")


@pytest.mark.parametrize(("width", "scheme"), [(1100, "light"), (380, "dark")])
def test_the_table_of_groups(
    watched: Callable[..., Any], check_axe: Callable[[Any], None], page: Path, width: int, scheme: str
) -> None:
    # axe is brought in from outside, which the page's own policy would refuse.
    seen = watched(color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True)
    seen.page.goto(page.as_uri())
    check_axe(seen.page)
    names = seen.page.locator("table.groups tbody th").all_inner_texts()
    assert names == ["south", ("north " * 15).strip(), "east"]
    charts = seen.page.locator("table.groups td.dots svg")
    assert charts.count() == 3  # the axis and two groups
    edges = {round(chart.bounding_box()["x"]) for chart in charts.all()}
    assert len(edges) == 1, "a dot does not stand under its number on the axis"
    assert seen.complaints == []
