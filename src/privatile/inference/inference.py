"""An estimate with the law of its error, and what known ranks take off its variance.

An estimate with the law of its error, and what can be done with it.

Every method gives an `Inference`: a centre, a scale and the law of (centre − Q*)/scale. Interval and p-value are read
from the same law, so they never disagree: a value is inside the interval iff its p-value exceeds 1 − confidence.

What knowing the clients' ranks, or having the file itself as the target, takes off the variance of a run.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.core.kinds import CONFIDENCE, checked
from privatile.core.mechanism import rank_noise, report_variance
from privatile.core.scale import Scale, clip, working_range
from privatile.estimator.plan import Plan, RoundState, local_ranks

ANY_SHAPE_METHOD = "any-shape"
"""The method of every interval that holds whatever the distribution; what was done to it follows after a comma."""


@dataclass(frozen=True)
class Inference:
    """An estimate with the law of its error, on the working scale."""

    method: str
    center: float
    error_scale: float
    """What the error is measured in: a standard error, or √V."""
    quantile: Callable[[float], float] = field(repr=False)
    """Confidence level -> how many error scales each way."""
    tail: Callable[[float], float] = field(repr=False)
    """Distance in error scales -> two-sided p-value."""
    ends: Callable[[float], tuple[float, float]] | None = field(default=None, repr=False)
    """Confidence level -> both ends, where the centre need not be their middle; see `from_ends`."""

    @property
    def is_any_shape(self) -> bool:
        """Whether this is the interval that holds whatever the distribution; also after `simultaneous`."""
        return self.method.startswith(ANY_SHAPE_METHOD)

    def interval(self, confidence_level: float) -> tuple[float, float]:
        """Both ends: centre ± quantile·scale, unless they are known by themselves."""
        checked("confidence_level", CONFIDENCE, confidence_level)
        if self.ends is not None:
            return self.ends(confidence_level)
        reach = self.quantile(confidence_level) * self.error_scale
        return self.center - reach, self.center + reach

    def test(self, value: float) -> tuple[float, float]:
        """Statistic and two-sided p-value of "Q* is `value`": the level at which the value leaves the interval."""
        off, ends = self.center - value, self.ends
        if off == 0.0:
            return 0.0, 1.0
        statistic = off / self.error_scale if self.error_scale else math.copysign(math.inf, off)
        if ends is not None:

            def inside(level: float) -> bool:
                low, high = ends(level)
                return low <= value <= high

            return statistic, p_value_of(inside)
        return statistic, self.tail(abs(statistic)) if self.error_scale else 0.0

    def unbounded(self) -> "Inference":
        """The same estimate with nothing known about its error."""
        return replace(self, quantile=lambda level: math.inf, tail=lambda distance: 1.0, ends=None)


MIN_P = 1e-9
"""p-values found by inverting an interval go no lower: the laws' own tails are not more certain than that."""


def from_ends(
    method: str, center: float, error_scale: float, ends: Callable[[float], tuple[float, float]]
) -> "Inference":
    """An inference known by its two ends at every confidence; they widen with it and always hold the centre.

    Quantile and tail are those of the end that is further from the centre.
    """

    def quantile(level: float) -> float:
        low, high = ends(level)
        reach = max(center - low, high - center)
        return reach / error_scale if error_scale else (math.inf if reach else 0.0)

    def tail(statistic: float) -> float:
        return p_value_of(lambda level: quantile(level) >= statistic)

    return Inference(method, center, error_scale, quantile, tail, ends)


def p_value_of(inside: Callable[[float], bool]) -> float:
    """The largest α at which a value is still inside the (1 − α) interval; 0 where it is below `MIN_P`.

    >>> round(p_value_of(lambda level: level >= 0.97), 9)
    0.03
    """
    if not inside(1.0 - MIN_P):
        return 0.0
    if inside(MIN_P):
        return 1.0
    low, high = math.log(MIN_P), math.log1p(-MIN_P)
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (middle, high) if inside(-math.expm1(middle)) else (low, middle)
    return math.exp(low)


def hull(center: float, inferences: "Sequence[Inference]", method: str) -> "Inference":
    """The hull of several intervals about one centre, at every confidence: at least as wide as each of them."""

    def ends(level: float) -> tuple[float, float]:
        pairs = [inference.interval(level) for inference in inferences]
        return min(center, *(low for low, _ in pairs)), max(center, *(high for _, high in pairs))

    return from_ends(method, center, max(inference.error_scale for inference in inferences), ends)


def level_each(confidence_level: float, members: int) -> float:
    """The confidence of each of several independent inferences that are to hold all at once (Šidák): c^(1/L).

    >>> round(level_each(0.95, 3), 4), level_each(0.95, 1)
    (0.983, 0.95)
    """
    return float(confidence_level ** (1.0 / members))


