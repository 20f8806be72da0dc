"""What a user of the default design sees: several levels, stopping by width, warnings in words."""

from typing import Any

import numpy as np
import pytest

from privatile.api.estimate import estimate
from privatile.errors import InputError
from privatile.inference.reading import NO_CURVE, SUSPECT
from privatile.result.result import OtherReading, QuantileResult
from privatile.result.shown import CONDITIONS, Row

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


@pytest.fixture(scope="module")
def smooth() -> QuantileResult:
    return estimate(DATA, q=0.5, epsilon=2, range=(0, 100), value_kind="continuous", simulate=True, rng=3)


def test_the_default_straddles_the_quantile_and_shows_the_any_shape_interval(result: QuantileResult) -> None:
    assert (result.design, result.method, result.rounds) == ("straddle", "any-shape", 200)
    assert result.condition == "any-shape"
    assert result.anytime == result.confidence_interval
    assert result.valid_at_every_look
    facts = result.facts()
    assert facts["information"] > 1500
    assert facts["search"]["share"] < 0.05
    assert facts["density"]["estimate"] == pytest.approx(0.0352, rel=0.5)
    assert "relaxations" not in facts
    assert "support" not in codes(result)
    assert any("The questions were placed" in line for line in result.explanation)
    assert result.other is not None
    assert result.other.method == "smooth"
    assert result.other.condition == "smooth"
    assert result.other.how == "the option interval smooth shows it first"
    text = " ".join(result.to_text().split())
    assert result.other.condition in text
    assert result.other.how in text
    assert facts["other_interval"] == {**result.other.interval._asdict(), **_words(result.other)}


def _words(other: OtherReading) -> dict[str, str]:
    return {"method": other.method, "condition": CONDITIONS[other.condition], "how": other.how}


def test_values_declared_continuous_are_asked_by_the_tuned_design_and_read_smooth(smooth: QuantileResult) -> None:
    assert (smooth.design, smooth.method, smooth.rounds) == ("tuned", "smooth", 200)
    assert 15 < smooth.facts()["relaxations"] < 60
    assert any("Assumptions 2–3" in line for line in smooth.explanation)
    assert smooth.other is not None
    assert smooth.other.method == "any-shape"
    assert smooth.other.interval.low < smooth.confidence_interval.low
    assert smooth.other.interval.high > smooth.confidence_interval.high


def test_the_intervals_agree_on_where_and_differ_in_width() -> None:
    widths = {}
    for interval in ("any-shape", "smooth", "self-normalized", "paper"):
        options: dict[str, Any] = {
            "interval": interval,
            "value_kind": "any" if interval == "any-shape" else "continuous",
        }
        other = estimate(DATA, q=0.5, epsilon=2, range=(0, 100), simulate=True, rng=3, **options)
        low, high = other.confidence_interval
        widths[interval] = high - low
        assert low - (high - low) < 55 < high + (high - low)
    # Few relaxations make the honest self-normalised interval wider than the asymptotic one.
    assert widths["self-normalized"] > widths["paper"]
    assert widths["smooth"] < widths["self-normalized"]
    assert widths["smooth"] < widths["any-shape"]


@pytest.mark.slow
@pytest.mark.parametrize("values", ["any", "continuous"])
def test_the_anytime_interval_stops_a_run(result: QuantileResult, smooth: QuantileResult, values: str) -> None:
    result = result if values == "any" else smooth
    low, high = result.confidence_interval
    assert result.anytime is not None
    if values == "continuous":
        assert result.anytime.low < low < high < result.anytime.high
    width = 2 * (result.anytime.high - result.anytime.low)
    options: dict[str, Any] = {"value_kind": values, "simulate": True, "rng": 3}
    short = estimate(DATA, q=0.5, epsilon=2, range=(0, 100), until_width=width, **options)
    assert short.method == ("any-shape" if values == "any" else "anytime")
    beside = short.other
    assert beside is not None
    assert beside.at_every_look
    assert beside.method == ("anytime" if values == "any" else "any-shape")
    assert beside.condition == ("smooth" if values == "any" else "any-shape")
    assert beside.interval.low < short.estimate < beside.interval.high
    if values == "any":
        # The interval for a planned end would be too narrow at a stop that somebody chose while looking.
        planned = estimate(DATA, q=0.5, epsilon=2, range=(0, 100), **options).other
        assert planned is not None
        assert not planned.at_every_look
        share = (18_000 / short.records) ** 0.5
        assert beside.interval.high - beside.interval.low > 1.2 * share * (planned.interval.high - planned.interval.low)
    else:
        assert (
            beside.interval.low < short.confidence_interval.low < short.confidence_interval.high < beside.interval.high
        )
    assert short.shown.other is not None
    assert f"{short.shown.other.ends[0]} … " in short.to_text()
    grid = estimate(DATA, q=0.5, epsilon=2, range=(0, 100), until_width=width, **{**options, "value_kind": "step=0.01"})
    assert grid.method == "any-shape"
    assert grid.other is None
    assert short.records < 18_000
    assert short.confidence_interval.high - short.confidence_interval.low <= width
    assert short.test(short.estimate).p_value == 1.0
    far = estimate(DATA, q=0.5, epsilon=2, range=(0, 100), until_width=1e-3, **options)
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


