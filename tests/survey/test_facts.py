"""What the public page shows of a result: which interval holds at any time, and which at a fixed end alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privatile.survey.facts import _result_facts
from privatile.survey.run import SurveyRun
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
