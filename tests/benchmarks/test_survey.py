"""The committed results of the survey benchmark keep the limits that the project promises."""

from __future__ import annotations

import copy
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "survey.json"

LEAST_RATIO = 0.35
"""Durable answers, each of two requests, over requests of a bare echo on the same two cores."""

MOST_LATE = 0.01
DEVICES, CODES = 100_000, 1_000_000
MOST_MEGABYTES, MOST_GROWTH = 256, 1.1
"""Of a gateway with a million codes, and how much it may grow while they answer and others guess."""

Found = dict[str, Any]


def broken(found: Found) -> Iterator[str]:
    """The limits that results do not keep."""
    rate, devices, memory = found["rate"], found["devices"], found["memory"]
    if rate["connections"] != 200 or not min(rate["ratio"], *rate["ratios"]) >= LEAST_RATIO:
        yield "ratio"
    if not all(one["p99_ms_of_a_request"] > 0.0 for one in (rate, devices)):
        yield "p99"
    if devices["devices"] != DEVICES or devices["counted"] + devices["late"] != DEVICES:
        yield "devices"
    if not devices["interval"][0] <= devices["true_median"] <= devices["interval"][1]:
        yield "interval"
    for name in ("devices", "arrivals"):
        if name in found and not found[name]["late_share"] < MOST_LATE:
            yield f"late {name}"
    if "arrivals" in found and found["arrivals"]["arrivals_per_second"] < 95.0:
        yield "arrivals"
    largest = memory["megabytes_after_answers_and_guesses"]
    if memory["codes"] != CODES or not largest <= min(MOST_MEGABYTES, MOST_GROWTH * memory["megabytes_at_start"]):
        yield "memory"
    if not all(one["date"] and one["command"].startswith("python benchmarks/survey.py") for one in found.values()):
        yield "command"


def test_the_committed_results_keep_their_limits() -> None:
    assert list(broken(json.loads(RESULTS.read_text()))) == []


ARRIVALS = {
    "arrivals_per_second": 99.7,
    "late_share": 0.001,
    "date": "2026-11-17",
    "command": "python benchmarks/survey.py --arrivals 100",
}


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda one: one["rate"].update(ratio=0.34), "ratio"),
        (lambda one: one["rate"].update(ratios=[0.5, 0.34, 0.5]), "ratio"),
        (lambda one: one["rate"].update(p99_ms_of_a_request=0.0), "p99"),
        (lambda one: one["devices"].update(counted=99_999), "devices"),
        (lambda one: one["devices"].update(interval=[50.1, 51.0]), "interval"),
        (lambda one: one["devices"].update(late_share=0.01), "late devices"),
        (lambda one: one["arrivals"].update(late_share=0.01), "late arrivals"),
        (lambda one: one["arrivals"].update(arrivals_per_second=60.0), "arrivals"),
        (lambda one: one["memory"].update(megabytes_after_answers_and_guesses=200), "memory"),
        (lambda one: one["memory"].update(codes=100_000), "memory"),
        (lambda one: one["rate"].update(command=""), "command"),
    ],
)
def test_results_beyond_a_limit_are_found(spoil: Callable[[Found], None], found: str) -> None:
    results = {**copy.deepcopy(json.loads(RESULTS.read_text())), "arrivals": dict(ARRIVALS)}
    spoil(results)
    assert list(broken(results)) == [found]


def test_every_measurement_is_saved_under_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file holds all of them: a measurement replaces its own entry alone."""
    pytest.importorskip("uvloop", reason="the survey extra is not installed")
    benchmark = importlib.import_module("benchmarks.survey")
    for name in ("compare", "measure_memory", "run_devices", "run_arrivals"):
        monkeypatch.setattr(benchmark, name, lambda *_, name=name: {"by": name})
    saved = tmp_path / "survey.json"
    for words in ([], ["--memory", "10"], ["--devices", "10"], ["--arrivals", "100"], ["--arrivals", "50"]):
        monkeypatch.setattr(sys, "argv", ["survey.py", *words, "--save", str(saved)])
        benchmark.main()
    found = json.loads(saved.read_text())
    measured = {name: one["by"] for name, one in found.items()}
    assert measured == {
        "rate": "compare", "memory": "measure_memory", "devices": "run_devices", "arrivals": "run_arrivals",
    }  # fmt: skip
    assert "--arrivals 50" in found["arrivals"]["command"]
