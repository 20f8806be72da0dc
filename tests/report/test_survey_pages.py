"""The public page and the organiser's page of a survey, from facts as the gateway gives them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from privatile.report.survey_pages import SurveyPages, words_of
from privatile.survey.page import LANGUAGES
from tests.survey.fake_server import FakeSurvey

HOSTILE = "</title><script>alert(1)</script>"


def facts(**changes: Any) -> dict[str, Any]:
    shown = {"answers": 600, "late": 7, "codes": 1_200, "rounds": 30, "confidence": 0.95, "sentence": "A sentence."}
    result = {"estimate": 2861.77, "interval": [2750.123, 2981.4], "final": None, "caveats": ["It goes on."]}
    read = {"headline": "estimate", "number": "2,860", "interval": ["2,750", "2,990"], "condition": "any-shape"}
    strata = [
        {"name": "office", "weight": 0.4, "codes": 500, "spent": 250, "late": 3},
        {"name": "plant", "weight": 0.6, "codes": 700, "spent": 357, "late": 4},
    ]
    return {**FakeSurvey().facts, **shown, **result, "shown": read, "strata": strata, **changes}


MOVED = {"alarm": True, "log_evidence": 9.0, "round": 1_249, "since": "2027-01-20T14:05:09Z", "jump": 0.347}


def words(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_the_public_page_says_how_many_and_where_the_quantile_lies() -> None:
    text = words(SurveyPages().live(facts(liars=[{"people": 10, "rank": 0.029}])))
    assert "The median of Monthly net salary 2,860 €" in text
    assert "95% interval 2,750 … 2,990 € , valid however often you look" in text
    assert "whatever the distribution" in text
    assert "600 answers counted" in text
    assert "50% of 1,200 people" in text
    assert "7 came too late" in text
    assert "by at most the factor 2.72" in text
    assert "10 2.9 percentage points" in text
    assert "Week by week" not in text


def test_before_there_is_an_interval_none_is_shown() -> None:
    text = words(SurveyPages().live(facts(estimate=None, interval=None, shown=None, answers=0)))
    assert "No interval yet" in text
    few = facts(estimate=None, interval=None, shown=None, answers=0, first_interval_after=740)
    assert "it takes at least about 740 answers" in words(SurveyPages().live(few))
    assert "at least about" not in words(SurveyPages().live({**few, "answers": 740}))
    for most in ({"codes": 90}, {"most_answers": 90}):
        told = words(SurveyPages().live({**few, **most}))
        assert (
            "hardly one to come: it takes at least about 740 answers, often more, and this survey can have 90" in told
        )
    assert "hardly" not in words(SurveyPages().live({**few, "codes": 740, "most_answers": 740}))
    assert "2,860" not in text
    assert "new ones show once their round is full" in text
    closed = words(SurveyPages().live(facts(estimate=None, interval=None, shown=None, answers=29, state="closed")))
    assert "No result: too few people answered" in closed
    assert "yet" not in closed
    assert "new ones" not in closed
    # What a survey does not have needs no fact.
    bare = {name: value for name, value in facts().items() if name not in ("sentence", "caveats", "final", "strata")}
    assert "What to know" not in words(SurveyPages().live(bare))


def test_weeks_a_move_and_the_end_are_told() -> None:
    weeks = [
        {"week": "2026-W46", "answers": 300, "estimate": 2_800.0, "interval": [2_600.0, 3_000.0]},
        {"week": "2026-W47", "answers": 12, "estimate": None, "interval": None},
    ]
    read = facts()["shown"]
    page = SurveyPages().live(
        facts(
            series=weeks,
            change=MOVED,
            state="closed",
            ended="date",
            shown={**read, "final": ["2,790", "2,950"]},
        )
    )
    text = words(page)
    assert "week answers estimate, 95% interval (€) 2026-W46 300 2,800; 2,600 … 3,000 2026-W47 12 none" in text
    assert "since about 20 January 2027, 14:05 UTC" in text
    assert "2,790 … 2,950 € at the end that was fixed beforehand" in text
    assert 'data-state="closed"' in page
    assert "ended at the date that was fixed" in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_change_alarm_is_told_in_the_language_of_the_page(language: str) -> None:
    weeks = [{"week": f"2026-W{k}", "answers": 300, "estimate": 2.5, "interval": [2.0, 3.0]} for k in (46, 47)]
    own = words_of(language)

    def told(**changes: Any) -> str:
        return words(SurveyPages().live(facts(**changes), language))

    text = told(series=weeks, change=MOVED)
    rises, falls = {
        "en": ("has risen", "has fallen"), "de": ("gestiegen", "gefallen"), "fr": ("a augmenté", "a diminué"),
    }[language]  # fmt: skip
    day = {"en": "20 January 2027", "de": "20. Januar 2027", "fr": "20 janvier 2027"}[language]
    for part in (rises, day, "35 ", own("moved_weeks"), own("moved_false", percent="5")):
        assert part in text
    assert falls in told(series=weeks, change={**MOVED, "jump": -0.347})
    # A series that says nothing is not pointed to; a time that nobody has kept is a round.
    assert own("moved_weeks") not in told(series=[{**one, "interval": None} for one in weeks], change=MOVED)
    assert words(own("since_round", round=own.number("1,249"))) in told(change={**MOVED, "since": None})
    for confidence, number in ((0.95, "20"), (0.9, "10")):
        assert words(own("weeks1", number=number)) in told(series=weeks, confidence=confidence)
    for nothing in (None, {**MOVED, "alarm": False, "round": None, "since": None, "jump": None}):
        assert rises not in told(series=weeks, change=nothing)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_public_page_speaks_the_languages_of_the_survey(language: str) -> None:
    """Every text of the page comes from the language's own file, with the same places for numbers."""
    english, own = words_of("en")._words, words_of(language)._words
    assert list(own) == list(english)
    for key, text in own.items():
        assert set(re.findall(r"{\w+}", text)) == set(re.findall(r"{\w+}", english[key])), key
    weeks = [{"week": f"2026-W{k}", "answers": 1_300, "estimate": 2.5, "interval": None} for k in (46, 47)]
    shown = facts(answers=1_234, series=weeks, condition="whatever the distribution", opened="2026-11-16T14:05:00Z")
    page = SurveyPages().live({**shown, "liars": [{"people": 10, "rank": 0.029}], "ends": "2027-01-31"}, language)
    text = words(page)
    assert f'<html lang="{language}">' in page
    expected = {"en": "1,234 answers", "de": "1.234 Antworten", "fr": "1 234 réponses"}[language]
    assert expected in text
    day = {"en": "16 November 2026, 14:05 UTC", "de": "16. November 2026, 14:05 UTC"}
    assert day.get(language, "16 novembre 2026, 14:05 UTC") in text
    assert "2026-11-16T" not in text
    others = [name for name in LANGUAGES if name != language]
    for other in others:
        strange = words_of(other)
        for key in ("how1", "how3", "answers", "liars1", "weeks1", "check1", "valid", "any-shape"):
            assert strange(key, **dict.fromkeys(("lies", "truth", "number"), 27))[:40] not in text, key
        assert f'href="live.{other}"' in page
    assert f'href="live.{language}" lang="{language}" hreflang="{language}" aria-current="page"' in page


