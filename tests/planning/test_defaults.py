"""What a user of the default design sees: several levels, stopping by width, warnings in words."""

from dataclasses import replace

import numpy as np
import pytest

from privatile.api.estimate import estimate
from privatile.errors import InputError
from privatile.result.rearrangement import rearranged
from privatile.result.result import ConfidenceInterval, QuantileResult, Row

DATA = {
    "north": np.random.default_rng(1).normal(50, 10, 9000),
    "south": np.random.default_rng(2).normal(60, 10, 9000),
}


def codes(result: QuantileResult) -> set[str]:
    return {caveat.code for caveat in result.caveats}


def fact(result: QuantileResult, key: str) -> Row:
    return next(row for row in result.diagnostics if row.key == key)


@pytest.fixture(scope="module")
def result() -> QuantileResult:
    return estimate(DATA, q=0.5, epsilon=2, range=(0, 100), simulate=True, rng=3)


def test_the_default_is_the_tuned_design_with_the_plug_in_interval(result: QuantileResult) -> None:
    assert (result.design, result.method, result.rounds) == ("auto", "smooth", 200)
    facts = result.to_dict()
    assert facts["information"] > 1500
    assert facts["search"]["share"] < 0.05
    assert 15 < facts["relaxations"] < 60
    assert facts["density"]["estimate"] == pytest.approx(0.0352, rel=0.5)
    assert "support" not in codes(result)
    assert any("Assumptions 2–3" in line for line in result.explanation)


def test_the_three_intervals_agree_on_where_and_differ_in_width(result: QuantileResult) -> None:
    widths = {}
    for interval in ("smooth", "self-normalized", "paper"):
        other = estimate(DATA, q=0.5, epsilon=2, range=(0, 100), simulate=True, rng=3, interval=interval)
        low, high = other.confidence_interval
        widths[interval] = high - low
        assert low - (high - low) < 55 < high + (high - low)
    # Few relaxations make the honest self-normalised interval wider than the asymptotic one.
    assert widths["self-normalized"] > widths["paper"]
    assert widths["smooth"] < widths["self-normalized"]


@pytest.mark.slow
def test_the_anytime_interval_is_wider_and_stops_a_run(result: QuantileResult) -> None:
    low, high = result.confidence_interval
    assert result.anytime is not None
    assert result.anytime.low < low < high < result.anytime.high
    width = 2 * (result.anytime.high - result.anytime.low)
    short = estimate(DATA, q=0.5, epsilon=2, range=(0, 100), simulate=True, rng=3, until_width=width)
    assert short.method == "anytime"
    assert short.records < 18_000
    assert short.confidence_interval.high - short.confidence_interval.low <= width
    assert short.test(short.estimate).p_value == 1.0
    far = estimate(DATA, q=0.5, epsilon=2, range=(0, 100), simulate=True, rng=3, until_width=1e-3)
    assert far.records == 18_000
    assert "out-of-reach" in codes(far)
    # Information is of those who were asked, all of them in a complete run; what counts for the run is what it had.
    whole = fact(result, "information")
    assert fact(far, "information").value == whole.value
    assert fact(far, "information").text == whole.text
    asked = fact(short, "information")
    noise = sum((c.weight / c.truth_rate) ** 2 / (4 * c.asked) for c in short.clients)
    assert asked.value == pytest.approx(0.25**2 / noise)
    assert asked.value < whole.value
    assert f"{whole.value:,.0f} in all records" in asked.text
    assert ("support" in codes(short)) == ("support" in codes(result))


@pytest.mark.slow
def test_simultaneous_intervals_are_wider_and_their_p_values_larger() -> None:
    options = {"q": (0.3, 0.5, 0.8), "epsilon": 2, "range": (0, 100), "simulate": True, "rng": 3}
    alone = estimate(DATA, **options)  # type: ignore[call-overload]
    joint = estimate(DATA, **options, simultaneous=True)  # type: ignore[call-overload]
    assert len(alone) == len(joint) == 3
    for one, together in zip(alone, joint, strict=True):
        assert together.confidence_interval.low < one.confidence_interval.low
        assert "simultaneous over 3 levels" in together.method
        edge = together.confidence_interval.high
        assert together.test(edge).p_value == pytest.approx(0.05, rel=1e-6)
        assert one.test(edge).p_value < 0.05


@pytest.mark.slow
def test_a_curve_of_nine_levels_does_not_cross() -> None:
    results = estimate(DATA, q="curve", epsilon=4, range=(0, 100), simulate=True, rng=5)
    assert [result.level for result in results] == [k / 10 for k in range(1, 10)]
    estimates = [result.estimate for result in results]
    assert estimates == sorted(estimates)
    with pytest.raises(InputError, match="curve"):
        estimate(DATA, q="curves", epsilon=4, range=(0, 100), simulate=True, rng=5)  # type: ignore[arg-type]


