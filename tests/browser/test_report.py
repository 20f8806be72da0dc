"""The report in a real browser, from disk, without a network."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import privatile
from privatile.report.run_page import write_run_page
from privatile.run.view import RunView
from tests.made_runs import few_days, viewed

pytestmark = pytest.mark.browser

HOSTILE = """</script><script>document.title='owned'</script><img src=x onerror="document.title='owned'">"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    return write_run_page(viewed(folder / "run.db", rounds=20_000), folder / "report.html")


def test_the_report_opens_from_disk_and_its_chart_reacts_to_zoom(watched: Callable[..., Any], report: Path) -> None:
    seen = watched(offline=True)
    page = seen.page
    page.goto(report.as_uri())
    figure = page.locator("figure[data-level='0']")
    figure.locator("canvas").wait_for()
    assert figure.get_attribute("data-from") == "1"
    assert figure.get_attribute("data-to") == "20000"

    def drawing() -> bytes:
        return bytes(figure.locator("canvas").screenshot())

    whole = drawing()
    page.get_by_role("button", name="Zoom in").click()
    assert 4_900 <= int(figure.get_attribute("data-from")) <= 5_100
    assert 14_900 <= int(figure.get_attribute("data-to")) <= 15_100
    assert drawing() != whole
    box = figure.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 60, steps=5)
    page.mouse.up()
    width = int(figure.get_attribute("data-to")) - int(figure.get_attribute("data-from"))
    assert 2_300 <= width <= 2_700  # a quarter of what was shown
    page.get_by_role("button", name="Show all").click()
    assert figure.get_attribute("data-to") == "20000"
    page.get_by_role("button", name="By records").click()
    assert figure.get_attribute("data-to") == "60000"  # three clients, a record each
    assert "record 60,000" in figure.locator(".readout").inner_text()
    # The same by the keyboard.
    figure.locator(".plot").focus()
    page.keyboard.press("+")
    page.keyboard.press("+")
    first = int(figure.get_attribute("data-from"))
    page.keyboard.press("ArrowRight")
    assert int(figure.get_attribute("data-from")) > first
    assert "estimate" in figure.locator(".readout").inner_text()
    page.keyboard.press("0")
    assert figure.get_attribute("data-to") == "60000"
    assert seen.complaints == []
    assert seen.requests == [report.as_uri()]


DRAWN = """
const text = CanvasRenderingContext2D.prototype.fillText, rect = CanvasRenderingContext2D.prototype.fillRect;
window.drawn = [];
window.boxes = [];
CanvasRenderingContext2D.prototype.fillText = function (...given) { drawn.push(given[0]); text.apply(this, given); };
CanvasRenderingContext2D.prototype.fillRect = function (...given) { boxes.push(given[3]); rect.apply(this, given); };
"""
"""Keeps what is written on a canvas, and the heights of its boxes."""


def test_the_chart_says_the_same_numbers_as_the_headline(watched: Callable[..., Any], tmp_path: Path) -> None:
    """Values between whole numbers keep their decimals in the line under the chart."""
    view = viewed(tmp_path / "run.db", rounds=20_000, design="paper-c1")
    page = watched(offline=True).page
    page.add_init_script(DRAWN)
    page.goto(write_run_page(view, tmp_path / "report.html").as_uri())
    page.locator("figure canvas").wait_for()
    assert [text for text in page.evaluate("drawn") if "." in text]  # too narrow for whole numbers
    estimate = page.locator(".big").inner_text()
    assert "." in estimate
    low, _, high = page.locator(".interval b").inner_text().partition(" … ")
    assert f"estimate {estimate}, interval {low} … {high} " in page.locator(".readout").inner_text()


