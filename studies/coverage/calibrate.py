"""The linear model of a window, simulated: what a slope estimated on N relaxations does to an interval.

python -m studies.coverage.calibrate makes calibration.csv again, in half a minute.

Near Q* a window is q ← q + γ(−f·q + e). In units of the standard error and of 1/f its law depends on N = f·Σγ and the
rounds alone. Two ways to an interval are compared, both with f̂ regressed on the window itself:

- plain: the path's mean ± z·s/f̂. The z that covers depends on N: 2.6 at N = 19, 2.2 at N = 50, and 1.96 never.
- curve: Q̂ = q̄ + ȳ/f̂ with Fieller's interval. It needs no table: its coverage stays at the nominal one or just above.
"""

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from studies.coverage.rows import write_rows

from privatile.errors import InputError
from privatile.inference.curve import DRIFT_BIAS
from privatile.laws.ratio import fieller_reach, two_sided_z

TABLE = Path(__file__).parent / "calibration.csv"
RELAXATIONS = (12, 19, 27, 35, 50, 72, 90)
ROUNDS = 200
RUNS = 40_000
BLOCK = 4_000


class Calibration(NamedTuple):
    """One row of the table."""

    relaxations: float
    rounds: int
    confidence_level: float
    plain_value: float
    """z that makes the plain interval cover."""
    plain_error: float
    """Its Monte Carlo standard error."""
    curve_coverage: float
    """Coverage of the curve's interval with no calibration at all."""


def calibrate(relaxations: float, confidence_level: float = 0.95, *, runs: int = RUNS, seed: int = 1) -> Calibration:
    """Simulate `runs` windows of `ROUNDS` rounds with N relaxations."""
    if not 0.0 < relaxations < ROUNDS:
        raise InputError(f"relaxations must lie between 0 and the rounds, {ROUNDS}; got {relaxations!r}.")
    rng = np.random.default_rng(seed)
    parts = [_block(relaxations, confidence_level, min(BLOCK, runs - k), rng) for k in range(0, runs, BLOCK)]
    plain = np.sort(np.concatenate([part[0] for part in parts]))
    covered = np.concatenate([part[1] for part in parts])
    value = float(np.quantile(plain, confidence_level))
    # The error of a sample quantile by the order statistics one binomial standard deviation either side.
    spread = math.sqrt(confidence_level * (1.0 - confidence_level) * len(plain))
    low, high = (int(confidence_level * len(plain) + side * spread) for side in (-1, 1))
    error = float(plain[min(high, len(plain) - 1)] - plain[low]) / 2.0
    return Calibration(relaxations, ROUNDS, confidence_level, value, error, float(covered.mean()))


def _block(
    relaxations: float, confidence_level: float, runs: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """|Q̄ − Q*|·f̂/s of the plain mean, and whether the curve's interval covers, in each of `runs` windows."""
    rate = relaxations / ROUNDS
    noise = rng.standard_normal((runs, ROUNDS)) * math.sqrt(ROUNDS)  # the mean of all has variance 1
    query = rng.standard_normal(runs) * math.sqrt(rate * ROUNDS / (2.0 - rate))  # stationary
    queries, answers = np.empty((runs, ROUNDS)), np.empty((runs, ROUNDS))
    for m in range(ROUNDS):
        queries[:, m] = query
        answers[:, m] = noise[:, m] - query
        query = query + rate * answers[:, m]
    mean, answer = queries.mean(axis=1), answers.mean(axis=1)
    x = queries - mean[:, None]
    squares = (x * x).sum(axis=1)
    slope = np.maximum(-(x * answers).sum(axis=1) / squares, 1e-6)
    plain = np.abs(mean) * slope
    center, variance = mean + answer / slope, ROUNDS / (squares * slope**2)
    unbiased = slope * np.maximum(1.0 - DRIFT_BIAS * variance, 0.1)
    reach = fieller_reach(two_sided_z(confidence_level), np.sqrt(variance)) / unbiased
    return plain, np.abs(center) <= reach


def main() -> None:
    """All rows, at three confidence levels, printed and written to calibration.csv."""
    rows = [calibrate(n, level) for level in (0.90, 0.95, 0.99) for n in RELAXATIONS]
    write_rows(rows, TABLE, digits=5)
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
