"""How long a critical value takes, warm and in CPU time, for up to a million rounds, and in the linear model of a run.

python benchmarks/critical.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from privatile.core.arrays import Floats
from privatile.laws.critical import critical_value
from privatile.laws.linear_model import linear_law


def median_ms(work: Callable[[], object], repeats: int = 5) -> float:
    work()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return 1e3 * sorted(times)[repeats // 2]


def main() -> None:
    rng = np.random.default_rng(1)
    print(f"{'rounds':>9}  {'schedule':<24} {'v':>8} {'CPU ms':>8}")
    for rounds in (200, 1_000, 10_000, 100_000, 1_000_000):
        schedules = {
            "constant": np.ones(rounds),
            "warm-up of 1/5, then 5": np.concatenate([np.ones(rounds // 5), np.full(rounds - rounds // 5, 0.2)]),
            "log-normal weights": rng.lognormal(0.0, 1.0, rounds),
        }
        for name, weights in schedules.items():
            value = critical_value(weights=weights).value
            took = median_ms(partial(critical_value, weights=weights))
            print(f"{rounds:>9,}  {name:<24} {value:8.4f} {took:8.1f}")
    for rounds in (200, 1_000, 10_000):
        steps = 1.0 / (np.arange(rounds) ** 0.51 + rounds**0.51 / 4.0)
        burn_in = rounds // 10
        slope = 60.0 / steps[burn_in:].sum()

        def model(steps: Floats = steps, slope: float = slope, burn_in: int = burn_in) -> float:
            return linear_law(steps, np.ones(len(steps)), slope, burn_in).quantile(0.95)

        print(f"{rounds:>9,}  {'linear model, N = 60':<24} {model():8.4f} {median_ms(model):8.1f}")


if __name__ == "__main__":
    main()
