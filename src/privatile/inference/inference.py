"""From a trajectory to an interval and a test.

Every method gives an `Inference`: a centre, a unit and the law of (centre − Q*)/unit. Interval and p-value are read
from the same law, so they never disagree: a value is inside the interval iff its p-value exceeds 1 − confidence.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from privatile.core.arrays import Floats
from privatile.errors import InputError
from privatile.estimator.averaging import half_width, normalizer, normalizer_of
from privatile.estimator.plan import Ask, Plan, RoundState
from privatile.estimator.step import drift, local_ranks, round_weight
from privatile.laws.critical import Normalizer, checked_level, statistic_law
from privatile.laws.linear_model import linear_law


@dataclass(frozen=True)
class Inference:
    """An estimate with the law of its error, on the working scale."""

    method: str
    center: float
    unit: float
    quantile: Callable[[float], float] = field(repr=False)
    """Confidence level -> how many units each way."""
    tail: Callable[[float], float] = field(repr=False)
    """Distance in units -> two-sided p-value."""

    def interval(self, confidence_level: float) -> tuple[float, float]:
        """centre ± quantile·unit."""
        checked_level(confidence_level)
        reach = self.quantile(confidence_level) * self.unit
        return self.center - reach, self.center + reach

    def test(self, value: float) -> tuple[float, float]:
        """Statistic and two-sided p-value of "Q* is `value`"."""
        if self.unit == 0.0:
            return (0.0, 1.0) if value == self.center else (math.copysign(math.inf, self.center - value), 0.0)
        statistic = (self.center - value) / self.unit
        return statistic, self.tail(abs(statistic))


SMALLEST_P = 1e-9
"""p-values found by inverting ends go no lower: the laws' own tails are not surer than that."""


@dataclass(frozen=True)
class IntervalInference(Inference):
    """An inference known by its two ends at every confidence, which need not lie evenly about the centre."""

    ends: Callable[[float], tuple[float, float]] = field(repr=False, kw_only=True)
    """Confidence level -> both ends; they widen with the level and always hold the centre."""

    @classmethod
    def of(
        cls, method: str, center: float, unit: float, ends: Callable[[float], tuple[float, float]]
    ) -> IntervalInference:
        """Quantile and tail, in units, are those of the further end."""

        def quantile(level: float) -> float:
            low, high = ends(level)
            reach = max(center - low, high - center)
            return reach / unit if unit else (math.inf if reach else 0.0)

        def tail(statistic: float) -> float:
            return p_value_of(lambda level: quantile(level) >= statistic)

        return cls(method, center, unit, quantile, tail, ends=ends)

    def interval(self, confidence_level: float) -> tuple[float, float]:
        """Both ends."""
        checked_level(confidence_level)
        return self.ends(confidence_level)

    def test(self, value: float) -> tuple[float, float]:
        """Statistic, and the p-value at which the value leaves the interval."""
        off = self.center - value
        statistic = off / self.unit if self.unit else math.copysign(math.inf, off) if off else 0.0

        def inside(level: float) -> bool:
            low, high = self.ends(level)
            return low <= value <= high

        return statistic, 1.0 if off == 0.0 else p_value_of(inside)


def p_value_of(inside: Callable[[float], bool]) -> float:
    """The largest α at which a value is still inside the (1 − α) interval; at least `SMALLEST_P` is known.

    >>> round(p_value_of(lambda level: level >= 0.97), 9)
    0.03
    """
    if not inside(1.0 - SMALLEST_P):
        return 0.0
    if inside(SMALLEST_P):
        return 1.0
    low, high = math.log(SMALLEST_P), math.log1p(-SMALLEST_P)
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (middle, high) if inside(-math.expm1(middle)) else (low, middle)
    return math.exp(low)


def hull(center: float, inferences: Sequence[Inference], method: str) -> Inference:
    """The hull of several intervals about one centre, at every confidence: at least as wide as each of them."""

    def ends(level: float) -> tuple[float, float]:
        pairs = [inference.interval(level) for inference in inferences]
        return min(center, *(low for low, _ in pairs)), max(center, *(high for _, high in pairs))

    return IntervalInference.of(method, center, max(inference.unit for inference in inferences), ends)


