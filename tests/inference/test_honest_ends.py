"""Intervals where little is known: never narrower than the answers allow, and in agreement with their test."""

import math
from collections.abc import Iterator

import numpy as np
import pytest

from privatile.api.estimate import estimate
from privatile.inference.inference import Inference, from_ends, hull, simultaneous
from privatile.result.caveats import rounded_text
from privatile.result.result import QuantileResult


def codes(result: QuantileResult) -> set[str]:
    return {caveat.code for caveat in result.caveats}


def normal(mean: float, sd: float, records: int, seed: int) -> dict[str, np.ndarray]:
    return {"all": np.random.default_rng(seed).normal(mean, sd, records)}


def test_twenty_bits_locate_nothing_and_say_so() -> None:
    """At n = 20 the slope may be 0: the interval is the range, not the self-normalised one, which covers 59%."""
    for seed in range(8):
        data = normal(60, 10, 20, seed)
        result = estimate(data, q=0.5, epsilon=1, range=(0, 100), simulate=True, rng=seed)
        assert result.confidence_interval == (0.0, 100.0)
        assert {"unbounded", "support"} <= codes(result)
        assert "not located" in result.sentence
        narrow = estimate(data, q=0.5, epsilon=1, range=(0, 100), interval="self-normalized", simulate=True, rng=seed)
        assert narrow.confidence_interval != (0.0, 100.0)  # what must not be shown by default


def test_the_wider_of_two_holds_both_and_inverts_to_its_p_value() -> None:
    one = Inference("one", 1.0, 1.0, lambda level: 2.0 * level, lambda t: max(0.0, 1.0 - t / 2.0))
    two = Inference("two", 1.5, 1.0, lambda level: level, lambda t: max(0.0, 1.0 - t))
    both = hull(1.0, (one, two), "both")
    for level in (0.5, 0.9, 0.95):
        low, high = both.interval(level)
        assert low == 1.0 - 2.0 * level
        assert high == max(1.0 + 2.0 * level, 1.5 + level)
        assert both.test(high)[1] == pytest.approx(1 - level, rel=1e-6)
    assert both.test(1.0)[1] == 1.0
    assert both.test(99.0)[1] == 0.0
    assert simultaneous(both, 2).interval(0.81)[0] == pytest.approx(1.0 - 2.0 * 0.9)


@pytest.mark.parametrize(("design", "records"), [("paper-c1", 10), ("rounds", 60)])
def test_every_design_warns_where_there_is_too_little_information(design: str, records: int) -> None:
    result = estimate(normal(60, 10, records, 1), q=0.5, epsilon=1, range=(0, 100), design=design, simulate=True, rng=1)
    assert "support" in codes(result)
    if design == "paper-c1":
        assert result.confidence_interval == (0.0, 100.0)


def test_advice_can_be_followed() -> None:
    small = estimate(normal(60, 10, 40, 1), q=0.5, epsilon=1, range=(0, 100), simulate=True, rng=1)
    text = next(caveat.text for caveat in small.caveats if caveat.code == "support")
    assert "ε near" not in text  # 0.46 × 19 is no truth rate
    assert "e+" not in text
    large = estimate(normal(60, 10, 2_000, 1), q=0.5, epsilon=1, range=(0, 100), simulate=True, rng=1)
    assert "ε near 1.2" in next(caveat.text for caveat in large.caveats if caveat.code == "support")
    assert "design auto" not in small.to_text()
    assert rounded_text(940.0) == "940"


def crossed() -> Iterator[QuantileResult]:
    for seed in range(6):
        data = normal(50, 10, 900, seed)
        many = estimate(data, q=[0.48, 0.5, 0.52], epsilon=1, range=(0, 100), simulate=True, rng=seed)
        yield from many


@pytest.mark.slow
def test_rearranged_levels_agree_with_themselves() -> None:
    touched = 0
    for result in crossed():
        low, high = result.confidence_interval
        assert result.interval(result.confidence_level) == pytest.approx((low, high), abs=1e-9)
        # Beside few answers the estimate, of a smooth curve, need not be where the test has its largest p-value.
        assert low <= result.estimate <= high
        assert result.test(result.estimate).p_value >= 0.05
        if low > 0.0:
            # An end is a question: the p-value jumps there.
            assert result.test(low - 1e-6).p_value <= 0.05 + 1e-4
            assert result.test(low + 1e-6).p_value >= 0.05 - 1e-4
        if high < 100.0:
            assert result.test(high + 1e-6).p_value <= 0.05 + 1e-4
            assert result.test(high - 1e-6).p_value >= 0.05 - 1e-4
        touched += "crossing" in codes(result)
    assert touched > 0  # else nothing was tried