def test_crossing_quantiles_are_put_in_order(result: QuantileResult) -> None:
    ends, anytime = ConfidenceInterval(55.0, 57.0), ConfidenceInterval(54.5, 59.0)
    low = replace(result, level=0.4, estimate=56.0, confidence_interval=ends, anytime=anytime)
    ends, anytime = ConfidenceInterval(53.5, 58.0), ConfidenceInterval(53.0, 58.5)
    high = replace(result, level=0.6, estimate=54.0, confidence_interval=ends, anytime=anytime)
    first, second = rearranged([low, high])
    assert (first.anytime, second.anytime) == ((53.0, 58.5), (54.5, 59.0))
    assert (first.estimate, second.estimate) == (54.0, 56.0)
    assert first.confidence_interval == (53.5, 57.0)
    assert second.confidence_interval == (55.0, 58.0)
    assert "crossing" in codes(first)
    assert rearranged([second, replace(first, level=0.9, estimate=60.0)])[0].estimate == 56.0


def test_precision_weights_need_a_statement() -> None:
    options = {"q": 0.5, "epsilon": {"north": 1.0, "south": 3.0}, "range": (0, 100), "simulate": True, "rng": 3}
    with pytest.raises(InputError, match="one distribution"):
        estimate(DATA, **options, weights="precision")  # type: ignore[call-overload]
    got = estimate(DATA, **options, weights="precision", one_distribution=True)  # type: ignore[call-overload]
    north, south = got.clients
    assert south.weight / north.weight == pytest.approx((south.truth_rate / north.truth_rate) ** 2, rel=1e-6)
    assert "share one distribution" in got.estimand


def test_a_client_alone(result: QuantileResult) -> None:
    own = estimate(DATA, q=0.5, epsilon=2, range=(0, 100), simulate=True, rng=3, only="south")
    assert abs(own.estimate - 60) < 2
    assert "at south" in own.estimand
    with pytest.raises(InputError, match="no client"):
        estimate(DATA, q=0.5, epsilon=2, range=(0, 100), simulate=True, rng=3, only="west")


def test_local_ranks_come_with_intervals(result: QuantileResult) -> None:
    for client, rank in zip(result.clients, (0.69, 0.31), strict=True):
        low, high = client.local_rank_interval
        assert low < client.local_rank < high
        assert low - 0.01 < rank < high + 0.01


def test_too_little_information_is_said_with_what_it_would_take() -> None:
    few = {name: values[:400] for name, values in DATA.items()}
    got = estimate(few, q=0.9, epsilon=0.5, range=(0, 100), simulate=True, rng=3)
    assert "support" in codes(got)
    assert "times the records" in next(caveat.text for caveat in got.caveats if caveat.code == "support")


def test_an_undithered_interval_around_a_round_value_warns(result: QuantileResult) -> None:
    low, high = result.confidence_interval
    assert ("atom" in codes(result)) == (low <= 55 <= high or high - low < 1)
    dithered = estimate(DATA, q=0.5, epsilon=2, range=(0, 100), simulate=True, rng=3, dither=1.0)
    assert "atom" not in codes(dithered)


def test_a_dominating_client_is_named() -> None:
    uneven = {"large": DATA["north"], "small": DATA["south"][:600]}
    got = estimate(uneven, q=0.5, epsilon=2, range=(0, 100), simulate=True, rng=3, weights="equal")
    assert "dominance" in codes(got)
    assert got.to_dict()["dominance"]["client"] == "small"
    # By size the large one decides as much as it counts: nothing to warn about.
    by_size = estimate(uneven, q=0.5, epsilon=2, range=(0, 100), simulate=True, rng=3)
    assert "dominance" not in codes(by_size)
    assert [client.weight for client in by_size.clients] == [0.9375, 0.0625]
    assert "all records of 2 clients together" in by_size.estimand


@pytest.mark.slow
def test_the_file_itself_as_target_is_narrower() -> None:
    loose = {"all": DATA["north"]}
    for seed in (3, 4):
        people = estimate(loose, q=0.5, epsilon=6, range=(0, 100), simulate=True, rng=seed)
        file = estimate(loose, q=0.5, epsilon=6, range=(0, 100), simulate=True, rng=seed, target="file")
        ratio = (file.confidence_interval.high - file.confidence_interval.low) / (
            people.confidence_interval.high - people.confidence_interval.low
        )
        assert 0.1 < ratio < 0.8