def test_the_chart_tells_both_intervals(watched: Callable[..., Any], tmp_path: Path) -> None:
    view = viewed(tmp_path / "run.db", rounds=80, length=120, design="auto")
    (level,) = view.levels
    assert level.result is not None
    assert level.result.other is not None
    seen = watched(offline=True)
    seen.page.add_init_script(DRAWN)
    seen.page.goto(write_run_page(view, tmp_path / "report.html").as_uri())
    seen.page.locator("figure canvas").wait_for()
    # Both axes have names, whole numbers beside them, and the search is a strip.
    drawn = seen.page.evaluate("drawn")
    assert {"income", "rounds"} <= {*drawn}
    assert len(drawn) > 8
    assert not [text for text in drawn if "." in text]
    assert {*seen.page.evaluate("boxes")} == {16}
    assert seen.page.locator("[data-key=search]").is_visible()
    low, high = level.result.shown.own.ends
    readout = seen.page.locator(".readout").inner_text()
    assert f", interval {low} … {high}, beside it " in readout
    assert seen.page.locator("[data-key=beside]").inner_text() == "if smooth"
    assert seen.page.locator("[data-key=center]").is_visible()
    assert seen.complaints == []


def test_the_chart_names_no_estimate_where_the_headline_has_none(watched: Callable[..., Any], tmp_path: Path) -> None:
    page = watched(offline=True).page
    view = RunView.read(few_days(tmp_path / "run.db"), drawn=True)
    page.goto(write_run_page(view, tmp_path / "report.html").as_uri())
    page.locator("figure canvas").wait_for()
    (result,) = view.results()
    assert result is not None
    low, high = result.shown.own.rounded
    assert page.locator(".big").inner_text() == result.headline
    assert result.shown.kind == "or_less"
    # The chart shows the interval without the declaration that the values are whole.
    assert page.locator(".interval.other").inner_text() == f"If it is not so: {result.shown.undeclared}"
    assert f": no estimate, interval {low} … {high} " in page.locator(".readout").inner_text()
    assert page.locator("[data-key=estimate]").is_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 380])
def test_contrast_and_labels(
    watched: Callable[..., Any], check_axe: Callable[[Any], None], report: Path, scheme: str, width: int
) -> None:
    # axe is brought in from outside, which the page's own policy would refuse.
    page = watched(color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True).page
    page.goto(report.as_uri())
    page.locator("figure canvas").first.wait_for()
    check_axe(page)


def test_axe_would_have_complained(watched: Callable[..., Any], check_axe: Callable[[Any], None], report: Path) -> None:
    page = watched(bypass_csp=True).page
    page.goto(report.as_uri())
    page.evaluate("document.querySelector('.interval').style.color = '#ddd'")
    with pytest.raises(AssertionError, match="color-contrast"):
        check_axe(page)