@pytest.mark.parametrize(
    ("scale", "mean"), [("linear", 50.0), ("linear", 59.5), ("log", 59.0), ("logit", 59.0), ("logit", 50.0)]
)
def test_a_range_that_excludes_the_answer_gives_no_certainty(scale: str, mean: float) -> None:
    for values in ("any", "continuous"):
        data = normal(mean, 3, 8000, 3)
        result = estimate(data, q=0.5, epsilon=3, range=(60, 100), scale=scale, value_kind=values, simulate=True, rng=2)
        low, high = result.confidence_interval
        assert 60.0 <= low <= result.estimate <= high <= 100.0
        assert (result.test(60.0).p_value > 0.05) == (low <= 60.0)
        assert "range" in codes(result)
        if low == high:
            # The answers themselves say so: at least half of the values are 60 or less.
            assert "is 60, the lower end of the stated range, or below it" in result.sentence
        elif result.method == "any-shape" and "unbounded" not in codes(result):
            assert (
                "at the lower end of the stated range, or below it, with 95% confidence, whatever the"
                in result.sentence
            )
        else:
            assert "probably lies outside the stated range" in result.sentence
        if values == "continuous":
            assert high - low > 0.01


def test_a_file_outside_the_range_gives_no_certainty_either() -> None:
    """No question lies near such a quantile, so none of the file's variance is known to cancel."""
    result = estimate(normal(150, 10, 6000, 3), q=0.5, epsilon=2, range=(0, 100), target="file", simulate=True, rng=3)
    assert "range" in codes(result)
    assert result.confidence_interval.high == 100.0


@pytest.mark.parametrize(("q", "clients", "name"), [(0.75, 5, "upper quartile"), (0.5, 49, "median")])
def test_named_quantiles_keep_their_names_for_any_number_of_clients(q: float, clients: int, name: str) -> None:
    rng = np.random.default_rng(0)
    data = {f"c{k}": rng.normal(50, 10, 40) for k in range(clients)}
    result = estimate(data, q=q, epsilon=2, range=(0, 100), simulate=True, rng=1)
    assert name in result.estimand
    assert result.level == q


def test_ends_without_a_unit_are_certain_of_nothing_but_their_centre() -> None:
    still = from_ends("still", 2.0, 0.0, lambda level: (2.0, 2.0))
    assert still.test(2.0) == (0.0, 1.0)
    assert still.test(3.0) == (-math.inf, 0.0)


def test_a_generous_range_is_no_reason_to_doubt_an_estimate_near_its_end() -> None:
    incomes = {"all": np.random.default_rng(1).lognormal(math.log(50_000), 0.5, 60_000)}
    wide = estimate(incomes, q=0.5, epsilon=2, range=(0, 1e7), simulate=True, rng=1)
    assert "range" not in {caveat.code for caveat in wide.caveats}
    narrow = estimate(incomes, q=0.5, epsilon=2, range=(0, 20_000), simulate=True, rng=1)
    assert "range" in {caveat.code for caveat in narrow.caveats}


def test_a_schedule_whose_approach_is_averaged_is_not_taken_for_a_step() -> None:
    smooth = {"all": np.random.default_rng(2).normal(0, 1, 10_000)}
    got = estimate(smooth, q=0.5, epsilon=2, range=(-10, 40), design="paper-c5", mode="cohort", simulate=True, rng=2)
    assert "misfit" not in {caveat.code for caveat in got.caveats}


def test_the_anytime_interval_holds_the_estimate_also_where_the_slope_is_clipped() -> None:
    for seed in range(4):
        counts = {"all": np.random.default_rng(seed).poisson(1.0, 20_000).astype(float)}
        got = estimate(counts, q=0.5, epsilon=1, range=(-1, 50), simulate=True, rng=seed)
        assert got.anytime is not None
        assert got.anytime.low <= got.estimate <= got.anytime.high
