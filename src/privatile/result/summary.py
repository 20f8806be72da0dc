"""From a run's state to its result: the estimand in words, both readings, the order of levels, the caveats.

The two readings of a run as its result shows them: which stands first, the other one, and what is contradicted.

A declared grid turns the any-shape interval into the values of the grid that it leaves; the interval stays beside
them. The smooth one is left out: the declaration says that its condition is false.

The change alarm of an open-ended run in its result (`inference.change`): a caveat to act on, and a row of facts.

Several levels of one run: a higher level never has a lower quantile, and intervals that hold together may say so.

The result of a run that has not ended: which of its intervals is valid at a time that somebody chose while looking.

The fixed-time interval holds at the planned end. Whoever may choose when to stop can wait until it says what they like;
the anytime interval holds at all rounds at once. One rule for pages, release records and `privatile verify`.

From a run's state to its result: the estimand in words, the interval, the facts and the caveats.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from privatile.core.scale import Scale
from privatile.core.text import moment
from privatile.estimator.open_ended import OpenPlan
from privatile.estimator.plan import Plan, RoundState
from privatile.estimator.settings import ReportSettings, parse_values
from privatile.estimator.straddle import StraddlePlan
from privatile.inference.any_shape import Grid
from privatile.inference.inference import ANY_SHAPE_METHOD, Inference, from_ends, level_each
from privatile.inference.reading import SUSPECT, Reading, as_displayed, read, straddled
from privatile.inference.series import FALSE_ALARMS, Change, change
from privatile.inference.trajectory import Trajectory
from privatile.result.caveats import caveats, half_open, interval_caveats, not_located, one_sided, said_once
from privatile.result.diagnostics import diagnose, explain
from privatile.result.result import (
    Caveat,
    ConfidenceInterval,
    OtherReading,
    QuantileResult,
    in_units,
    interval_in_units,
)
from privatile.result.severity import most_important_first
from privatile.result.shown import ANY_SHAPE, SMOOTH, Row, by_holder, client_facts, finite, outward, parts_of

MOST_VALUES = 1000
"""Values of a grid that a result holds one by one; more are left to the interval's ends."""


class BothReadings(NamedTuple):
    """What a result says about its two readings."""

    condition: str
    other: OtherReading | None
    contradiction: str
    grid_values: tuple[float, ...] | None
    caveats: tuple[Caveat, ...]


def both_readings(
    settings: ReportSettings, reading: Reading, interval: ConfidenceInterval, scale: Scale
) -> BothReadings:
    """What stands beside the `interval` that is shown."""
    if reading.fit is None:
        return BothReadings(SMOOTH, None, "", None, ())
    shown, any_shape, other = reading.shown, reading.shown.is_any_shape, None
    why = reading.contradiction or (SUSPECT if reading.suspect else "")
    if reading.other is not None:
        other = _other(reading.other, SMOOTH if any_shape else ANY_SHAPE, settings, scale)
    # Where a grid is declared nobody expects a smooth interval.
    expected = not any_shape or settings.declared.may_be_smooth
    contradiction = f"no smooth interval: {why}" if why and expected else ""
    caveats = list(against_smooth(why, settings, shown.method))
    values, level = None, level_each(settings.confidence_level, settings.joint)
    if any_shape and reading.crossed(level):
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


def change_found(plan: Plan, state: RoundState, trajectory: Trajectory) -> Change:
    """What the answers of an open-ended run say about a change."""
    weights = np.array([client.weight for client in plan.clients])
    return change(trajectory.by_client, weights, state.round - state.averages.rounds)


def is_series(intervals: Iterable[object]) -> bool:
    """Whether the weeks show a change: more than one of them has an interval. `intervals` has none for the others.

    >>> is_series([(1.0, 2.0), None]), is_series([(1.0, 2.0), None, (3.0, 4.0)])
    (False, True)
    """
    return sum(interval is not None for interval in intervals) > 1


