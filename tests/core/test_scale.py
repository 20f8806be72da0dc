import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privatile.core.scale import SCALES, Log, Scale, clip, make_scale, working_range
from privatile.errors import InputError

scales = st.sampled_from(sorted(SCALES)).map(lambda name: make_scale(name, 2.0, 5e6))


@given(scales, st.floats(2.0, 5e6), st.floats(2.0, 5e6))
def test_scales_are_monotone_and_come_back(scale: Scale, one: float, other: float) -> None:
    if one < other:
        assert scale.to_working(one) <= scale.to_working(other)
    # The logit is cut 2⁻²⁰ from its ends.
    slack = 5e6 * 2.0**-19 if scale.name == "logit" else 1e-6
    assert scale.to_units(scale.to_working(one)) == pytest.approx(one, rel=1e-9, abs=slack)


@given(scales, st.floats(-1e6, 1e6))
def test_clip_stays_in_the_range_and_keeps_what_is_inside(scale: Scale, value: float) -> None:
    low, high = working_range(scale)
    clipped = clip(scale, value)
    assert low <= clipped <= high
    if low <= value <= high:
        assert clipped == value


@given(scales, st.floats(0.05, 0.95))
def test_slope_is_the_derivative(scale: Scale, share: float) -> None:
    low, high = working_range(scale)
    at, small = low + share * (high - low), 1e-5
    numeric = (scale.to_units(at + small) - scale.to_units(at - small)) / (2 * small)
    assert scale.slope(at) == pytest.approx(numeric, rel=1e-4)


def test_wild_iterates_do_not_overflow() -> None:
    assert Log(1.0, 10.0).to_units(1e4) == math.inf
    assert make_scale("logit", 0.0, 1.0).to_units(-1e4) < 1e-300


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (2.0, 1.0), (math.nan, 1.0), (0.0, math.inf)])
@pytest.mark.parametrize("name", sorted(SCALES))
def test_a_range_must_be_two_numbers_in_order(name: str, bounds: tuple[float, float]) -> None:
    with pytest.raises(InputError, match="low < high"):
        make_scale(name, *bounds)


def test_log_needs_a_positive_range() -> None:
    with pytest.raises(InputError, match="above 0"):
        Log(0.0, 10.0)
