"""The two readings of a run in its result: which stands first, a declared grid, the ends of the range, rounding."""

import json
import math
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from click.testing import CliRunner

from privatile.api.estimate import estimate
from privatile.cli import main
from privatile.core.kinds import declaration
from privatile.core.scale import Linear
from privatile.errors import InputError
from privatile.estimator.settings import ReportSettings
from privatile.estimator.straddle import Candidates
from privatile.inference.any_shape import AnyShape
from privatile.inference.reading import Reading, any_shape_inference
from privatile.result.result import QuantileResult, interval_in_units
from privatile.result.shown import outward, significant
from privatile.result.summary import both_readings
from privatile.run.run_file import RunStore

SEED = np.random.default_rng(20261116)


def run(values: np.ndarray, declared: str = "any", **options: object) -> QuantileResult:
    given = {"q": 0.5, "epsilon": 3, "range": (0, 120), "rounds": 100, "value_kind": declared, "value": "age"} | options
    return estimate({"all": values}, simulate=True, rng=7, **given)  # type: ignore[call-overload, no-any-return]


def codes(result: QuantileResult) -> set[str]:
    return {caveat.code for caveat in result.caveats}


AGES = np.rint(np.random.default_rng(1).normal(44.2, 15.0, 20_000).clip(0, 110))


@pytest.fixture(scope="module")
def ages() -> QuantileResult:
    return run(AGES, "whole")


def test_a_declared_grid_leaves_a_few_values_and_the_interval_beside_them(ages: QuantileResult) -> None:
    low, high = ages.confidence_interval
    assert ages.grid_values is not None
    assert 44.0 in ages.grid_values
    assert all(low < value <= high for value in ages.grid_values)
    assert len(ages.grid_values) <= 5
    words = " or ".join(f"{value:g}" for value in ages.grid_values[-2:])
    assert ages.sentence.endswith(f"{words}, if every value is a whole number.")
    (facts,) = json.loads(ages.to_json())["results"]
    assert facts["grid_values"] == list(ages.grid_values)
    assert facts["confidence_interval"] == {"low": low, "high": high}
    assert facts["value_kind"] == "whole"
    assert "if it is not so" in ages.to_text()
    # The declaration changes no question: the same run, undeclared, has the same interval.
    assert run(AGES).confidence_interval == ages.confidence_interval


def test_a_false_grid_misses_what_the_interval_covers() -> None:
    """Every value ends in ½: the quantile is 43.5, which no set of whole numbers holds. The interval is not fooled."""
    halves = np.floor(AGES) + 0.5
    truth = float(np.quantile(halves, 0.5, method="inverted_cdf"))
    result = run(halves, "whole")
    assert result.confidence_interval.low <= truth <= result.confidence_interval.high
    assert result.grid_values is None or truth not in result.grid_values
    # The control: with the true grid the set holds it.
    assert truth in (run(halves, "step=0.5").grid_values or ())


def test_a_grid_that_the_answers_rule_out_is_contradicted() -> None:
    """Most people share one value between two whole numbers: the interval closes on it."""
    people = np.where(SEED.random(20_000) < 0.8, 40.5, SEED.normal(40.5, 10.0, 20_000))
    result = run(people, "whole")
    assert result.grid_values is None
    assert result.contradiction.startswith("not every value can be a whole number: none lies between 40.")
    assert "contradiction" in codes(result)
    assert result.confidence_interval.low <= 40.5 <= result.confidence_interval.high
    assert "is estimated at" in result.sentence
    assert not run(people, "any").contradiction.startswith("not every")


