"""Rounds that some clients missed: their answers wait until every client has answered; none is used twice.

The mixture's drift at a question needs all clients, Σp_k·y_k with fixed weights. A complete round is used at once. The
answers of an incomplete one wait in a pool of its stage. Once every client has answers there, they are used as one:

    y = Σp_k·ȳ_k − (1 − τ),  ȳ_k the mean over the N_k records of client k in the pool

with the `variance_bound` of these N_k. Its questions may differ. F_k never falls, so under F(c) ≥ τ the sum has mean
at most 0 for every candidate c at or below the lowest of a pool's low questions: that one, the outermost, stands for
the pool. On the high side it is the highest. Silence must not depend on the coins.

Where a pool holds one question only, the weight of its answers is fixed before they come and the tests' bound is exact.
Over several questions it is not proven: the last of them, which decides for which candidates the pool counts, was
placed with the first answers of the pool. Measured where F jumps to exactly τ, ten clients silent in 10% and 30% of the
rounds, ten in a row, 400 runs each (`studies/any_shape/silence.py --jump`): a side errs in .015 and .018 of runs,
allowed is .025.
"""

import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from privatile.estimator.clients import Client
from privatile.estimator.exact_tests import variance_bound


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
    asked: tuple[float, ...]
    """Σ of the questions that its records answered, N_k·q̄_k."""
    places: tuple[float, ...] = ()
    """The questions of all."""

    @property
    def is_complete(self) -> bool:
        """Whether every client has answered."""
        return all(self.records)


Pools = dict[str, Pool]
"""By stage."""


def no_pool(clients: int) -> "Pool":
    """Nothing waits."""
    return Pool((0,) * clients, (0.0,) * clients, (0.0,) * clients)


def outermost(stage: str, places: Sequence[float]) -> float:
    """The place that stands for answers to several questions: the one furthest out; the mean of a centre's.

    >>> outermost("low", [1.0, 2.0]), outermost("high", [1.0, 2.0]), outermost("centre", [1.0, 2.0])
    (1.0, 2.0, 1.5)
    """
    if stage == "low":
        return min(places)
    return max(places) if stage == "high" else math.fsum(places) / len(places)


def gather(
    pools: Pools,
    stage: str,
    query: float,
    lengths: Sequence[int],
    means: Sequence[float | None],
    *,
    keeps_place: bool = True,
) -> "tuple[Pools, Pool]":
    """One round further: what still waits, and this round's pool, complete or not. None is a silent client.

    A round completes a pool where every client has answers in the two together. A round that all have answered stands
    alone where its question is not the outermost: what waits would move it outwards. A fit, which takes the mean of the
    questions, has nothing to keep and puts them together.

    >>> pools, pool = gather({}, "low", 1.0, (10, 10), (0.5, None))
    >>> pool.is_complete, pools["low"].records
    (False, (10, 0))
    >>> pools, pool = gather(pools, "low", 2.0, (10, 10), (0.9, 0.7))
    >>> pool.places, pools["low"].records
    ((2.0,), (10, 0))
    >>> pools, pool = gather(pools, "low", 3.0, (10, 20), (None, 0.7))
    >>> pool.records, pool.places, pools["low"].records
    ((10, 20), (1.0, 3.0), (0, 0))
    """
    here = [(0, 0.0) if mean is None else (length, mean) for length, mean in zip(lengths, means, strict=True)]
    came = Pool(
        tuple(number for number, _ in here),
        tuple(number * mean for number, mean in here),
        tuple(number * query for number, _ in here),
        (query,) if any(number for number, _ in here) else (),
    )
    waits = pools.get(stage, no_pool(len(here)))
    if came.is_complete and (not waits.places or (keeps_place and outermost(stage, (*waits.places, query)) != query)):
        return pools, came
    pool = Pool(
        tuple(map(operator.add, waits.records, came.records)),
        tuple(map(operator.add, waits.sums, came.sums)),
        tuple(map(operator.add, waits.asked, came.asked)),
        waits.places + came.places,
    )
    return {**pools, stage: no_pool(len(here)) if pool.is_complete else pool}, pool


def add_round(
    pools: Pools,
    stage: str,
    query: float,
    lengths: Sequence[int],
    means: Sequence[float | None],
    clients: Sequence[Client],
    level: float,
    *,
    exact: bool = False,
) -> "tuple[Pools, Heard]":
    """One round further: the pools after it, and what the tests hear. `means` are debiased; None is a silent client.

    `exact` tests hear the plain bound of the variance (`exact_tests`).

    >>> from privatile.core.mechanism import RandomizedResponse
    >>> two = [Client(name, RandomizedResponse(0.5), 0.5, 0.5, 100) for name in ("a", "b")]
    >>> pools, heard = add_round({}, "low", 1.0, (10, 10), (0.5, None), two, 0.5)
    >>> heard.variance
    inf
    >>> pools, heard = add_round(pools, "low", 0.5, (10, 10), (None, 0.7), two, 0.5)
    >>> heard.place, round(heard.residual, 6), round(heard.variance, 6), heard.rounds, pools["low"].places
    (0.5, 0.1, 0.05, 2, ())
    """
    pools, pool = gather(pools, stage, query, lengths, means)
    if not pool.is_complete:
        return pools, Heard(query, math.nan, math.inf)
    rows = zip(clients, pool.records, pool.sums, strict=True)
    drift = math.fsum(client.weight * total / number for client, number, total in rows)
    weights = np.array([client.weight for client in clients])
    rates = np.array([client.mechanism.truth_rate for client in clients])
    variance = float(variance_bound(level, weights, rates, np.array(pool.records), exact=exact))
    return pools, Heard(outermost(stage, pool.places), drift - (1.0 - level), variance, len(pool.places))
