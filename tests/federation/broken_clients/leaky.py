"""A broken client: it logs values while it answers."""

from __future__ import annotations

import logging
import sys

from privatile.client.responder import Responder
from privatile.core.messages import Answer, Question
from tests.federation.broken_clients.running import run_client

HONEST = Responder._respond


def respond(self: Responder, question: Question) -> Answer:
    values = next(iter(self._column.blocks(0, 10))).values
    logging.getLogger("privatile.client").info("first values %s", values.tolist())
    return HONEST(self, question)


if __name__ == "__main__":  # nothing is broken by an import
    Responder._respond = respond  # type: ignore[method-assign]
    run_client(sys.argv[1:])