def test_a_straddled_run_may_be_reported_as_continuous_unless_the_answers_contradict_it() -> None:
    smooth = run(SEED.normal(50.0, 10.0, 20_000), "continuous", design="straddle")
    assert (smooth.design, smooth.method) == ("straddle", "smooth")
    assert smooth.other is not None
    assert smooth.other.method == "any-shape"
    assert not smooth.contradiction
    heaped = run(np.round(SEED.normal(50.0, 10.0, 20_000), -1), "continuous", design="straddle")
    assert heaped.method == "any-shape"
    assert heaped.contradiction.startswith("no smooth interval: ")
    assert "declaration" in codes(heaped)
    assert heaped.reliable  # the interval that is shown needs no declaration
    assert heaped.other is None
    assert heaped.confidence_interval.low <= 50.0 <= heaped.confidence_interval.high
    # By name the smooth interval is still to be had, with the warning.
    named = run(np.round(SEED.normal(50.0, 10.0, 20_000), -1), design="straddle", interval="smooth")
    assert named.method == "smooth"
    assert "contradiction" in codes(named)
    assert not named.reliable
    assert named.sentence.endswith("is not to be relied on.")


def test_with_little_information_the_declaration_gives_no_smooth_headline() -> None:
    few = run(SEED.normal(50.0, 10.0, 700), "continuous", epsilon=1)
    assert few.method == "any-shape"
    assert "150" in few.contradiction
    assert "support" in codes(few)
    assert few.to_text().count("the rank is known within a standard error of 0.0") == 1  # in the row of the information
    assert "too little" not in few.to_text().lower()
    more = run(SEED.normal(50.0, 10.0, 9000), "continuous", epsilon=1)
    assert more.method == "smooth"
    assert "support" not in codes(more)


def test_a_quantile_at_the_lower_end_of_the_range_is_bounded_there() -> None:
    hours = np.where(SEED.random(20_000) < 0.7, 0.0, SEED.exponential(20.0, 20_000))
    result = run(hours, range=(0, 100))
    low, high = result.confidence_interval
    assert low == 0.0
    assert high < 2.0
    assert "at the lower end of the stated range, or below it" in result.sentence or low == high
    assert "is not to be relied on" not in result.sentence
    assert codes(result) >= {"range"}
    assert "probably" not in " ".join(caveat.text for caveat in result.caveats)
    upper = run(100.0 - hours, range=(0, 100))
    assert upper.confidence_interval.high == 100.0
    assert upper.confidence_interval.low > 98.0
    # The end of the range is a possible value of a grid.
    assert (run(hours, "whole", range=(0, 100)).grid_values or (None,))[0] in (0.0, None)


def test_what_is_shown_is_never_narrower_than_what_holds() -> None:
    rng, narrower = np.random.default_rng(3), 0
    for _ in range(2000):
        low = float(rng.normal() * 10.0 ** rng.integers(-3, 7))
        width = float(rng.exponential() * 10.0 ** rng.integers(-9, 6))
        high = low + width
        shown = [float(outward(end, high - low, up=up).replace(",", "")) for end, up in ((low, False), (high, True))]
        assert shown[0] <= low <= high <= shown[1]
        assert math.isclose(shown[0], low, rel_tol=1e-7, abs_tol=0.11 * width)
        nearest = [float(significant(end, high - low).replace(",", "")) for end in (low, high)]
        narrower += nearest[0] > low or nearest[1] < high
    assert narrower > 500  # the control: rounding to the nearest would often be narrower


def test_the_smooth_interval_does_not_stand_beside_a_declared_grid() -> None:
    """Its condition, continuous values, is what the declaration denies; the answers are the same."""
    values = np.random.default_rng(3).normal(44.2, 15.0, 5_000).clip(0, 110)
    undeclared, declared = run(values), run(values, "step=0.001")
    assert undeclared.other is not None
    assert undeclared.other.method == "smooth"
    assert declared.confidence_interval == undeclared.confidence_interval
    assert (declared.other, declared.contradiction) == (None, "")
    asked_for = run(values, "step=0.001", interval="smooth")
    assert asked_for.other is not None
    assert asked_for.other.method == "any-shape"


