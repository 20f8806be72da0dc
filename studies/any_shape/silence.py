"""Runs of the straddling design whose clients fall silent in spells, one by one; no answer is used twice."""

import math
import sys

import numpy as np
from studies.any_shape.cells import make_cell
from studies.any_shape.simulation import policy_of

from privatile.core.mechanism import debias, yes_probability
from privatile.estimator.attendance import Pools, add_round
from privatile.estimator.straddle import STAGES
from privatile.estimator.straddle_window import Answers
from privatile.inference.any_shape import ends_of
from privatile.inference.client_curves import client_lines
from privatile.inference.smooth_reading import LowInformationLaw, fit_smooth
from privatile.laws.normal import two_sided_z
from privatile.simulation.auto_simulation import AutoCell, ranks_at


def silent_run(
    cell: AutoCell, rng: np.random.Generator, share: float, burst: float, later: bool = False
) -> list[float]:
    """Covered, width over Wald's, error over the bound's of the smooth reading; covered and width of the any-shape one.

    `later`: a client's records of missed rounds are asked in its next ones.
    """
    policy, plan = policy_of(cell), cell.plan
    rates, records = np.array(cell.truth_rates), np.array(cell.records)
    clients, weights = plan.clients, np.array(cell.shares)
    state, left, silent = policy.begin(), np.array([cell.records]), np.zeros(len(records), dtype=bool)
    owed = np.zeros(len(records), dtype=np.int64)
    pools: Pools = {}
    rows, guesses = [], []
    last_mean, last_query = np.zeros(len(records)), np.zeros(len(records))
    for m in range(policy.rounds):
        planned = policy.lengths(state, records, left)[0]
        left = left - planned
        if m:
            draws = rng.random(len(records))
            silent = np.where(silent, draws >= 1.0 / burst, draws < share / (1.0 - share) / burst)
        extra = np.minimum(owed, planned) if later else 0 * owed
        lengths = planned + extra
        owed = np.where(silent, owed + planned, owed - extra)
        query, stage = float(state.query[0]), STAGES[int(state.stage[0])]
        ranks = ranks_at(cell.populations, state.query)[0]
        counts = rng.binomial(lengths, yes_probability(rates, 1.0 - ranks))
        means = debias(rates, counts / lengths)
        came = [None if quiet else float(mean) for quiet, mean in zip(silent, means, strict=True)]
        rows.append(
            (query, np.where(silent, 0.0, means - (1.0 - cell.level)), np.where(silent, 0.0, 4 * rates**2 * lengths))
        )
        pools, heard = add_round(pools, stage, query, lengths.tolist(), came, clients, cell.level)
        # Where to ask next: a silent client is given its last answer, moved along the slope to this question.
        last_mean = np.where(silent, last_mean, means)
        last_query = np.where(silent, last_query, query)
        slope = float(state.window.slope[0] / state.window.spread[0])
        moved = last_mean - (0.0 if math.isnan(slope) else slope) * np.where(silent, query - last_query, 0.0)
        guess = float(weights @ moved) - (1.0 - cell.level)
        noise = float((weights**2 / (4 * rates**2 * lengths)).sum()) * (1.0 + 2.0 * float(weights @ silent))
        tested = Answers(*(np.array([float(value)]) for value in heard))
        state = policy.learn(state, np.array([guess]), np.array([noise]), tested)
        guesses.append((query, guess, noise))
    q, y, w = (np.array(column)[None] for column in zip(*guesses, strict=True))
    fit = fit_smooth(q, y, w, cell.level, state.window).of_run(0)
    queries, residuals, precisions = (np.array(column) for column in zip(*rows, strict=True))
    lines = client_lines(queries, residuals, precisions, weights, cell.level, fit)
    reach = LowInformationLaw(lines.slope_error, cell.information).quantile(0.95) * lines.error
    wald = two_sided_z(0.95) * cell.bound
    low, high = (float(end[0]) for end in ends_of(state.window.tests, 0.95))
    off = abs(lines.center - cell.truth)
    return [
        off <= reach,
        reach / wald,
        off / (math.sqrt(2 / math.pi) * cell.bound),
        low <= cell.truth <= high,
        (high - low) / 2 / wald,
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
