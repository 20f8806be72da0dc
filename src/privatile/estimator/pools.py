"""What the tests hear of a round: answers of all clients together, their variance, and what waits for silent clients.

Rounds that some clients missed: their answers wait until every client has answered; none is used twice.

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

The any-shape tests may use the normal law where no bit has much weight and both kinds of bits are frequent: a test is a
sum of bits with weights. Otherwise they use Ville's exact bound (`inference.any_shape`), which needs the plain bound of
a bit's variance. Both are decided before the first answer, by public numbers alone.
"""

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.core.mechanism import rank_noise, yes_probability
from privatile.estimator.clients import Client


def level_variance(level: float, weights: Floats, rates: Floats, records: NDArray[Any]) -> Floats:
    """The largest variance of y = Σp_k·y_k where the mixture's rank is τ, whatever the clients' own ranks.

    A client's answers have variance p_k²(r_k⁻² − (2F_k − 1)²)/(4n_k). With Σp_kF_k = τ the second term is least where
    2F_k − 1 is in proportion to n_k/p_k, and the sum is

        Σp_k²/(4r_k²n_k) − (2τ − 1)²/(4Σn_k)

    The tests may take it for every answer: on their boundary the rank is τ, and beyond it the drift falls faster than
    the variance can rise. For one client at τ = 0.9 and ε = 1 it is 14% below the bound without it. Clients are along
    the last axis.

    >>> one, people = np.array([1.0]), np.array([100])
    >>> round(float(level_variance(0.9, one, 0.4621 * one, people) / level_variance(0.5, one, 0.4621 * one, people)), 3)
    0.863
    """
    spread: Floats = rank_noise(weights, rates, records).sum(axis=-1) - (2.0 * level - 1.0) ** 2 / (
        4.0 * records.sum(axis=-1)
    )
    return spread


MIN_ANSWERS = 500.0
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
    return effective_answers(clients) < MIN_ANSWERS * (1.0 - 1e-9)


def variance_bound(level: float, weights: Floats, rates: Floats, records: NDArray[np.int64], *, exact: bool) -> Floats:
    """The variance that the tests take for y = Σp_k·y_k over these records of the clients, along the last axis.

    The plain bound Σp_k²/(4r_k²n_k) for exact tests, round by round; otherwise `level_variance`.
    """
    if not exact:
        return level_variance(level, weights, rates, records)
    plain: Floats = rank_noise(weights, rates, records).sum(axis=-1)
    return plain


class Heard(NamedTuple):
    """What a round gives the tests: an answer at a place, or none (an infinite variance)."""

    place: float
    residual: float
    variance: float
    rounds: float = 1.0
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


def no_pool(clients: int) -> Pool:
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
) -> tuple[Pools, Pool]:
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
) -> tuple[Pools, Heard]:
    """One round further: the pools after it, and what the tests hear. `means` are debiased; None is a silent client.

    `exact` tests hear the plain bound of the variance (`needs_exact`).

    >>> from privatile.core.mechanism import RandomizedResponse
    >>> two = [Client(name, RandomizedResponse(0.5), 0.5, 0.5, 100) for name in ("a", "b")]
    >>> pools, heard = add_round({}, "low", 1.0, (10, 10), (0.5, None), two, 0.5)
    >>> heard.variance
    inf
    >>> pools, heard = add_round(pools, "low", 0.5, (10, 10), (None, 0.7), two, 0.5)
    >>> heard.place, round(heard.residual, 6), round(heard.variance, 6), heard.rounds, pools["low"].places
    (0.5, 0.1, 0.05, 2.0, ())
    """
    pools, pool = gather(pools, stage, query, lengths, means)
    if not pool.is_complete:
        return pools, Heard(query, math.nan, math.inf)
    rows = zip(clients, pool.records, pool.sums, strict=True)
    drift = math.fsum(client.weight * total / number for client, number, total in rows)
    variance = math.fsum(client.noise(number) for client, number in zip(clients, pool.records, strict=True))
    if not exact:
        # As `level_variance` has it for arrays.
        variance -= (2.0 * level - 1.0) ** 2 / (4.0 * sum(pool.records))
    return pools, Heard(outermost(stage, pool.places), drift - (1.0 - level), variance, float(len(pool.places)))
