"""What the times in a file say about an open-ended run: week by week, and since when its quantile has moved."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner

from privatile.api.online import OnlineQuantile
from privatile.cli import main as command
from privatile.core.mechanism import RandomizedResponse
from privatile.core.text import moment, week
from privatile.estimator.clients import UNKNOWN_SIZE
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.result.result import QuantileResult
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore
from privatile.run.view import RunView

SITE = RandomizedResponse.from_epsilon(2.0)
SPEC = RunSpec(
    "waiting time",
    (0.5,),
    (ClientSpec("all", SITE.threshold, 1.0, UNKNOWN_SIZE),),
    "linear",
    0.0,
    100.0,
    design="open",
    weighting="given",
    simulated=True,
)
ROUNDS, LENGTH, MOVES_AFTER = 60, 80, 40
FIRST, DAY = 1_798_000_000.0, 86_400.0
PROMISE = "read the series over weeks"


def ones(rng: np.random.Generator, number: int, query: float, moves: float) -> int:
    true = rng.normal(45.0 + moves * (number >= MOVES_AFTER), 12.0, LENGTH) > query
    return int((true == (rng.random(LENGTH) < 0.5 * (1.0 + SITE.truth_rate))).sum())


def made(path: Path, *, moves: float = 8.0, apart: float = 0.7 * DAY, spec: RunSpec = SPEC) -> QuantileResult:
    """A run whose rounds close so many seconds apart; gives its result as the coordinator has it."""
    clock, rng = SimpleNamespace(now=FIRST - DAY), np.random.default_rng(5)
    with patch("privatile.run.run_file.time", SimpleNamespace(time=lambda: clock.now)):
        coordinator = Coordinator(RunStore.create(path, "r1", spec))
        for number in range(ROUNDS):
            clock.now = FIRST + apart * number
            rounds = coordinator.rounds()
            assert rounds is not None
            query = rounds[0].questions[0].query
            coordinator.accept([[ones(rng, number, query, moves)]], lengths=[[LENGTH]])
    result = coordinator.results()[0]
    coordinator.store.close()
    return result


def moved(result: QuantileResult) -> str | None:
    return next((one.text for one in result.caveats if one.code == "moved"), None)


def report(*words: object) -> str:
    done = CliRunner().invoke(command, ["report", *map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_every_reader_of_the_file_has_the_series_and_the_date(tmp_path: Path) -> None:
    result = made(tmp_path / "run.db")
    facts = result.facts()
    weeks, change = facts["series"], facts["change"]
    assert len(weeks) == 7
    assert sum(one["answers"] for one in weeks) == LENGTH * result.averaged_rounds
    assert weeks[-1]["week"] == week(FIRST + 0.7 * DAY * (ROUNDS - 1))
    assert weeks[0]["interval"][1] < weeks[-1]["interval"][0], "the weeks tell the two times apart"
    assert abs(change["round"] - MOVES_AFTER) <= 5
    assert change["since"] == moment(FIRST + 0.7 * DAY * (change["round"] - 1))
    text = moved(result)
    assert text is not None
    assert PROMISE in text
    assert f"({change['since'][:16].replace('T', ' ')} UTC)" in text

    (read,) = RunView.read(tmp_path / "run.db").all_results()
    assert read == result
    plain = json.loads(report(tmp_path / "run.db", "--json"))
    jsonschema.validate(plain, json.loads((Path(__file__).parents[2] / "docs" / "result.schema.json").read_text()))
    assert plain["results"][0]["series"] == weeks
    assert "7 weeks, " in report(tmp_path / "run.db", "--text")
    report(tmp_path / "run.db", "-o", tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "Week by week" in page
    assert all(f'<th scope="row">{one["week"]}</th>' in page for one in weeks)
    section = page[page.index("Week by week") :].partition("</section>")[0]
    assert "95% interval</th>" in section
    assert all(f"<td>{one['estimate']:.1f}" in section for one in weeks)
    assert "The weeks have no estimates" not in section


def test_without_a_change_there_is_no_date(tmp_path: Path) -> None:
    result = made(tmp_path / "run.db", moves=0.0)
    assert moved(result) is None
    assert result.facts()["change"]["since"] is None
    assert len(result.facts()["series"]) == 7


def unusable(path: Path) -> None:
    """One round of a file has a time beyond every calendar."""
    with RunStore.open(path) as store:
        store.execute([("UPDATE rounds SET at = 1e300 WHERE round = 50", ())])


@pytest.mark.parametrize("kind", ["one week", "no times", "grid"])
def test_a_series_that_says_nothing_is_not_promised(tmp_path: Path, kind: str) -> None:
    spec = replace(SPEC, value_kind="whole") if kind == "grid" else SPEC
    made(tmp_path / "run.db", apart=60.0 if kind == "one week" else 0.7 * DAY, spec=spec)
    if kind == "no times":
        unusable(tmp_path / "run.db")
    (result,) = RunView.read(tmp_path / "run.db").all_results()
    text = moved(result)
    assert text is not None
    assert PROMISE not in text
    assert "begin a new run" in text
    weeks: list[dict[str, Any]] = result.facts()["series"]
    assert len(weeks) == {"one week": 1, "no times": 0, "grid": 7}[kind]
    if kind == "grid":
        assert all(one["interval"] is None for one in weeks)
    report(tmp_path / "run.db", "-o", tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert (
        ("Week by week" in page)
        is ("The weeks have no estimates and intervals of their own" in page)
        is (kind == "grid")
    )
    assert "<td>none</td>" not in page


def test_without_a_file_the_alarm_knows_the_round_alone() -> None:
    median, rng = OnlineQuantile(q=0.5, epsilon={"all": 2.0}, range=(0, 100)), np.random.default_rng(5)
    for number in range(ROUNDS):
        median.update({"all": (ones(rng, number, median.query, 8.0), LENGTH)})
    text = moved(median.result())
    assert text is not None
    assert "UTC" not in text
    assert PROMISE not in text
    change = median.result().facts()["change"]
    assert change["round"]
    assert change["since"] is None