def test_it_prints_to_pdf_with_the_still_chart(watched: Callable[..., Any], report: Path, tmp_path: Path) -> None:
    page = watched(offline=True).page
    page.goto(report.as_uri())
    page.locator("figure canvas").first.wait_for()
    page.emulate_media(media="print")
    assert page.locator("svg.still").first.is_visible()
    assert not page.locator(".plot").first.is_visible()
    assert not page.get_by_role("button", name="Zoom in").is_visible()
    page.pdf(path=tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF-")
    # Without scripts the still chart is what there is, and the answer.
    still = watched(java_script_enabled=False).page
    still.goto(report.as_uri())
    assert still.locator(".big").inner_text()
    assert still.locator("svg.still").first.is_visible()


A4_INSIDE = 680
"""Pixels between the margins of a page of paper: (210 − 2·15) mm at 96 to the inch."""


@pytest.mark.parametrize("kind", ["run", "levels", "experiment", "paper"])
def test_nothing_is_cut_off_on_paper(watched: Callable[..., Any], tmp_path: Path, kind: str) -> None:
    """On paper nothing can be scrolled: every table ends inside the margins."""
    page = watched(offline=True, viewport={"width": A4_INSIDE, "height": 960}).page
    page.goto(made_page(kind, tmp_path).as_uri())
    page.emulate_media(media="print")
    wide = "[...document.querySelectorAll('table, svg, p, h1, h2')].filter(n => n.getClientRects().length)"
    assert page.evaluate(f"{wide}.filter(n => n.getBoundingClientRect().right > {A4_INSIDE} + 1).length") == 0
    page.emulate_media(media="screen")  # there a wide table is scrolled instead, so the check can see one
    if kind == "run":
        assert page.evaluate(f"{wide}.filter(n => n.getBoundingClientRect().right > {A4_INSIDE} + 1).length") > 0


def made_page(kind: str, folder: Path) -> Path:
    from privatile.paper.reproduce import paper_page
    from privatile.report.experiment import experiment_page
    from tests.report.test_experiment_pages import made_store, paper_folder

    target = folder / "page.html"
    if kind == "experiment":
        target.write_text(experiment_page(made_store(folder / "experiment.db", coverage=0.9, rows=3)), encoding="utf-8")
    elif kind == "paper":
        target.write_text(paper_page(paper_folder(folder / "paper", shift=0.2)), encoding="utf-8")
    else:
        levels = (0.25, 0.5, 0.75) if kind == "levels" else (0.5,)
        write_run_page(viewed(folder / "run.db", rounds=300, levels=levels), target)
    return target


@pytest.mark.parametrize("scheme", ["light", "dark"] if os.environ.get("PRIVATILE_LONG") else ["dark"])
def test_several_levels_pass_too(
    watched: Callable[..., Any], check_axe: Callable[[Any], None], tmp_path: Path, scheme: str
) -> None:
    page = watched(color_scheme=scheme, bypass_csp=True, viewport={"width": 380, "height": 800}).page
    page.goto(made_page("levels", tmp_path).as_uri())
    page.locator("figure canvas").first.wait_for()
    check_axe(page)
    assert page.locator("h1").count() == 1
    assert page.locator(".answers tbody tr").count() == page.locator("figure canvas").count() == 3
    # Every number is in sight with its name, and so are the dots: nothing of a table lies to the side.
    inside = "all => all.every(n => (r => r.width > 0 && r.right <= innerWidth)(n.getBoundingClientRect()))"
    for part in (".clients .forest svg", ".clients td[data-label]", ".facts td", ".answers td"):
        found = page.locator(part)
        assert found.count() >= 3
        assert found.evaluate_all(inside), part
    names = page.locator(".facts td[data-label]").first.evaluate("n => getComputedStyle(n, '::before').content")
    assert names == '"level 0.25"'
    page.evaluate("document.querySelector('.clients').classList.remove('stack')")
    assert not page.locator(".clients td[data-label]").evaluate_all(inside)  # as a table it would not fit


def test_hostile_names_are_inert(watched: Callable[..., Any], tmp_path: Path) -> None:
    import numpy as np

    rng = np.random.default_rng(1)
    data = {HOSTILE: rng.normal(50, 10, 500), "south": rng.normal(60, 10, 500)}
    result = privatile.estimate(data, epsilon=1, range=(0, 100), value=HOSTILE, simulate=True, rng=2, rounds=60)
    seen = watched(offline=True)
    seen.page.goto(result.report(tmp_path / "report.html").as_uri())
    seen.page.locator("figure canvas").first.wait_for()
    assert "owned" not in seen.page.title().replace(HOSTILE, "")
    assert seen.page.locator("img").count() == 0
    assert seen.page.evaluate("[...document.scripts].filter(s => s.textContent.includes('owned')).length") == 1  # facts
    assert HOSTILE in seen.page.locator("tbody th").first.inner_text()
    assert seen.complaints == []


@pytest.mark.parametrize("kind", ["experiment", "paper"])
def test_pages_of_experiments_pass_too(
    watched: Callable[..., Any], check_axe: Callable[[Any], None], tmp_path: Path, kind: str
) -> None:
    target = made_page(kind, tmp_path)
    for scheme in ("light", "dark"):
        seen = watched(color_scheme=scheme, bypass_csp=True, viewport={"width": 380, "height": 800})
        seen.page.goto(target.as_uri())
        check_axe(seen.page)
        assert seen.complaints == []
        assert seen.requests == [target.as_uri()]
