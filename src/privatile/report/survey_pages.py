"""The public page of a web survey and its organiser's page, from the facts that the gateway gives as JSON.

A survey's gateway (`survey`, beside this package) knows no templates: the command hands it a `SurveyPages`. What a
fact is and when it is computed is decided there (`survey/facts.py`); here it gets words.
"""

import math
from collections.abc import Mapping
from typing import Any

from privatile.inference.change import FALSE_ALARMS
from privatile.report.pages import render, static
from privatile.report.survey_words import LANGUAGES, Words, words_of
from privatile.report.weeks import in_words, shown_weeks
from privatile.result.moved import is_series
from privatile.result.sentence import ANY_SHAPE, SMOOTH

STATES = {"open": "open", "draining": "open", "closed": "closed"}
"""What visitors are told: that a round is about to close is nothing to them."""

LEVELS = {0.25: "lower", 0.5: "median", 0.75: "upper"}
"""Quantiles that have a name."""

UNKNOWN: dict[str, Any] = {
    **dict.fromkeys(
        (
            "sentence",
            "condition",
            "first_interval_after",
            "most_answers",
            "opened",
            "ends",
            "ended",
            "open_round",
            "asked_by",
            "restored",
        )
    ),
    **dict.fromkeys(("caveats", "liars", "alarms"), ()),
}
"""Facts that not every survey has."""


class SurveyPages:
    """Both pages and their style, as the gateway takes them."""

    def live(self, facts: dict[str, Any], language: str = "en") -> str:
        """The public page: how many answered, the quantile with its anytime interval, how it works."""
        words = words_of(language)
        offered = {name: LANGUAGES[name] for name in facts["languages"] if name in LANGUAGES}
        return render("survey_live.html.j2", **_common(facts, words), about=_about(facts, words), languages=offered)

    def organiser(self, facts: dict[str, Any]) -> str:
        """The organiser's page: the same result, the strata with their codes, and what is wrong."""
        strata = [
            {**stratum, "share": _share(stratum.get("spent"), stratum["codes"])} for stratum in facts.get("strata", ())
        ]
        return render("survey_organiser.html.j2", **{**_common(facts, words_of("en")), "strata": strata})

    def style(self) -> bytes:
        """The style sheet of both pages."""
        return (static("theme.css") + static("survey.css")).encode()


def _about(facts: Mapping[str, Any], words: Words) -> list[str]:
    """Which survey this is, since when it is open, how it ends or ended, and who asks."""
    said = [words("survey", name=facts["survey"])]
    if facts.get("opened"):
        said.append(words("opened", day=words.day(facts["opened"])))
    if facts.get("ended"):
        said.append(words(f"ended_{facts['ended']}"))
    elif facts.get("ends"):
        said.append(words("ends", day=words.day(facts["ends"])))
    if facts.get("asked_by") not in (None, "not stated"):
        said.append(words("asked_by", asker=facts["asked_by"]))
    return said


def _common(facts: Mapping[str, Any], words: Words) -> dict[str, Any]:
    """What both pages say about the result."""
    shown, level = facts.get("shown") or {}, facts["level"]
    series = shown_weeks(facts.get("series") or (), (facts["range"][0], facts["range"][1]), words)
    condition = {ANY_SHAPE: "any_shape", SMOOTH: "smooth"}.get(facts.get("condition") or "")
    condition = words(condition) if condition else facts.get("condition")
    declared = _declared(facts, words) if shown.get("declared") else None
    return {
        "t": words,
        "title": facts["title"],
        "facts": {**UNKNOWN, **facts},
        "state": STATES.get(facts["state"], facts["state"]),
        "estimand": words(LEVELS.get(level, "quantile"), level=words.number(f"{level:g}"), value=facts["value"]),
        "headline": _headline(shown, facts["unit"], words),
        "interval": in_words(shown.get("interval"), words),
        "condition": declared or condition,
        "undeclared": in_words(shown.get("undeclared"), words),
        "any_shape": condition,
        "final": in_words(shown.get("final"), words),
        "percent": f"{100 * facts['confidence']:.4g}%",
        "answered": _share(facts.get("answers"), facts.get("codes")),
        "odds": f"{math.exp(facts['epsilon']):.3g}",
        "series": series,
        "moved": _moved(facts, words),
    }


def _moved(facts: Mapping[str, Any], words: Words) -> list[str]:
    """The change alarm, sentence by sentence; nothing without one."""
    change = facts.get("change") or {}
    if not change.get("alarm"):
        return []
    day = words.day(change["since"])
    since = words("since_day", day=day) if day else words("since_round", round=words.number(f"{change['round']:,}"))
    points = words.number(f"{100 * abs(change['jump']):.2g}")
    told = is_series(week["interval"] for week in facts.get("series") or ())
    return [
        words("moved_up" if change["jump"] > 0 else "moved_down", since=since, points=points),
        *([words("moved_weeks")] if told else []),
        words("moved_false", percent=f"{100 * FALSE_ALARMS:g}"),
    ]


def _headline(shown: Mapping[str, Any], unit: str, words: Words) -> tuple[str, str] | None:
    """What stands first, with the unit that follows it; none while there is no result."""
    if not shown.get("interval"):
        return None
    number = words.number(shown["number"])
    if shown["headline"] == "estimate":
        return number, unit
    return words(f"head_{shown['headline']}", number=f"{number} {unit}".rstrip()), ""


def _declared(facts: Mapping[str, Any], words: Words) -> str:
    """On which declaration the values shown rest."""
    step = facts["step"]
    return words("whole") if step == 1 else words("multiple", step=words.number(f"{step:,.10g}"))


def _share(part: int | None, whole: int | None) -> str:
    return f"{part / whole:.0%}" if part is not None and whole else "–"


__all__ = ["SurveyPages"]
