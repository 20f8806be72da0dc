"""When the any-shape tests may use the normal law, and the variance that they take for an answer.

A test is a sum of bits with weights. It is as good as normal where no bit has much weight and both kinds of bits are
frequent. Otherwise the tests use Ville's exact bound (`inference.any_shape`), which needs the plain bound of a bit's
variance. Both are decided before the first answer, by public numbers alone.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.core.mechanism import rank_noise, yes_probability
from privatile.estimator.clients import Client
from privatile.estimator.straddle import level_variance

LEAST_ANSWERS = 500.0
"""With fewer effective answers the tests are exact.

The error of a side by the normal law, allowed .025, where one question is asked all the time and F = τ there: 60,000
runs each at 8 settings with 500 to 650 effective answers (τ = .5 to .99, ε = 1, 3 and 7.6). Largest .0273, both sides
together at most .0517 of .05. From 1,000 on .0261, from 250 on .0279. With 600 records, one client: .033 (τ = .95, 35
effective answers), .033 (τ = .99, ε = 3, 40) and .030 (τ = .9, ε = 3, 123): these are exact now."""


def effective_answers(clients: Sequence[Client]) -> float:
    """How many answers of a fair coin would make a sum as near to normal as all answers of these clients do.

    (Σσ²)³/(Σρ)², σ² the variance and ρ the third absolute moment of what each record adds, at the client's own level:
    the square of the ratio in Lyapunov's condition. One client has n·pq/(p² + q²)², p the chance of the rarer bit: n at
    p = ½, and the number of rarer bits where they are rare. A small client with a large weight gives few.

    >>> from privatile.core.mechanism import RandomizedResponse
    >>> def one(level: float, rate: float, records: int, weight: float = 1.0) -> Client:
    ...     return Client("all", RandomizedResponse(rate), weight, level, records)
    >>> settings = ((0.5, 0.462), (0.95, 0.999), (0.9, 0.905))
    >>> [round(effective_answers([one(level, rate, 600)])) for level, rate in settings]
    [600, 35, 123]
    >>> round(effective_answers([one(0.5, 0.462, 60, 0.5), one(0.5, 0.462, 60_000, 0.5)]))
    60
    """
    weights, rates, levels, records = np.array(
        [(client.weight, client.mechanism.truth_rate, client.level, client.records) for client in clients]
    ).T
    yes = yes_probability(rates, 1.0 - levels)
    each, variance = weights / (rates * records), yes * (1.0 - yes)
    spread = (records * each**2 * variance).sum()
    third = (records * each**3 * variance * (yes**2 + (1.0 - yes) ** 2)).sum()
    return float(spread**3 / third**2) if third > 0.0 else 0.0


def needs_exact(clients: Sequence[Client]) -> bool:
    """Whether a run of these clients has too few effective answers for the normal law.

    500 records of one client at the median are enough on every machine: rounding does not decide.
    """
    return effective_answers(clients) < LEAST_ANSWERS * (1.0 - 1e-9)


def variance_bound(level: float, weights: Floats, rates: Floats, records: NDArray[np.int64], *, exact: bool) -> Floats:
    """The variance that the tests take for y = Σp_k·y_k over these records of the clients, along the last axis.

    The plain bound Σp_k²/(4r_k²n_k) for exact tests, round by round; otherwise `level_variance`.
    """
    if not exact:
        return level_variance(level, weights, rates, records)
    plain: Floats = rank_noise(weights, rates, records).sum(axis=-1)
    return plain
