"""Runs of the straddling design whose clients fall silent in spells, one by one, through the code of real runs."""

import math
import sys

import numpy as np
from studies.any_shape.cells import make_cell

from privatile.core.mechanism import yes_probability
from privatile.estimator.step import begin, step
from privatile.estimator.straddle_plan import StraddlePlan
from privatile.inference.readings import readings
from privatile.inference.trajectory import Trajectory
from privatile.laws.normal import two_sided_z
from privatile.simulation.auto_simulation import AutoCell, ranks_at


def silent_run(
    cell: AutoCell, rng: np.random.Generator, share: float, burst: float, later: bool = False
) -> list[float]:
    """Covered, width over Wald's, error over the bound's of the smooth reading; covered and width of the any-shape one.

    Every client is silent for a `share` of the rounds, `burst` at a time on average, after a first round that all
    answer. `later`: a client's records of missed rounds are asked in its next ones, at most as many as planned there.
    """
    plan = StraddlePlan(cell.plan.clients, cell.plan.scale, cell.rounds)
    rates, clients = np.array(cell.truth_rates), len(cell.records)
    state, trajectory = begin(plan), Trajectory()
    silent, owed = np.zeros(clients, dtype=np.bool_), np.zeros(clients, dtype=np.int64)
    while (ask := plan.ask(state)) is not None:
        if state.round:
            draws = rng.random(clients)
            silent = np.where(silent, draws >= 1.0 / burst, draws < share / (1.0 - share) / burst)
        planned = np.array(ask.lengths)
        extra = np.minimum(owed, planned) if later else 0 * owed
        owed = np.where(silent, owed + planned, owed - extra)
        lengths = planned + extra
        ranks = ranks_at(cell.populations, np.array([ask.query]))[0]
        counts = rng.binomial(lengths, yes_probability(rates, 1.0 - ranks))
        came = [None if quiet else int(count) for quiet, count in zip(silent, counts, strict=True)]
        ask = ask._replace(lengths=tuple(lengths.tolist()))
        after = step(state, ask, came, plan)
        trajectory.record(ask, after, plan)
        if later:
            # The plan counts its own lengths alone: what was owed had been set aside when it was missed.
            memory = after.memory._replace(  # type: ignore[attr-defined]
                left=tuple(
                    have - count
                    for have, count in zip(state.memory.left, planned.tolist(), strict=True)  # type: ignore[attr-defined]
                )
            )
            after = after._replace(memory=memory)
        state = after
    both = readings(plan, state, trajectory.answers, clients=trajectory.clients)
    wald = two_sided_z(0.95) * cell.bound
    (low, high), (first, last) = both.smooth.interval(0.95), both.any_shape.interval(0.95)
    off = abs(both.smooth.center - cell.truth)
    return [
        low <= cell.truth <= high,
        (high - low) / 2 / wald,
        off / (math.sqrt(2 / math.pi) * cell.bound),
        first <= cell.truth <= last,
        (last - first) / 2 / wald,
    ]


def main() -> None:
    """Ten clients at information 4,000, silent in several ways: python -m studies.any_shape.silence RUNS."""
    runs = int(sys.argv[1])
    ways = ((0.0, 1.0, False), (0.1, 1.2, False), (0.1, 10.0, False), (0.3, 10.0, False), (0.1, 10.0, True))
    for family in ("normal", "hete-l"):
        cell = make_cell(family, 10, 0.5, 0.5, 4000)
        for share, burst, later in (*ways, (0.3, 10.0, True)):
            rng = np.random.default_rng(5)
            found = np.array([silent_run(cell, rng, share, burst, later) for _ in range(runs)])
            covers, width, error, any_covers, any_width = found.T
            print(
                f"{family:8s} silent {share:.0%} in spells of {burst:g}{', asked later' if later else ''}:",
                f"smooth covers {covers.mean():.3f} width {np.median(width):.3f} error {error.mean():.3f};",
                f"any covers {any_covers.mean():.3f} width {np.median(any_width):.2f}",
                f"bounded {np.isfinite(any_width).mean():.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
