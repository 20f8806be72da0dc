"""The two readings of a run as its result shows them: which stands first, the other one, and what is contradicted.

A declared grid turns the any-shape interval into the values of the grid that it leaves; the interval stays beside
them. The smooth one is left out: the declaration says that its condition is false.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from privatile.core.scale import Scale
from privatile.estimator.settings import ReportSettings
from privatile.estimator.values import parse_values
from privatile.inference.choice import Evidence, as_displayed, beside_anytime
from privatile.inference.grid_values import Grid
from privatile.inference.inference import ANY_SHAPE_METHOD, Inference, level_each
from privatile.result.number_words import outward
from privatile.result.result import Caveat, ConfidenceInterval, OtherReading, QuantileResult, interval_in_units
from privatile.result.sentence import ANY_SHAPE, SMOOTH

MOST_VALUES = 1000
"""Values of a grid that a result holds one by one; more are left to the interval's ends."""


SUSPECT = "the answers follow a smooth curve less well than most do"
"""Why the any-shape interval stands first where a curve is suspect, and its misfit not yet a contradiction."""


class BothReadings(NamedTuple):
    """What a result says about its two readings."""

    condition: str
    other: OtherReading | None
    contradiction: str
    grid_values: tuple[float, ...] | None
    caveats: tuple[Caveat, ...]


def both_readings(
    settings: ReportSettings, evidence: Evidence, shown: Inference, interval: ConfidenceInterval, scale: Scale
) -> BothReadings:
    """What stands beside the interval that is `shown`."""
    both = evidence.readings
    if both is None:
        return BothReadings(SMOOTH, None, "", None, ())
    any_shape = shown.is_any_shape
    why, other = both.contradiction, None
    beside: Inference | None = both.smooth if any_shape else both.any_shape
    if settings.until_width is not None:
        # A run that was looked at: only what is valid at every look may stand beside its interval.
        beside = beside_anytime(evidence)
        if any_shape and beside is None and evidence.curve is not None:
            why = why or SUSPECT
    welcome = not any_shape or (not why and settings.declared.may_be_smooth)
    if beside is not None and welcome and not both.open_end:
        other = _other(beside, SMOOTH if any_shape else ANY_SHAPE, settings, scale)
    # Where a grid is declared nobody expects a smooth interval.
    expected = not any_shape or settings.declared.may_be_smooth
    contradiction = f"no smooth interval: {why}" if why and expected else ""
    caveats = list(against_smooth(why, settings, shown.method))
    values, level = None, level_each(settings.confidence_level, settings.joint)
    if any_shape and both.crossed(level):
        contradiction = (
            "the answers contradict each other: some place the quantile above a value, others at or below a smaller one"
        )
        text = (
            f"{contradiction[0].upper()}{contradiction[1:]}. The interval spans both. By chance this happens in at "
            f"most {100.0 * (1.0 - level):.3g}% of runs; otherwise some answers are not what was asked for."
        )
        caveats.append(Caveat("contradiction", text))
    if any_shape:
        values, off_grid = grid_values(settings.values, interval, scale)
        if off_grid:
            contradiction = off_grid
            caveats.append(Caveat("contradiction", off_grid[0].upper() + off_grid[1:] + "."))
    return BothReadings(ANY_SHAPE if any_shape else SMOOTH, other, contradiction, values, tuple(caveats))


def against_smooth(why: str, settings: ReportSettings, method: str) -> Iterator[Caveat]:
    """What speaks against a smooth interval that was declared or asked for; `method` is that of the interval shown.

    Too little information is known before anyone is asked, and a dry run says it so.
    """
    if why and method.startswith(ANY_SHAPE_METHOD) and settings.declared.continuous:
        text = f"The values were declared continuous, but {why}. The interval is the one that holds {ANY_SHAPE}."
        yield Caveat("declaration", text)
    elif why and method.startswith("smooth"):
        text = f"The smooth interval is not to be relied on: {why}. The interval any-shape holds {ANY_SHAPE}."
        yield Caveat("contradiction", text)


def may_stand_beside(result: QuantileResult, *, moved: bool) -> bool:
    """Whether a smooth interval of one week may stand beside a result.

    Not where the quantile is not located, where a declared grid says that the values are not continuous, or where the
    answers contradict a smooth distribution. Where it has `moved` they do: one curve through all of them fits neither
    time, and says nothing against the weeks, each of which has its own.
    """
    return result.located and (moved or not result.contradiction) and parse_values(result.values).may_be_smooth


def _other(inference: Inference, condition: str, settings: ReportSettings, scale: Scale) -> OtherReading:
    interval = interval_in_units(as_displayed(inference, settings, scale), scale, settings.confidence_level)
    how, looked_at = f"the option interval {inference.method} shows it first", settings.until_width is not None
    if looked_at:
        how = (
            "a run declared continuous stops by it"
            if condition == SMOOTH
            else "a run that declares nothing stops by it"
        )
    return OtherReading(interval, inference.method, condition, how, looked_at)


def grid_values(values: str, interval: ConfidenceInterval, scale: Scale) -> tuple[tuple[float, ...] | None, str]:
    """The values of a declared grid that an any-shape interval leaves, and in words what contradicts the declaration.

    None where no grid is declared, where nothing is bounded, and where the values are more than `MOST_VALUES`. An end
    of the stated range is no answer: beyond it there may be a value of the grid, so nothing is contradicted there.

    >>> from privatile.core.scale import Linear
    >>> grid_values("whole", ConfidenceInterval(43.8, 45.3), Linear(0.0, 120.0))
    ((44.0, 45.0), '')
    >>> grid_values("step=5", ConfidenceInterval(43.8, 44.3), Linear(0.0, 120.0))
    (None, 'not every value can be a multiple of 5: none lies between 43.80 and 44.30')
    >>> grid_values("whole", ConfidenceInterval(0.0, 1.5), Linear(0.0, 120.0))  # the range's own end is possible
    ((0.0, 1.0), '')
    >>> grid_values("whole", ConfidenceInterval(20.0, 20.0), Linear(0.0, 20.0))  # the quantile lies above the range
    (None, '')
    """
    declared = parse_values(values)
    if declared.step is None:
        return None, ""
    grid = Grid(declared.step)
    low, high = grid.inside(*interval, scale.low, scale.high)
    if grid.contradicted(low, high):
        if interval.low <= scale.low or interval.high >= scale.high:
            return None, ""
        first, last = outward(interval.low, high - low, up=False), outward(high, high - low, up=True)
        return None, f"not every value can be {declared.grid_in_words}: none lies between {first} and {last}"
    return (grid.values(low, high, MOST_VALUES) if grid.count(low, high) <= MOST_VALUES else None), ""


def one_of(values: Sequence[float] | None, estimate: float) -> float:
    """The estimate, moved to the nearest of the values that a declared grid leaves.

    >>> one_of((44.0, 45.0), 44.3), one_of(None, 44.3)
    (44.0, 44.3)
    """
    return min(values, key=lambda value: abs(value - estimate)) if values else estimate
