"""Rounds that some clients missed: their answers wait until every client has answered; none is used twice.

The mixture's drift at a question needs all clients, Σp_k·y_k with fixed weights. A complete round is used at once. The
answers of an incomplete one wait in a pool of its stage. Once every client has answers there, they are used as one:

    y = Σp_k·ȳ_k − (1 − τ),  ȳ_k the mean over the N_k records of client k in the pool

with the `level_variance` of these N_k. Its questions may differ. F_k never falls, so under F(c) ≥ τ the sum has mean at
most 0 for every candidate c at or below the lowest of a pool's low questions: that one, the outermost, stands for the
pool. On the high side it is the highest. Silence must not depend on the coins.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from privatile.estimator.clients import Client
from privatile.estimator.straddle import level_variance


class Heard(NamedTuple):
    """What a round gives the tests: an answer at a place, or none (an infinite variance)."""

    place: float
    residual: float
    variance: float
    rounds: int = 1
    """How many rounds of its stage it stands for."""


class Pool(NamedTuple):
    """Answers of one stage that wait for the other clients."""

    records: tuple[int, ...]
    """N_k."""
    sums: tuple[float, ...]
    """Σ of debiased answers, N_k·ȳ_k."""
    places: tuple[float, ...] = ()
    """The questions that they answered."""


Pools = dict[str, Pool]
"""By stage."""


def no_pool(clients: int) -> "Pool":
    """Nothing waits."""
    return Pool((0,) * clients, (0.0,) * clients)


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
    means: Sequence[float | None],
    clients: Sequence[Client],
    level: float,
) -> "tuple[Pools, Heard]":
    """One round further: the pools after it, and what the tests hear. `means` are debiased; None is a silent client.

    >>> from privatile.core.mechanism import RandomizedResponse
    >>> two = [Client(name, RandomizedResponse(0.5), 0.5, 0.5, 100) for name in ("a", "b")]
    >>> pools, heard = add_round({}, "low", 1.0, (10, 10), (0.5, None), two, 0.5)
    >>> heard.variance
    inf
    >>> pools, heard = add_round(pools, "low", 0.5, (10, 10), (None, 0.7), two, 0.5)
    >>> heard.place, round(heard.residual, 6), round(heard.variance, 6), heard.rounds, pools["low"].places
    (0.5, 0.1, 0.05, 2, ())
    """
    if all(mean is not None for mean in means):
        sums = [length * (mean or 0.0) for length, mean in zip(lengths, means, strict=True)]
        return pools, _heard(query, lengths, sums, clients, level)
    pool = pools.get(stage, no_pool(len(clients)))
    if any(mean is not None for mean in means):
        rows = list(zip(pool.records, pool.sums, lengths, means, strict=True))
        pool = Pool(
            tuple(have + (0 if mean is None else length) for have, _, length, mean in rows),
            tuple(have + (0.0 if mean is None else length * mean) for _, have, length, mean in rows),
            (*pool.places, query),
        )
    heard = Heard(query, math.nan, math.inf)
    if all(pool.records):
        place = outermost(stage, pool.places)
        heard = _heard(place, pool.records, pool.sums, clients, level)._replace(rounds=len(pool.places))
        pool = no_pool(len(clients))
    return {**pools, stage: pool}, heard


def _heard(
    place: float, records: Sequence[int], sums: Sequence[float], clients: Sequence[Client], level: float
) -> "Heard":
    rows = zip(clients, records, sums, strict=True)
    drift = math.fsum(client.weight * total / number for client, number, total in rows)
    weights = np.array([client.weight for client in clients])
    rates = np.array([client.mechanism.truth_rate for client in clients])
    return Heard(place, drift - (1.0 - level), float(level_variance(level, weights, rates, np.array(records))))