def test_reporting_may_declare_a_grid_but_not_move_where_a_run_stopped(tmp_path: Path) -> None:
    saved, stopped = tmp_path / "run.db", tmp_path / "stopped.db"
    asked = run(AGES, save=saved)
    run(AGES, save=stopped, until_width=20.0)
    with RunStore.open(stopped, read_only=True) as store:
        assert store.spec.with_report(value_kind="whole").value_kind == "whole"
        with pytest.raises(InputError, match="its interval decided where it stopped"):
            store.spec.with_report(interval="smooth")
    page = tmp_path / "page.html"
    done = CliRunner().invoke(main, ["report", str(saved), "--value-kind", "whole", "-o", str(page)])
    assert done.exit_code == 0, done.output
    whole = run(AGES, "whole")
    assert whole.sentence.partition(";")[0].removeprefix(asked.estimand) in page.read_text()
    done = CliRunner().invoke(main, ["report", str(saved), "--value-kind", "halves", "-o", str(page)])
    assert done.exit_code == 2
    assert "value-kind must be any, continuous, whole or step=NUMBER" in str(done.output) + str(done.stderr)


@pytest.mark.parametrize("declared", ["any", "continuous"])
def test_nobody_near_the_range_and_no_privacy_still_give_a_result(declared: str) -> None:
    """Every answer is certain: the ranks are 0, and so would be the noise."""
    far = run(np.full(600, 500.0), declared, epsilon=None, not_private=True)
    assert far.confidence_interval.high == 120.0
    assert "range" in codes(far)


@pytest.mark.parametrize("text", ["", "Whole", "step", "step=", "step=0", "step=-5", "step=nan", "step=1,000", None, 5])
def test_declarations_are_read_strictly(text: object) -> None:
    with pytest.raises(InputError, match="value_kind must be any, continuous, whole or step=NUMBER"):
        declaration(text)
    assert declaration("step=2.5e3").step == 2500.0


@pytest.mark.parametrize(("low", "high"), [(80.0, 40.0), (40.0, 80.0)])
def test_answers_that_contradict_each_other_are_named(low: float, high: float) -> None:
    """Above 80 and at or below 40 at once: the interval holds both ends, and the result says why."""
    scale, sides = Linear(0.0, 120.0), (Candidates(), Candidates())
    for side, place in zip(sides, (scale.to_working(low), -scale.to_working(high)), strict=True):
        side.places[0], side.peaks[0] = place, 9.0
    tests = AnyShape(sides)
    found = any_shape_inference(tests, scale.to_working(60.0), 0.1)
    reading = Reading(found, None, found, None, True, found, found, Mock(), tests=tests)
    interval = interval_in_units(found, scale, 0.95)
    assert interval == pytest.approx((40.0, 80.0))
    shown = both_readings(ReportSettings("age", (0.5,)), reading, interval, scale)
    named = shown.contradiction.startswith("the answers contradict each other: ")
    assert named == (low > high) == any("The interval spans both" in caveat.text for caveat in shown.caveats)


def test_the_estimate_is_one_of_the_values_left() -> None:
    data = np.random.default_rng(5).integers(20, 70, 20_000).astype(float)
    found = estimate(data, q=0.5, epsilon=2, range=(0, 100), scale="identity", value_kind="whole", simulate=True, rng=3)
    assert found.grid_values is not None
    assert found.estimate in found.grid_values
    raw = estimate(data, q=0.5, epsilon=2, range=(0, 100), scale="identity", simulate=True, rng=3)
    assert raw.estimate != found.estimate
    assert abs(raw.estimate - found.estimate) <= 0.5


def test_a_quantile_beyond_the_range_does_not_contradict_the_declared_grid() -> None:
    beyond = run(np.rint(np.random.default_rng(2).normal(40.0, 5.0, 4000)), "whole", range=(0, 20))
    assert "range" in codes(beyond)
    assert "contradiction" not in codes(beyond)
    assert not beyond.contradiction
