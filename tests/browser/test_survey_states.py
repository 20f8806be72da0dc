"""A survey's pages once people have answered for weeks: axe finds nothing, and everything fits on a phone.

In its first days a survey has no interval, no weeks and no table of liars to show (`test_survey_people`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from privatile.report.run_page import write_run_page
from privatile.run.view import RunView
from privatile.survey.folder import SurveyFolder, initialize, read_codes
from privatile.survey.study import link
from tests.browser.survey_page import long_form
from tests.survey.answered import answered_survey
from tests.survey.kit import Made, make_study
from tests.survey.processes import gateway

pytestmark = pytest.mark.browser

DESKTOP: dict[str, Any] = {"viewport": {"width": 1100, "height": 900}}
PHONE: dict[str, Any] = {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"}
WIDTHS = {"desktop": DESKTOP, "phone": PHONE}
LANGUAGES = ("en", "de", "fr")


class Served(NamedTuple):
    made: Made
    url: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("answered")
    made = answered_survey(folder / "survey", languages=list(LANGUAGES), asked_by="The works council")
    with gateway(made.folder.path, folder / "log.txt", "--behind-proxy") as running:
        yield Served(made, f"http://{running.host}:{running.port}/")
        running.stop()


@pytest.fixture
def look(watched: Callable[..., Any], check_axe: Callable[[Any], None]) -> Callable[..., Any]:
    """Open a page, wait for what it must show, and check it; gives the page."""

    def look(address: str, shows: str, options: dict[str, Any], language: str = "en") -> Any:
        seen = watched(bypass_csp=True, locale=language, **options)
        seen.page.goto(address)
        seen.page.locator(shows).first.wait_for()
        assert seen.page.locator("html").get_attribute("lang") == language
        check_axe(seen.page)
        return seen.page

    return look


def has_everything(page: Any) -> None:
    """The states that this file is about are there: an interval, weeks, liars, and nothing to scroll sideways."""
    assert page.locator(".interval b").inner_text().count("…") == 1
    assert page.locator(".weeks tbody tr").count() == 6
    assert page.locator(".weeks tbody td:has-text('…')").count() == 6
    assert page.locator("table").last.locator("tbody tr").count() == 4
    for table in page.locator(".scroll").all():
        assert table.evaluate("one => one.scrollWidth <= one.clientWidth"), "a table goes on to the side"


def look_at_live(look: Callable[..., Any], served: Served, language: str, width: str) -> None:
    page = look(f"{served.url}live.{language}", ".weeks", WIDTHS[width], language)
    has_everything(page)
    risen = {"en": "has risen", "de": "gestiegen", "fr": "a augmenté"}[language]
    assert page.get_by_text(risen).count() == 1, "the alarm is told in the language of the page"


def look_at_organiser(look: Callable[..., Any], served: Served, width: str) -> None:
    page = look(f"{served.url}organiser#t={served.made.token}", ".weeks", WIDTHS[width])
    has_everything(page)
    assert page.get_by_text("has moved up").count() == 1, "the alarm is told once"


def look_at_answer(look: Callable[..., Any], served: Served, language: str, width: str) -> None:
    study = served.made.folder.study()
    code = next(one.code for one in reversed(list(read_codes(served.made.folder.codes_file))))
    look(link(served.url, code, study.epsilon), "#form:not([hidden])", WIDTHS[width], language)


def look_at_sheet(look: Callable[..., Any], path: Path, language: str, width: str) -> None:
    folder = SurveyFolder(path)
    initialize(folder, make_study(strata={"office": 7, "production": 4}, languages=[language]))
    page = look(folder.sheet_file.as_uri(), "svg.page", WIDTHS[width], language)
    assert page.locator("svg.page").count() == 2
    assert page.locator("h1").is_visible()
    page.emulate_media(media="print")
    assert not page.locator("h1").is_visible(), "a heading would push the cards off their place"


@pytest.mark.parametrize(("language", "width"), [("en", "desktop"), ("de", "phone"), ("fr", "phone")])
def test_the_public_page(look: Callable[..., Any], served: Served, language: str, width: str) -> None:
    look_at_live(look, served, language, width)


def test_the_page_of_the_organiser(look: Callable[..., Any], served: Served) -> None:
    look_at_organiser(look, served, "phone")


def test_the_page_that_people_answer_on(look: Callable[..., Any], served: Served) -> None:
    look_at_answer(look, served, "de", "phone")


def test_the_sheet_of_cards(look: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("segno")
    look_at_sheet(look, tmp_path / "survey", "de", "phone")


@long_form
def test_every_page_in_every_language_and_width(look: Callable[..., Any], served: Served, tmp_path: Path) -> None:
    pytest.importorskip("segno")
    for language, width in itertools.product(LANGUAGES, WIDTHS):
        look_at_live(look, served, language, width)
        look_at_answer(look, served, language, width)
        look_at_sheet(look, tmp_path / f"{language} {width}", language, width)
    report = write_run_page(RunView.read(served.made.folder.run_file, drawn=True), tmp_path / "run.html")
    for width in WIDTHS:
        look_at_organiser(look, served, width)
        page = look(report.as_uri(), ".weeks", WIDTHS[width])
        assert page.locator(".weeks tbody td:has-text('…')").count() == 6
