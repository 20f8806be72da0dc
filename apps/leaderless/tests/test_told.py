"""What a peer tells: how far it is in its log, and that metrics, alarms and events are documented."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from logged_peers import Peers
from privatile.federation.monitoring import Metrics
from privatile.run.state import all_kinds
from privatile_leaderless import extension
from privatile_leaderless.notes import PEER_METRICS, PeerNotes
from tests.federation.test_progress import told

APP = Path(__file__).parents[1]
PAGE = (APP.parents[1] / "docs" / "operations.md").read_text(encoding="utf-8")


def test_a_peer_tells_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    caplog.set_level(logging.INFO, "privatile")
    peers = Peers(tmp_path)
    north = peers["north"]
    notes = PeerNotes(north.study, north.replica, north.log.journal)
    peers.play(3)
    for clock[0] in (1005.0, 1010.0, 1011.0, 1040.0):
        notes.tick(0.0)
    assert told(caplog) == [{"rounds": "2 of 6", "per_second": 0.2, "left": "20 s"}]  # two are committed, and no more
    peers.close()


def test_metrics_alarms_and_events_are_documented() -> None:
    for known in PEER_METRICS:
        row = rf"^\| `{known.name}(_total)?` \| {known.label} \| {re.escape(known.meaning)} \|$"
        assert re.search(row, PAGE, re.M), known
    assert all(f"| `{kind}` |" in PAGE for kind in all_kinds(extension))
    said = set()
    for name in ("service", "conduct", "log", "notes"):
        text = (APP / "privatile_leaderless" / f"{name}.py").read_text(encoding="utf-8")
        said |= set(re.findall(r'(?:\.event|\.begins)\(\s*"([^"]+)"', text))
        said |= set(re.findall(r'\.ends\(\s*"[^"]+", "([^"]+)"', text))
        said |= set(re.findall(r'log\.(?:debug|info|warning|error)\(\s*"([^"]+)"', text))
    assert {"paused", "log lost", "log back", "not signed"} <= said
    assert [event for event in said if f"`{event}`" not in PAGE] == []


def test_the_alarm_rules_name_metrics_and_alarms_that_exist() -> None:
    rules = (APP / "alerts.yml").read_text(encoding="utf-8")
    labels = {"client": ["north"], "kind": ["silent"]}
    known = re.findall(r"^(privatile\w+)", Metrics("privatile", PEER_METRICS, labels).text().decode(), re.M)
    assert {name for text in re.findall(r"expr: (.+)", rules) for name in re.findall(r"\bprivatile_\w+", text)} <= set(
        known
    )
    assert set(re.findall(r'kind="([^"]+)"', rules)) == set(extension.lasting)
