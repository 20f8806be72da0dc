"""Randomized response, checked by exact enumeration of its coins: integers in, integers out, no sampling."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privatile.core.mechanism import COINS, RandomizedResponse
from privatile.errors import InputError

GRID = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 10.0, 12.0, 15.0, 18.0, 20.0]


def shares(coin: RandomizedResponse) -> dict[tuple[bool, bool], Fraction]:
    """P(report | truth), by counting coins on either side of the place where the report changes.

    `respond` compares the coin with one number, so the reports of all 2⁶⁴ coins follow from where it changes; the
    place is found by bisection on `respond` itself, not read from the mechanism.
    """
    table = {}
    for truth in (False, True):
        low, high = 0, COINS  # the first coin tells the truth; coins from `high` on lie
        while high - low > 1:
            middle = (low + high) // 2
            report = coin.respond(np.array([truth]), np.array([middle], dtype=np.uint64))[0]
            low, high = (middle, high) if report == truth else (low, middle)
        table[truth, truth] = Fraction(high, COINS)
        table[not truth, truth] = Fraction(COINS - high, COINS)
    return table


def worst_ratio(table: dict[tuple[bool, bool], Fraction]) -> Fraction:
    return max(table[report, a] / table[report, b] for report in (False, True) for a in (False, True) for b in (not a,))


def exceeds(ratio: Fraction, epsilon: float) -> bool:
    with localcontext() as context:
        context.prec = 60
        return Decimal(ratio.numerator) / Decimal(ratio.denominator) > Decimal(epsilon).exp()


@pytest.mark.parametrize("epsilon", GRID)
def test_likelihood_ratio_never_exceeds_the_budget(epsilon: float) -> None:
    ratio = worst_ratio(shares(RandomizedResponse.from_epsilon(epsilon)))
    assert not exceeds(ratio, epsilon)


@pytest.mark.parametrize("epsilon", GRID)
def test_realised_epsilon_is_within_1e_10(epsilon: float) -> None:
    coin = RandomizedResponse.from_epsilon(epsilon)
    with localcontext() as context:
        context.prec = 60
        ratio = worst_ratio(shares(coin))
        realised = (Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln()
        assert abs(realised - Decimal(epsilon)) < Decimal("1e-10")
        assert abs(Decimal(coin.epsilon) - realised) < Decimal("1e-10")


@pytest.mark.parametrize("epsilon", GRID)
@pytest.mark.parametrize("factor", [Fraction(102, 100), Fraction(98, 100)])
def test_a_threshold_off_by_two_percent_is_caught(epsilon: float, factor: Fraction) -> None:
    """Negative control: the odds of lying are off by 2%, one way or the other."""
    flips = COINS - RandomizedResponse.from_epsilon(epsilon).threshold
    broken = RandomizedResponse.from_threshold(max(COINS // 2 + 1, COINS - math.floor(flips / factor)))
    ratio = worst_ratio(shares(broken))
    too_large = exceeds(ratio, epsilon)
    with localcontext() as context:
        context.prec = 60
        realised = (Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln()
        assert too_large or abs(realised - Decimal(epsilon)) > Decimal("1e-10")
    assert too_large == (factor > 1)


def test_a_threshold_two_percent_too_large_exceeds_the_budget() -> None:
    """The same with the threshold itself, where 2% more still fits into 64 bits."""
    for epsilon in (0.01, 0.5, 1.0, 2.0, 3.0):
        threshold = RandomizedResponse.from_epsilon(epsilon).threshold * 102 // 100
        assert exceeds(worst_ratio(shares(RandomizedResponse.from_threshold(threshold))), epsilon)


@given(st.floats(min_value=1e-6, max_value=40.0))
def test_no_budget_is_ever_exceeded(epsilon: float) -> None:
    coin = RandomizedResponse.from_epsilon(epsilon)
    assert not exceeds(Fraction(coin.threshold, COINS - coin.threshold), epsilon)
    larger = coin.threshold + 1
    assert larger == COINS or exceeds(Fraction(larger, COINS - larger), epsilon)  # and it is the largest that fits


@given(st.floats(min_value=1e-9, max_value=1.0, exclude_max=True))
def test_truth_rate_round_trip(rate: float) -> None:
    coin = RandomizedResponse(rate)
    assert coin.truth_rate == pytest.approx(rate, abs=2.0**-63)
    assert coin.truth_rate <= rate


@given(st.floats(min_value=0.01, max_value=0.999), st.integers(1, 10**6), st.data())
def test_debiasing_inverts_the_expected_count(rate: float, length: int, data: st.DataObject) -> None:
    above = data.draw(st.integers(0, length))
    coin = RandomizedResponse(rate)
    keep = (1 + coin.truth_rate) / 2
    expected = above * keep + (length - above) * (1 - keep)
    assert coin.debias(expected, length) == pytest.approx(above / length, abs=1e-9 / rate)


def test_rise_and_fall_balance_at_the_level() -> None:
    coin = RandomizedResponse(0.3)
    for level in (0.1, 0.5, 0.9):
        ones = (1 - coin.truth_rate) / 2 + coin.truth_rate * (1 - level)
        assert ones * coin.rise(level) == pytest.approx((1 - ones) * coin.fall(level))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, 41.0])
def test_bad_budgets_are_refused(epsilon: float) -> None:
    with pytest.raises(InputError, match="epsilon must lie in"):
        RandomizedResponse.from_epsilon(epsilon)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5, math.nan])
def test_bad_truth_rates_are_refused(rate: float) -> None:
    with pytest.raises(InputError, match="truth_rate must lie in"):
        RandomizedResponse(rate)


def test_no_privacy_must_be_asked_for_by_name() -> None:
    with pytest.raises(InputError, match="--not-private"):
        RandomizedResponse(1.0)
    coin = RandomizedResponse.not_private()
    assert coin.epsilon == math.inf
    assert coin.respond(np.array([True, False]), np.array([COINS - 1] * 2, dtype=np.uint64)).tolist() == [True, False]
