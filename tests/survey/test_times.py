"""The record of a survey that went on for weeks: its series and its alarm are checked with the times of the run."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from click.testing import CliRunner

from privatile.cli import main
from privatile.core.text import moment
from privatile.survey.record import release, verify_survey_record
from tests.survey.answered import WEEKS, answered_survey, round_times


def test_a_record_holds_the_weeks_and_other_times_are_found(tmp_path: Path) -> None:
    folder = answered_survey(tmp_path / "survey").folder
    ended = CliRunner().invoke(main, ["survey", "close", str(folder.path), "--yes"])
    assert ended.exit_code == 0, ended.output
    record = release(folder)
    (result,) = record["body"]["results"]
    assert len(result["series"]) == WEEKS
    change = result["change"]
    assert change["alarm"]
    assert change["since"] == moment(round_times()[change["round"] - 1])
    assert not verify_survey_record(record, folder.run_file).failed

    other = tmp_path / "other.db"
    shutil.copy(folder.run_file, other)
    with closing(sqlite3.connect(other)) as store, store:
        store.execute("UPDATE rounds SET at = at + 3 * 86400")
    figures, words = verify_survey_record(record, other).failed
    assert figures.endswith("change, series")
    assert words.endswith("caveats")
