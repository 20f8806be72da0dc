"""The pages of a web survey, from the facts that its gateway gives as JSON, and the series over weeks.

Numbers and days are as people write them in each language; the words lie in `survey/words/`. What a result itself says,
its caveats, is in English. A survey's gateway knows no templates: the command hands it a `SurveyPages`. What a fact is
and when it is computed is decided there (`survey/service.py`); here it gets words.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

from privatile.core.text import percent_text
from privatile.inference.series import FALSE_ALARMS
from privatile.report.pages import render, static
from privatile.result.shown import NAMED_LEVELS, outward, significant
from privatile.result.weeks import is_series
from privatile.survey import page
from privatile.survey.page import LANGUAGES
from privatile.survey.study import UNSTATED


class Words:
    """The words of one language."""

    def __init__(self, language: str, words: dict[str, str]) -> None:
        self.language = language
        self._words = words

    def __call__(self, key: str, **values: object) -> str:
        """A text with its values in place.

        >>> words_of("en")("invited", number="1,200")
        'of 1,200 people who were invited'
        """
        return self._words[key].format(**values)

    def number(self, text: str) -> str:
        """A number as English writes it, in this language.

        >>> words_of("de").number("1,234.5 … 2,000")
        '1.234,5 … 2.000'
        """
        return text.translate(str.maketrans(",.", self._words["separators"]))

    def day(self, text: str | None) -> str | None:
        """A date or a moment of ISO 8601, as people write it; another text as it is.

        >>> words_of("en").day("2026-11-16T14:05:09Z"), words_of("de").day("2027-01-31")
        ('16 November 2026, 14:05 UTC', '31. Januar 2027')
        """
        try:
            found = datetime.fromisoformat(text or "")
        except ValueError:
            return text
        if found.tzinfo is not None:
            found = found.astimezone(UTC)
        month = self._words["months"].split()[found.month - 1]
        date = self("date", day=found.day, month=month, year=found.year)
        return date if len(text or "") <= len("2027-01-31") else self("at", date=date, time=f"{found:%H:%M}")


@cache
def words_of(language: str) -> Words:
    """The words of a language; English for one that has no file."""
    return Words(language if language in LANGUAGES else "en", page.words_of(language))


def shown_weeks(series: Sequence[Mapping[str, Any]], limits: tuple[float, float], words: Words) -> list[dict[str, Any]]:
    """The weeks of a result with the digits that their intervals deserve, ends rounded outward; none where none is.

    >>> week = {"week": "2027-W03", "answers": 40, "estimate": 2811.22, "interval": [2750.123, 2911.4]}
    >>> (shown,) = shown_weeks([week], (0, 20_000), words_of("en"))
    >>> shown["estimate"], shown["interval"]
    ('2,810', ('2,750', '2,920'))
    """
    shown = []
    for week in series:
        estimate, ends = None, None
        if week.get("interval") is not None:
            low, high = week["interval"]
            width = high - low
            ends = outward(low, width, up=False, limits=limits), outward(high, width, up=True, limits=limits)
            estimate = None if week.get("estimate") is None else words.number(significant(week["estimate"], width))
        shown.append({**week, "estimate": estimate, "interval": in_words(ends, words)})
    return shown


def one_in(confidence_level: float) -> str:
    """Of so many intervals at this confidence, one misses.

    >>> one_in(0.95)
    '20'
    """
    return f"{1.0 / (1.0 - confidence_level):.3g}"


def in_words(ends: Sequence[str] | None, words: Words) -> tuple[str, str] | None:
    """Two numbers as a language writes them."""
    return None if ends is None else (words.number(ends[0]), words.number(ends[1]))


STATES = {"open": "open", "draining": "open", "closed": "closed"}
"""What visitors are told: that a round is about to close is nothing to them."""

OPTIONAL = (
    "sentence", "condition", "first_interval_after", "most_answers", "opened", "ends", "ended", "open_round",
    "asked_by", "restored",
)  # fmt: skip
UNKNOWN: dict[str, Any] = {**dict.fromkeys(OPTIONAL), **dict.fromkeys(("caveats", "liars", "alarms"), ())}
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
    if facts.get("asked_by") not in (None, UNSTATED):
        said.append(words("asked_by", asker=facts["asked_by"]))
    return said


def _common(facts: Mapping[str, Any], words: Words) -> dict[str, Any]:
    """What both pages say about the result."""
    shown, level = facts.get("shown") or {}, facts["level"]
    code = shown.get("condition")
    return {
        "t": words,
        "title": facts["title"],
        "facts": {**UNKNOWN, **facts},
        "state": STATES.get(facts["state"], facts["state"]),
        "estimand": words(NAMED_LEVELS.get(level, "quantile"), level=words.number(f"{level:g}"), value=facts["value"]),
        "headline": _headline(shown, facts["unit"], words),
        "interval": in_words(shown.get("interval"), words),
        "condition": _declared(facts, words) if code == "grid" else words(code) if code else None,
        "undeclared": in_words(shown.get("undeclared"), words),
        "final": in_words(shown.get("final"), words),
        "percent": percent_text(facts["confidence"], 4),
        "one_in": one_in(facts["confidence"]),
        "answered": _share(facts.get("answers"), facts.get("codes")),
        "odds": f"{math.exp(facts['epsilon']):.3g}",
        "series": shown_weeks(facts.get("series") or (), (facts["range"][0], facts["range"][1]), words),
        "moved": _moved(facts, words),
    }


def _moved(facts: Mapping[str, Any], words: Words) -> list[str]:
    """The change alarm, sentence by sentence; nothing without one."""
    change = facts.get("change") or {}
    if not change.get("alarm"):
        return []
    day = words.day(change["since"])
    since = words("since_day", day=day) if day else words("since_round", round=words.number(f"{change['round']:,}"))
    points = words.number(f"{100.0 * abs(change['jump']):.2g}")
    told = is_series(week["interval"] for week in facts.get("series") or ())
    return [
        words("moved_up" if change["jump"] > 0 else "moved_down", since=since, points=points),
        *([words("moved_weeks")] if told else []),
        words("moved_false", percent=f"{100.0 * FALSE_ALARMS:g}"),
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
