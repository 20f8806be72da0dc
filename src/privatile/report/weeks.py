"""The series over weeks of an open-ended run or a survey, as a page shows it."""

from collections.abc import Mapping, Sequence
from typing import Any

from privatile.report.survey_words import Words
from privatile.result.number_words import outward, significant


def shown_weeks(series: Sequence[Mapping[str, Any]], limits: tuple[float, float], words: Words) -> list[dict[str, Any]]:
    """The weeks of a result, their estimates and intervals in words."""
    return [
        {
            **week,
            "estimate": shown_estimate(week, words),
            "interval": in_words(shown_interval(week.get("interval"), limits), words),
        }
        for week in series
    ]


def shown_estimate(week: Mapping[str, Any], words: Words) -> str | None:
    """With the digits that its interval deserves; none where there is no interval.

    >>> from privatile.report.survey_words import words_of
    >>> shown_estimate({"estimate": 2811.22, "interval": [2750.1, 2911.4]}, words_of("en"))
    '2,810'
    """
    if week.get("interval") is None or week.get("estimate") is None:
        return None
    low, high = week["interval"]
    return words.number(significant(week["estimate"], high - low))


def shown_interval(interval: Any, limits: tuple[float, float]) -> tuple[str, str] | None:
    """Both ends as people read them, rounded outward; none where there is none.

    >>> shown_interval([2750.123, 2911.4], (0, 20_000)), shown_interval(None, (0, 20_000))
    (('2,750', '2,920'), None)
    """
    if interval is None:
        return None
    low, high = interval
    return outward(low, high - low, up=False, limits=limits), outward(high, high - low, up=True, limits=limits)


def in_words(ends: Sequence[str] | None, words: Words) -> tuple[str, str] | None:
    """Two numbers as a language writes them."""
    return None if ends is None else (words.number(ends[0]), words.number(ends[1]))
