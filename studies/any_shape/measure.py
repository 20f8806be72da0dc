"""How both intervals of the default design fare on a cell, through the functions that real runs execute."""

import math
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from studies.any_shape.cells import StudyCell
from studies.any_shape.whole_file import WholeFile

from privatile.inference.any_shape import Grid
from privatile.laws.ratio import two_sided_z
from privatile.simulation.default_design import (
    DisplayedIntervals,
    StraddledReadings,
    grid_results,
    join_blocks,
    read_straddled,
    simulate,
)
from privatile.simulation.populations import Population

BLOCK = 1000
"""Runs in memory at a time."""


SHARED = 1e-3
"""Share of the records from which on an end of the range counts as one of their values."""


class Measured(NamedTuple):
    """One cell. Widths are over the oracle Wald interval where `has_density`, else in units of the data."""

    table: str
    name: str
    clients: int
    records: int
    """Of all clients together."""
    information: float
    runs: int
    truth: float
    has_density: int
    coverage: float
    """Of the any-shape interval at 95%: what a result shows where nothing is declared."""
    missed_low: float
    missed_high: float
    """Share of the runs whose interval lies above the quantile, and below it."""
    bounded: float
    width: float
    width_90: float
    """Median and 90% point of the bounded ones."""
    smooth_coverage: float
    smooth_width: float
    """Median."""
    smooth_error: float
    """Mean absolute error over that of the efficiency bound, in units where there is none."""
    contradicted: float
    """Share of the runs whose answers contradict a smooth distribution."""
    gave_up: float
    """Share of the runs whose search ended before it had located the quantile."""
    one_or_two: float
    up_to_five: float
    set_coverage: float
    """With the grid declared: share of the runs whose set has at most two, five values; coverage of the set."""
    date: str = ""
    command: str = ""
    """When it was run, and how, with its seed; empty where nobody noted it."""


def seed_of(name: str, seed: int) -> int:
    """A seed of its own for every cell, whatever the order."""
    return seed * 1_000_003 + zlib.crc32(name.encode()) % 1_000_000


def blocks(study: StudyCell, runs: int, block: int = BLOCK) -> list[tuple[int, int]]:
    """The blocks of a cell, as their number and their runs: small for long runs, memory is runs × rounds."""
    size = max(20, min(block, block * 400 // study.cell.straddle_plan.rounds))
    size = min(size, 100) if study.file else size
    return [(k, min(size, runs - first)) for k, first in enumerate(range(0, runs, size))]


def run_block(study: StudyCell, number: int, runs: int, seed: int) -> tuple[StraddledReadings, float]:
    """The readings of one block, which has a random generator of its own; and how many of its searches gave up."""
    rng = np.random.default_rng([seed_of(study.name, seed), number])
    answers = WholeFile(study.cell, rng, runs) if study.file else None
    found = simulate(study.cell, study.cell.straddle_plan, runs, rng, answers=answers)
    return read_straddled(found)[0], float(sum(run.gave_up for run in found.runs))


def measure(study: StudyCell, runs: int, seed: int, block: int = BLOCK) -> "Measured":
    """Run a cell in blocks and sum it up."""
    return joined(study, [run_block(study, k, size, seed) for k, size in blocks(study, runs, block)])


def joined(study: StudyCell, parts: Sequence[tuple[StraddledReadings, float]]) -> "Measured":
    """The numbers of a cell from those of its blocks."""
    both = join_blocks([readings for readings, _ in parts])
    return summarize(study, both, sum(lost for _, lost in parts) / len(both.contradicted))


def begins_at(law: Population, low: float) -> bool:
    """Whether the smallest value is `low` itself, and is shared."""
    ranks = law.cdf(np.array([np.nextafter(low, -math.inf), low]))
    return bool(ranks[0] <= 0.0 and ranks[1] > SHARED)


def ends_at(law: Population, high: float) -> bool:
    """Whether the largest value is `high` itself, and is shared."""
    ranks = law.cdf(np.array([np.nextafter(high, -math.inf), high]))
    return bool(ranks[1] >= 1.0 and ranks[0] < 1.0 - SHARED)


def summarize(study: StudyCell, both: StraddledReadings, lost: float) -> "Measured":
    """The numbers of a cell, in units of the data."""
    cell, near = study.cell, 1e-9 * (study.cell.high - study.cell.low)
    units = np.exp if study.log else np.asarray
    shown = both.any_shape
    # A result cuts its interval at the range; an end that is certified at the far end of the range closes it, and so
    # does the range's own end where it is the smallest or the largest of the values: zeros, in a range from 0.
    bounded = np.isfinite(shown.low) | (shown.high <= cell.low + near) | begins_at(cell.mixture, cell.low)
    bounded &= np.isfinite(shown.high) | (shown.low >= cell.high - near) | ends_at(cell.mixture, cell.high)
    shown = DisplayedIntervals(*(np.clip(column, cell.low, cell.high) for column in shown))
    (center, low, high), (middle, first, last) = (
        tuple(units(column) for column in part) for part in (shown, both.smooth)
    )
    truth = float(units(cell.truth))
    wald = 2.0 * two_sided_z(0.95) * cell.bound if study.has_density else 1.0
    bound = math.sqrt(2.0 / math.pi) * cell.bound if study.has_density else 1.0
    width = (high - low)[bounded] / wald if bounded.any() else np.array([math.nan])
    sets = None
    if study.step:
        raw = both.any_shape._replace(center=center, low=units(both.any_shape.low), high=units(both.any_shape.high))
        sets = grid_results(raw, raw, Grid(study.step), float(units(cell.low)), float(units(cell.high)))
    return Measured(
        study.table,
        study.name,
        len(cell.records),
        sum(cell.records),
        cell.information,
        len(bounded),
        truth,
        int(study.has_density),
        coverage=float(((low <= truth) & (truth <= high)).mean()),
        missed_low=float((low > truth).mean()),
        missed_high=float((high < truth).mean()),
        bounded=float(bounded.mean()),
        width=float(np.median(width)),
        width_90=float(np.quantile(width, 0.9)),
        smooth_coverage=float(((first <= truth) & (truth <= last)).mean()),
        smooth_width=float(np.median(last - first)) / wald,
        smooth_error=float(np.abs(middle - truth).mean()) / bound,
        contradicted=float(both.contradicted.mean()),
        gave_up=lost,
        one_or_two=math.nan if sets is None else float((sets.sizes <= 2).mean()),
        up_to_five=math.nan if sets is None else float((sets.sizes <= 5).mean()),
        set_coverage=math.nan if sets is None else float(sets.headline.covers(truth).mean()),
    )


def line(m: "Measured") -> str:
    """A cell as one line of text."""
    parts = (
        f"{m.table:9s} {m.name:52s} I {m.information:8.0f} any {m.coverage:.4f} {m.bounded:.4f}",
        f"width {m.width:8.4g} {m.width_90:8.4g}",
        f"smooth {m.smooth_coverage:.4f} {m.smooth_width:7.4g} {m.smooth_error:6.4g} contradicted {m.contradicted:.3f}",
    )
    return " | ".join(parts)
