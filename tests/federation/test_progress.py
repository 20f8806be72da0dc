"""How far a run is, in the log of its coordinator."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from privatile.federation.monitoring import Progress
from tests.federation.played import Table


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [vars(record)["facts"] for record in caplog.records if record.getMessage() == "progress"]


def test_a_coordinator_tells_how_far_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "privatile")
    table = Table(tmp_path)
    for now in (4.0, 9.0, 12.0):
        table.take("site0", "site1")
        table.core.begin(0.0)
        table.core.look(now)
        table.next_round()
    (found,) = told(caplog)
    assert found["rounds"] == "3 of 10"


def test_lines_come_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    progress = Progress(logging.getLogger("a run"), planned=0, done=0, now=0.0)
    for second in range(86_400):
        progress.tell(second, float(second))
    lines = told(caplog)
    assert 25 < len(lines) < 40  # of a day
    assert all("left" not in line for line in lines)  # nobody knows how many rounds there will be
