"""Numbers that people read: ends are rounded outward at every size, and stay inside the stated range."""

import random
from dataclasses import replace

import numpy as np
import pytest

from privatile.api.estimate import estimate
from privatile.core.scale import Linear, Log
from privatile.result.result import ConfidenceInterval, QuantileResult
from privatile.result.shown import nearest_inside, outward, plain, rank_text, significant


def number(text: str) -> float:
    return float(text.replace(",", ""))


def cases() -> list[tuple[float, float, float, float]]:
    """Intervals in ranges of every size, about zero and far from it; some reach an end of the range."""
    draw, found = random.Random(1), []
    for _ in range(2000):
        low = draw.choice((0.0, 1.0, 1_000.0, -1_000.0, 0.001, -5e7, 1e-9))
        high = low + float(f"{10.0 ** draw.uniform(-6, 10):.6g}")
        ends = sorted(draw.uniform(low, high) if draw.random() < 0.8 else draw.choice((low, high)) for _ in range(2))
        # Ends near an end of the range, as on a logarithmic scale.
        if draw.random() < 0.3:
            ends[0] = low + (ends[1] - low) * 10.0 ** draw.uniform(-9, -1)
        if ends[0] < ends[1]:
            found.append((low, high, ends[0], ends[1]))
    return found


def test_ends_are_rounded_outward_and_stay_in_the_range() -> None:
    inward = 0
    for range_low, range_high, low, high in cases():
        limits, width = (range_low, range_high), high - low
        first, last = outward(low, width, up=False, limits=limits), outward(high, width, up=True, limits=limits)
        assert range_low <= number(first) <= low, (first, limits, low, high)
        assert high <= number(last) <= range_high, (last, limits, low, high)
        # Only an end of the range is shown as one, as far as nine digits tell them apart.
        for shown, end, stated in ((first, low, range_low), (last, high, range_high)):
            assert (number(shown) == stated) == (end == stated) or abs(end - stated) < 2e-8 * abs(end)
        middle = nearest_inside((low + high) / 2, (first, last), width, limits)
        slack = 1e-8 * abs(low)  # nine digits, and no more
        assert number(first) - slack <= number(middle) <= number(last) + slack
        inward += number(significant(low, width)) > low
    assert inward > 500  # the control: rounding to the nearest number goes inward as often as not


def test_numbers_of_a_range_are_shown_as_they_were_given() -> None:
    assert [plain(value) for value in (1e3, 1e6, 0.1, 2.5e-7, -40.0, 1_234_567.891)] == [
        "1,000", "1,000,000", "0.1", "2.5e-07", "-40", "1,234,567.891",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def result() -> QuantileResult:
    people = np.random.default_rng(1).lognormal(10.8, 0.5, 20)
    return estimate(people, epsilon=1, range=(1_000, 1_000_000), scale="log", value="pay", simulate=True, rng=1)


@pytest.mark.parametrize("scale", [Linear(1_000.0, 1_000_000.0), Log(1_000.0, 1_000_000.0)])
def test_a_range_that_begins_above_zero_is_never_shown_from_zero(result: QuantileResult, scale: Linear | Log) -> None:
    for low, high in ((1_000.0, 1_000_000.0), (1_260.0, 1_000_000.0), (1_260.0, 998_400.0), (1_000.0, 999_999.0)):
        interval = ConfidenceInterval(low, high)
        shown = replace(result, scale=scale, confidence_interval=interval, estimate=1_400.0)
        first, last = shown.shown.own.ends
        assert 1_000.0 <= number(first) <= low
        assert high <= number(last) <= 1_000_000.0
        assert first != "0"
        assert (first == "1,000") == (low == 1_000.0)
        assert " 0 … " not in shown.to_text()
        assert number(shown.shown.own.estimate) > 1_000.0


def test_bounds_of_clients_are_rounded_outward_too(result: QuantileResult) -> None:
    assert rank_text(0.12301) == "±0.124 in rank"
    facts = replace(result.clients[0], local_rank_interval=(0.1239, 0.4561))
    (rows,) = replace(result, clients=(facts,), caveats=()).client_rows()
    (text,) = (row.text for row in rows if row.key == "local_rank_interval")
    assert text == "0.123 … 0.457"
