"""Several levels beside each other: what their order adds, and what one hopeless level must not cost."""

from dataclasses import replace

import numpy as np
import pytest

from privatile.api.estimate import estimate
from privatile.result.caveats import MORE, Caveat, caveat
from privatile.result.result import ConfidenceInterval, OtherReading, QuantileResult
from privatile.result.summary import in_order, rearranged

PEOPLE = {"all": np.random.default_rng(1).normal(50.0, 10.0, 1500)}


@pytest.fixture(scope="module")
def result() -> QuantileResult:
    return estimate(PEOPLE, q=0.5, epsilon=3, range=(0, 100), rounds=30, value="score", simulate=True, rng=1)


def at(result: QuantileResult, level: float, low: float, high: float, estimate: float) -> QuantileResult:
    ends = ConfidenceInterval(low, high)
    plain = replace(result, level=level, estimate=estimate, other=None, caveats=(), simultaneous=True)
    return replace(plain, confidence_interval=ends, anytime=ends)


def codes(result: QuantileResult) -> set[str]:
    return {caveat.code for caveat in result.caveats}


def ends(results: tuple[QuantileResult, ...]) -> list[tuple[float, float]]:
    return [(one.confidence_interval.low, one.confidence_interval.high) for one in results]


def test_one_hopeless_level_does_not_damage_a_good_one(result: QuantileResult) -> None:
    good = [at(result, 0.25, 40.0, 46.0, 43.0), at(result, 0.5, 48.0, 52.0, 50.0)]
    hopeless = replace(at(result, 0.9, 0.0, 100.0, 60.0), caveats=(caveat("unbounded", "whole", helps=MORE),))
    found = rearranged([*good, hopeless])
    assert list(found[:2]) == good
    assert found[2].confidence_interval == found[2].anytime == (48.0, 100.0)
    assert not found[2].reliable
    assert found[2].caveats[0] == caveat("unbounded", "ordered", helps=MORE)
    assert found[2].shown.own.ends == ("48", "100")
    assert not any("crossing" in codes(one) for one in found)
    # The control: sorted ends, each list by itself, put the hopeless level's end onto the good ones.
    lows = sorted(one.confidence_interval.low for one in (*good, hopeless))
    assert lows[0] < good[0].confidence_interval.low
    assert lows[1] < good[1].confidence_interval.low


def test_intervals_that_hold_one_by_one_stay_as_they_are(result: QuantileResult) -> None:
    levels = [at(result, 0.9, 0.0, 100.0, 40.0), at(result, 0.5, 48.0, 52.0, 50.0)]
    found = rearranged([replace(one, simultaneous=False) for one in levels])
    assert ends(found) == [(0.0, 100.0), (48.0, 52.0)]
    assert [one.estimate for one in found] == [40.0, 50.0]
    assert all("crossing" in codes(one) for one in found)
    assert found[0].caveats == (caveat("crossing", levels="0.5"),)
    in_place = rearranged([replace(levels[0], estimate=60.0, simultaneous=False), levels[1]])
    assert not any("crossing" in codes(one) for one in in_place)


def test_each_reading_is_treated_by_itself(result: QuantileResult) -> None:
    """An end that needs a smooth distribution never becomes the end of an interval that needs nothing."""
    smooth = replace(at(result, 0.25, 45.0, 46.0, 45.5), method="smooth", condition="smooth")
    smooth = replace(smooth, other=OtherReading(ConfidenceInterval(30.0, 60.0), "any-shape", "any-shape", ""))
    plain, last = at(result, 0.5, 40.0, 70.0, 50.0), at(result, 0.75, 43.0, 65.0, 55.0)
    beside = OtherReading(ConfidenceInterval(20.0, 59.0), "any-shape", "any-shape", "")
    smooth_too = replace(smooth, level=0.9, estimate=60.0, confidence_interval=ConfidenceInterval(44.0, 80.0))
    found = rearranged([smooth, plain, last, replace(smooth_too, other=beside)])
    assert ends(found) == [(45.0, 46.0), (40.0, 65.0), (43.0, 65.0), (45.0, 80.0)]
    others = [one.other.interval for one in (found[0], found[3]) if one.other is not None]
    assert others == [(30.0, 59.0), (30.0, 59.0)]


def test_ends_that_leave_nothing_stay_as_they_are(result: QuantileResult) -> None:
    levels = [at(result, 0.25, 55.0, 60.0, 57.0), at(result, 0.75, 40.0, 50.0, 45.0)]
    found = rearranged(levels)
    assert ends(found) == [(55.0, 60.0), (40.0, 50.0)]
    assert all("crossing" in codes(one) for one in found)


def test_an_end_of_another_level_changes_what_is_said_about_ends_and_looks(result: QuantileResult) -> None:
    open_low = replace(at(result, 0.75, 0.0, 70.0, 30.0), caveats=(Caveat("one-sided", "open"),))
    first = replace(at(result, 0.5, 48.0, 52.0, 50.0), valid_at_every_look=False)
    found = rearranged([first, open_low])[1]
    assert found.confidence_interval == (48.0, 70.0)
    assert found.estimate == 48.0  # moved inside
    assert "one-sided" not in codes(found)
    assert not found.valid_at_every_look
    assert open_low.valid_at_every_look
    grid = replace(open_low, value_kind="whole", grid_values=tuple(map(float, range(71))))
    # An any-shape interval leaves out its low end.
    assert rearranged([first, grid])[1].grid_values == tuple(map(float, range(49, 71)))


def test_whenever_all_intervals_hold_so_do_those_in_order() -> None:
    rng = np.random.default_rng(3)
    held = narrower = 0
    for _ in range(300):
        truth = np.sort(rng.normal(0.0, 1.0, 5))
        intervals = [(value - rng.exponential(2.0), value + rng.exponential(2.0)) for value in truth]
        found = in_order(intervals)
        assert found is not None  # the truth is in all of them
        held += all(low <= value <= high for value, (low, high) in zip(truth, found, strict=True))
        narrower += found != intervals
        # The control: quantiles that are not in order are missed.
        lost = in_order([intervals[0], (truth[0] - 9.0, truth[0] - 8.0)])
        assert lost is None or lost[0].high < truth[0]
    assert held == 300
    assert narrower > 200


def test_interval_and_test_of_levels_in_order_agree() -> None:
    results = estimate(
        PEOPLE, q=(0.45, 0.5, 0.55), epsilon=1.5, range=(0, 100), rounds=30, simultaneous=True, simulate=True, rng=4
    )
    assert any(row.key == "order" for one in results for row in one.diagnostics)
    for one in results:
        low, high = one.confidence_interval
        assert one.interval(one.confidence_level) == pytest.approx((low, high))
        assert low <= one.estimate <= high
        for end, outside in ((low, -0.01), (high, 0.01)):
            if 0.0 < end < 100.0:
                assert one.test(end + outside).p_value <= 0.05 + 1e-6
