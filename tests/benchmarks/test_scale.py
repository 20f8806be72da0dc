"""The benchmark of scale measures everything when nothing is named, and only what is named otherwise."""

from __future__ import annotations

import importlib
import json
import sys
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("nats", reason="the federation extra is not installed")


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = importlib.import_module("benchmarks.scale")

    def clients(count: int, rounds: int, length: int, processes: int) -> dict[str, object]:
        return {"clients": count, "rounds": rounds}

    async def devices(count: int, rounds: int, connections: int) -> dict[str, object]:
        return {"devices": count}

    monkeypatch.setattr(module, "measure_clients", clients)
    monkeypatch.setattr(module, "measure_devices", devices)
    return module


@pytest.mark.parametrize(
    ("arguments", "measured"),
    [
        ([], [{"clients": 3}, {"clients": 10}, {"clients": 100}, {"clients": 1000}, {"devices": 100_000}]),
        (["--clients", "5", "7"], [{"clients": 5}, {"clients": 7}]),
        (["--devices", "200"], [{"devices": 200}]),
        (["--clients", "5", "--devices", "200"], [{"clients": 5}, {"devices": 200}]),
    ],
)
def test_what_is_measured(
    scale: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    measured: list[dict[str, int]],
) -> None:
    monkeypatch.setattr(sys, "argv", ["scale.py", *arguments])
    scale.main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [{key: line[key] for key in ("clients", "devices") if key in line} for line in lines] == measured


def test_an_empty_list_is_no_way_to_measure_nothing(scale: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["scale.py", "--clients"])
    with pytest.raises(SystemExit):
        scale.main()
