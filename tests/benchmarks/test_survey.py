"""The committed results of the survey benchmark keep the limits that the project promises."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "survey.json"

FEWEST_ANSWERS = 1_000
"""Durable answers a second, each of two requests, on two cores."""

MAX_WAIT = 100.0
"""Milliseconds: the p99 of a new connection and of an answer while 100 visitors a second arrive."""

MOST_LATE = 0.01
DEVICES, CODES = 100_000, 1_000_000
MOST_MEGABYTES, MOST_GROWTH = 256, 1.1
"""Of a gateway with a million codes, and how much it may grow while they answer and others guess."""

Found = dict[str, Any]


def broken(found: Found) -> Iterator[str]:
    """The limits that results do not keep."""
    rate, devices, memory, arrivals = (found[name] for name in ("rate", "devices", "memory", "arrivals"))
    if rate["connections"] != 200 or not rate["answers_per_second"] >= FEWEST_ANSWERS:
        yield "rate"
    if not all(one["p99_ms_of_a_request"] > 0.0 for one in (rate, devices)):
        yield "p99"
    if devices["devices"] != DEVICES or devices["counted"] + devices["late"] != DEVICES:
        yield "devices"
    if not devices["interval"][0] <= devices["true_median"] <= devices["interval"][1]:
        yield "interval"
    for name in ("devices", "arrivals"):
        if not found[name]["late_share"] < MOST_LATE:
            yield f"late {name}"
    if arrivals["arrivals_per_second"] < 95.0:
        yield "arrivals"
    for name in ("p99_ms_of_a_new_connection", "p99_ms_of_an_answer"):
        if not 0.0 < arrivals[name] < MAX_WAIT:
            yield name
    largest = memory["megabytes_after_answers_and_guesses"]
    if memory["codes"] != CODES or not largest <= min(MOST_MEGABYTES, MOST_GROWTH * memory["megabytes_at_start"]):
        yield "memory"
    if not all(one["date"] and one["command"].startswith("python benchmarks/survey.py") for one in found.values()):
        yield "command"


def test_the_committed_results_keep_their_limits() -> None:
    assert list(broken(json.loads(RESULTS.read_text()))) == []


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda one: one["rate"].update(answers_per_second=999), "rate"),
        (lambda one: one["rate"].update(connections=10), "rate"),
        (lambda one: one["rate"].update(p99_ms_of_a_request=0.0), "p99"),
        (lambda one: one["devices"].update(counted=99_999), "devices"),
        (lambda one: one["devices"].update(interval=[50.1, 51.0]), "interval"),
        (lambda one: one["devices"].update(late_share=0.01), "late devices"),
        (lambda one: one["arrivals"].update(late_share=0.01), "late arrivals"),
        (lambda one: one["arrivals"].update(arrivals_per_second=60.0), "arrivals"),
        (lambda one: one["arrivals"].update(p99_ms_of_a_new_connection=100.0), "p99_ms_of_a_new_connection"),
        (lambda one: one["arrivals"].update(p99_ms_of_an_answer=100.0), "p99_ms_of_an_answer"),
        (lambda one: one["memory"].update(megabytes_after_answers_and_guesses=200), "memory"),
        (lambda one: one["memory"].update(codes=100_000), "memory"),
        (lambda one: one["rate"].update(command=""), "command"),
    ],
)
def test_results_beyond_a_limit_are_found(spoil: Callable[[Found], None], found: str) -> None:
    results = json.loads(RESULTS.read_text())
    spoil(results)
    assert list(broken(results)) == [found]


def test_every_measurement_is_saved_under_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file holds all of them: a measurement replaces its own entry alone."""
    pytest.importorskip("uvloop", reason="the survey extra is not installed")
    benchmark = importlib.import_module("benchmarks.survey")
    for name in ("measure_rate", "measure_memory", "run_devices", "run_arrivals"):
        monkeypatch.setattr(benchmark, name, lambda *_, name=name: {"by": name})
    saved = tmp_path / "survey.json"
    for words in ([], ["--memory", "10"], ["--devices", "10"], ["--arrivals", "100"], ["--arrivals", "50"]):
        monkeypatch.setattr(sys, "argv", ["survey.py", *words, "--save", str(saved)])
        benchmark.main()
    found = json.loads(saved.read_text())
    measured = {name: one["by"] for name, one in found.items()}
    assert measured == {
        "rate": "measure_rate", "memory": "measure_memory", "devices": "run_devices", "arrivals": "run_arrivals",
    }  # fmt: skip
    assert "--arrivals 50" in found["arrivals"]["command"]
