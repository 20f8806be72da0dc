"""One registry of states and one of events: whatever else names one, or shows one, derives from them."""

from __future__ import annotations

import re
from pathlib import Path

import privatile
from privatile.core import extensions
from privatile.run.state import CLIENT_KINDS, EVENTS, KINDS, STATES, all_kinds, event_tone

SOURCE = Path(privatile.__file__).parent
STATIC = SOURCE / "report" / "dashboard" / "static"
TONES = {"good", "note", "worry", "plain"}
OUTCOMES = {"rejected", "ahead"}
"""Events that are called as the intake calls an answer."""


def test_the_registry_of_events_has_what_a_federation_records_and_nothing_else() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (SOURCE / "federation").rglob("*.py"))
    recorded = set(re.findall(r"\.(?:record|record_some|note)\(\s*\"([a-z ]+)\"", sources))
    assert recorded | OUTCOMES == set(EVENTS)
    assert set(EVENTS.values()) <= TONES


def test_an_alarm_that_begins_with_an_event_ends_with_one() -> None:
    for name, kind in STATES.items():
        assert not kind.ends or {name, kind.ends} <= set(EVENTS)
    assert set(KINDS) & set(CLIENT_KINDS) == set(CLIENT_KINDS) - {"alive"}


def test_an_extension_names_its_own_events_and_alarms() -> None:
    for known in extensions.installed():
        extension = extensions.find(known)
        assert not set(extension.events) & set(EVENTS)
        assert set(extension.events.values()) <= TONES
        assert {*extension.lasting, *extension.lasting.values()} <= set(extension.events)
        assert set(all_kinds(extension)) == {*KINDS, *extension.lasting}
        assert event_tone(next(iter(extension.lasting)), extension) == "worry"
    assert event_tone("of a later version") == "note"


def test_styles_know_tones_and_scripts_know_no_name() -> None:
    styles = (STATIC / "dashboard.css").read_text(encoding="utf-8")
    assert set(re.findall(r'data-tone="(\w+)"', styles)) == TONES
    script = (STATIC / "dashboard.js").read_text(encoding="utf-8") + styles
    ids = {"alive", "question"}  # of a tile, and what a line of the chart is
    assert not {name for name in {*STATES, *EVENTS} - ids if f'"{name}"' in script or f"'{name}'" in script}
