"""How often a run reaches a threshold at any look until its end: the table of `privatile.inference.anytime.REACHED`.

Under the mixture (a drift drawn from N(0, ρ²)) the chance that log M has reached x by t = 1, all looks
approximated by 2,000 looks: python -m studies.coverage.sequence [--paths N] prints it with its Monte Carlo error.
"""

import argparse
import math

import numpy as np

from privatile.core.arrays import Floats
from privatile.inference.anytime import RATE, REACHED, THRESHOLDS, log_mixture

TIMES = np.geomspace(1e-3, 1.0, 2000)
"""Shares of the records at which a path is looked at; before the first, log M ≥ 1 has a chance below 1e-3."""


def reached(paths: int, seed: int, times: Floats = TIMES) -> Floats:
    """The largest log M at any of the times, for paths whose drifts are drawn from N(0, ρ²)."""
    rng = np.random.default_rng(seed)
    drift = math.sqrt(RATE) * rng.standard_normal(paths)
    place, best, before = np.zeros(paths), np.full(paths, -math.inf), 0.0
    for time in times.tolist():
        place += drift * (time - before) + math.sqrt(time - before) * rng.standard_normal(paths)
        np.maximum(best, log_mixture(place / math.sqrt(time), time), out=best)
        before = time
    return best


def main() -> None:
    """Print the table beside the one in use."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paths", type=int, default=400_000)
    parser.add_argument("--seed", type=int, default=71)
    chosen = parser.parse_args()
    best = reached(chosen.paths, chosen.seed)
    for threshold, share in zip(THRESHOLDS, REACHED, strict=True):
        found = float((best >= threshold).mean())
        error = math.sqrt(found * (1.0 - found) / chosen.paths)
        print(f"{threshold:5g}  {found:.5f} ± {error:.5f}   in use {share:.5f}")


if __name__ == "__main__":
    main()
