"""The change alarm: python -m studies.arrivals.moves [--runs N] writes moves.csv.

False alarms at any of the looks, every eighth round, where nothing changes: normal values, whole numbers, and a law
that jumps to exactly τ. Then normal values that move at half time, by so many standard deviations; 112,000 people.
"""

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from studies.any_shape.laws import Steps
from studies.coverage.rows import write_rows

from privatile.core.mechanism import RandomizedResponse
from privatile.estimator.ending import round_length
from privatile.estimator.open_end import SEARCH, OpenEndPolicy
from privatile.inference.change import change_in
from privatile.simulation.populations import Normal, Population

RESULTS = Path(__file__).parent / "moves.csv"
PEOPLE = 112_000
EVERY = 8
WHOLE = Steps(tuple(float(k) for k in range(-5, 6)), (1.0 / 11.0,) * 11)
JUMP = Steps((-1.0, 0.3, 2.0), (0.3, 0.2, 0.5))
CELLS: dict[str, tuple[Population, float]] = {
    "normal": (Normal(), 0.0),
    "whole numbers": (WHOLE, 0.0),
    "a jump to the level": (JUMP, 0.0),
    "normal, moved by 0.1": (Normal(), 0.1),
    "normal, moved by 0.2": (Normal(), 0.2),
    "normal, moved by 0.4": (Normal(), 0.4),
}


class Moved(NamedTuple):
    """One cell."""

    cell: str
    runs: int
    date: str
    command: str
    alarms: float
    """Share of the runs with an alarm at any look."""
    people_later: float
    """Median number of people between the move and the first alarm; NaN without one."""
    round_off: float
    """Median distance, in rounds, between the move and where it is found."""


def measure(name: str, runs: int, seed: int, command: str) -> Moved:
    """Many runs of one cell."""
    law, shift = CELLS[name]
    policy, rng = OpenEndPolicy(0.5, -10.0, 10.0), np.random.default_rng((seed, *name.encode()))
    rate = RandomizedResponse.from_epsilon(1.0).truth_rate
    state, rows, came, lengths = policy.begin(runs), [], 0, []
    while came < PEOPLE:
        lengths.append(round_length(came))
        came += lengths[-1]
        query = state.query.copy()
        above = 1.0 - law.cdf(query - (shift if came > PEOPLE / 2 else 0.0))
        answer = (rng.binomial(lengths[-1], 0.5 + rate * (above - 0.5)) / lengths[-1] - 0.5) / rate
        precision = np.full(runs, 4.0 * rate**2 * lengths[-1])
        rows.append((query, answer, precision, state.stage != SEARCH))
        state = policy.learn(state, answer, 1.0 / precision)
    queries, answers, precisions, inside = (np.array(column) for column in zip(*rows, strict=True))
    gathered = np.cumsum(lengths)
    half = int(np.searchsorted(gathered, PEOPLE / 2))
    alarms, later, off = 0, [], []
    for run in range(runs):
        used = np.flatnonzero(inside[:, run])
        for look in [*range(10, len(used), EVERY), len(used)]:
            part = used[:look]
            found = change_in(queries[part, run], answers[part, run], precisions[part, run], (part + 1).tolist())
            if found.alarm:
                alarms += 1
                later.append(float(gathered[part[-1]]) - PEOPLE / 2)
                off.append(abs(found.round - half))
                break
    medians = (float(np.median(later)), float(np.median(off))) if later else (np.nan, np.nan)
    return Moved(name, runs, datetime.now(UTC).strftime("%Y-%m-%d"), command, alarms / runs, *medians)


def main() -> None:
    """All cells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=20_261_116)
    parser.add_argument("--results", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    command = "python -m studies.arrivals.moves " + " ".join(sys.argv[1:])
    found = []
    for name in CELLS:
        found.append(measure(name, chosen.runs, chosen.seed, command))
        write_rows(found, chosen.results)
        print(*found[-1], flush=True)


if __name__ == "__main__":
    main()
