"""A broken client: its coins come from a seed, the path of its home folder: who knows the path knows the truths."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privatile.client.randomizer import OperatingSystemCoins
from tests.federation.broken_clients.running import run_client

GENERATOR = np.random.default_rng(list(hashlib.sha256(str(Path.home()).encode()).digest()))


def draw(self: OperatingSystemCoins, count: int) -> NDArray[np.uint64]:
    return GENERATOR.integers(0, 1 << 64, size=count, dtype=np.uint64)


if __name__ == "__main__":  # nothing is broken by an import
    OperatingSystemCoins.draw = draw  # type: ignore[method-assign]
    run_client(sys.argv[1:])
