"""What the public page shows of a result: which interval holds at any time, and which at a fixed end alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privatile.report.survey_pages import SurveyPages
from privatile.result.result import QuantileResult
from privatile.run.rounds import OpenRound, Phase
from privatile.survey.run import SurveyRun
from privatile.survey.service import _result_facts, live_facts
from privatile.survey.store import Count
from tests.survey.kit import make_study

PEOPLE, LENGTH = 1_200, 60


@pytest.mark.parametrize("values", ["any", "continuous"])
def test_the_final_interval_is_the_one_for_the_end_that_was_fixed(tmp_path: Path, values: str) -> None:
    """The same answers, with an end that was fixed beforehand and without one."""

    def shown(name: str, **changes: Any) -> dict[str, Any]:
        study = make_study(strata={"all": PEOPLE}, epsilon=4.0, values=values, **changes)
        run, rng = SurveyRun.open(tmp_path / name, study), np.random.default_rng(7)
        for number in range(PEOPLE // LENGTH):
            query, truths = run.question(), rng.random(LENGTH) < 0.5 * (1.0 + study.mechanism.truth_rate)
            assert query is not None
            run.close_round(number + 1, [Count(LENGTH, int((truths == (rng.normal(4000, 900, LENGTH) > query)).sum()))])
        result = run.standing().result
        run.close()
        return _result_facts(result)

    goes_on, ended = shown("open.db"), shown("ended.db", end_answers=PEOPLE)
    assert goes_on["final"] is None
    (low, high), (first, last) = ended["interval"], ended["final"]
    assert low < first < last < high
    assert ended["condition"] == "whatever the distribution"
    assert ("smooth" in goes_on["condition"]) is (values == "continuous")
    assert shown("width.db", end_answers=PEOPLE, end_width=1.0)["final"] is None


def few_hours(path: Path, values: str) -> tuple[QuantileResult, dict[str, Any]]:
    """A survey of hours a week with 400 answers, which bound the median from above alone."""
    study = make_study(strata={"all": 600}, epsilon=2.0, range=[0, 80], unit="hours", values=values)
    run, rng, length = SurveyRun.open(path, study), np.random.default_rng(3), 25
    for number in range(400 // length):
        query, truths = run.question(), rng.random(length) < 0.5 * (1.0 + study.mechanism.truth_rate)
        assert query is not None
        yes = truths == (np.round(rng.gamma(2.0, 2.0, length)) > query)
        run.close_round(number + 1, [Count(length, int(yes.sum()))])
    found = run.standing()
    run.close()
    assert found.result is not None
    return found.result, live_facts(study, OpenRound(17, Phase.OPEN, 0.0, 0, 400), found, [0], 0.0)


def test_every_page_reads_a_declared_grid_alike(tmp_path: Path) -> None:
    result, facts = few_hours(tmp_path / "whole.db", "whole")
    low, high = facts["interval"]
    assert (low, facts["estimate"]) == (0.0, None)
    assert 5.0 < high < 6.0
    assert result.headline == "5 or less"
    assert "is 5 or less with 95% confidence, if every value is a whole number" in facts["sentence"]
    assert facts["shown"]["interval"] == ["0", "5"]
    assert (facts["shown"]["condition"], facts["shown"]["declared"]) == ("grid", result.shown.own.condition)
    assert " … ".join(facts["shown"]["undeclared"]) in result.shown.undeclared
    for page in (SurveyPages().live(facts), SurveyPages().organiser(facts)):
        assert "5 hours or less" in page
        assert "if every value is a whole number" in page
    assert not any("estimate" in text for text in facts["caveats"]), "none is shown"
    _, plain = few_hours(tmp_path / "any.db", "any")
    assert plain["shown"]["condition"] == "any-shape"
    assert plain["shown"]["declared"] is plain["shown"]["undeclared"] is None
    assert "hours or less" in SurveyPages().live(plain)


def test_a_week_says_nothing_that_the_result_does_not(tmp_path: Path) -> None:
    """A smooth interval of one week beside a result that is not located, or of values declared whole, misleads."""
    _, facts = few_hours(tmp_path / "whole.db", "whole")
    (week,) = facts["series"]
    assert 0 < week["answers"] < facts["answers"], "those of the search are in no week"
    assert week["estimate"] is week["interval"] is week["condition"] is None

    study = make_study(strata={"all": PEOPLE}, epsilon=4.0)
    run, rng = SurveyRun.open(tmp_path / "located.db", study), np.random.default_rng(7)
    for number in range(PEOPLE // LENGTH):
        query, truths = run.question(), rng.random(LENGTH) < 0.5 * (1.0 + study.mechanism.truth_rate)
        assert query is not None
        run.close_round(number + 1, [Count(LENGTH, int((truths == (rng.normal(4000, 900, LENGTH) > query)).sum()))])
    found = run.standing()
    run.close()
    (week,) = live_facts(study, OpenRound(21, Phase.OPEN, 0.0, 0, PEOPLE), found, [0], 0.0)["series"]
    assert week["interval"]
    assert "smooth" in week["condition"]
