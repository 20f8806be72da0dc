"""The Flower adapter, in an environment of its own (`make flower` makes it): a few rounds, bit for bit."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
from pathlib import Path

import pytest

from privatile.engines import flower
from privatile.errors import MissingExtra
from tests.federation.kit import REPOSITORY

PYTHON = os.environ.get("PRIVATILE_FLOWER_PYTHON", str(REPOSITORY / ".venv-flower" / "bin" / "python"))


def test_a_few_rounds_over_flower_agree_with_the_in_process_run(tmp_path: Path) -> None:
    if not Path(PYTHON).exists():
        pytest.skip("NOT TESTED: Flower is not installed. `make flower` installs it and runs this test.")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "FLWR_TELEMETRY_ENABLED": "0"}
    told = subprocess.run(
        [PYTHON, str(Path(__file__).with_name("flower_smoke.py")), str(tmp_path)],
        capture_output=True, text=True, env=environment, timeout=400, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr[-3000:]
    assert json.loads(told.stdout.strip().splitlines()[-1]) == {"rounds": 4, "same": True}


def test_without_flower_the_cure_is_told() -> None:
    if importlib.util.find_spec("flwr") is not None:
        pytest.skip("Flower is installed here")
    with pytest.raises(MissingExtra, match=r"privatile\[flower\]"):
        flower.client_app(lambda context: contextlib.nullcontext(context))
    with pytest.raises(MissingExtra, match=r"privatile\[flower\]"):
        flower.server_app(lambda context: context)
