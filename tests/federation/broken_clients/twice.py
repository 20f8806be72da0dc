"""A broken client: after every answer its cursor goes back, so that the same records answer every round."""

from __future__ import annotations

import sys

from privatile.client.responder import Responder
from privatile.core.messages import Answer, Question
from tests.federation.broken_clients.running import run_client

HONEST = Responder._respond


def respond(self: Responder, question: Question) -> Answer:
    given = HONEST(self, question)
    self.ledger.execute("UPDATE datasets SET cursor = 0")
    self.ledger.execute("UPDATE runs SET next = first")
    return given


if __name__ == "__main__":  # nothing is broken by an import
    Responder._respond = respond  # type: ignore[method-assign]
    run_client(sys.argv[1:])
