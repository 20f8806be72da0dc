"""Several levels of one run, put in order: a higher level never has a lower quantile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from privatile.inference.inference import Inference, from_ends
from privatile.result.result import Caveat, ConfidenceInterval, QuantileResult


def rearranged(results: Sequence[QuantileResult]) -> tuple[QuantileResult, ...]:
    """Several levels of one run, so that a higher level never has a lower quantile.

    Estimates, lower and upper ends are each sorted along the levels, which moves none of them further from the truth
    (rearrangement); intervals that hold jointly go on holding jointly.
    """
    order = sorted(range(len(results)), key=lambda i: results[i].level)
    estimates = sorted(result.estimate for result in results)
    lows = sorted(result.confidence_interval.low for result in results)
    highs = sorted(result.confidence_interval.high for result in results)
    anytimes = [result.anytime for result in results if result.anytime is not None]
    first, last = sorted(interval.low for interval in anytimes), sorted(interval.high for interval in anytimes)
    put = list(results)
    for place, i in enumerate(order):
        result = results[i]
        interval, anytime = ConfidenceInterval(lows[place], highs[place]), result.anytime
        if len(anytimes) == len(results):
            anytime = ConfidenceInterval(first[place], last[place])
        in_order = (estimates[place], interval, anytime)
        if (result.estimate, result.confidence_interval, result.anytime) == in_order:
            continue
        note = Caveat("crossing", "Quantiles of neighbouring levels crossed by chance and were put in order.")
        put[i] = replace(
            result,
            estimate=estimates[place],
            confidence_interval=interval,
            anytime=anytime,
            inference=rearranged_inference(results, place, result.scale.to_working(estimates[place])),
            caveats=(*result.caveats, note),
        )
    return tuple(put)


def rearranged_inference(results: Sequence[QuantileResult], place: int, center: float) -> Inference:
    """The ends sorted along the levels at every confidence, so that interval and test go on agreeing."""
    inferences = [result.inference for result in results]

    def ends(level: float) -> tuple[float, float]:
        pairs = [inference.interval(level) for inference in inferences]
        low, high = sorted(low for low, _ in pairs)[place], sorted(high for _, high in pairs)[place]
        return min(low, center), max(high, center)

    own = sorted(results, key=lambda result: result.level)[place].inference
    return from_ends(own.method, center, own.error_scale, ends)
