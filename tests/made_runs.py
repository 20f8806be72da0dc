"""Run files made of simulated counts, for pages to show."""

from __future__ import annotations

import copy
import math
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

import privatile
from privatile.core.mechanism import RandomizedResponse
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.result.result import QuantileResult
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore, Statement, StoredRound
from privatile.run.view import RunView


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
    design: str = "rounds",
    value_kind: str = "any",
    length: int = 1,
    whole: bool = False,
) -> Path:
    """A file with many rounds of N(55, 10), in one transaction; `silent` clients answer once only.

    `length` records of every client answer in a round and level; `whole` rounds the values to whole numbers.
    """
    mechanism = RandomizedResponse.from_epsilon(1.0)
    spec = RunSpec(
        value,
        levels,
        tuple(
            ClientSpec(f"client {k}", mechanism.threshold, 1 / clients, rounds * length * len(levels))
            for k in range(clients)
        ),
        "linear",
        0.0,
        100.0,
        design=design,
        value_kind=value_kind,
        rounds=rounds,
        simulated=True,
    )
    store = RunStore.create(path, f"run-{seed}", spec)
    written: list[StoredRound] = []

    def keep(rounds: Sequence[StoredRound], also: Sequence[Statement] = ()) -> float:
        written.extend(rounds)
        return store.created

    store.append = keep  # type: ignore[method-assign]
    coordinator = Coordinator(store)
    rng, people = np.random.default_rng(seed), NormalDist(55, 10)
    while (asked := coordinator.rounds()) is not None and coordinator.done != stop:
        counts: list[list[int | None]] = []
        for each in asked:
            query = each.questions[0].query
            above = 1 - people.cdf(math.floor(query) + 0.5 if whole else query)
            yes = 0.5 + mechanism.truth_rate * (above - 0.5)
            counts.append(
                [
                    None if k in silent and coordinator.done else int(rng.binomial(question.length, yes))
                    for k, question in enumerate(each.questions)
                ]
            )
        coordinator.accept(counts)
    del store.append
    if stop is None:
        store.finish(rounds=written)
    else:
        store.append(written)
    store.close()
    return path


class SlowRun:
    """A run that continues when told to, in a file of its own."""

    def __init__(
        self, path: Path, *, rounds: int, clients: int = 3, names: tuple[str, ...] = (), value: str = "income"
    ) -> None:
        self._mechanism = RandomizedResponse.from_epsilon(1.0)
        names = names or tuple(f"client {k}" for k in range(clients))
        spec = RunSpec(
            value,
            (0.5,),
            tuple(ClientSpec(name, self._mechanism.threshold, 1 / len(names), rounds * 20) for name in names),
            "linear",
            0.0,
            100.0,
            design="rounds",
            rounds=rounds,
            simulated=True,
        )
        self.coordinator = Coordinator(RunStore.create(path, "run-slow", spec))
        self._rng = np.random.default_rng(1)

    def go(self, rounds: int, silent: set[int] | frozenset[int] = frozenset()) -> None:
        """So many rounds further."""
        people = NormalDist(55, 10)
        for _ in range(rounds):
            asked = self.coordinator.rounds()
            if asked is None:
                return
            yes = 0.5 + self._mechanism.truth_rate * (0.5 - people.cdf(asked[0].questions[0].query))
            self.coordinator.accept(
                [
                    [
                        None if k in silent else int(self._rng.binomial(question.length, yes))
                        for k, question in enumerate(asked[0].questions)
                    ]
                ]
            )

    def sql(self, statement: str, values: tuple[object, ...] = ()) -> None:
        """Something a transport writes."""
        connection = self.coordinator.store._connection
        with connection:
            connection.execute(statement, values)


def few_days(path: Path) -> Path:
    """A finished run whose answers bound the quantile from above only: "7 or less"."""
    days = np.random.default_rng(1).poisson(3.0, 300).astype(float)
    settings: dict[str, Any] = {"range": (0, 80), "value_kind": "whole", "value": "days", "simulate": True, "rng": 1}
    privatile.estimate(days, q=0.5, epsilon=1, save=path, **settings)
    return path


def copied(store: RunStore) -> bytes:
    """A copy of a whole run's file, which outlives it."""
    copy = bytearray(store._connection.serialize())
    copy[18:20] = b"\x01\x01"  # not in write-ahead mode, which a database in memory does not have
    return bytes(copy)


def opened(copy: bytes) -> RunStore:
    """Read a copy that `copied` made."""
    connection = sqlite3.connect(":memory:")
    connection.deserialize(copy)
    return RunStore(connection, ":memory:", writes=False)


def showing(view: RunView, *results: QuantileResult) -> RunView:
    """The view of a run with other results, one for each level."""
    other = copy.copy(view)
    other._results = results
    other.levels = tuple(copy.copy(level) for level in view.levels)
    for level in other.levels:
        level._run = other
    return other


def viewed(path: Path, **options: Any) -> RunView:
    """A run as a page shows it: `long_run` with these options."""
    return RunView.read(long_run(path, **options), drawn=True)