def simultaneous(inference: Inference, members: int) -> Inference:
    """The same for one of several independent inferences that are to hold all at once (Šidák).

    Levels of one run are asked of different records, so their errors are independent: each holds with probability
    c^(1/L), all L with probability c. Interval and p-value are adjusted alike.
    """
    if members < 2:
        return inference

    def tail(statistic: float) -> float:
        # 1 − (1 − p)^L without cancellation for small p.
        p_value = inference.tail(statistic)
        return 1.0 if p_value >= 1.0 else -math.expm1(members * math.log1p(-p_value))

    method = f"{inference.method}, simultaneous over {members} levels"
    if isinstance(inference, IntervalInference):
        return IntervalInference.of(
            method, inference.center, inference.unit, lambda level: inference.ends(level ** (1.0 / members))
        )
    return replace(
        inference,
        method=method,
        quantile=lambda level: inference.quantile(level ** (1.0 / members)),
        tail=tail,
    )


LEAD = 3.0
"""Relaxations put before a window, so that it starts from its stationary spread."""

LONGEST_LEAD = 20_000
"""A first step this far from one relaxation has no stationary spread to start from; v(∞) serves."""


class Trajectory:
    """The rounds one by one: what was asked, what came back, where it led, its noise. Some 60 bytes a round."""

    def __init__(self) -> None:
        self._columns = [array("d") for _ in range(5)]
        self._answers = [array("d") for _ in range(3)]

    @classmethod
    def of(cls, averaged: Sequence[ArrayLike], answers: Sequence[ArrayLike]) -> Trajectory:
        """Rounds known already: asked, drift, query after, weight, step of the averaged; the three rows of all."""
        known = cls()
        known._columns = [array("d", np.asarray(column, dtype=np.float64).tobytes()) for column in averaged]
        known._answers = [array("d", np.asarray(row, dtype=np.float64).tobytes()) for row in answers]
        return known

    def until(self, rounds: int, averaged: int) -> Trajectory:
        """As it stood after so many rounds, of which so many were averaged (without a new start in between)."""
        return Trajectory.of([column[:averaged] for column in self._columns], [row[:rounds] for row in self._answers])

    def record(self, ask: Ask, state: RoundState, plan: Plan) -> None:
        """Note the round just done; averaging that starts anew forgets the averaged rounds before."""
        came = drift(state, plan)
        heard = math.fsum(client.weight * query for client, query in zip(plan.clients, state.heard, strict=True))
        for column, fact in zip(self._answers, (heard, came, math.fsum(state.noise)), strict=True):
            column.append(fact)
        if state.averages.rounds == 0:
            self._columns = [array("d") for _ in range(5)]
        else:
            facts = (ask.query, came, state.query, round_weight(state), ask.step)
            for column, fact in zip(self._columns, facts, strict=True):
                column.append(fact)

    @property
    def answers(self) -> Floats:
        """All rounds, averaged or not, as three rows: query, τ − F̂ there, and its noise Σp_k²/(4r_k²E_k).

        Where a client was silent the query is the p-weighted mean of those that the standing answers belong to.
        """
        return np.array(self._answers, dtype=np.float64)

    def _column(self, index: int) -> Floats:
        return np.array(self._columns[index], dtype=np.float64)

    @property
    def asked(self) -> Floats:
        """The query each round asked about."""
        return self._column(0)

    @property
    def drifts(self) -> Floats:
        """What came back: an unbiased reading of τ − F at that query."""
        return self._column(1)

    @property
    def queries(self) -> Floats:
        """q̄_i, the query after each round."""
        return self._column(2)

    @property
    def weights(self) -> Floats:
        """w_i, each round's noise weight."""
        return self._column(3)

    @property
    def steps(self) -> Floats:
        """γ_i, the step each round took."""
        return self._column(4)


