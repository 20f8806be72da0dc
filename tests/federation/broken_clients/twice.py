"""A broken client: after every answer its cursor goes back, so that the same records answer every round."""

from __future__ import annotations

import sys

from privatile.client.responder import Outcome, Responder
from privatile.core.messages import Question
from tests.federation.broken_clients.running import run_client

HONEST = Responder.outcome


def outcome(self: Responder, question: Question) -> Outcome:
    given = HONEST(self, question)
    with self.ledger.transaction():
        self.ledger.execute("UPDATE datasets SET cursor = 0")
        self.ledger.execute("UPDATE runs SET next = first")
    return given


if __name__ == "__main__":  # nothing is broken by an import
    Responder.outcome = outcome  # type: ignore[method-assign]
    run_client(sys.argv[1:])
