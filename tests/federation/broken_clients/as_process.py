"""A broken client of the table as a real process: the shipped client, but for what its records report.

python -m tests.federation.broken_clients.as_process NAME [the arguments of `privatile join`]
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

from privatile.cli import main
from privatile.client.randomizer import Counter, Randomizer
from privatile.core.messages import Question
from privatile.errors import SiteRefusal
from tests.federation.broken_clients.simulated import Floats, Honest, Place
from tests.federation.broken_clients.table import TABLE


def _place(randomizer: Randomizer) -> Place:
    arguments = dict(zip(sys.argv, sys.argv[1:], strict=False))
    source, client = Path(arguments["--source"]), Path(sys.argv[2]).stem
    values = [line.partition(",")[0] for line in source.read_text().splitlines()[1:]]
    file = np.array([float(value) if value else np.nan for value in values])
    key = hash((Path(arguments["--site"]) / f"{client}.key").read_bytes())
    return Place(client, "", randomizer._mechanism, file, key=key, process=os.getpid())


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
    patched = _Patched()
    Randomizer.counter = lambda self, question: patched.counter(self, question)  # type: ignore[method-assign]
    main(["join", *sys.argv[2:]])
