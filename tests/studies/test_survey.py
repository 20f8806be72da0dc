"""The target of weighted runs against R, and the committed results of the study of weighted runs."""

import json
import math

import numpy as np
import pytest
from studies.coverage.rows import read_rows
from studies.survey.run import ALIKE, CELLS, EFFECTIVE, RESULTS, SURVEYS, THIN, Cell, Row, population, survey_run
from studies.survey.target import weighted_quantile

from privatile.estimator.clients import PROMISED

ORACLE = json.loads((RESULTS.parent / "svyquantile.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ORACLE["samples"])
def test_the_target_is_the_quantile_of_r_survey(name: str) -> None:
    sample = ORACLE["samples"][name]
    assert ORACLE["made_by"].startswith("R ")
    found = [weighted_quantile(sample["x"], sample["w"], level) for level in ORACLE["levels"]]
    assert found == sample["quantiles"]
    plain = [weighted_quantile(sample["x"], np.ones(len(sample["x"])), level) for level in ORACLE["levels"]]
    assert plain == np.quantile(sample["x"], ORACLE["levels"], method="inverted_cdf").tolist()
    # Control: without the weights it is another quantile, unless they are all alike.
    assert (plain == found) == (name == "alike")


def test_a_run_without_noise_finds_the_oracle_quantile() -> None:
    """One client, everybody truthful, weights of few values: classes and draws leave the target where it is."""
    import privatile

    sample = ORACLE["samples"]["ages"]
    table = np.zeros(60 * 120, dtype=[("x", float), ("w", float)])
    table["x"], table["w"] = np.tile(sample["x"], 60), np.tile(sample["w"], 60)
    for level in (0.25, 0.75):
        truth = sample["quantiles"][ORACLE["levels"].index(level)]
        result = privatile.estimate(
            table,
            value="x",
            weight="w",
            q=level,
            not_private=True,
            range=(0, 100),
            simulate=True,
            rng=1,
            value_kind="whole",
        )
        low, high = result.confidence_interval
        assert low <= truth <= high
        assert high - low < 12


def test_the_committed_results_hold_the_limits() -> None:
    rows = {row.cell: row for row in read_rows(RESULTS, Row)}
    assert set(rows) == {cell.name for cell in CELLS}
    for cell in CELLS:
        row = rows[cell.name]
        error = math.sqrt(0.95 * 0.05 / row.runs)
        if not cell.weighted:
            assert row.covers < 0.5  # the control: whoever forgets the weights misses the weighted quantile
            continue
        assert row.runs >= (100 if cell.values == "continuous" else 50)
        if cell[: len(THIN)] == THIN:
            # Beyond what is promised, and said so in the result.
            assert PROMISED < row.variance <= 1.2
        else:
            assert row.variance <= PROMISED
        if cell.values == "continuous":
            assert 0.94 - 2 * error <= row.covers <= 0.96 + 2 * error
            assert row.mse < 1.45
        else:
            assert row.covers >= 0.95 - 2 * error
            assert row.bounded >= 0.97


def test_the_realised_price_of_weights_is_the_formulas() -> None:
    """Mean squared errors over those of as many records, all alike, as the effective number says."""
    rows = {row.cell: row for row in read_rows(RESULTS, Row)}
    for survey in (*SURVEYS, THIN):
        weights, records, epsilon, level, clients = survey
        row = rows[Cell(*survey, "continuous").name]
        number = round(EFFECTIVE[weights] * records)
        alike = rows[Cell(ALIKE, number, epsilon, level, clients, "continuous").name]
        assert alike.variance == 1.0
        realised = row.mse / alike.mse
        # A mean of squared normal errors has the relative variance 2/runs.
        doubt = math.sqrt(2.0 / row.runs + 2.0 / alike.runs)
        assert abs(realised / row.variance - 1.0) <= 3.0 * doubt, (survey, realised)


def test_a_survey_with_a_thin_tail_says_what_it_costs() -> None:
    said = {}
    for survey in (SURVEYS[0], THIN):
        result, spec, _ = survey_run(Cell(*survey, "continuous"), np.random.default_rng(3))
        assert spec.survey is not None
        said[survey] = [caveat.text for caveat in result.caveats if caveat.code == "thin-tail"]
        assert bool(said[survey]) == (spec.survey.variance > PROMISED)
    assert said[SURVEYS[0]] == []
    assert "The interval holds and is wider" in said[THIN][0]


@pytest.mark.statistical
def test_weighted_runs_cover_and_a_forgotten_weight_does_not() -> None:
    """A few runs through the code of the study: what it scores is what the program does."""
    cell = CELLS[0]
    truth, _ = population(cell)
    covered = {True: 0, False: 0}
    for seed in range(4):
        for weighted in covered:
            result, _, _ = survey_run(cell._replace(weighted=weighted), np.random.default_rng([7, seed]))
            low, high = result.confidence_interval
            covered[weighted] += low <= truth <= high
    assert covered[True] >= 3
    assert covered[False] == 0
