"""A few rounds over Flower's simulation runtime, and the same in process with the same draws: bit for bit.

Runs in an environment of its own, because Flower pins packages that this project does not:
    python tests/federation/flower_smoke.py FOLDER
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import numpy as np
from numpy.typing import NDArray

from privatile.client.ledger import Ledger
from privatile.client.responder import Responder
from privatile.client.shuffle import shuffle
from privatile.client.source import MappingSource
from privatile.engines import flower, in_process
from privatile.mechanism import RandomizedResponse
from privatile.server.coordinator import Coordinator
from privatile.server.store import RunStore
from privatile.spec import ClientSpec, RunSpec

NAMES = ("north", "south")
ROUNDS, LENGTH = 4, 6


class LedgerCoins:
    """Draws that depend on the client and on where its ledger stands, not on the process that answers."""

    def __init__(self, ledger: Ledger, place: int) -> None:
        self._ledger, self._place = ledger, place

    def draw(self, count: int) -> NDArray[np.uint64]:
        rng = np.random.default_rng([7, self._place, self._ledger.position.sequence])
        return rng.integers(0, 1 << 64, size=count, dtype=np.uint64)


def specification() -> RunSpec:
    mechanism = RandomizedResponse.from_epsilon(1.0)
    clients = tuple(ClientSpec(name, mechanism.threshold, 0.5, ROUNDS * LENGTH) for name in NAMES)
    return RunSpec("x", (0.5,), clients, "linear", 0.0, 100.0, design="rounds", rounds=ROUNDS)


@contextlib.contextmanager
def responder(book: Path, name: str) -> Iterator[Responder]:
    place = NAMES.index(name)
    values = np.random.default_rng(place).normal(50.0, 10.0, ROUNDS * LENGTH)
    with Ledger.open(book) as ledger:
        column = shuffle(MappingSource({name: values}, "x"), ledger)[name]
        yield Responder("smoke", column, RandomizedResponse.from_epsilon(1.0), ledger, LedgerCoins(ledger, place))


def transcript(path: Path) -> list[Any]:
    store = RunStore.open(path, read_only=True)
    rows = [[one.round, one.query, list(one.lengths), list(one.ones), one.after] for one in store.rounds()]
    store.close()
    return rows


def main(folder: Path) -> None:
    from flwr.simulation import run_simulation  # type: ignore[import-not-found]

    for name in NAMES:
        with Ledger.open(folder / f"{name}.db") as ledger, ledger.transaction():
            pass
        shutil.copy(folder / f"{name}.db", folder / f"{name}.copy.db")

    def open_responder(context: Any) -> contextlib.AbstractContextManager[Responder]:
        name = NAMES[int(context.node_config["partition-id"])]
        return responder(folder / f"{name}.db", name)

    def open_coordinator(context: Any) -> Coordinator:
        return Coordinator(RunStore.create(folder / "flower.db", "smoke", specification()))

    run_simulation(
        flower.server_app(open_coordinator, deadline=120.0, done=lambda coordinator: coordinator.store.close()),
        flower.client_app(open_responder),
        num_supernodes=len(NAMES),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 1}},
    )
    local = Coordinator(RunStore.create(folder / "local.db", "smoke", specification()))
    with contextlib.ExitStack() as stack:
        sides = [stack.enter_context(responder(folder / f"{name}.copy.db", name)) for name in NAMES]
        in_process.run(local, sides)
    local.store.close()
    one, two = transcript(folder / "flower.db"), transcript(folder / "local.db")
    print(json.dumps({"rounds": len(one), "same": one == two}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
