"""Rounds that some clients missed: their answers wait until every client has answered; none is used twice.

The mixture's drift at a question needs all clients, Σp_k·y_k with fixed weights. A complete round is used at once.
The answers of an incomplete one wait in a pool of its stage. Once every client has answers there, they are used as
one:

    y = Σp_k·ȳ_k − (1 − τ),  ȳ_k the mean over the N_k records of client k in the pool

with the `level_variance` of these N_k.

Its questions may differ. F_k never falls, so under F(c) ≥ τ the sum has mean at most 0 for every candidate c at or
below the lowest of a pool's low questions: that one, the outermost, stands for the pool. On the high side it is the
highest. Silence must not depend on the coins.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from privatile.estimator.clients import Client
from privatile.estimator.straddle import level_variance


class Heard(NamedTuple):
    """What a round gives the design: an answer at a place, or none (an infinite variance)."""

    place: float
    residual: float
    variance: float
    rounds: int = 1
    """How many rounds of its stage it stands for."""


class Pool(NamedTuple):
    """Answers of one stage that wait for the other clients."""

    records: tuple[int, ...]
    """N_k."""
    ones: tuple[int, ...]
    places: tuple[float, ...] = ()
    """The questions that they answered."""


Pools = dict[str, Pool]
"""By stage."""


def no_pool(clients: int) -> "Pool":
    """Nothing waits."""
    return Pool((0,) * clients, (0,) * clients)


def outermost(stage: str, places: Sequence[float]) -> float:
    """The place that stands for answers to several questions: the one furthest out; the mean of a centre's.

    >>> outermost("low", [1.0, 2.0]), outermost("high", [1.0, 2.0]), outermost("centre", [1.0, 2.0])
    (1.0, 2.0, 1.5)
    """
    if stage == "low":
        return min(places)
    return max(places) if stage == "high" else math.fsum(places) / len(places)


def add_round(
    pools: Pools,
    stage: str,
    query: float,
    lengths: Sequence[int],
    ones: Sequence[int | None],
    clients: Sequence[Client],
    level: float,
) -> "tuple[Pools, Heard]":
    """One round further: the pools after it, and what the design hears.

    >>> from privatile.core.mechanism import RandomizedResponse
    >>> two = [Client(name, RandomizedResponse(0.5), 0.5, 0.5, 100) for name in ("a", "b")]
    >>> pools, heard = add_round({}, "low", 1.0, (10, 10), (5, None), two, 0.5)
    >>> heard.variance
    inf
    >>> pools, heard = add_round(pools, "low", 0.5, (10, 10), (None, 6), two, 0.5)
    >>> heard.place, round(heard.residual, 6), round(heard.variance, 6), pools["low"].places
    (0.5, 0.1, 0.05, ())
    """
    answered = [count is not None for count in ones]
    if all(answered):
        counts = [count or 0 for count in ones]
        return pools, _heard(query, lengths, counts, clients, level)
    pool = pools.get(stage, no_pool(len(clients)))
    if any(answered):
        pool = Pool(
            tuple(
                have + (length if came else 0)
                for have, length, came in zip(pool.records, lengths, answered, strict=True)
            ),
            tuple(have + (count or 0) for have, count in zip(pool.ones, ones, strict=True)),
            (*pool.places, query),
        )
    heard = Heard(query, math.nan, math.inf)
    if all(pool.records):
        place = outermost(stage, pool.places)
        heard = _heard(place, pool.records, pool.ones, clients, level)._replace(rounds=len(pool.places))
        pool = no_pool(len(clients))
    return {**pools, stage: pool}, heard


def _heard(
    place: float, records: Sequence[int], ones: Sequence[int], clients: Sequence[Client], level: float
) -> "Heard":
    pairs = list(zip(clients, records, ones, strict=True))
    drift = math.fsum(client.weight * client.mechanism.debias(count, number) for client, number, count in pairs)
    weights = [client.weight for client in clients]
    rates = [client.mechanism.truth_rate for client in clients]
    variance = level_variance(level, weights, rates, records)
    return Heard(place, drift - (1.0 - level), variance)
