"""Several levels of one run: a higher level never has a lower quantile, and intervals that hold together may say so."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

from privatile.inference.inference import Inference, from_ends
from privatile.result.both_readings import grid_values, one_of
from privatile.result.caveats import half_open, not_located, one_sided
from privatile.result.result import Caveat, ConfidenceInterval, QuantileResult
from privatile.result.rows import Row
from privatile.result.severity import most_important_first


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
