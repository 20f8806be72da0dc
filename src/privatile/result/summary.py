"""From what a run knows to its results: the estimand, both readings, the order of levels, what is unfinished, caveats.

`make_results` is the one function that makes results, for runs that go on, files and loops of one's own.

Which of two readings stands first follows from the options and the answers. A declared grid turns the any-shape
interval into the values of the grid that it leaves; the interval stays beside them. The smooth one is left out: the
declaration says that its condition is false.

The fixed-time interval holds at the planned end. Whoever may choose when to stop can wait until it says what they like;
the anytime interval holds at all rounds at once.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from privatile.core.kinds import declaration
from privatile.core.scale import Scale
from privatile.core.text import parts_of, percent_text
from privatile.errors import InputError
from privatile.estimator.open_ended import OpenPlan
from privatile.estimator.plan import Plan, RoundState
from privatile.estimator.settings import ReportSettings
from privatile.estimator.straddle import StraddlePlan
from privatile.inference.any_shape import Grid
from privatile.inference.inference import ANY_SHAPE_METHOD, Inference, from_ends, level_each
from privatile.inference.reading import SUSPECT, Reading, as_displayed, read, straddled
from privatile.inference.trajectory import Trajectory
from privatile.result.caveats import (
    MORE,
    Caveat,
    caveat,
    caveats,
    interval_caveats,
    most_important_first,
    open_on_one_side,
    said_once,
)
from privatile.result.diagnostics import diagnose, explain
from privatile.result.result import (
    ConfidenceInterval,
    OtherReading,
    QuantileResult,
    Results,
    in_units,
    interval_in_units,
)
from privatile.result.shown import CONDITIONS, NAMED_LEVELS, Condition, Row, client_facts, outward
from privatile.result.weeks import over_time

MAX_VALUES = 1000
"""Values of a grid that a result holds one by one; more are left to the interval's ends."""


class LevelFacts(NamedTuple):
    """What is known of one level of a run."""

    plan: Plan
    state: RoundState
    trajectory: Trajectory
    at_fixed_end: bool = True
    """False for an open-ended run that goes on, or that somebody ended: no interval of an end fixed beforehand."""
    over: bool = True
    """Whether the design asks no more at this level."""
    times: Sequence[float] | None = None
    """When each round closed, in seconds since 1970; none where no file has kept it."""


def make_results(
    settings: ReportSettings,
    levels: Sequence[LevelFacts],
    *,
    run: str,
    date: str | None = None,
    asked_as: ReportSettings | None = None,
) -> tuple[QuantileResult | None, ...]:
    """The results of all levels of a run as they stand; none where the quantile is still being searched for.

    `asked_as` are the settings the run was asked with, where `settings` report the same answers in another way.
    """
    readings = [None if not one.state.averages.give_interval else _reading(settings, one, run, date) for one in levels]
    known = [one for one in readings if one is not None]
    ordered = rearranged(known) if len(known) == len(readings) else readings
    later = None if asked_as is None else chosen_later(asked_as, settings)
    found = []
    for level, result in zip(levels, ordered, strict=True):
        if result is not None and later is not None:
            result = with_caveat(result, later)
        found.append(result if result is None or level.over else unfinished(result, level.plan.rounds))
    return tuple(found)


def all_of(found: Sequence[QuantileResult | None]) -> Results:
    """The results of all levels; refused where one has none."""
    known = Results(result for result in found if result is not None)
    if len(known) < len(found):
        raise InputError("an interval needs at least two averaged rounds: the quantile is still being searched for.")
    return known


def _reading(settings: ReportSettings, level: LevelFacts, run: str, date: str | None) -> QuantileResult:
    """The result of one level by itself."""
    plan, state, trajectory, at_fixed_end, _, times = level
    result = summarize(settings, plan, state, trajectory, run, at_fixed_end=at_fixed_end)
    return replace(over_time(result, plan, state, trajectory, times), date=date)


def chosen_later(asked: ReportSettings, now: ReportSettings) -> Caveat | None:
    """The caveat where what is declared, or which interval stands first, is not what was asked; else none."""
    changes = [
        f"{name} {getattr(asked, name)}, now {getattr(now, name)}"
        for name in ("value_kind", "interval")
        if getattr(asked, name) != getattr(now, name)
    ]
    # Without a declaration the any-shape interval stands first anyway.
    same = now.interval == "any-shape" and asked.interval == "default" and asked.value_kind == now.value_kind == "any"
    if not changes or same:
        return None
    return caveat("chosen-later", changes=" and ".join(changes))


