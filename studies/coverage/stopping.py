"""Runs that are looked at while they go on: how often the sequence ever misses, and what stopping by its width does."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from privatile.inference.reading import as_displayed
from privatile.result.summary import FIRST_LOOK, may_stop
from privatile.simulation.default_design import SimulatedRuns, settings_of


class Stopped(NamedTuple):
    """Runs that stopped when their sequence was narrow enough."""

    coverage: float
    """Of the interval shown at the stop."""
    stopped: float
    """Share of the runs that stopped before their records were used up."""
    asked: float
    """Mean share of the records asked."""
    ever_missed: float
    """Share of the runs whose sequence missed at any look, had they gone on."""


def stopping(runs: SimulatedRuns, half_width: float, every: int = 1) -> Stopped:
    """Stop every run at the first look at which a result would; a look `every` so many rounds."""
    cell, scale = runs.cell, runs.plan.scale
    settings = replace(settings_of(cell, runs.plan), until_width=2.0 * half_width)
    rounds = runs.queries.shape[1]
    first = int(runs.averaged.any(axis=0).argmax())
    going = np.ones(len(runs.queries), dtype=np.bool_)
    covered, early, asked, missed = (np.zeros(len(going)) for _ in range(4))
    for last in reversed(range(rounds - 1, first, -every)):
        final, averaged = last == rounds - 1, runs.averaged[:, : last + 1].sum(axis=1)
        for run in np.flatnonzero(averaged >= FIRST_LOOK).tolist():
            reading = runs.reading(run, settings, last + 1)
            low, high = as_displayed(reading.shown, settings, scale).interval(settings.confidence_level)
            inside = low <= cell.truth <= high
            missed[run] = max(missed[run], not inside)
            if going[run] and (final or may_stop(settings, reading, scale)):
                going[run] = False
                covered[run], early[run], asked[run] = inside, not final, runs.asked[run, last] / sum(cell.records)
    return Stopped(*(float(column.mean()) for column in (covered, early, asked, missed)))
