import json
import math
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from privatile.api.estimate import estimate
from privatile.core.mechanism import RandomizedResponse
from privatile.estimator.clients import Client
from privatile.result.caveats import Caveat
from privatile.result.result import ConfidenceInterval, QuantileResult
from privatile.result.shown import lying_rank, significant


@pytest.fixture(scope="module")
def result() -> QuantileResult:
    rng = np.random.default_rng(5)
    data = {"north": rng.normal(50, 10, 4000), "<south>": rng.normal(60, 10, 8000)}
    return estimate(
        data, q=0.5, epsilon={"north": 1.0, "<south>": 2.0}, range=(0, 100), value="score", simulate=True, rng=8
    )


def test_facts_are_plain_values(result: QuantileResult) -> None:
    """A record is compared with what is computed again: a number of another type would be another value."""

    def check(value: object) -> None:
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        assert type(value) in (dict, list, tuple, str, int, float, bool, type(None)) or isinstance(value, tuple), value
        for each in inside:
            check(each)

    check(result.facts())


def test_text_html_and_json_tell_the_same_facts(result: QuantileResult) -> None:
    text, page = " ".join(result.to_text().split()), result.to_html()
    (facts,) = json.loads(result.to_json())["results"]
    for row in result.shown_rows():
        assert row.text in text
        assert row.key in facts
    low, high = result.confidence_interval
    assert facts["confidence_interval"] == {"low": low, "high": high}
    assert facts["estimate"] == result.estimate
    assert [client["name"] for client in facts["clients"]] == ["<south>", "north"]
    assert "<south>" not in page
    assert "&lt;south&gt;" in page
    HTMLParser().feed(page)
    assert {caveat["code"] for caveat in facts["caveats"]} >= {"missing", "central", "unweighted"}


@pytest.mark.parametrize(
    ("code", "kind"), [("unbounded", "not_located"), ("range", "or_less"), ("not-located", "not_located")]
)
def test_the_sentence_itself_says_that_the_quantile_was_not_found(result: QuantileResult, code: str, kind: str) -> None:
    ends = ConfidenceInterval(0.0, result.confidence_interval.high)
    lost = replace(result, confidence_interval=ends, caveats=(*result.caveats, Caveat(code, "Whatever.")))
    assert (result.shown.kind, lost.shown.kind) == ("estimate", kind)
    assert "is estimated at" in result.sentence
    assert "is estimated at" not in lost.sentence
    # Without an estimate no share lies below it.
    shares = [row.text for rows in lost.client_rows() for row in rows if row.key.startswith("local_rank")]
    assert shares == ["not known", "–"] * len(lost.clients)
    assert "not known" not in result.to_text()


@pytest.mark.parametrize(("low", "high", "kind"), [(0.0, 60.0, "above"), (140.0, 200.0, "or_less")])
def test_a_quantile_outside_the_range_is_said_first(low: float, high: float, kind: str) -> None:
    people = np.random.default_rng(1).normal(100.0, 10.0, 20_000)
    lost, smooth, found = (
        estimate(people, q=0.5, epsilon=1, range=ends, value_kind=values, simulate=True, rng=1)
        for ends, values in (((low, high), "any"), ((low, high), "continuous"), ((0.0, 200.0), "any"))
    )
    # Certain whatever the distribution: F at the end of the range is above, or below, one half.
    assert (lost.shown.kind, lost.shown.number) == (kind, f"{low or high:g}")
    assert smooth.shown.kind == "beyond"
    assert lost.caveats[0].code == smooth.caveats[0].code == "range"
    assert "range" not in {caveat.code for caveat in found.caveats}
    assert found.shown.kind == "estimate"