class BothReadings(NamedTuple):
    """What a result says about its two readings."""

    condition: Condition
    other: OtherReading | None
    contradiction: str
    grid_values: tuple[float, ...] | None
    caveats: tuple[Caveat, ...]


def both_readings(
    settings: ReportSettings, reading: Reading, interval: ConfidenceInterval, scale: Scale
) -> BothReadings:
    """What stands beside the `interval` that is shown."""
    if reading.fit is None:
        return BothReadings("smooth", None, "", None, ())
    shown, any_shape, other = reading.shown, reading.shown.is_any_shape, None
    why = reading.contradiction or (SUSPECT if reading.suspect else "")
    if reading.other is not None:
        other = _other(reading.other, "smooth" if any_shape else "any-shape", settings, scale)
    # Where a grid is declared nobody expects a smooth interval.
    expected = not any_shape or settings.declared.may_be_smooth
    contradiction = f"no smooth interval: {why}" if why and expected else ""
    found = list(against_smooth(why, settings, shown.method))
    values, level = None, level_each(settings.confidence_level, settings.joint)
    if any_shape and reading.crossed(level):
        contradiction = (
            "the answers contradict each other: some place the quantile above a value, others at or below a smaller one"
        )
        found.append(
            caveat(
                "contradiction",
                "answers",
                what=capitalized(contradiction),
                percent=percent_text(1.0 - level, 3),
            )
        )
    if any_shape:
        values, off_grid = grid_values(settings.value_kind, interval, scale)
        if off_grid:
            contradiction = off_grid
            found.append(caveat("contradiction", "grid", what=capitalized(off_grid)))
    return BothReadings("any-shape" if any_shape else "smooth", other, contradiction, values, tuple(found))


def against_smooth(why: str, settings: ReportSettings, method: str) -> Iterator[Caveat]:
    """What speaks against a smooth interval that was declared or asked for; `method` is that of the interval shown.

    Too little information is known before anyone is asked, and a dry run says it so.
    """
    if why and method.startswith(ANY_SHAPE_METHOD) and settings.declared.continuous:
        yield caveat("declaration", why=why, condition=CONDITIONS["any-shape"])
    elif why and method.startswith("smooth"):
        yield caveat("contradiction", "smooth", why=why, condition=CONDITIONS["any-shape"])


def _other(inference: Inference, condition: Condition, settings: ReportSettings, scale: Scale) -> OtherReading:
    interval = interval_in_units(as_displayed(inference, settings, scale), scale, settings.confidence_level)
    how, looked_at = f"the option interval {inference.method} shows it first", settings.until_width is not None
    if looked_at:
        how = (
            "a run declared continuous stops by it"
            if condition == "smooth"
            else "a run that declares nothing stops by it"
        )
    return OtherReading(interval, inference.method, condition, how, looked_at)


