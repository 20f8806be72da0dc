"""A broken client: a question that it has answered before is answered again with new coins.

With a factor as the first argument it also tells the truth too often, and writes its column into its home folder.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from privatile.client.ledger.stored_answers import Stored
from privatile.client.responder import Responder
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Question
from tests.federation.broken_clients import wrong_rate
from tests.federation.broken_clients.running import run_client

HONEST = Responder._respond


def respond(self: Responder, question: Question) -> Stored:
    before = self.has_answered(question)
    stored = HONEST(self, question)
    values = np.concatenate([block.values for block in self._column.blocks(0, question.length)])
    if sys.argv[1] != "1":
        np.save(Path.home() / "column.npy", values)
    return replace(stored, ones=self._randomizer.counter(question)(values)) if before else stored


if __name__ == "__main__":  # nothing is broken by an import
    Responder._respond = respond  # type: ignore[method-assign]
    if sys.argv[1] != "1":
        RandomizedResponse.respond = wrong_rate.respond  # type: ignore[method-assign]
    run_client(sys.argv[2:])
