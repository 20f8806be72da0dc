"""Times of rounds that somebody has edited before the release: the record does not verify, or says what it rests on."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from privatile.cli import main
from privatile.core.text import moment
from privatile.estimator.spec import RunSpec
from privatile.records import OTHER_BUILD, SAME, differences
from privatile.run import run_file as run_file
from privatile.survey.folder import SurveyFolder
from privatile.survey.record import release, verify_survey_record
from tests.survey.answered import ROUNDS, WEEKS, answered_survey, round_times

TIMES = round_times()
DAY = 86_400.0
CLOSED = "its rounds closed one after the other"


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> SurveyFolder:
    folder = answered_survey(tmp_path_factory.mktemp("times") / "survey").folder
    ended = CliRunner().invoke(main, ["survey", "close", str(folder.path), "--yes"])
    assert ended.exit_code == 0, ended.output
    shutil.copy(folder.run_file, folder.run_file.with_suffix(".honest"))
    return folder


def forge(folder: SurveyFolder, time_of: Callable[[int], float]) -> None:
    shutil.copy(folder.run_file.with_suffix(".honest"), folder.run_file)
    with closing(sqlite3.connect(folder.run_file)) as store, store:
        for number in range(1, ROUNDS + 1):
            store.execute("UPDATE rounds SET at = ? WHERE round = ?", (time_of(number), number))


@pytest.mark.parametrize(
    ("time_of", "why"),
    [
        (lambda n: TIMES[ROUNDS - n], "round 2 closed before the round before it"),
        (lambda n: TIMES[(n * 29) % ROUNDS], "closed before the round before it"),
        (lambda n: TIMES[n - 1] - 400 * DAY, "round 1 closed before the run was begun"),
        (lambda n: TIMES[n - 1] - (2.5 * DAY if n == 1 else 0.0), "round 1 closed before the run was begun"),
        (lambda n: -1e300 if n == 60 else TIMES[n - 1], "round 60 has no time of our calendar"),
        (lambda n: time.time() + 30 * DAY if n == ROUNDS else TIMES[n - 1], "clock has not reached"),
    ],
)
def test_a_release_with_forged_times_fails(closed: SurveyFolder, time_of: Callable[[int], float], why: str) -> None:
    forge(closed, time_of)
    failed = verify_survey_record(release(closed), closed.run_file).failed
    (found,) = [text for text in failed if CLOSED in text]
    assert why in found


def test_the_honest_file_verifies_and_says_on_whose_clock_it_rests(closed: SurveyFolder) -> None:
    forge(closed, lambda n: TIMES[n - 1])
    record = release(closed)
    checked = verify_survey_record(record, closed.run_file)
    assert not checked.failed
    assert any(CLOSED in text for text in checked.passed)
    for one in (checked, verify_survey_record(record)):
        assert any("their times rest on the word of the organiser alone" in text for text in one.not_checked)
    assert "no-times" not in record["body"]["results"][0]["caveats"]


def test_a_record_holds_the_weeks_and_other_times_are_found(closed: SurveyFolder) -> None:
    forge(closed, lambda n: TIMES[n - 1])
    record = release(closed)
    (result,) = record["body"]["results"]
    assert len(result["series"]) == WEEKS
    assert result["change"]["alarm"]
    assert result["change"]["since"] == moment(TIMES[result["change"]["round"] - 1])
    forge(closed, lambda n: TIMES[n - 1] + 3 * DAY)
    (figures,) = [text for text in verify_survey_record(record, closed.run_file).failed if "figures" in text]
    assert figures.endswith("change, series")


def test_a_result_without_all_times_says_why_it_has_no_series(closed: SurveyFolder) -> None:
    forge(closed, lambda n: 1e300 if n == 60 else TIMES[n - 1])
    (result,) = release(closed)["body"]["results"]
    assert not result["series"]
    assert "no-times" in result["caveats"]


def test_a_clock_that_is_set_back_writes_no_time_before_the_last_round(
    closed: SurveyFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge(closed, lambda n: TIMES[n - 1])
    with run_file.RunStore.frozen(closed.run_file) as store:
        spec: RunSpec = store.spec
        first, second, third = list(store.rounds())[:3]
    now = [1e9]
    monkeypatch.setattr("privatile.run.run_file.time.time", lambda: now[0])
    with run_file.RunStore.create(tmp_path / "run.db", "r", spec) as store:
        now[0] = 1e9 - 5.0
        assert store.append([first]) == 1e9
        now[0] = 1e9 + 9.0
        assert store.append([second]) == 1e9 + 9.0
    now[0] = 1e9 + 4.0
    with run_file.RunStore.open(tmp_path / "run.db") as store:
        assert store.append([third]) == 1e9 + 9.0


@pytest.mark.parametrize("unit", [1.0, 1e-7, 1e-13])
@pytest.mark.parametrize("share", [SAME, OTHER_BUILD])
def test_weeks_are_compared_by_their_own_width(closed: SurveyFolder, unit: float, share: float) -> None:
    forge(closed, lambda n: TIMES[n - 1])
    (result,) = release(closed)["body"]["results"]
    weeks = [
        {**week, "estimate": unit * week["estimate"], "interval": [unit * end for end in week["interval"]]}
        for week in result["series"]
    ]
    assert len(weeks) == WEEKS
    mine = {**result, "series": weeks}

    def accepted(**told: object) -> bool:
        return (
            "series"
            not in differences({**mine, "series": [{**weeks[0], **told}, *weeks[1:]]}, mine, 1.0, share).figures
        )

    low, high = weeks[0]["interval"]
    estimate = weeks[0]["estimate"]
    assert accepted()
    assert accepted(estimate=estimate + 0.5 * share * (high - low))
    assert not accepted(estimate=estimate + 2.0 * share * (high - low))
    assert not accepted(estimate=9.0 * estimate)
    assert not accepted(interval=[low, estimate])
    assert not accepted(interval=None)
    assert not accepted(answers=weeks[0]["answers"] + 0.5)