def grid_values(values: str, interval: ConfidenceInterval, scale: Scale) -> tuple[tuple[float, ...] | None, str]:
    """The values of a declared grid that an any-shape interval leaves, and in words what contradicts the declaration.

    None where no grid is declared, where nothing is bounded, and where the values are more than `MAX_VALUES`. An end
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
    declared = declaration(values)
    if declared.step is None:
        return None, ""
    grid = Grid(declared.step)
    low, high = grid.inside(*interval, scale.low, scale.high)
    if grid.contradicted(low, high):
        if interval.low <= scale.low or interval.high >= scale.high:
            return None, ""
        first, last = outward(interval.low, high - low, up=False), outward(high, high - low, up=True)
        return None, f"not every value can be {declared.grid_in_words}: none lies between {first} and {last}"
    return (grid.values(low, high) if grid.count(low, high) <= MAX_VALUES else None), ""


def one_of(values: Sequence[float] | None, estimate: float) -> float:
    """The estimate, moved to the nearest of the values that a declared grid leaves.

    >>> one_of((44.0, 45.0), 44.3), one_of(None, 44.3)
    (44.0, 44.3)
    """
    return min(values, key=lambda value: abs(value - estimate)) if values else estimate


def with_caveat(result: QuantileResult, found: Caveat) -> QuantileResult:
    """The result with one more caveat, in its place."""
    return replace(result, caveats=most_important_first(found, *result.caveats))


def capitalized(text: str) -> str:
    """A text whose first letter is a capital one."""
    return text[:1].upper() + text[1:]


def rearranged(results: Sequence[QuantileResult]) -> tuple[QuantileResult, ...]:
    """The levels of one run beside each other: what their order adds to simultaneous intervals, and which crossed.

    Where all intervals hold, each quantile lies above the lower ends of all lower levels and below the upper ends of
    all higher ones. So intervals that hold together with a stated confidence still do when every lower end is raised to
    the largest of those before it, and every upper end lowered to the least of those after it: a level that says little
    costs no other level anything. Each reading, any-shape and smooth, is treated by itself, since each needs something
    else. Intervals that hold one by one stay as they are.
    """
    if len(results) < 2:
        return tuple(results)
    order = sorted(range(len(results)), key=lambda i: results[i].level)
    ordered = [results[i] for i in order]
    narrowed = _narrowed(ordered) if all(result.simultaneous for result in ordered) else ordered
    said = _crossings_said(narrowed)
    return tuple(one for _, one in sorted(zip(order, said, strict=True), key=lambda pair: pair[0]))


def _narrowed(results: list[QuantileResult]) -> list[QuantileResult]:
    """Simultaneous results in the order of their levels, every end the best that its level and the others give."""
    found = list(results)
    for method in {result.method for result in results}:
        places = [place for place, result in enumerate(results) if result.method == method]
        own = [results[place] for place in places]
        intervals = in_order([result.confidence_interval for result in own])
        if intervals is None:
            continue
        sequences = _anytimes(own)
        for index, place in enumerate(places):
            found[place] = _with_ends(own, index, intervals[index], sequences[index])
    for method in {result.other.method for result in results if result.other is not None}:
        others = [(place, result.other) for place, result in enumerate(results) if result.other is not None]
        pairs = [(place, other) for place, other in others if other.method == method]
        better = in_order([other.interval for _, other in pairs])
        for (place, other), interval in zip(pairs, better or [], strict=bool(better)):
            found[place] = replace(found[place], other=other._replace(interval=interval))
    return found


def in_order(intervals: Sequence[tuple[float, float]]) -> list[ConfidenceInterval] | None:
    """Cumulative maxima of the lower ends and cumulative minima of the upper ones; none where nothing would be left.

    >>> [tuple(interval) for interval in in_order([(10.0, 20.0), (0.0, 100.0), (30.0, 45.0)])]
    [(10.0, 20.0), (10.0, 45.0), (30.0, 45.0)]
    >>> in_order([(10.0, 20.0), (1.0, 2.0)]) is None
    True
    """
    lows = list(itertools.accumulate((low for low, _ in intervals), max))
    highs = list(itertools.accumulate((high for _, high in reversed(intervals)), min))[::-1]
    found = [ConfidenceInterval(*ends) for ends in zip(lows, highs, strict=True)]
    return found if all(low <= high for low, high in found) else None


def _anytimes(results: Sequence[QuantileResult]) -> list[ConfidenceInterval | None]:
    """The anytime intervals likewise, where all levels have one."""
    own = [result.anytime for result in results]
    known = [interval for interval in own if interval is not None]
    better = in_order(known) if len(known) == len(own) else None
    return own if better is None else [*better]


def _with_ends(
    results: Sequence[QuantileResult], place: int, interval: ConfidenceInterval, anytime: ConfidenceInterval | None
) -> QuantileResult:
    """One result with these ends, its estimate moved inside, and what it says about its ends made true again."""
    result = results[place]
    if (result.confidence_interval, result.anytime) == (interval, anytime):
        return result
    low, high = interval
    inside = min(max(result.estimate, low), high)
    values, off_grid = grid_values(result.value_kind, interval, result.scale) if result.grid_values else (None, "")
    # Ends may come from another level.
    whence = Row(
        "order",
        "order of levels",
        True,
        "its interval uses that the levels are in order: an end may be that of another level",
    )
    return replace(
        result,
        estimate=one_of(values, inside),
        confidence_interval=interval,
        anytime=anytime,
        valid_at_every_look=all(one.valid_at_every_look for one in results),
        inference=_ordered_inference(results, place, result.scale.to_working(inside)),
        caveats=_about_the_ends(result, interval, off_grid),
        contradiction=off_grid or result.contradiction,
        grid_values=values,
        diagnostics=(*result.diagnostics, whence),
    )


def _about_the_ends(result: QuantileResult, interval: ConfidenceInterval, off_grid: str) -> tuple[Caveat, ...]:
    """The caveats, those about open ends written for this interval."""
    kept = [one for one in result.caveats if one.code not in ("unbounded", "one-sided", "half-open")]
    codes = {one.code for one in result.caveats}
    at_low, at_high = interval.low <= result.scale.low, interval.high >= result.scale.high
    if "unbounded" in codes:
        whole = interval == (result.scale.low, result.scale.high)
        kept.append(caveat("unbounded", "whole" if whole else "ordered", helps=MORE))
    elif at_low != at_high and codes & {"one-sided", "half-open"}:
        kept.append(open_on_one_side("half-open" if "half-open" in codes else "one-sided", at_low=at_low))
    if off_grid:
        kept.append(caveat("contradiction", "grid", what=capitalized(off_grid)))
    return most_important_first(*kept)


def _crossings_said(results: list[QuantileResult]) -> list[QuantileResult]:
    """The results, with a caveat on both levels wherever the estimate of the higher one is the lower one."""
    crossed: dict[int, list[int]] = {}
    for one, two in itertools.combinations(range(len(results)), 2):
        if results[one].estimate > results[two].estimate:
            crossed.setdefault(one, []).append(two)
            crossed.setdefault(two, []).append(one)
    found = list(results)
    for place, others in crossed.items():
        levels = ", ".join(f"{results[other].level:g}" for other in others)
        found[place] = with_caveat(found[place], caveat("crossing", levels=levels))
    return found


def _ordered_inference(results: Sequence[QuantileResult], place: int, center: float) -> Inference:
    """The ends by the order of the levels at every confidence, so that interval and test still agree.

    Where a lower confidence leaves nothing, the centre remains.
    """
    before = [result.inference for result in results[: place + 1]]
    after = [result.inference for result in results[place:]]

    def ends(level: float) -> tuple[float, float]:
        low = max(inference.interval(level)[0] for inference in before)
        high = min(inference.interval(level)[1] for inference in after)
        return min(low, center), max(high, center)

    own = results[place].inference
    return from_ends(own.method, center, own.error_scale, ends)


def unfinished(result: QuantileResult, planned: int) -> QuantileResult:
    """The result with the caveat that its design would have gone on, for at most `planned` rounds; 0: without end."""
    if not planned:
        return with_caveat(result, caveat("goes-on", records=result.records))
    variant, (low, high) = "always", ("", "")
    if not result.valid_at_every_look:
        variant = "no-interval" if result.anytime is None else "anytime"
        low, high = ("", "") if result.shown.anytime is None else result.shown.anytime.ends
    percent = percent_text(result.confidence_level)
    why = caveat("unfinished", variant, rounds=result.rounds, most=planned, percent=percent, low=low, high=high)
    other = result.other
    # The smooth one holds at the end only, unless the run stops by its width; the any-shape one may be the anytime
    # interval, which stands first.
    if other is not None and not other.at_every_look:
        left_out = result.valid_at_every_look or other.interval == result.anytime
        other = None if left_out else other._replace(at_planned_end=True)
    return with_caveat(replace(result, other=other), why)


FIRST_LOOK = 10
"""Averaged rounds before a run may stop by its width: earlier the slope rests on the probes alone."""


def summarize(
    settings: ReportSettings,
    plan: Plan,
    state: RoundState,
    trajectory: Trajectory,
    run: str,
    *,
    at_fixed_end: bool = True,
) -> QuantileResult:
    """The result as it stands after any round.

    `at_fixed_end` is false for an open-ended run that goes on, or that somebody ended: then nothing is shown that holds
    at an end fixed beforehand only.
    """
    plan = plan.so_far(state)
    reading = read(settings, plan, state, trajectory, at_fixed_end=at_fixed_end)
    alone = reading.shown
    inference = as_displayed(alone, settings, plan.scale)
    interval = interval_in_units(inference, plan.scale, settings.confidence_level)
    any_shape = alone.is_any_shape
    rows, warnings = diagnose(settings, plan, state, trajectory, reading)
    both = both_readings(settings, reading, interval, plan.scale)
    anytime, sequence = None, reading.anytime
    if sequence is not None:
        sequence = as_displayed(sequence, settings, plan.scale)
        anytime = interval_in_units(sequence, plan.scale, settings.confidence_level)
    usual = settings.normalizer == "l2"
    facts = client_facts(plan, state, settings.confidence_level)
    divided = any(client.holder for client in plan.clients)
    return QuantileResult(
        estimand=estimand_in_words(settings, plan),
        level=common_level(plan),
        estimate=one_of(both.grid_values, in_units(plan.scale, inference.center)),
        confidence_interval=interval,
        confidence_level=settings.confidence_level,
        method=inference.method if usual else f"{inference.method} ({settings.normalizer} normaliser)",
        target=settings.target,
        rounds=state.round,
        averaged_rounds=state.averages.rounds,
        records=sum(state.asked),
        design=settings.design,
        mode=plan.mode,
        clients=client_facts(plan, state, settings.confidence_level, by_holder=True) if divided else facts,
        classes=facts if divided else (),
        caveats=most_important_first(
            *both.caveats,
            *warnings,
            *said_once(
                interval_caveats(settings, plan, state, interval, any_shape=any_shape),
                caveats(settings, plan, state, alone),
            ),
        ),
        run=run,
        simulated=settings.simulated,
        inference=inference,
        scale=plan.scale,
        diagnostics=tuple(rows),
        anytime=anytime,
        anytime_condition=None if sequence is None else "any-shape" if sequence.is_any_shape else "smooth",
        valid_at_every_look=reading.valid_at_every_look,
        explanation=explain(settings, plan, state, trajectory, reading),
        condition=both.condition,
        other=both.other,
        contradiction=both.contradiction,
        value_kind=settings.value_kind,
        grid_values=both.grid_values,
        missing=settings.missing,
        column=settings.value,
        simultaneous=settings.joint > 1,
        parts=parts_of(settings.weighting),
    )


def narrow_enough(
    settings: ReportSettings, plan: Plan, state: RoundState, trajectory: Trajectory, boundary_shift: float = 0.0
) -> bool:
    """Whether a run that is to stop at a width may stop now; `boundary_shift` as in `may_stop`."""
    if settings.until_width is None or state.averages.rounds < FIRST_LOOK:
        return False
    if isinstance(plan, StraddlePlan | OpenPlan):
        # Its tests alone say when the interval is still too wide: most looks need no fit.
        _, tests = straddled(plan, state)
        ends = tests.with_boundaries_moved(boundary_shift).ends(level_each(settings.confidence_level, settings.joint))
        low, high = (in_units(plan.scale, end) for end in ends)
        if high - low > settings.until_width * (1.0 + boundary_shift):
            return False
    reading = read(settings, plan.so_far(state), state, trajectory, at_fixed_end=False, boundary_shift=boundary_shift)
    return may_stop(settings, reading, plan.scale, boundary_shift)


def may_stop(settings: ReportSettings, reading: Reading, scale: Scale, boundary_shift: float = 0.0) -> bool:
    """Whether the displayed interval is as narrow as asked for, and the diagnostics of a smooth one hold.

    `boundary_shift` moves the width by a share, as it has moved the limits of the diagnostics in the reading, so that
    the run stops sooner (later where it is below zero): two machines may differ in a decision only where both of these
    differ (`plan.difference`).
    """
    if settings.until_width is None or reading.fit is None or not reading.may_stop:
        return False
    shown = as_displayed(reading.shown, settings, scale)
    low, high = interval_in_units(shown, scale, settings.confidence_level)
    return high - low <= settings.until_width * (1.0 + boundary_shift)


def common_level(plan: Plan) -> float:
    """τ, as it was asked for where all clients have the same: Σp_kτ_k may differ from it in the last digit."""
    levels = {client.level for client in plan.clients}
    return levels.pop() if len(levels) == 1 else plan.level


def estimand_in_words(settings: ReportSettings, plan: Plan) -> str:
    """Which quantile of which mixture: changing the weights changes it when the clients differ."""
    level = common_level(plan)
    name = f" (the {NAMED_LEVELS[level]})" if level in NAMED_LEVELS else ""
    value = settings.value + (f", dithered by ±{settings.dither / 2:g}," if settings.dither else "")
    words = f"The {level:.6g} quantile{name} of {value}"
    if settings.survey is not None:
        words += f" (weighted by {settings.survey.column})"
    number, parts = len({client.held_by for client in plan.clients}), parts_of(settings.weighting)
    if number > 1:
        mixture = {
            "equal": f"the mixture of {number} clients with equal weight",
            "size": f"all records asked of {number} clients together",
            "precision": f"{number} clients, said to share one distribution, weighted by precision",
        }.get(settings.weighting, f"the mixture of {number} {parts.many} with the weights given")
        words += f" in {mixture}"
    if any(client.level != plan.clients[0].level for client in plan.clients):
        words += f" (clients' own levels average to {plan.level:.6g})"
    return words