def test_the_test_of_a_value_inverts_the_displayed_interval(result: QuantileResult) -> None:
    low, high = result.confidence_interval
    # An end of an any-shape interval is a question: the p-value jumps there.
    for end, outside in ((low, -1e-6), (high, 1e-6)):
        assert result.test(end + outside).p_value <= 0.05 + 1e-5 < result.test(end - outside).p_value + 2e-5
    assert result.test(result.estimate).p_value == pytest.approx(1.0, abs=1e-6)
    assert result.test(low - 1.0).p_value < 0.05 < result.test(low + 0.3 * (high - low)).p_value
    assert result.test(-5.0).p_value == 0.0  # outside the stated range
    narrow, wide = result.interval(0.5), result.interval(0.999)
    assert wide.low <= low <= narrow.low <= narrow.high <= high <= wide.high


def test_the_test_of_a_value_inverts_a_smooth_interval() -> None:
    people = np.random.default_rng(5).normal(50, 10, 8000)
    smooth = estimate(people, q=0.5, epsilon=2, range=(0, 100), value_kind="continuous", simulate=True, rng=8)
    assert smooth.method == "smooth"
    for end in smooth.confidence_interval:
        assert smooth.test(end).p_value == pytest.approx(0.05, abs=1e-5)


def test_budgets_and_local_ranks_are_per_client(result: QuantileResult) -> None:
    south, north = result.clients
    assert (south.epsilon, north.epsilon) == pytest.approx((2.0, 1.0), abs=1e-9)
    assert south.asked == 8000
    # The median of two parts N(60,10) and one part N(50,10) is 56.8: below it are 37% of the one, 75% of the other.
    assert south.local_rank == pytest.approx(0.37, abs=0.05)
    assert north.local_rank == pytest.approx(0.75, abs=0.08)
    assert result.epsilon == pytest.approx(2.0, abs=1e-9)


def test_lying_rank_says_when_nothing_bounds_a_liar() -> None:
    def bound(weight: float, rate: float, level: float) -> float:
        return lying_rank(Client("a", RandomizedResponse(rate), weight, level, 10), level)

    # p·max(a, b)/(1 − p), a = b = 1/(2r) at the median
    assert bound(0.1, 0.5, 0.5) == pytest.approx(0.1 * 1.0 / 0.9)
    assert math.isinf(bound(0.5, 0.5, 0.5))
    assert math.isinf(bound(1.0, 0.9, 0.5))
    assert math.isinf(bound(0.1, 0.9, 0.05))


@pytest.mark.parametrize(
    ("value", "width", "text"),
    [(1234567.8, 5e3, "1,234,600"), (0.00012345, 1e-5, "0.000123"), (-3.14159, 0.5, "-3.14"), (5.0, math.inf, "5")],
)
def test_numbers_are_shown_with_the_digits_they_deserve(value: float, width: float, text: str) -> None:
    assert significant(value, width) == text


def test_on_a_log_scale_nothing_is_shown_as_zero_and_no_advice_is_the_scale_it_has() -> None:
    values = {"all": np.random.default_rng(1).lognormal(10.8, 0.5, 60)}
    result = estimate(values, q=0.9, epsilon=0.2, range=(1_000, 1_000_000), scale="log", simulate=True, rng=1)
    assert "1,000 to 1,000,000" in result.sentence
    assert "--scale log" not in " ".join(caveat.text for caveat in result.caveats)


def test_an_open_side_does_not_cost_the_other_its_digits() -> None:
    people = {"all": np.random.default_rng(1).normal(50, 10, 4000)}
    result = estimate(people, q=0.5, epsilon=2, range=(0, 1000), simulate=True, rng=1, value_kind="continuous")
    open_low = replace(result, estimate=50.44, confidence_interval=ConfidenceInterval(0.0, 52.1531))
    assert (open_low.shown.own.ends, open_low.shown.own.estimate) == (("0", "52.2"), "50.4")
    open_high = replace(result, estimate=50.44, confidence_interval=ConfidenceInterval(49.16, 1000.0))
    assert open_high.shown.own.ends == ("49.1", "1,000")