def with_change(
    result: QuantileResult, found: Change, times: Sequence[float] = (), *, series: bool = False
) -> QuantileResult:
    """The result of an open-ended run with what its answers say about a change.

    `times` says when each round closed, in seconds since 1970, where a file has kept it. `series` says that a series
    over weeks stands beside the result (`server.periods`): the caveat points to it.
    """
    way = "up" if found.jump > 0.0 else "down"
    since = moment(times[found.round - 1]) if found.alarm and 0 < found.round <= len(times) else None
    when = f"since about round {found.round:,}"
    when += f" ({since[:16].replace('T', ' ')} UTC)" if since else ""
    shown = f"moved {way}, {when}" if found.alarm else "no sign of one"
    facts = {
        "alarm": found.alarm,
        "log_evidence": finite(found.log_evidence),
        "round": found.round if found.alarm else None,
        "since": since,
        "jump": found.jump if found.alarm else None,
    }
    result = replace(result, diagnostics=(*result.diagnostics, Row("change", "change", facts, shown)))
    if not found.alarm:
        return result
    text = (
        f"The quantile has moved {way} during the run, {when}: the share of values below the questions has changed by "
        f"{abs(found.jump):.2g} since then. Estimate and interval mix both times; "
        f"{'read the series over weeks in its report, or begin' if series else 'begin'} a new run. Without a "
        f"change such an alarm comes in at most {100.0 * FALSE_ALARMS:g}% of studies, however long they are."
    )
    return replace(result, caveats=most_important_first(Caveat("moved", text), *result.caveats))


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
    values, off_grid = grid_values(result.values, interval, result.scale) if result.grid_values else (None, "")
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
    kept = [caveat for caveat in result.caveats if caveat.code not in ("unbounded", "one-sided", "half-open")]
    codes = {caveat.code for caveat in result.caveats}
    at_low, at_high = interval.low <= result.scale.low, interval.high >= result.scale.high
    if "unbounded" in codes:
        kept.append(not_located(interval == (result.scale.low, result.scale.high)))
    elif at_low != at_high and codes & {"one-sided", "half-open"}:
        kept.append((half_open if "half-open" in codes else one_sided)("lower" if at_low else "upper"))
    if off_grid:
        kept.append(Caveat("contradiction", f"{off_grid[0].upper()}{off_grid[1:]}."))
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
        text = (
            f"The estimate crossed that of level {levels}: by chance the estimate of a higher level is the lower one. "
            "Quantiles never cross; the intervals say how little is known."
        )
        caveats = most_important_first(*found[place].caveats, Caveat("crossing", text))
        found[place] = replace(found[place], caveats=caveats)
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
        text = f"The run goes on; {result.records:,} have answered so far. Its interval is valid at any time."
        return replace(result, caveats=most_important_first(Caveat("goes-on", text), *result.caveats))
    text = f"The run is unfinished: {result.rounds:,} of at most {planned:,} rounds. "
    if result.valid_at_every_look:
        text += "Its interval is valid at any time."
    else:
        percent = f"{100 * result.confidence_level:g}%"
        text += (
            f"The {percent} interval holds at the planned end only, not at a time that somebody chose while looking. "
        )
        if result.anytime is None:
            text += "No interval is valid at such a time yet."
        else:
            low, high = result.ends_shown(result.anytime)
            text += f"Valid at such a time is the anytime interval, {low} to {high}."
    other = result.other
    # The smooth one holds at the end only, unless the run stops by its width; the any-shape one may be the anytime
    # interval, which stands first.
    if other is not None and not other.at_every_look:
        left_out = result.valid_at_every_look or other.interval == result.anytime
        other = None if left_out else other._replace(condition=f"{other.condition}, at the planned end only")
    return replace(result, other=other, caveats=most_important_first(Caveat("unfinished", text), *result.caveats))


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
        clients=by_holder(plan, state, settings.confidence_level, facts) if divided else facts,
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
        anytime_condition="" if sequence is None else ANY_SHAPE if sequence.is_any_shape else SMOOTH,
        valid_at_every_look=reading.valid_at_every_look,
        explanation=explain(settings, plan, state, trajectory, reading),
        condition=both.condition,
        other=both.other,
        contradiction=both.contradiction,
        values=settings.values,
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
    name = {0.25: " (the lower quartile)", 0.5: " (the median)", 0.75: " (the upper quartile)"}.get(level, "")
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