@pytest.mark.parametrize(("spread", "rng", "why"), [(0.0, 1, NO_CURVE), (4.0, 12, SUSPECT)])
def test_a_suspect_curve_shows_one_interval_at_every_look_and_calls_it_any_shape(
    spread: float, rng: int, why: str
) -> None:
    heaps = np.where(np.arange(20_000) % 2 == 0, 40.0, 60.0) + np.random.default_rng(0).normal(0.0, spread, 20_000)
    options: dict[str, Any] = {"until_width": 0.01, "value_kind": "continuous", "simulate": True, "rng": rng}
    found = estimate(heaps, q=0.45, epsilon=1, range=(0, 100), **options)
    assert found.method == "any-shape"
    assert found.condition == "any-shape"
    assert found.other is None
    assert found.valid_at_every_look
    assert found.anytime == found.confidence_interval
    assert found.anytime_condition == "any-shape"
    assert found.confidence_interval.low < np.quantile(heaps, 0.45) < found.confidence_interval.high
    assert found.contradiction == f"no smooth interval: {why}"
    assert any(why in caveat.text for caveat in found.caveats if caveat.code == "declaration")


@pytest.mark.slow
@pytest.mark.parametrize("values", ["any", "continuous"])
def test_simultaneous_intervals_are_wider_and_their_p_values_larger(values: str) -> None:
    options = {"q": (0.3, 0.5, 0.8), "epsilon": 2, "range": (0, 100), "value_kind": values, "simulate": True, "rng": 3}
    alone = estimate(DATA, **options)  # type: ignore[call-overload]
    joint = estimate(DATA, **options, simultaneous=True)  # type: ignore[call-overload]
    assert len(alone) == len(joint) == 3
    for one, together in zip(alone, joint, strict=True):
        assert together.confidence_interval.low <= one.confidence_interval.low
        assert together.confidence_interval.high >= one.confidence_interval.high
        assert together.interval(0.95) == pytest.approx(one.interval(0.95 ** (1 / 3)), rel=1e-12)
        assert "simultaneous over 3 levels" in together.method
        edge = together.confidence_interval.high
        if values == "continuous":
            assert together.test(edge).p_value == pytest.approx(0.05, rel=1e-6)
            assert one.test(edge).p_value < 0.05
        else:
            assert together.test(edge + 1e-6).p_value <= 0.05 + 1e-6
            assert one.test(edge + 1e-6).p_value < together.test(edge + 1e-6).p_value


@pytest.mark.slow
def test_a_curve_of_nine_levels_does_not_cross() -> None:
    results = estimate(DATA, q="curve", epsilon=4, range=(0, 100), simulate=True, rng=5)
    assert [result.level for result in results] == [k / 10 for k in range(1, 10)]
    estimates = [result.estimate for result in results]
    assert estimates == sorted(estimates)
    with pytest.raises(InputError, match="curve"):
        estimate(DATA, q="curves", epsilon=4, range=(0, 100), simulate=True, rng=5)  # type: ignore[arg-type]


def test_precision_weights_need_a_statement() -> None:
    options = {"q": 0.5, "epsilon": {"north": 1.0, "south": 3.0}, "range": (0, 100), "simulate": True, "rng": 3}
    with pytest.raises(InputError, match="one distribution"):
        estimate(DATA, **options, client_weights="precision")  # type: ignore[call-overload]
    got = estimate(DATA, **options, client_weights="precision", one_distribution=True)  # type: ignore[call-overload]
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


def test_a_smooth_interval_around_a_round_value_warns_and_names_the_other(
    result: QuantileResult, smooth: QuantileResult
) -> None:
    low, high = smooth.confidence_interval
    assert ("atom" in codes(smooth)) == (low <= 55 <= high or high - low < 1)
    assert "--dither" not in smooth.to_text() + result.to_text()
    assert "atom" not in codes(result)  # an any-shape interval covers atoms


def test_a_dominating_client_is_named() -> None:
    uneven = {"large": DATA["north"], "small": DATA["south"][:600]}
    got = estimate(uneven, q=0.5, epsilon=2, range=(0, 100), simulate=True, rng=3, client_weights="equal")
    assert "dominance" in codes(got)
    assert got.facts()["dominance"]["client"] == "small"
    # By size the large one decides as much as it counts: nothing to warn about.
    by_size = estimate(uneven, q=0.5, epsilon=2, range=(0, 100), simulate=True, rng=3)
    assert "dominance" not in codes(by_size)
    assert [client.weight for client in by_size.clients] == [0.9375, 0.0625]
    assert "all records asked of 2 clients together" in by_size.estimand


@pytest.mark.slow
def test_the_file_itself_as_target_is_narrower() -> None:
    loose = {"all": DATA["north"]}
    for seed in (3, 4):
        options: dict[str, Any] = {"value_kind": "continuous", "simulate": True, "rng": seed}
        people = estimate(loose, q=0.5, epsilon=6, range=(0, 100), **options)
        file = estimate(loose, q=0.5, epsilon=6, range=(0, 100), target="file", **options)
        ratio = (file.confidence_interval.high - file.confidence_interval.low) / (
            people.confidence_interval.high - people.confidence_interval.low
        )
        assert 0.1 < ratio < 0.8