def test_the_organiser_sees_groups_and_alarms() -> None:
    page = SurveyPages().organiser(
        facts(alarms=["disk: full"], open_round={"number": 31, "state": "open", "answers": 4, "planned": 12})
    )
    text = words(page)
    assert "office 0.4000 500 250 50% 3 plant 0.6000 700 357 51% 4" in text
    assert "! look here disk: full" in text
    assert "4 of 12 answers in round 31 (open)" in text
    assert "stored nowhere" not in text
    assert "whoever has it and codes.csv knows whose code was used" in text
    assert "No alarm." in words(SurveyPages().organiser(facts()))
    over = facts(state="closed", open_round={"number": 31, "state": "closed", "answers": 0, "planned": 12})
    assert "in round 31" not in words(SurveyPages().organiser(over))
    assert "What to know" in words(SurveyPages().organiser(over))
    assert "What to know" not in words(SurveyPages().organiser(facts(sentence=None, caveats=[])))


@pytest.mark.parametrize("page", ["live", "organiser"])
def test_texts_stay_texts_and_nothing_is_inline(page: str) -> None:
    hostile = facts(title=HOSTILE, value=HOSTILE, unit=HOSTILE, caveats=[HOSTILE], alarms=[HOSTILE], drift=HOSTILE)
    hostile["strata"][0]["name"] = HOSTILE
    made = getattr(SurveyPages(), page)(hostile)
    assert "<script>" not in made
    assert not re.search(r"<style|\sstyle=|\son\w+=|https?:", made)
    assert b"--paper" in SurveyPages().style()


def test_a_declared_grid_is_read_as_status_and_report_do() -> None:
    """One end inside the range: "14 or less", on the declared condition; without it, what holds in any case."""
    read: dict[str, Any] = {"headline": "or_less", "number": "14", "interval": ["0", "14"], "undeclared": ["0", "14.5"]}
    read |= {"condition": "grid", "final": None}
    known = facts(estimate=None, unit="h", step=1, shown=read)
    for page in (SurveyPages().live(known), SurveyPages().organiser(known)):
        text = words(page)
        assert "14 h or less 95% interval 0 … 14 h , valid however often you look" in text
        assert "if every value is a whole number 0 … 14.5 h without that declaration, whatever the distrib" in text
    german = words(SurveyPages().live({**known, "step": 0.5}, "de"))
    assert "14 h oder weniger" in german
    assert "wenn jeder Wert ein Vielfaches von 0,5 ist 0 … 14,5 h ohne diese Angabe, bei jeder Verteilung" in german
    lost = words(SurveyPages().live(facts(step=1, shown={**read, "headline": "not_located", "number": ""})))
    assert "not located 95% interval" in lost
