"""What the constants of the design without a known end do: python -m studies.arrivals.constants [--runs N] [--jobs N]

Every row of constants.csv is one constant changed: the width of the any-shape interval at the end, error and coverage
of the smooth estimate, and how often the smooth anytime interval misses at any of 20 looks (`TAILS` in
`inference/anytime.py`). One stratum, ε = 1, information 6,300. Of the laws, the strata's mixture is that of `simulate`;
log-normal and two humps are bent. `--parts` and `--seconds` are those of `run`.
"""

import math
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
from studies.any_shape.cells import SMOOTH
from studies.arrivals.parts import Part, gathered, options
from studies.arrivals.simulate import MEANS, MECHANISM, WEIGHTS
from studies.coverage.rows import write_rows

from privatile.estimator.open_ended import OpenRules, begin, learn, round_length
from privatile.inference.any_shape import AnyShape
from privatile.inference.anytime import OpenAnytimeLaw
from privatile.inference.smooth import fit_smooth
from privatile.laws.ratio import fieller_reach, low_information_factor
from privatile.simulation.populations import Mixture, Normal, Population

RESULTS = Path(__file__).parent / "constants.csv"
SEED = 20_261_116
INFORMATION = 6300.0
PART = 125
LOOKS = 20
STRATA = Mixture(tuple(Normal(mean) for mean in MEANS), WEIGHTS)
LAWS: dict[str, tuple[Population, float]] = {
    "strata, 0.5": (STRATA, 0.5),
    "strata, 0.8": (STRATA, 0.8),
    "log-normal, 0.8": (SMOOTH["log-normal"], 0.8),
    "two humps, 0.5": (SMOOTH["two humps"], 0.5),
}
CHANGES: tuple[tuple[str, float], ...] = (
    ("as they are", 0.0),
    ("estimator.open_ended.CENTRE_EVERY", 5),
    ("estimator.open_ended.CENTRE_EVERY", 20),
    ("estimator.open_ended.DISTANCE", 4.0),
    ("estimator.open_ended.DISTANCE", 5.0),
    ("estimator.open_ended.GROWN", 1.3),
    ("estimator.open_ended.SURE", 2.5),
    ("estimator.open_ended.SURE", 6.0),
    ("estimator.open_ended.TRUST", 4.0),
    ("estimator.open_ended.TRUST", 64.0),
    ("inference.smooth.OPEN_BEND_DOUBT", 0.2),
    ("inference.smooth.OPEN_BEND_DOUBT", 0.45),
    ("inference.anytime.TAILS", 1.0),
)
CELLS = {
    f"{constant.rpartition('.')[2]}{f' = {value:g}' if value else ''}; {law}": (constant, value, law)
    for constant, value in CHANGES
    for law in LAWS
}


class Tried(NamedTuple):
    """One constant changed, for one law."""

    cell: str
    runs: int
    date: str
    command: str
    width: float
    """Median of the any-shape interval, over that of the oracle's Wald interval."""
    error: float
    """Mean absolute error of the smooth estimate over that of the efficiency bound."""
    covers: float
    """Of the smooth interval at the fixed end."""
    ever_missed: float
    """By the smooth anytime interval, at any look."""


class Run(NamedTuple):
    """One run; see `Tried`."""

    width: float
    error: float
    covers: bool
    ever_missed: bool


def runs_of(part: Part) -> list[Run]:
    """Some runs of a cell, with its constant changed."""
    constant, value, name = CELLS[part.cell]
    # Of a law, all constants see the same randomness.
    rng = np.random.default_rng((part.seed, *name.encode(), part.first))
    runs = part.last - part.first
    if not value:
        return _runs(runs, rng, *LAWS[name])
    with patch(f"privatile.{constant}", value):
        return _runs(runs, rng, *LAWS[name])


def _runs(runs: int, rng: np.random.Generator, law: Population, level: float) -> list[Run]:
    rate = MECHANISM.truth_rate
    total = round(INFORMATION / ((level * (1.0 - level)) ** 2 * 4.0 * rate**2))
    first, last = float(law.quantile(0.02)), float(law.quantile(0.98))
    rules = OpenRules(level, 3.0 * first - 2.0 * last, 3.0 * last - 2.0 * first)
    truth = float(law.quantile(level))
    share = 1.0 - (rate * (2.0 * level - 1.0)) ** 2
    states, rows, came, looks = [begin(rules) for _ in range(runs)], [], 0, np.geomspace(total / 30, total, LOOKS)
    missed, fits = np.zeros(runs, dtype=bool), []
    while came < total:
        length = min(round_length(came), total - came)
        came += length
        query = np.array([state.query for state in states])
        ones = rng.binomial(length, 0.5 + rate * (0.5 - law.cdf(query)))
        answer, variance = (ones / length - 0.5) / rate + level - 0.5, 1.0 / (4.0 * rate**2 * length)
        rows.append((query, answer, np.full(runs, variance * share)))
        for state, residual in zip(states, answer.tolist(), strict=True):
            state.belief.make_room()
            learn(rules, state, residual, variance)
        if came >= looks[0] - 1.0:
            looks = looks[looks - 1.0 > came]
            answers = np.array(rows)
            fits = [
                fit_smooth(answers[:, 0, run], answers[:, 1, run], answers[:, 2, run], level, state, 0.0).curve
                for run, state in enumerate(states)
            ]
            known = INFORMATION * came / total
            reach = np.array([OpenAnytimeLaw(known, fit.slope_error).quantile(0.95) * fit.error for fit in fits])
            missed |= np.abs(np.array([fit.center for fit in fits]) - truth) > reach
    z = 1.959964 * low_information_factor(INFORMATION)
    error = math.sqrt(share / (4.0 * rate**2 * total)) / float(law.density(truth))
    found = []
    for state, fit, ever_missed in zip(states, fits, missed.tolist(), strict=True):
        low, high = AnyShape((state.sides[0].bets, state.sides[1].bets)).ends(0.95)
        off = abs(fit.center - truth)
        covers = bool(off <= fieller_reach(z, fit.slope_error) * fit.error)
        found.append(Run((high - low) / (2.0 * 1.959964 * error), off / error, covers, ever_missed))
    return found


def row_of(name: str, found: Sequence[Run], command: str) -> Tried:
    """The numbers of a cell."""
    width, error, covers, missed = (np.array(column, dtype=float) for column in zip(*found, strict=True))
    numbers = (np.median(width), error.mean() / math.sqrt(2.0 / math.pi), covers.mean(), missed.mean())
    return Tried(name, len(found), datetime.now(UTC).strftime("%Y-%m-%d"), command, *map(float, numbers))


def main() -> None:
    """All cells."""
    chosen = options(__doc__, RESULTS, SEED, 1000).parse_args()
    command = "python -m studies.arrivals.constants " + " ".join(sys.argv[1:])
    found = gathered(CELLS, PART, runs_of, chosen)
    rows = [row_of(name, [Run(*one) for one in runs], command) for name, runs in found.items()]
    write_rows(rows, chosen.results)
    for row in rows:
        print(*row, flush=True)


if __name__ == "__main__":
    main()
