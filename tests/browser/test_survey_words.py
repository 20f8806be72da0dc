"""What the answering page says and reads: numbers, languages, refusals, by keyboard and on a phone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from privatile.survey.folder import new_code
from privatile.survey.page import LANGUAGES, page_files
from tests.browser.survey_page import answer, long_form, says
from tests.survey.fake_server import FakeSurvey
from tests.survey.make_vectors import PATH as VECTORS

pytestmark = pytest.mark.browser


@long_form
def test_refusals_are_told(page: Any, survey: FakeSurvey, url: str) -> None:
    page.goto(url)
    says(page, "not complete")
    refusals = ((409, "used already"), (418, "refuses"), (404, "does not know"), (410, "is closed"))
    for status, said in refusals:
        survey.on_question = lambda code, status=status: (status, {}, {})  # type: ignore[misc]
        answer(page, f"{url}#c={new_code()}&e=10")
        says(page, said)
        assert not page.locator("#form").is_visible()
    survey.facts["state"] = "closed"
    page.goto(f"{url}#c={new_code()}&e=10")
    says(page, "is closed")
    assert survey.answers == []


def test_numbers_are_read_as_people_write_them(page: Any, survey: FakeSurvey, url: str) -> None:
    """The vectors, with the browser's own engine; a number that could mean two things is refused in words."""
    page.goto(f"{url}#c={new_code()}&e=10")
    wrong = page.evaluate(
        """async (cases) => {
          const page = await import('./static/mechanism.js');
          const answers = cases.answers.filter((one) => one.answer !== page.respond(
            Number(one.value) > page.readQuery(one.query), BigInt(one.coin), page.readThreshold(one.threshold)));
          const typed = cases.typed.filter((one) => {
            const read = page.readNumber(one.typed);
            return !Object.is(read.value, one.value) || read.error !== one.error;
          });
          return [...answers, ...typed];
        }""",
        json.loads(VECTORS.read_text(encoding="utf-8")),
    )
    assert wrong == []
    for typed, said in (("1,234", "thousands or decimals"), ("12 €", "digits only"), ("", "type your number")):
        page.locator("#number").fill(typed)
        page.keyboard.press("Enter")
        assert said in page.locator("#error").inner_text()
        assert page.locator("#number").get_attribute("aria-invalid") == "true"
    survey.facts.update(step=0.01)
    page.reload()
    for typed, said in (("1234567.89", "outside"), ("3.1415", "a multiple of 0.01")):
        page.locator("#number").fill(typed)
        page.keyboard.press("Enter")
        assert said in page.locator("#error").inner_text()
    survey.facts.update(step=1, asked_by="The works council")
    page.reload()
    page.locator("#number").fill("12.5")
    page.keyboard.press("Enter")
    assert page.locator("#asker").inner_text() == "Asked by: The works council"
    assert page.locator("#error").inner_text() == "Please type a whole number."
    page.locator("#number").fill("4")
    assert page.locator("#error").inner_text() == ""
    page.reload()
    assert page.locator("#number").input_value() == "", "no browser fills it in again"
    assert survey.questions == 0


@pytest.mark.parametrize(
    ("locale", "width", "scheme"),
    [
        ("de-AT", 360, "dark"),
        pytest.param("en-GB", 1100, "light", marks=long_form),
        pytest.param("fr", 360, "light", marks=long_form),
    ],
)
def test_languages_phones_keyboard_and_axe(
    watched: Callable[..., Any],
    check_axe: Callable[[Any], None],
    survey: FakeSurvey,
    url: str,
    locale: str,
    width: int,
    scheme: str,
) -> None:
    page = watched(locale=locale, color_scheme=scheme, viewport={"width": width, "height": 740}, bypass_csp=True).page
    words = json.loads(page_files()[f"static/messages/{locale[:2]}.json"].body)
    page.goto(f"{url}#c={new_code()}&e=10")
    page.locator("#form").wait_for()
    assert page.evaluate("document.documentElement.lang") == locale[:2]
    assert page.locator("#send").inner_text() == words["send"]
    reached = []
    for _ in range(3):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
    assert reached == ["language", "number", "send"]
    page.locator("#number").fill("1,234")
    page.keyboard.press("Enter")
    check_axe(page)
    survey.on_question = lambda code: (
        200, {"survey": survey.facts["survey"], "round": 1, "query": "3", "handed_before": True}, {},
    )  # fmt: skip
    page.locator("#number").fill("1234")
    page.keyboard.press("Enter")
    page.locator("#warning").wait_for()
    check_axe(page)
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    says(page, words["counted"])
    check_axe(page)
    other = next(language for language in LANGUAGES if language != locale[:2])
    page.locator("#language").select_option(other)
    says(page, json.loads(page_files()[f"static/messages/{other}.json"].body)["counted"])


@long_form
def test_hostile_words_are_inert(watched: Callable[..., Any], survey: FakeSurvey, url: str) -> None:
    hostile = """</title><img src=x onerror="document.title='owned'">{lies}{constructor}"""
    survey.facts.update(title=hostile, value=hostile, unit=hostile)
    seen = watched()
    answer(seen.page, f"{url}#c={new_code()}&e=10", "3000")
    says(seen.page, "has been counted")
    assert seen.page.locator("img").count() == 0
    assert seen.page.locator("#title").inner_text() == hostile
    assert seen.complaints == []


def test_every_language_says_everything() -> None:
    """Every message of the page exists in every language, with the same places to fill."""
    tables = {name: json.loads(page_files()[f"static/messages/{name}.json"].body) for name in LANGUAGES}
    for table in tables.values():
        assert table.keys() == tables["en"].keys()
        for key, text in table.items():
            assert set(re.findall(r"\{\w+\}", text)) == set(re.findall(r"\{\w+\}", tables["en"][key])), key
