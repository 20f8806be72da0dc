"""Open-ended runs through file, coordinator, replay, results and pages."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from privatile.cli import main as command
from privatile.core.mechanism import RandomizedResponse
from privatile.errors import InputError, ProtocolError, StoreError
from privatile.estimator.clients import UNKNOWN_SIZE
from privatile.estimator.open_ended import End
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore
from privatile.run.view import RunView

WEIGHTS = {"day": 0.6, "night": 0.3, "few": 0.1}
CLIENTS = tuple(
    ClientSpec(name, RandomizedResponse.from_epsilon(1.0).threshold, weight, UNKNOWN_SIZE)
    for name, weight in WEIGHTS.items()
)
SPEC = RunSpec("income", (0.5,), CLIENTS, "linear", 0.0, 100.0, design="open", weighting="given", simulated=True)


def arrivals(seed: int, rate: float = 60.0) -> Iterator[tuple[np.random.Generator, list[int]]]:
    """Every round's own randomness, and how many came to it: a resumed run sees what an uninterrupted one would."""
    number = 0
    while True:
        number += 1
        rng = np.random.default_rng((seed, number))
        came = [int(n) for n in rng.poisson([rate * weight for weight in WEIGHTS.values()])]
        yield rng, came if any(came) else [1, 0, 0]


def answer(coordinator: Coordinator, rounds: int, seed: int = 1, middle: float = 60.0) -> None:
    """Normal values with spread 10; the strata differ by 2."""
    rate = coordinator.spec.clients[0].mechanism.truth_rate
    for place, (rng, came) in enumerate(arrivals(seed)):
        if place < coordinator.done:
            continue
        if coordinator.done == rounds or (asked := coordinator.rounds()) is None:
            return
        query = asked[0].questions[0].query
        counts: list[int | None] = []
        for k, number in enumerate(came):
            true = rng.normal(middle + 2.0 * k, 10.0, number) > query
            heard = np.where(rng.random(number) < (1.0 + rate) / 2.0, true, ~true)
            counts.append(int(heard.sum()) if number else None)
        coordinator.accept([counts], lengths=[came])


def test_a_run_without_an_end_is_looked_at_continued_and_ended(tmp_path: Path) -> None:
    whole = Coordinator(RunStore.create(tmp_path / "whole.db", "r1", SPEC))
    answer(whole, 120)
    part = RunStore.create(tmp_path / "part.db", "r1", SPEC)
    answer(Coordinator(part), 57)
    asked = Coordinator(part).rounds()
    # As after kill -9: nobody closed the file.
    again = Coordinator(RunStore.open(tmp_path / "part.db"))
    assert again.rounds() == asked is not None
    look = again.result()
    assert [caveat.code for caveat in look.caveats if caveat.severity != "standing"][-1] == "goes-on"
    assert look.valid_at_every_look
    assert look.other is None
    low, high = look.confidence_interval
    assert 56.0 < low < 60.8 < high < 66.0
    answer(again, 120)
    assert again.result() == whole.result()
    assert again.result().records == sum(again.asked.values()) > 5000
    assert len(set(whole.tracks[0].state.asked)) == 3  # lengths are what came
    again.finish("command")
    again.store.close()
    with RunStore.open(tmp_path / "part.db", read_only=True) as store:
        read = Coordinator(store)
        assert (store.why_ended, read.rounds()) == ("command", None)
        assert "goes-on" not in {caveat.code for caveat in read.result().caveats}
        assert replace(read.result(), caveats=()) == replace(whole.result(), caveats=())


def test_the_lengths_are_told_and_checked(tmp_path: Path) -> None:
    coordinator = Coordinator(RunStore.create(tmp_path / "run.db", "r1", SPEC))
    asked = coordinator.rounds()
    assert asked is not None
    assert {question.length for question in asked[0].questions} == {1}
    wrong: list[tuple[list[int | None], list[int] | None, str]] = [
        ([3, 2, 1], None, "how many came"),
        ([None, None, None], [0, 0, 0], "nobody came to this round"),
        ([3, 2, 0], [5, 5, 0], "nobody of client few came"),
        ([6, 2, 0], [5, 5, 5], "from 0 to 5"),
        ([3, 2], [5, 5], "for every client"),
    ]
    for ones, lengths, words in wrong:
        with pytest.raises(ProtocolError, match=words):
            coordinator.accept([ones], lengths=None if lengths is None else [lengths])
    assert coordinator.done == 0
    coordinator.accept([[3, None, None]], lengths=[[5, 0, 0]])
    (stored,) = RunStore.open(tmp_path / "run.db").rounds()
    assert (stored.ask.lengths, stored.ones) == ((5, 0, 0), (3, None, None))


def test_answers_wait_for_a_stratum_that_nobody_came_of(tmp_path: Path) -> None:
    """The search goes on with those who came; what bounds the quantile waits."""
    coordinator = Coordinator(RunStore.create(tmp_path / "run.db", "r1", SPEC))
    queries = set()
    for _ in range(40):
        asked = coordinator.rounds()
        assert asked is not None
        query = asked[0].questions[0].query
        queries.add(query)
        yes = 0.5 + SPEC.clients[0].mechanism.truth_rate * (0.5 - NormalDist(60.0, 10.0).cdf(query))
        coordinator.accept([[round(40 * yes), round(20 * yes), None]], lengths=[[40, 20, 0]])
    assert len(queries) > 4
    result = coordinator.result()
    assert "nobody-yet" in {caveat.code for caveat in result.caveats}
    assert result.confidence_interval == (0.0, 100.0)
    coordinator = Coordinator(RunStore.create(tmp_path / "later.db", "r1", SPEC))
    answer(coordinator, 60)
    for _ in range(60):  # from here on nobody of the small stratum comes
        coordinator.accept([[20, 10, None]], lengths=[[40, 20, 0]])
    (caveat,) = [one for one in coordinator.result().caveats if one.code == "waiting"]
    assert caveat.severity == "act"
    assert "of few few come" in caveat.text
    waits = int(caveat.text.split(" of ")[0].replace(",", ""))
    assert 60 * 60 * 0.9 <= waits <= 60 * 60 + 400


