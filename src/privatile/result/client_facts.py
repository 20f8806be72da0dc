"""What one client gave and paid, how far its records lie below the estimate, and what a lie of it could do."""

import math
from dataclasses import dataclass, replace

from privatile.estimator.clients import Client, pooled_noise
from privatile.estimator.plan import Plan, RoundState
from privatile.estimator.step import local_ranks
from privatile.laws.normal import two_sided_z


@dataclass(frozen=True)
class ClientFacts:
    """What one client gave and paid."""

    name: str
    records: int
    asked: int
    epsilon: float
    truth_rate: float
    weight: float
    level: float
    local_rank: float
    lying_rank: float
    """How far, in rank, a lying client could push the estimate among the honest ones; ∞: no bound."""
    local_rank_interval: tuple[float, float] = (math.nan, math.nan)
    """Of its share below the quantile, at the result's confidence."""


def client_facts(plan: Plan, state: RoundState, confidence_level: float) -> tuple[ClientFacts, ...]:
    """The facts of every client after any round; of weighted records, of every weight class."""
    pooled = pooled_noise(plan.clients)
    rows = zip(plan.clients, state.asked, local_ranks(state, plan), state.window_asked, strict=True)
    return tuple(
        ClientFacts(
            name=client.name,
            records=client.records,
            asked=asked,
            epsilon=client.mechanism.epsilon,
            truth_rate=client.mechanism.truth_rate,
            weight=client.weight,
            level=client.level,
            local_rank=rank,
            lying_rank=lying_rank(client, plan.level),
            local_rank_interval=rank_interval(client, rank, answered, pooled, confidence_level),
        )
        for client, asked, rank, answered in rows
    )


def by_holder(
    plan: Plan, state: RoundState, confidence_level: float, classes: tuple[ClientFacts, ...]
) -> tuple[ClientFacts, ...]:
    """The facts of every client whose weight `classes` these are: together they count, pay and could lie."""
    pooled, z = pooled_noise(plan.clients), two_sided_z(confidence_level)
    rows = list(zip(plan.clients, classes, state.window_asked, strict=True))
    found = []
    for holder in dict.fromkeys(client.held_by for client in plan.clients):
        own = [row for row in rows if row[0].held_by == holder]
        (first, facts, _), parts = own[0], [each for _, each, _ in own]
        weight = math.fsum(each.weight for each in parts)
        rank = math.fsum(each.weight * each.local_rank for each in parts) / weight
        interval = (math.nan, math.nan)
        if all(answered for *_, answered in own):
            noise = math.fsum(
                (each.weight / weight) ** 2 * _rank_variance(client, each.local_rank, answered)
                for client, each, answered in own
            )
            error = math.sqrt(noise + pooled)
            interval = max(0.0, rank - z * error), min(1.0, rank + z * error)
        found.append(
            replace(
                facts,
                name=holder,
                records=sum(each.records for each in parts),
                asked=sum(each.asked for each in parts),
                weight=weight,
                local_rank=rank,
                lying_rank=lying_rank(replace(first, weight=weight), plan.level),
                local_rank_interval=interval,
            )
        )
    return tuple(found)


def _rank_variance(client: Client, rank: float, answered: int) -> float:
    """The noise of a client's own answers in its rank."""
    return float(client.mechanism.variance(min(max(rank, 0.0), 1.0))) / answered


def rank_interval(
    client: Client, rank: float, answered: int, pooled: float, confidence_level: float
) -> tuple[float, float]:
    """F_k(Q*) with its interval: the noise of the client's own answers, and that of the estimate they were asked about.

    The second is taken at the mixture's slope; a client with a much steeper distribution there has more.
    """
    if not answered:
        return math.nan, math.nan
    z = two_sided_z(confidence_level)
    error = math.sqrt(_rank_variance(client, rank, answered) + pooled)
    return max(0.0, rank - z * error), min(1.0, rank + z * error)


def lying_rank(client: Client, level: float) -> float:
    """How far a lying client can push the rank of the estimate among the honest: p·max(a, b)/(1 − p).

    ∞ when that leaves (0, 1): then nothing bounds it.

    >>> from privatile.core.mechanism import RandomizedResponse
    >>> round(lying_rank(Client("a", RandomizedResponse(0.5), 0.1, 0.5, 100), 0.5), 4)
    0.1111
    """
    if client.weight >= 1.0:
        return math.inf
    push = client.weight * max(client.mechanism.rise(level), client.mechanism.fall(level)) / (1.0 - client.weight)
    return push if push < min(level, 1.0 - level) else math.inf
