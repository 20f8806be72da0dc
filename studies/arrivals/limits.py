"""What the study of open-ended runs must show, and which cells fall short: one list for the page and for the tests."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from studies.arrivals.run import KNOWN_EVERY, Row

ENOUGH = 6000.0
"""Information from which on error, coverage at a fixed end and width are promised."""


class Shortfall(NamedTuple):
    """A number beyond its limit and the Monte Carlo standard errors allowed."""

    cell: str
    what: str
    found: float
    limit: float


MEDIAN_ERROR = 0.34
"""Relative standard error of the median width of one run with known numbers; of n runs √n times less."""

FEWEST_RUNS = 600
"""Runs of every cell without liars: two standard errors then allow a share of .05 to be .068."""

FEWEST_LIED = 300
"""Runs of every cell with liars: no share of it has a limit but `lost`, whose limit is 0; 0 of 300 is below 1%."""

ARRIVALS_RUNS = 10_000
"""Runs of the cells that the promises are about: two standard errors allow a share of .05 to be .054."""

KNOWN = frozenset(
    {
        ("apart, 180,000 people, τ = 0.5", "width"),
        ("apart, 180,000 people, τ = 0.5", "error"),
        ("poisson, 420,000 people, τ = 0.8", "width"),
        ("poisson, 180,000 people, τ = 0.5, 1% lie: heaviest", "lost"),
    }
)
"""Cells and numbers that fall short, and are named in docs/tasks/open-ended.md: nothing else may. What falls
short stays here while its number is beyond the limit, even where fewer runs leave that within two standard errors.

Where strata come apart the answers of the others wait for the last one. At level 0.8 bets use the variance that answers
have at the median, which makes intervals 4% wider. One run of 300 with liars where bits weigh most was searching again
when it ended, and had no result."""


def share_error(share: float, runs: int) -> float:
    """Monte Carlo standard error of a share."""
    return math.sqrt(share * (1.0 - share) / runs)


def shortfalls(rows: Sequence[Row], errors: float = 2.0) -> list[Shortfall]:
    """All numbers beyond their limits by more than so many Monte Carlo standard errors."""
    found = []
    for row in rows:
        doubt = errors * share_error(0.05, row.runs)
        if row.liars_bound:
            # An estimate's rank has a standard error of τ(1 − τ)/√I, less over many runs.
            noise = errors * 0.25 / math.sqrt(row.information * row.runs)
            limits = [("rank", abs(row.rank), row.liars_bound + noise), ("lost", row.lost, 0.0)]
        else:
            limits = [("ever missed", row.ever_missed, 0.05 + doubt), ("false alarms", row.alarms, 0.05 + doubt)]
            limits.append(("unbounded", 1.0 - row.bounded, 0.01))
            if row.information >= ENOUGH:
                limits += [
                    ("misses at the fixed end", 1.0 - row.smooth_coverage, 0.06 + doubt),
                    ("covers too often at the fixed end", row.smooth_coverage, 0.96 + doubt),
                    ("width", row.ratio, 1.25 * (1.0 + errors * MEDIAN_ERROR / math.sqrt(row.runs / KNOWN_EVERY))),
                    ("error", row.error, 1.10 * (1.0 + errors * 0.756 / math.sqrt(row.runs))),
                ]
        found += [Shortfall(row.cell, what, value, limit) for what, value, limit in limits if value > limit]
    return found