def slope(trajectory: Trajectory) -> float:
    """f at Q*: minus the slope of what came back on the query asked about, rounds weighted by 1/w; never below 0."""
    asked, weights = trajectory.asked, 1.0 / trajectory.weights
    centred = asked - np.average(asked, weights=weights)
    spread = float(weights @ centred**2)
    return max(0.0, -float((weights * centred) @ trajectory.drifts) / spread) if spread else 0.0


def endpoint_variance(state: RoundState, plan: Plan, trajectory: Trajectory) -> float:
    """Share of the population variance that is left when the file itself is the target.

    Without replacement, sampling errs twice alike: in the answers and in the file's own quantile. What is left a
    record is (r⁻² − 1)/4 + (1 − φ)F(1 − F) + φ·f·mean|q − Q|, φ the share of the file in the averaged rounds: noise,
    records not asked, and records asked about another q than the quantile, whose answers do not cancel.

    Only the end of the path changes: what is subtracted is a straight line in the round number, and detrending by
    m/T removes it, so the normaliser keeps its law. F is estimated from the client's own reports; its noise makes
    F(1 − F) smaller on average, which errs on the wide side.
    """
    even = whole = saved = 0.0
    rounds = state.averages.rounds
    wander = slope(trajectory) * float(np.abs(trajectory.asked - state.averages.estimate).mean())
    for client, rank, asked in zip(plan.clients, local_ranks(state, plan), state.window_asked, strict=True):
        if not asked:
            return 1.0
        share = min(max(rank, 0.0), 1.0)
        spread = share * (1.0 - share)
        rate, squared = client.mechanism.truth_rate, client.weight**2
        even += squared / (4.0 * rate**2) * rounds**2 / asked
        whole += squared * ((rate**-2 - 1.0) / 4.0 + spread) * rounds**2 / asked
        saved += squared * max(0.0, spread - wander) * rounds**2 / client.file_size
    # Rounds of unequal length are noisier than equal ones by ν; the weights of the rounds know by how much.
    nu = state.averages.weight / even
    # No path has less than this at its end: the part of the end that detrending leaves in the normaliser.
    weights = trajectory.weights
    least = 1.0 - rounds**2 / float(weights.sum() * (1.0 / weights).sum())
    return max(1.0 - saved / (nu * whole), least + 1e-9)


def self_normalized(
    state: RoundState,
    trajectory: Trajectory,
    kind: Normalizer = "l2",
    variance_share: float = 1.0,
) -> Inference:
    """Q_T ± v·√V (Corollary 3.2), v exact for the rounds' own noise weights.

    `variance_share` < 1 narrows the interval for a finite target (see `endpoint_variance`).
    """
    weights = trajectory.weights
    if len(weights) < 2:
        raise InputError(f"an interval needs at least two averaged rounds; there are {len(weights)}.")
    value = normalizer(state.averages) if kind == "l2" else normalizer_of(trajectory.queries, weights, kind)

    law = statistic_law(weights=weights, normalizer=kind, endpoint_variance=variance_share)
    return Inference("self-normalized", state.averages.estimate, half_width(value, kind), law.quantile, law.tail)


def finite_self_normalized(state: RoundState, trajectory: Trajectory, density: float) -> Inference:
    """Q_T ± v·√V with v for the relaxations the averaged rounds really had, f known to be about `density`.

    The window is taken to start from its stationary spread: three relaxations of its first step are put before it.
    """
    steps, weights = trajectory.steps, trajectory.weights
    if len(weights) < 2:
        raise InputError(f"an interval needs at least two averaged rounds; there are {len(weights)}.")
    rate = float(steps[0] * density)
    before = math.ceil(LEAD / rate) if rate > 0.0 else 0
    if not 0.0 < rate < 2.0 or before > LONGEST_LEAD:
        return self_normalized(state, trajectory)
    law = linear_law(
        np.concatenate([np.full(before, steps[0]), steps]),
        np.concatenate([np.full(before, weights[0]), weights]),
        density,
        burn_in=before,
    )
    value = half_width(normalizer(state.averages), "l2")
    return Inference("self-normalized", state.averages.estimate, value, law.quantile, law.tail)
