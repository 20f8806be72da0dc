"""Runs that several tests look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.made_runs import long_run


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    return long_run(tmp_path / "run.db", rounds=300)
