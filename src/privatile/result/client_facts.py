"""What one client gave and paid, how far its records lie below the estimate, and what a lie of it could do."""

import math
from dataclasses import dataclass

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
    """The facts of every client after any round."""
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


def rank_interval(
    client: Client, rank: float, answered: int, pooled: float, confidence_level: float
) -> tuple[float, float]:
    """F_k(Q*) with its interval: the noise of the client's own answers, and that of the estimate they were asked about.

    The second is taken at the mixture's slope; a client with a much steeper distribution there has more.
    """
    if not answered:
        return math.nan, math.nan
    z = two_sided_z(confidence_level)
    error = math.sqrt(client.mechanism.variance(min(max(rank, 0.0), 1.0)) / answered + pooled)
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
