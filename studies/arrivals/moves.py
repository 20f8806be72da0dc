"""The change alarm: python -m studies.arrivals.moves [--runs N] [--jobs N] writes moves.csv.

False alarms at any of the looks, every eighth round, where nothing changes: normal values, whole numbers, and a law
that jumps to exactly τ. Then normal values that move at half time, by so many standard deviations; 112,000 people.
`--parts` and `--seconds` are those of `run`.
"""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from studies.any_shape.laws import Steps
from studies.arrivals.parts import Part, gathered, options
from studies.coverage.rows import write_rows

from privatile.core.mechanism import RandomizedResponse
from privatile.estimator.open_ended import OpenRules, begin, learn, round_length
from privatile.estimator.straddle import SEARCH
from privatile.inference.series import change_in
from privatile.simulation.populations import Normal, Population

RESULTS = Path(__file__).parent / "moves.csv"
PEOPLE = 112_000
EVERY = 8
SEED = 20_261_116
PART = 10
"""Runs of a part."""

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


class Found(NamedTuple):
    """One run: whether there was an alarm at any look, and where; NaN without one."""

    alarm: bool
    people_later: float
    round_off: float


def runs_of(part: Part) -> list[Found]:
    """Some runs of one cell."""
    law, shift = CELLS[part.cell]
    runs = part.last - part.first
    rules = OpenRules(0.5, -10.0, 10.0)
    rng = np.random.default_rng((part.seed, *part.cell.encode(), part.first))
    rate = RandomizedResponse.from_epsilon(1.0).truth_rate
    states, rows, came, lengths = [begin(rules) for _ in range(runs)], [], 0, []
    while came < PEOPLE:
        lengths.append(round_length(came))
        came += lengths[-1]
        query = np.array([state.query for state in states])
        above = 1.0 - law.cdf(query - (shift if came > PEOPLE / 2 else 0.0))
        answer = (rng.binomial(lengths[-1], 0.5 + rate * (above - 0.5)) / lengths[-1] - 0.5) / rate
        precision = np.full(runs, 4.0 * rate**2 * lengths[-1])
        rows.append((query, answer, precision, [state.stage != SEARCH for state in states]))
        for state, residual in zip(states, answer.tolist(), strict=True):
            state.belief.make_room()
            learn(rules, state, residual, 1.0 / precision[0])
    queries, answers, precisions, inside = (np.array(column) for column in zip(*rows, strict=True))
    gathered = np.cumsum(lengths)
    half = int(np.searchsorted(gathered, PEOPLE / 2))
    found = []
    for run in range(runs):
        used = np.flatnonzero(inside[:, run])
        outcome = Found(False, np.nan, np.nan)
        for look in [*range(10, len(used), EVERY), len(used)]:
            part_of = used[:look]
            change = change_in(
                queries[part_of, run], answers[part_of, run], precisions[part_of, run], (part_of + 1).tolist()
            )
            if change.alarm:
                outcome = Found(True, float(gathered[part_of[-1]]) - PEOPLE / 2, float(abs(change.round - half)))
                break
        found.append(outcome)
    return found


def row_of(name: str, found: Sequence[Found], command: str) -> Moved:
    """The numbers of a cell."""
    rang = [one for one in found if one.alarm]
    medians = [float(np.median([one[k] for one in rang])) if rang else np.nan for k in (1, 2)]
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    return Moved(name, len(found), date, command, len(rang) / len(found), *medians)


def main() -> None:
    """All cells."""
    chosen = options(__doc__, RESULTS, SEED, 1000).parse_args()
    command = "python -m studies.arrivals.moves " + " ".join(sys.argv[1:])
    found = gathered(CELLS, PART, runs_of, chosen)
    rows = [row_of(name, [Found(*one) for one in runs], command) for name, runs in found.items()]
    write_rows(rows, chosen.results)
    for row in rows:
        print(*row, flush=True)


if __name__ == "__main__":
    main()
