"""Cards and letters: every code once, its link in the QR code and in words, the page's hash on each."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ElementTree

import pytest

from privatile.errors import InputError
from privatile.survey import sheets
from privatile.survey.folder import new_code
from privatile.survey.page import LANGUAGES
from privatile.survey.study import link
from tests.survey.kit import make_study

ADDRESS = "https://survey.example.org/"
HASH = "ab" * 32


def made(count: int, title: str = "What we earn", language: str = "en") -> tuple[list[str], str]:
    codes = [new_code() for _ in range(count)]
    cards = [(code, f"group <{number % 2}>") for number, code in enumerate(codes)]
    study = make_study(title=title, address=ADDRESS, page_sha256=HASH, asked_by="The <works> council", epsilon=1.0)
    return codes, sheets.sheet(study, cards, language)


def test_eight_cards_on_a_page_each_with_link_group_and_hash() -> None:
    segno = pytest.importorskip("segno")
    codes, text = made(11)
    pages = re.findall(r'<svg class="page".*?</svg>\n', text.replace("</body>", "\n"), flags=re.S)
    assert len(pages) == 2
    for page in pages:
        ElementTree.fromstring(page.strip())
    words = " ".join(re.sub(r"<[^>]+>", " ", text).split())
    for code in codes:
        assert f"{ADDRESS}#c={code}&amp;e=1" in words
        # The picture is segno's of this very link.
        assert segno.make(f"{ADDRESS}#c={code}&e=1", error="m", micro=False).svg_inline(omitsize=True, border=2) in text
    assert words.count(HASH) == words.count("27 times in 100") == 11
    assert words.count("group &lt;1&gt;") == 5
    assert words.count("Asked by: The &lt;works&gt; council") == 11


@pytest.mark.parametrize("language", LANGUAGES)
def test_long_titles_and_other_languages_stay_on_the_card(language: str) -> None:
    pytest.importorskip("segno")
    _, text = made(1, "</svg><script>alert(1)</script> " * 15, language)
    assert "<script" not in text
    assert text.count("…") == 1


def test_letters_carry_every_link_once() -> None:
    codes = [new_code() for _ in range(5)]
    study = make_study(title="Pay, and more", address=ADDRESS, epsilon=0.5)
    table = sheets.mail_merge(study, [(code, 'a "quoted", group') for code in codes])
    rows = list(csv.DictReader(io.StringIO(table.removeprefix("\ufeff"))))
    assert [row["link"] for row in rows] == [f"{ADDRESS}#c={code}&e=0.5" for code in codes]
    assert {(row["stratum"], row["title"]) for row in rows} == {('a "quoted", group', "Pay, and more")}


@pytest.mark.parametrize(
    "address",
    [
        "http://survey.example.org/",
        "survey.example.org",
        "https://a/?x=1",
        "https://a/#c",
        "https://u:p@a/",
        "ftp://a/",
    ],
)
def test_an_address_that_no_browser_would_answer_at_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="the survey's address must"):
        link(address, new_code(), 1.0)
    assert link("http://127.0.0.1:8443", "x", 2.5).endswith(":8443/#c=x&e=2.5")
