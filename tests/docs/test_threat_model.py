"""Every test that the threat model names exists, and every party has its section."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "threat-model.md"
PARTIES = (
    "A person", "A site's operator", "The coordinator", "The broker's operator", "Another client",
    "Who runs a web survey", "Without a coordinator", "The network", "Who sends a file", "A thief", "The analyst",
    "A reader of the release",
)  # fmt: skip


def unknown_tests(text: str) -> list[str]:
    """Tests that a text names and that are nowhere."""
    files = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "apps").rglob("test_*.py")]
    there = {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8"))}
    return sorted(set(re.findall(r"`(test_\w+)`", text)) - there)


def test_every_test_that_the_threat_model_names_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert unknown_tests(text) == []
    assert len(re.findall(r"`test_\w+`", text)) > 60


def test_a_test_that_is_gone_is_found() -> None:
    # Written in two parts, so that this file does not make it exist.
    assert unknown_tests(f"`test_{'gone'}` and `test_a_test_that_is_gone_is_found`") == ["test_gone"]


def test_every_party_has_what_it_can_try_and_what_is_not_stopped() -> None:
    sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.M)[1:]
    for party in PARTIES:
        (section,) = [section for section in sections if section.startswith(party)]
        assert "| shown by |" in section, party
        rows = [line for line in section.splitlines() if line.startswith("|")][2:]
        assert all("`test_" in row for row in rows), party
        assert "**Not stopped.**" in section, party
