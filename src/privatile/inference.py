"""From a trajectory to an interval and a test.

Every method gives an `Inference`: a centre, a unit and the law of (centre − Q*)/unit. Interval and p-value are read
from the same law, so they never disagree: a value is inside the interval iff its p-value exceeds 1 − confidence.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privatile.averaging import Normalizer, half_width, normalizer, normalizer_of
from privatile.critical import statistic_law
from privatile.errors import InputError
from privatile.estimator import Plan, RoundState, local_ranks, round_weight


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
        check_confidence(confidence_level)
        reach = self.quantile(confidence_level) * self.unit
        return self.center - reach, self.center + reach

    def test(self, value: float) -> tuple[float, float]:
        """Statistic and two-sided p-value of "Q* is `value`"."""
        if self.unit == 0.0:
            return (0.0, 1.0) if value == self.center else (math.copysign(math.inf, self.center - value), 0.0)
        statistic = (self.center - value) / self.unit
        return statistic, self.tail(abs(statistic))


def check_confidence(confidence_level: float) -> None:
    """Refuse what is no confidence level."""
    if not 0.0 < confidence_level < 1.0:
        raise InputError(f"confidence_level must lie inside (0, 1); got {confidence_level!r}. 0.95 is usual.")


class Trajectory:
    """Averaged rounds one by one: the query after the step and its noise weight. 16 bytes a round."""

    def __init__(self) -> None:
        self._queries = array("d")
        self._weights = array("d")

    def record(self, state: RoundState) -> None:
        """Note the round just done, if it was averaged; forget everything when averaging starts anew."""
        if state.averages.rounds == 0:
            self._queries, self._weights = array("d"), array("d")
        else:
            self._queries.append(state.query)
            self._weights.append(round_weight(state))

    @property
    def queries(self) -> NDArray[np.float64]:
        """q̄_i of the averaged rounds."""
        return np.array(self._queries, dtype=np.float64)

    @property
    def weights(self) -> NDArray[np.float64]:
        """w_i of the averaged rounds."""
        return np.array(self._weights, dtype=np.float64)


def endpoint_variance(state: RoundState, plan: Plan) -> float:
    """Share of the population variance that is left when the file itself is the target.

    Without replacement, the records of client k already asked say something about the rest: the variance of the mean
    falls by Σ p_k²F_k(1 − F_k)/n_k, leaving (r⁻² − 1)/4 + (1 − φ)F(1 − F) a record, φ the share of the file in the
    averaged rounds. Only the end of the path changes: what is subtracted is a straight line in the round number,
    and detrending by m/T removes it, so the normaliser keeps its law. F is estimated from the client's own reports;
    its noise makes F(1 − F) smaller on average, which errs on the wide side.
    """
    even = whole = saved = 0.0
    rounds = state.averages.rounds
    for client, rank, asked in zip(plan.clients, local_ranks(state, plan), state.window_asked, strict=True):
        if not asked:
            return 1.0
        share = min(max(rank, 0.0), 1.0)
        spread = share * (1.0 - share)
        rate, squared = client.mechanism.truth_rate, client.weight**2
        even += squared / (4.0 * rate**2) * rounds**2 / asked
        whole += squared * ((rate**-2 - 1.0) / 4.0 + spread) * rounds**2 / asked
        saved += squared * spread * rounds**2 / client.records
    # Rounds of unequal length are noisier than equal ones by ν; the weights of the rounds know by how much.
    nu = state.averages.weight / even
    return 1.0 - saved / (nu * whole)


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
