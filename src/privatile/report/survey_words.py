"""The words of a survey's public page in each of its languages, and its numbers and days as people write them there.

The words lie in `survey_messages/`, one file for each language. What a result itself says, its caveats, is in English.
"""

import json
from datetime import UTC, datetime
from functools import cache
from importlib import resources

LANGUAGES = {"en": "English", "de": "Deutsch", "fr": "Français"}
"""Those with a file, by their own names; any other is shown in English."""


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
    known = language if language in LANGUAGES else "en"
    text = (resources.files("privatile.report") / "survey_messages" / f"{known}.json").read_text(encoding="utf-8")
    return Words(known, json.loads(text))
