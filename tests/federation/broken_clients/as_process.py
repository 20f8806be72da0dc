"""A broken client of the table as a real process: the shipped client, but for what its records report.

python -m tests.federation.broken_clients.as_process NAME [the arguments of `privatile join`]
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from privatile.cli import main
from privatile.client.order.shuffle import Block, ShuffledColumn
from privatile.client.randomizer import Counter, Randomizer
from privatile.core.messages import Question
from privatile.errors import SiteRefusal
from privatile.federation.setup.invitation import read_invitation
from tests.federation.broken_clients.simulated import Floats, Honest, Place
from tests.federation.broken_clients.table import TABLE

BLOCKS = ShuffledColumn.blocks


def _place(randomizer: Randomizer) -> Place:
    arguments = dict(zip(sys.argv, sys.argv[1:], strict=False))
    agreements = read_invitation(Path(sys.argv[2])).study.clients.values()
    largest = max((agreement.mechanism for agreement in agreements), key=lambda one: one.epsilon)
    source, client = Path(arguments["--source"]), Path(sys.argv[2]).stem
    values = [line.partition(",")[0] for line in source.read_text().splitlines()[1:]]
    file = np.array([float(value) if value else np.nan for value in values])
    key = hash((Path(arguments["--site"]) / f"{client}.key").read_bytes())
    return Place(client, "", randomizer._mechanism, file, key=key, process=os.getpid(), largest=largest)


def _blocks(self: ShuffledColumn, start: int, stop: int) -> Iterator[Block]:
    values = np.concatenate([block.values for block in BLOCKS(self, 0, self.records)])
    order = TABLE[sys.argv[1]].order(len(values), np.random.default_rng(len(values)))
    yield Block(values[order[start:stop]], None)


class _Patched:
    client: Honest | None = None

    def counter(self, randomizer: Randomizer, question: Question) -> Counter:
        if self.client is None:
            self.client = TABLE[sys.argv[1]](_place(randomizer), np.random.default_rng())
        client = self.client

        def count(values: Floats) -> int:
            client.clock = int(time.time())
            ones = client.answer(question, values)
            if ones is None:
                raise SiteRefusal("no answer to this question.")
            return min(max(ones, 0), len(values))

        return count


if __name__ == "__main__":  # nothing is broken by an import
    kind = TABLE[sys.argv[1]]
    if kind.order is not Honest.order:
        ShuffledColumn.blocks = _blocks  # type: ignore[method-assign]
    if not kind.knows_people and "--person" in sys.argv:
        place = sys.argv.index("--person")
        del sys.argv[place : place + 2]
    patched = _Patched()
    Randomizer.counter = lambda self, question: patched.counter(self, question)  # type: ignore[method-assign]
    main(["join", *sys.argv[2:]])
