"""Run files made of simulated counts, for pages to show."""

from __future__ import annotations

from pathlib import Path
from statistics import NormalDist

import numpy as np

from privatile.mechanism import RandomizedResponse
from privatile.server.coordinator import Coordinator
from privatile.server.store import RunStore, StoredRound
from privatile.spec import ClientSpec, RunSpec


def long_run(
    path: Path,
    *,
    rounds: int,
    clients: int = 3,
    levels: tuple[float, ...] = (0.5,),
    stop: int | None = None,
    seed: int = 1,
    silent: frozenset[int] = frozenset(),
    value: str = "income",
) -> Path:
    """A file with many rounds of N(55, 10), in one transaction; `silent` clients answer once only."""
    mechanism = RandomizedResponse.from_epsilon(1.0)
    spec = RunSpec(
        value,
        levels,
        tuple(
            ClientSpec(f"client {k}", mechanism.threshold, 1 / clients, rounds * len(levels)) for k in range(clients)
        ),
        "linear",
        0.0,
        100.0,
        rounds=rounds,
        simulated=True,
    )
    store = RunStore.create(path, f"run-{seed}", spec)
    written: list[StoredRound] = []
    append, store.append = store.append, written.extend  # type: ignore[method-assign, assignment]
    coordinator = Coordinator(store)
    rng, people = np.random.default_rng(seed), NormalDist(55, 10)
    while (asked := coordinator.rounds()) is not None and coordinator.done != stop:
        counts: list[list[int | None]] = []
        for each in asked:
            above = 1 - people.cdf(each.questions[0].query)
            yes = 0.5 + mechanism.truth_rate * (above - 0.5)
            counts.append(
                [
                    None if k in silent and coordinator.done else int(rng.binomial(question.length, yes))
                    for k, question in enumerate(each.questions)
                ]
            )
        coordinator.accept(counts)
    append(written)
    if stop is None:
        store.finish()
    store.close()
    return path
