"""A broken client: it tells the truth 2% too often, or 2% too seldom; the first argument is the factor."""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from privatile.core.mechanism import COINS, RandomizedResponse
from tests.federation.broken_clients.running import run_client

HONEST = RandomizedResponse.respond


def respond(self: RandomizedResponse, truth: NDArray[np.bool_], coins: NDArray[np.uint64]) -> NDArray[np.bool_]:
    rate = self.truth_rate * float(sys.argv[1])
    return HONEST(RandomizedResponse.from_threshold(min(int(COINS * (1 + rate) / 2), COINS - 1)), truth, coins)


if __name__ == "__main__":  # nothing is broken by an import
    RandomizedResponse.respond = respond  # type: ignore[method-assign]
    run_client(sys.argv[2:])
