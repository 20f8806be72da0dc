"""Codes on paper and in letters: a sheet of cards with QR codes, and a table for mail merge.

A card is an eighth of an A4 page (A7). It says what the survey is, who asks, how often a device lies and which hash the
page must have, so that a person can hold the page against paper that came another way. The link carries its code in
the fragment: no request ever does. Cards are drawn as SVG, one picture per page, in one file that any browser prints.
"""

import csv
import io
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from privatile.errors import InputError, require
from privatile.survey.page import words_of
from privatile.survey.study import UNSTATED, SurveyStudy, link

COLUMNS, ROWS = 2, 4
WIDTH, HEIGHT = 105.0, 74.25
"""Millimetres of a card."""

WORDS = ("card_asker", "card_use", "card_sent", "card_hash")
"""What a card says: who asks, how to use it, what is sent, and the line above the hash."""

STYLE = """@page { size: A4; margin: 0 } body { margin: 0 } svg.page { display: block; width: 210mm; height: 297mm;
break-after: page } @media print { h1 { display: none } } @media screen { body { font-family: system-ui, sans-serif;
background: #eee; color: #111 } h1 { margin: 1rem; font-size: 1.3rem } svg.page { max-width: 100%; height: auto;
background: #fff; margin: 0 auto 1rem } }
text { font-family: system-ui, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif }
.mono { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace }"""


def csv_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows below a head, as CSV."""
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows([head, *rows])
    return table.getvalue()


def mail_merge(study: SurveyStudy, cards: Iterable[tuple[str, str]]) -> str:
    """A table for letters and mails, one row per card (code, stratum): link, stratum, title. Spreadsheets open it.

    Whoever joins a row to a person knows whose code it is: the noisy bit stays the person's only protection then.
    """
    rows = ((link(study.address, code, study.epsilon), stratum, study.title) for code, stratum in cards)
    return "\ufeff" + csv_table(("link", "stratum", "title"), rows)  # the mark by which spreadsheets know UTF-8


def sheet(study: SurveyStudy, cards: Iterable[tuple[str, str]], language: str = "") -> str:
    """The cards (code, stratum) as one HTML file of A4 pages, eight on each; print it with a browser.

    In the first language of the study unless another is given. Needs segno (the extra `survey`).
    """
    language = language or study.languages[0]
    words = [words_of(language)[key] for key in WORDS]
    drawn = [_card(study, code, stratum, words) for code, stratum in cards]
    if not drawn:
        raise InputError("a sheet needs at least one code; got none.")
    size = COLUMNS * ROWS
    pages = "\n".join(_page(drawn[start : start + size]) for start in range(0, len(drawn), size))
    fits = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    meta = f'<meta charset="utf-8">{fits}<title>{escape(study.title)}</title><style>{STYLE}</style>'
    main = f"<main>\n<h1>{escape(study.title)}</h1>\n{pages}\n</main>"  # the heading is not printed
    return f'<!DOCTYPE html>\n<html lang="{escape(language)}"><head>{meta}</head><body>\n{main}\n</body></html>\n'


def _page(cards: list[str]) -> str:
    placed = [
        f'<g transform="translate({WIDTH * (number % COLUMNS):g} {HEIGHT * (number // COLUMNS):g})">{card}</g>'
        for number, card in enumerate(cards)
    ]
    cuts = [f"M0 {HEIGHT * row:g}H210" for row in range(1, ROWS)] + [f"M{WIDTH:g} 0V297"]
    lines = f'<path d="{"".join(cuts)}" stroke="#999" stroke-width=".2" stroke-dasharray="2 2" fill="none"/>'
    return f'<svg class="page" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 210 297">{"".join(placed)}{lines}</svg>'


def _card(study: SurveyStudy, code: str, stratum: str, words: Sequence[str]) -> str:
    """One card; its corner is at 0 0."""
    segno = require("segno", "survey")
    address = link(study.address, code, study.epsilon)
    picture = segno.make(address, error="m", micro=False).svg_inline(omitsize=True, border=2)
    asker, use, sent, above_hash = (text.format(lies=study.lies_per_100, asker=study.asked_by) for text in words)
    return "".join(
        (
            f'<svg x="5" y="15.5" width="40" height="40">{picture}</svg>',
            *_lines(study.title, 6.0, 5.6, size=3.6, width=42, most=2, weight="bold"),
            *_lines(asker if study.asked_by != UNSTATED else "", 6.0, 14.2, size=2.9, width=58, most=1),
            *_lines(stratum, 47.0, 20.5, size=3.4, width=30, most=2, weight="bold"),
            *_lines(use, 47.0, 29.5, size=3.1, width=34, most=3),
            *_lines(sent, 47.0, 40.5, size=3.1, width=34, most=5),
            *_lines(address, 6.0, 60.0, size=2.3, width=72, most=2, mono=True),
            *_lines(above_hash, 6.0, 66.5, size=2.2, width=60, most=1),
            *_lines(study.page_sha256, 6.0, 69.5, size=2.2, width=64, most=1, mono=True),
        )
    )


def _lines(
    text: str, x: float, y: float, *, size: float, width: int, most: int, weight: str = "normal", mono: bool = False
) -> Iterator[str]:
    """A text in at most `most` lines of about `width` characters; what does not fit ends in an ellipsis."""
    wrapped = textwrap.wrap(
        text, width, break_long_words=True, break_on_hyphens=not mono, max_lines=most, placeholder="…"
    )
    style = ' class="mono"' if mono else ""
    for number, line in enumerate(wrapped):
        place = f'x="{x:g}" y="{y + 1.3 * size * number:g}"'
        yield f'<text {place} font-size="{size:g}" font-weight="{weight}"{style}>{escape(line)}</text>'
