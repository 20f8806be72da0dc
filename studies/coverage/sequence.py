"""How often a run that is watched to its end reaches a threshold: the table of `privatile.inference.sequence.REACHED`.

Under the mixture (a drift drawn from N(0, ρ²)) the chance that log M has reached x by t = 1, continuous monitoring
approached by 2,000 looks: python -m studies.coverage.sequence [--paths N] prints it with its Monte Carlo error.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from privatile.inference.sequence import RATE, REACHED

LOOKS = 2000
EARLIEST = 1e-3
"""Before this share of the records no path is looked at; log M ≥ 1 has a chance below 1e-3 there."""


def reached(paths: int, seed: int) -> np.ndarray:
    """sup log M over (0, 1] of every path, drifts drawn from N(0, ρ²)."""
    rng = np.random.default_rng(seed)
    drift = math.sqrt(RATE) * rng.standard_normal(paths)
    times = np.geomspace(EARLIEST, 1.0, LOOKS)
    place, best, before = np.zeros(paths), np.full(paths, -math.inf), 0.0
    for time in times.tolist():
        place += drift * (time - before) + math.sqrt(time - before) * rng.standard_normal(paths)
        grown = 1.0 + RATE * time
        np.maximum(best, 0.5 * RATE * place**2 / grown - 0.5 * math.log(grown), out=best)
        before = time
    return best


def main() -> None:
    """Print the table beside the one in use."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paths", type=int, default=400_000)
    parser.add_argument("--seed", type=int, default=71)
    chosen = parser.parse_args()
    best = reached(chosen.paths, chosen.seed)
    for threshold, share in REACHED:
        found = float((best >= threshold).mean())
        error = math.sqrt(found * (1.0 - found) / chosen.paths)
        print(f"{threshold:5g}  {found:.5f} ± {error:.5f}   in use {share:.5f}")


if __name__ == "__main__":
    main()
