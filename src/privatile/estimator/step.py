"""State in, answers in, state out: one round of the estimator, for both modes.

A client's answer enters through its debiased mean report y_k, an unbiased share of records above q:

    y_k = (n₁/E − (1 − r_k)/2)/r_k
    q ← clip( q + γ·Σ_k p_k·(y_k − (1 − τ)) )

In `local` mode this is Algorithm 1: a client's last iterate depends on its reports only through their count, and
q + (γ/E)(a_k·n₁ − b_k·(E − n₁)) = q + γ(y_k − (1 − τ)). In `cohort` mode all E records answer about the same q.
The server's step is the same; only what the client does inside a round differs.

A silent client never changes the estimand: weights are not renormalised. The recursion takes its last debiased mean
once more, and the noise it repeats is counted (used c times in a row, its noise weighs c² instead of c). Where a curve
is fitted (`inference.client_curves`) or a test is made (`attendance`), no answer is used twice.
"""

import math
from collections.abc import Collection, Iterable, Sequence

from privatile.core.scale import clip
from privatile.errors import ProtocolError
from privatile.estimator.averaging import Averages, add
from privatile.estimator.missed_records import Records
from privatile.estimator.plan import Ask, Plan, RoundState


def begin(plan: Plan) -> RoundState:
    """The state before the first round."""
    clients = len(plan.clients)
    return RoundState(
        round=0,
        query=plan.start,
        means=(math.nan,) * clients,
        noise=(math.nan,) * clients,
        used=(0,) * clients,
        heard=(math.nan,) * clients,
        silent=(0,) * clients,
        ones=(0,) * clients,
        asked=(0,) * clients,
        window_ones=(0,) * clients,
        window_asked=(0,) * clients,
        records=tuple(Records(client.records) for client in plan.clients),
        averages=Averages(center=plan.start),
        memory=plan.initial_memory(),
    )


def round_weight(state: RoundState) -> float:
    """w_m of the round just done: Σ_k (2c_k − 1)·p_k²/(4r_k²E_k), c_k = 1 for a client that answered.

    A report used c times in a row adds c² − (c − 1)² = 2c − 1 times its noise the c-th time.
    """
    rows = zip(state.used, state.noise, strict=True)
    return math.fsum((2 * used - 1) * noise for used, noise in rows if used)


def step(
    state: RoundState, ask: Ask, ones: Sequence[int | None], plan: Plan, unspent: Collection[int] = ()
) -> RoundState:
    """One round: the counts of all clients in, the next state out. `None` is a silent client.

    `unspent` are the places of clients whose ledgers show that no coin was drawn in the rounds they have missed since
    their last answer (`missed_records`).

    >>> import numpy as np
    >>> from privatile.core.mechanism import RandomizedResponse
    >>> from privatile.core.scale import Identity
    >>> from privatile.estimator.clients import Client
    >>> from privatile.estimator.plan import TablePlan
    >>> client = Client("all", RandomizedResponse(0.5), weight=1.0, level=0.5, records=100)
    >>> plan = TablePlan((client,), Identity(-9, 9), np.array([[50, 50]]), np.array([1.0, 1.0]))
    >>> step(begin(plan), plan.ask(begin(plan)), [50], plan).query  # all 50 said yes: y = 1.5
    1.0
    """
    clients = plan.clients
    if len(ones) != len(clients):
        raise ProtocolError(f"a round needs one count per client, {len(clients)}; got {len(ones)}.")
    means, noise, used, heard = list(state.means), list(state.noise), list(state.used), list(state.heard)
    silent, total_ones, total_asked = list(state.silent), list(state.ones), list(state.asked)
    window_ones, window_asked, records = list(state.window_ones), list(state.window_asked), list(state.records)
    for k in unspent:
        if not 0 <= k < len(clients) or ones[k] is None or not records[k].missed:
            raise ProtocolError(
                f"client number {k + 1} gets records of missed rounds back in round {state.round + 1}: it has missed "
                "none before it, or does not answer it."
            )
    for k, (client, count, length) in enumerate(zip(clients, ones, ask.lengths, strict=True)):
        records[k] = records[k].after(length, answered=count is not None, unspent=k in unspent)
        if count is None:
            if not used[k] and not plan.open_ended:
                raise ProtocolError(
                    f"client {client.name} has never answered: the first round needs every client. Wait for its "
                    "first answer, or start a run without it (a new estimand)."
                )
            # A client that has never answered has no last answer; an open-ended run waits for it (`attendance`).
            used[k] += used[k] > 0
            silent[k] += 1
        else:
            if not length:
                raise ProtocolError(f"nobody of client {client.name} came: its count must be none; got {count}.")
            if not 0 <= count <= length:
                raise ProtocolError(
                    f"ones of client {client.name} must be a whole number from 0 to {length}; got {count}."
                )
            means[k] = client.mechanism.debias(count, length)
            noise[k] = client.noise(length)
            used[k] = 1
            heard[k] = ask.query
            total_ones[k] += count
            total_asked[k] += length
            if ask.averaged:
                window_ones[k] += count
                window_asked[k] += length
    after = state._replace(
        round=state.round + 1,
        means=tuple(means),
        noise=tuple(noise),
        used=tuple(used),
        heard=tuple(heard),
        silent=tuple(silent),
        ones=tuple(total_ones),
        asked=tuple(total_asked),
        window_ones=tuple(window_ones),
        window_asked=tuple(window_asked),
        records=tuple(records),
    )
    query = clip(plan.scale, ask.query + (ask.step * drift(after, plan) if ask.step else 0.0))
    # Averaging starts where the burn-in ends: centre its sums there.
    averages = add(state.averages, query, round_weight(after)) if ask.averaged else Averages(center=query)
    after = after._replace(query=query, averages=averages)
    return after._replace(memory=plan.learn(ask, after))


def drift(state: RoundState, plan: Plan) -> float:
    """Σ p_k·(y_k − (1 − τ)) of the round just done: an unbiased estimate of τ − F at the query it asked about."""
    return math.fsum(
        client.weight * (mean - (1.0 - plan.level_of(client)))
        for client, mean in zip(plan.clients, state.means, strict=True)
    )


def local_ranks(state: RoundState, plan: Plan) -> tuple[float, ...]:
    """F_k near Q* of every client: 1 − the debiased share of yes over the averaged rounds; NaN without an answer."""
    return tuple(
        1.0 - client.mechanism.debias(ones, asked) if asked else math.nan
        for client, ones, asked in zip(plan.clients, state.window_ones, state.window_asked, strict=True)
    )


def replay(plan: Plan, rounds: Iterable[Sequence[int | None]]) -> RoundState:
    """The state that a transcript of counts leads to: everything after the reports is this pure function."""
    state = begin(plan)
    for ones in rounds:
        ask = plan.ask(state)
        if ask is None:
            raise ProtocolError(f"the transcript continues after the plan's last round, {state.round}.")
        state = step(state, ask, ones, plan)
    return state
