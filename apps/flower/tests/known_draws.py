"""Draws that a test knows, and what a run leaves. As a script: the simulation with these draws.

    python known_draws.py FOLDER

The folder holds study.toml and, for each client, NAME.csv and NAME-ledger.db; the run goes to run.db.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privatile.client.ledger.integrity import Mark
from privatile.client.ledger.ledger import Ledger
from privatile.federation.study import load_study
from privatile.run.run_file import RunStore
from privatile_flower import simulate
from privatile_flower.client import MakeCoins


def allow_copies() -> None:
    """Runs here begin with copies of one ledger, so that they ask in the same order: they are older copies of it."""
    setattr(Mark, "check", lambda mark, ledger: None)  # noqa: B010  mypy refuses the assignment


class RoundCoins:
    """Draws that depend on the client and on how many answers came before, not on the process that answers.

    `turned` = (answer, record, threshold): that one draw takes the other side, so that one report changes.
    """

    def __init__(self, place: int, answers: int = 0, turned: tuple[int, int, int] | None = None) -> None:
        self._place, self._answers, self._turned = place, answers, turned

    def draw(self, count: int) -> NDArray[np.uint64]:
        rng = np.random.default_rng([7, self._place, self._answers])
        coins = rng.integers(0, 1 << 64, size=count, dtype=np.uint64)
        if self._turned is not None and self._turned[0] == self._answers:
            _, record, threshold = self._turned
            coins[record] = 0 if coins[record] >= threshold else (1 << 64) - 1
        self._answers += 1
        return coins


def ledger_coins(names: list[str]) -> MakeCoins:
    """For a client that is opened again for every message: its ledger says how many answers came before."""
    return lambda client, ledger: RoundCoins(names.index(client), ledger.position.sequence)


def transcript(path: Path) -> list[tuple[Any, ...]]:
    """Every stored number of a run, to the last bit, without the times."""
    store = RunStore.open(path, read_only=True)
    rows = [tuple(stored)[:-1] for stored in store.rounds()]
    store.close()
    return rows


def counts(path: Path) -> list[tuple[int | None, ...]]:
    """The clients' counts, round by round."""
    return [row[3] for row in transcript(path)]


def position(path: Path) -> tuple[int, bytes]:
    """Entries of a ledger, and the head of the hash chain over all of them: questions, spans, counts."""
    with Ledger.open(path, read_only=True) as ledger:
        ledger.verify()
        return ledger.position.sequence, ledger.position.head


def main(folder: Path) -> None:
    names = list(load_study(folder / "study.toml").clients)
    sources = [f"{name}={folder / name}.csv" for name in names]
    simulate.main(
        [str(folder / "study.toml"), *sources, "--value", "value", "--store", str(folder / "run.db")],
        ledger_coins(names),
    )


if __name__ == "__main__":
    allow_copies()
    main(Path(sys.argv[1]))
