import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privatile.core.scale import NARROWEST, SCALES, Log, Scale, clip, make_scale, units_inside, working_range
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


@given(st.sampled_from(sorted(SCALES)), st.floats(-1e12, 1e12), st.floats(1e-9, 1e12), st.floats(0.0, 1.0))
def test_a_question_lies_inside_the_range_and_its_ends_do(name: str, low: float, width: float, share: float) -> None:
    low = abs(low) + 1e-9 if name == "log" else low
    try:
        scale = make_scale(name, low, low + width)
    except InputError:
        return
    ends = working_range(scale)
    for value in (*ends, ends[0] + share * (ends[1] - ends[0]), ends[0] - 1.0, ends[1] + 1.0):
        units = units_inside(scale, value)
        assert scale.low <= units <= scale.high
        assert ends[0] <= scale.to_working(units) <= ends[1]


def test_without_the_cut_a_question_at_the_end_lies_outside() -> None:
    """The negative control: rounding alone carries the ends of ordinary ranges out."""
    outside = [high for high in (100.0, 1e3, 1e4, 1e5, 1e6) if Log(1.0, high).to_units(math.log(high)) > high]
    assert outside
    assert all(units_inside(Log(1.0, high), math.log(high)) == high for high in outside)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        *((name, 1e12, 1e12 + 1.0) for name in sorted(SCALES)),
        *((name, 1e6, 1e6 * (1.0 + 0.5 * NARROWEST)) for name in sorted(SCALES)),
        ("log", 1e6, 1e6 * (1.0 + 2.0 * NARROWEST)),  # wide enough in units, too narrow as logarithms
        ("identity", -1e12 - 1.0, -1e12),
    ],
)
def test_a_range_too_narrow_for_its_distance_from_zero_is_refused(name: str, low: float, high: float) -> None:
    with pytest.raises(InputError, match=r"too narrow for its distance from zero.*Subtract a constant"):
        make_scale(name, low, high)


@pytest.mark.parametrize("name", sorted(SCALES))
def test_ranges_that_people_use_are_wide_enough(name: str) -> None:
    for low, high in ((0.01, 1e9), (1.7e9, 1.7e9 + 86_400.0), (1e6, 1e6 + 100.0), (1e-9, 1.0)):
        assert make_scale(name, low, high).high == high


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 5e-318), (5e-324, 1e-300), (-1e160, 1e160), (0.0, 1e-150), (1.0, 1e300)]
)
@pytest.mark.parametrize("name", sorted(SCALES))
def test_a_range_whose_squares_leave_the_doubles_is_refused(name: str, low: float, high: float) -> None:
    with pytest.raises(InputError, match=r"at least 1e-100 wide|needs a range above"):
        make_scale(name, low, high)
