"""How far a run is, in the log of its coordinator."""

from __future__ import annotations

import logging

import pytest

from privatile.federation.coordinator.journal import Journal
from privatile.federation.coordinator.service import Measures
from privatile.federation.monitoring import Progress
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore
from tests.federation.kit import make_study


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [vars(record)["facts"] for record in caplog.records if record.getMessage() == "progress"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    logger = logging.getLogger("privatile")
    monkeypatch.setattr(logger, "propagate", True)
    caplog.set_level(logging.INFO, "privatile")
    return now


def test_a_coordinator_tells_how_far_it_is(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    study = make_study()
    coordinator = Coordinator(RunStore.create(":memory:", study.run, study.spec))
    measures = Measures(study, coordinator, Journal.open(coordinator.store, study.canonical, study.digest))
    for number, clock[0] in enumerate((1004.0, 1009.0, 1012.0), 1):
        measures.count_round(number)
    (found,) = told(caplog)
    assert found["rounds"] == f"3 of {coordinator.planned}"


def test_lines_come_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    progress = Progress(logging.getLogger("a run"), planned=0, done=0, now=0.0)
    for second in range(86_400):
        progress.tell(second, float(second))
    lines = told(caplog)
    assert 25 < len(lines) < 40  # of a day
    assert all("left" not in line for line in lines)  # nobody knows how many rounds there will be
