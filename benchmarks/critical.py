"""How long a critical value takes, warm, for schedules up to a million rounds.

python benchmarks/critical.py
"""

from __future__ import annotations

import time

import numpy as np

from privatile.critical import critical_value


def main() -> None:
    rng = np.random.default_rng(1)
    print(f"{'rounds':>9} {'schedule':<12} {'v':>8} {'ms':>8}")
    for rounds in (200, 1_000, 10_000, 100_000, 1_000_000):
        schedules = {
            "constant": np.ones(rounds),
            "warm-up, 5": np.r_[np.ones(rounds // 5), np.full(rounds - rounds // 5, 0.2)],
            "log-normal": rng.lognormal(0.0, 1.0, rounds),
        }
        for name, weights in schedules.items():
            critical_value(weights=weights)
            times = []
            for _ in range(5):
                start = time.perf_counter()
                v = critical_value(weights=weights)
                times.append(time.perf_counter() - start)
            print(f"{rounds:>9,} {name:<12} {v.value:8.4f} {1e3 * sorted(times)[2]:8.1f}")


if __name__ == "__main__":
    main()
