"""What the public page shows of a result: which interval holds at any time, and which at a fixed end alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privatile.report.survey_pages import SurveyPages
from privatile.result.result import QuantileResult
from privatile.run.rounds import OpenRound, Phase
from privatile.survey.run import SurveyRun
from privatile.survey.service import live_facts
from privatile.survey.store import Count
from tests.survey.kit import make_study

PEOPLE, LENGTH = 1_200, 60

Values = Callable[[np.random.Generator, int], Any]


def answered(
    path: Path, drawn: Values, people: int = PEOPLE, length: int = LENGTH, seed: int = 7, **changes: Any
) -> tuple[QuantileResult, dict[str, Any]]:
    """The result of a survey that so many people have answered, and what its page shows."""
    study = make_study(strata={"all": max(people, 600)}, **{"epsilon": 4.0, **changes})
    run, rng = SurveyRun(path, study), np.random.default_rng(seed)
    for number in range(people // length):
        query, truths = run.question(), rng.random(length) < 0.5 * (1.0 + study.mechanism.truth_rate)
        assert query is not None
        run.close_round(number + 1, [Count(length, int((truths == (drawn(rng, length) > query)).sum()))])
    (result,) = run.coordinator.results()
    facts = live_facts(
        study, OpenRound(run.coordinator.done + 1, Phase.OPEN, 0.0, 0, people), run.coordinator, [0], 0.0
    )
    run.close()
    return result, facts


def salaries(rng: np.random.Generator, length: int) -> Any:
    return rng.normal(4000, 900, length)


def few_hours(path: Path, values: str) -> tuple[QuantileResult, dict[str, Any]]:
    """Hours a week of 400 people, whose answers bound the median from above alone."""
    hours = {"epsilon": 2.0, "range": [0, 80], "unit": "hours", "value_kind": values}
    return answered(path, lambda rng, length: np.round(rng.gamma(2.0, 2.0, length)), 400, 25, 3, **hours)


@pytest.mark.parametrize("values", ["any", "continuous"])
def test_the_final_interval_is_the_one_for_the_end_that_was_fixed(tmp_path: Path, values: str) -> None:
    """The same answers, with an end that was fixed beforehand and without one."""

    def shown(name: str, **changes: Any) -> dict[str, Any]:
        return answered(tmp_path / name, salaries, value_kind=values, **changes)[1]

    goes_on, ended = shown("open.db"), shown("ended.db", end_answers=PEOPLE)
    assert goes_on["final"] is None
    (low, high), (first, last) = ended["interval"], ended["final"]
    assert low < first < last < high
    assert ended["condition"] == "whatever the distribution"
    assert ("smooth" in goes_on["condition"]) is (values == "continuous")
    assert shown("width.db", end_answers=PEOPLE, end_width=1.0)["final"] is None


def test_every_page_reads_a_declared_grid_alike(tmp_path: Path) -> None:
    result, facts = few_hours(tmp_path / "whole.db", "whole")
    low, high = facts["interval"]
    assert (low, facts["estimate"]) == (0.0, None)
    assert 5.0 < high < 6.0
    assert facts["sentence"] == result.sentence
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
    (week,) = answered(tmp_path / "located.db", salaries)[1]["series"]
    assert week["interval"]
    assert "smooth" in week["condition"]