def settings_of_each(confidence_level: float, members: int, *, simultaneous: bool) -> dict[str, Any]:
    """How each of several runs is reported, so that all intervals hold at once, or each by itself.

    >>> settings_of_each(0.95, 3, simultaneous=True)["confidence_level"] ** 3
    0.95
    >>> settings_of_each(0.95, 3, simultaneous=False)
    {'confidence_level': 0.95, 'simultaneous': False}
    """
    level = level_each(confidence_level, members) if simultaneous else confidence_level
    return {"confidence_level": level, "simultaneous": simultaneous}


def simultaneous(inference: "Inference", members: int) -> "Inference":
    """The same for one of several independent inferences that are to hold all at once.

    Levels of one run are asked of different records, so their errors are independent: each holds with the probability
    of `level_each`, all L with probability c. Interval and p-value are adjusted alike.
    """
    if members < 2:
        return inference

    def tail(statistic: float) -> float:
        # 1 − (1 − p)^L without cancellation for small p.
        p_value = inference.tail(statistic)
        return 1.0 if p_value >= 1.0 else -math.expm1(members * math.log1p(-p_value))

    method, ends = f"{inference.method}, simultaneous over {members} levels", inference.ends
    if ends is not None:
        return from_ends(
            method, inference.center, inference.error_scale, lambda level: ends(level_each(level, members))
        )
    return replace(
        inference, method=method, quantile=lambda level: inference.quantile(level_each(level, members)), tail=tail
    )


def clip_to_range(inference: "Inference", scale: Scale) -> "Inference":
    """The same about a centre inside the range, where the estimand is known to lie.

    A centre beyond an end means "at or beyond": it is moved to that end with its whole interval, so that no interval
    shrinks to a point. A path that stayed at an end has no spread to measure, so nothing bounds its error.
    """
    center = clip(scale, inference.center)
    if inference.error_scale == 0.0 and center in working_range(scale):
        return replace(inference, center=center, error_scale=1.0).unbounded()
    ends, shift = inference.ends, center - inference.center
    if ends is None or shift == 0.0:
        return replace(inference, center=center)

    def moved(level: float) -> tuple[float, float]:
        first, last = ends(level)
        return first + shift, last + shift

    return from_ends(inference.method, center, inference.error_scale, moved)


def variance_share(state: RoundState, plan: Plan) -> float:
    """Share of the noise that is left when the clients' ranks are known; see `known_share`."""
    if not all(state.window_asked):
        return 1.0
    clients = plan.clients
    return float(
        known_share(
            np.array([client.weight for client in clients]),
            np.array([client.mechanism.truth_rate for client in clients]),
            np.array([client.records for client in clients]),
            np.array(local_ranks(state, plan)),
            np.array(state.window_asked),
        )
    )


def known_share(weights: Floats, rates: Floats, records: NDArray[Any], ranks: Floats, asked: NDArray[Any]) -> Floats:
    """Σp_k²σ_k²/n_k over Σp_k²/(4r_k²n_k), clients along the last axis.

    σ_k² = (r_k⁻² − (2F_k − 1)²)/4; (2F_k − 1)² is estimated from the client's own answers, its upward bias 4·Var(F̂_k)
    removed.

    >>> one = np.array([1.0])
    >>> round(float(known_share(one, 0.5 * one, 100 * one, 0.9 * one, 1e9 * one)), 4)  # 1 − r²(2F − 1)²
    0.84
    """
    inside = np.clip(ranks, 0.0, 1.0)
    doubt = report_variance(rates, inside) / asked
    tilt = np.clip((2.0 * ranks - 1.0) ** 2 - 4.0 * doubt, 0.0, 1.0)
    saved = weights**2 * tilt / (4.0 * records)
    # Without privacy, and with every record on one side, nothing would be left: a variance of 0 weighs infinitely.
    share: Floats = np.maximum(1.0 - saved.sum(axis=-1) / rank_noise(weights, rates, records).sum(axis=-1), 1e-6)
    return share


def file_share(state: RoundState, plan: Plan, asked: Sequence[int], wander: float, inflation: float = 1.0) -> float:
    """Share of the variance that is left when the file itself is the target.

    Without replacement, sampling errs twice alike: in the answers and in the file's own quantile. Of a record's σ² its
    own F(1 − F) cancels for the share φ of the file that was `asked`, as far as it was asked about the quantile itself:
    (r⁻² − 1)/4 + (1 − φ)F(1 − F) + φ·wander remain, wander = f·mean|q − Q|. `inflation` is what the variance of the
    estimate exceeds Σp_k²σ_k²/n_k by. F is estimated from the client's own reports; its noise makes F(1 − F) smaller on
    average, which errs on the wide side.
    """
    whole = saved = 0.0
    for client, rank, count in zip(plan.clients, local_ranks(state, plan), asked, strict=True):
        if not count or math.isnan(rank):
            return 1.0
        share = min(max(rank, 0.0), 1.0)
        whole += client.weight**2 * client.mechanism.variance(share) / count
        saved += client.weight**2 * max(0.0, share * (1.0 - share) - wander) / client.file_size
    return 1.0 - saved / (whole * inflation)
