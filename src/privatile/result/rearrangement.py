"""Several levels of one run, put in order: a higher level never has a lower quantile."""

from collections.abc import Sequence
from dataclasses import replace

from privatile.inference.inference import Inference, from_ends
from privatile.result.both_readings import grid_values
from privatile.result.result import Caveat, ConfidenceInterval, OtherReading, QuantileResult


def rearranged(results: Sequence[QuantileResult]) -> tuple[QuantileResult, ...]:
    """Several levels of one run, so that a higher level never has a lower quantile.

    Estimates, lower and upper ends are each sorted along the levels, which moves none of them further from the truth
    (rearrangement); intervals that hold jointly still hold jointly.
    """
    order = sorted(range(len(results)), key=lambda i: results[i].level)
    estimates = sorted(result.estimate for result in results)
    intervals = in_order([result.confidence_interval for result in results])
    anytimes = [result.anytime for result in results if result.anytime is not None]
    sequences = in_order(anytimes) if len(anytimes) == len(results) else [results[i].anytime for i in order]
    others = _others([results[i] for i in order])
    put = list(results)
    for place, (i, estimate, interval, anytime) in enumerate(zip(order, estimates, intervals, sequences, strict=True)):
        result = results[i]
        if (result.estimate, result.confidence_interval, result.anytime) == (estimate, interval, anytime):
            continue
        note = Caveat("crossing", "Quantiles of neighbouring levels crossed by chance and were put in order.")
        put[i] = replace(
            result,
            estimate=estimate,
            confidence_interval=interval,
            anytime=anytime,
            # Ends may come from a neighbouring level.
            valid_at_every_look=all(one.valid_at_every_look for one in results),
            inference=rearranged_inference(results, place, result.scale.to_working(estimate)),
            caveats=(*result.caveats, note),
            other=others[place],
            grid_values=result.grid_values and grid_values(result.values, interval, result.scale)[0],
        )
    return tuple(put)


def _others(results: Sequence[QuantileResult]) -> list[OtherReading | None]:
    """The other readings of results in the order of their levels, put in order where all are of one kind."""
    found = [result.other for result in results if result.other is not None]
    if len(found) < len(results) or len({other.method for other in found}) > 1:
        return [result.other for result in results]
    sorted_ends = in_order([other.interval for other in found])
    return [other._replace(interval=interval) for other, interval in zip(found, sorted_ends, strict=True)]


def in_order(intervals: Sequence[tuple[float, float]]) -> list[ConfidenceInterval]:
    """Both ends sorted, each by itself."""
    return [ConfidenceInterval(*ends) for ends in zip(*map(sorted, zip(*intervals, strict=True)), strict=True)]


def rearranged_inference(results: Sequence[QuantileResult], place: int, center: float) -> Inference:
    """The ends sorted along the levels at every confidence, so that interval and test still agree."""
    inferences = [result.inference for result in results]

    def ends(level: float) -> tuple[float, float]:
        low, high = in_order([inference.interval(level) for inference in inferences])[place]
        return min(low, center), max(high, center)

    own = sorted(results, key=lambda result: result.level)[place].inference
    return from_ends(own.method, center, own.error_scale, ends)