@pytest.mark.parametrize(("end", "why"), [(End(answers=4000), "answers"), (End(date="2026-01-01T00:00:00Z"), "date")])
def test_an_end_that_was_fixed_beforehand_has_its_own_interval(tmp_path: Path, end: End, why: Any) -> None:
    coordinator = Coordinator(RunStore.create(tmp_path / "run.db", "r1", replace(SPEC, end=end)))
    answer(coordinator, 60)
    before = coordinator.result()
    answer(coordinator, 100)
    coordinator.finish(None if why == "answers" else "date")
    assert coordinator.store.why_ended == why
    result = coordinator.result()
    assert before.other is None
    assert result.other is not None
    assert result.other.method == "smooth"
    (low, high), (first, last) = result.other.interval, result.confidence_interval
    assert high - low < last - first
    view = RunView.read(tmp_path / "run.db", drawn=True)
    assert view.levels[0].result == result
    assert view.levels[0].snapshots[-2][1].other_low != view.levels[0].snapshots[-2][1].other_low  # NaN: it went on


def test_an_end_that_somebody_chose_has_none(tmp_path: Path) -> None:
    spec = replace(SPEC, end=End(answers=100_000, date="2100-01-01T00:00:00Z"), value_kind="continuous")
    coordinator = Coordinator(RunStore.create(tmp_path / "run.db", "r1", spec))
    answer(coordinator, 100)
    with pytest.raises(StoreError, match="cannot end by its date"):
        coordinator.finish("date")
    with pytest.raises(StoreError, match="why='command'"):
        coordinator.finish()
    coordinator.finish("command")
    assert coordinator.result().valid_at_every_look
    with RunStore.open(tmp_path / "run.db") as store:  # nor one who writes another reason into the file
        for forged, words in (
            ("width", "would have gone on"),
            ("answers", "would have gone on"),
            ("date", "before that date had come"),
            ("never", "replay"),
        ):
            store.execute([("UPDATE ending SET why = ?", (forged,))])
            with pytest.raises(StoreError, match=words):
                Coordinator(store)
            with pytest.raises(StoreError, match=words):
                RunView.read(tmp_path / "run.db", drawn=True)


def test_a_run_may_end_by_its_width(tmp_path: Path) -> None:
    coordinator = Coordinator(RunStore.create(tmp_path / "run.db", "r1", replace(SPEC, until_width=6.0)))
    answer(coordinator, 400)
    assert coordinator.done < 400
    coordinator.finish()
    low, high = coordinator.result().confidence_interval
    assert coordinator.store.why_ended == "width"
    assert high - low <= 6.0
    coordinator.store.close()
    assert Coordinator(RunStore.open(tmp_path / "run.db")).result() == coordinator.result()


def test_report_and_page_of_a_run_that_goes_on(tmp_path: Path) -> None:
    coordinator = Coordinator(RunStore.create(tmp_path / "run.db", "r1", SPEC))
    answer(coordinator, 80)
    (week,) = coordinator.result().facts()["series"]
    assert week["answers"] <= coordinator.result().records
    low, high = week["interval"]
    assert low < 60.8 < high
    runner = CliRunner()
    text = runner.invoke(command, ["report", str(tmp_path / "run.db"), "--text"], catch_exceptions=False)
    assert text.exit_code == 0
    assert "goes on" in text.output
    watched = runner.invoke(command, ["status", str(tmp_path / "run.db")], catch_exceptions=False)
    assert "rounds       80, as many as it takes" in watched.output
    page = tmp_path / "run.html"
    made = runner.invoke(command, ["report", str(tmp_path / "run.db"), "-o", str(page)], catch_exceptions=False)
    assert made.exit_code == 0
    content = page.read_text(encoding="utf-8")
    assert "whoever comes, of day, night, few" in content
    assert "of None" not in content
    assert "-1" not in content[:2000]
    facts = runner.invoke(command, ["report", str(tmp_path / "run.db"), "--json"], catch_exceptions=False)
    (result,) = json.loads(facts.output)["results"]
    assert result["design"] == "open"
    assert result["records"] == coordinator.result().records


def test_what_a_specification_may_not_say() -> None:
    for changed, words in (
        ({"rounds": 10}, "no number of rounds"),
        ({"interval": "paper"}, "design open asks on both sides"),
        ({"target": "file"}, "target='file'"),
        ({"mode": "local"}, "mode='local'"),
        ({"clients": (replace(CLIENTS[0], records=5), *CLIENTS[1:])}, "UNKNOWN_SIZE"),
        ({"design": "straddle", "end": End(answers=5)}, "only design open"),
    ):
        with pytest.raises(InputError, match=words):
            replace(SPEC, **changed)
    for given, words in (({"answers": 0}, "end.answers"), ({"date": "tomorrow"}, "end.date"), ({}, "a date")):
        with pytest.raises(InputError, match=words):
            End(**given)
    fixed = replace(SPEC, end=End(date="2030-01-01T00:00:00Z"))
    assert RunSpec.from_json(fixed.to_json()) == fixed
    assert fixed.end is not None
    assert fixed.end.seconds is not None
    assert fixed.end.seconds > time.time()
