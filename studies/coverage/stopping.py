"""Runs that are looked at while they go on: how often the sequence ever misses, and what stopping by its width does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.estimator.settings import ReportSettings
from privatile.inference.choice import Evidence, as_displayed, choose_interval
from privatile.result.summary import FIRST_LOOK, may_stop
from privatile.simulation.auto_simulation import AutoCell, AutoRuns
from privatile.simulation.displayed_intervals import evidence_of, settings_of


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


def ever_missed(cell: AutoCell, runs: AutoRuns, looks: int = 16, confidence_level: float = 0.95) -> Floats:
    """Whether the sequence missed Q* at any of `looks` looks, evenly spread over the rounds, in each run."""
    settings = replace(settings_of(cell), until_width=1.0, confidence_level=confidence_level)
    rounds = np.linspace(0, runs.queries.shape[1] - 1, looks + 1, dtype=np.int64)[1:]
    missed = np.zeros(len(runs.queries))
    for run, evidence, _ in looks_of(cell, runs, rounds):
        missed[run] = max(missed[run], not covers(cell, settings, evidence))
    return missed


def stopping(
    cell: AutoCell, runs: AutoRuns, half_width: float, confidence_level: float = 0.95, every: int = 1
) -> Stopped:
    """Stop every run at the first look at which a result would; a look `every` so many rounds."""
    settings = replace(settings_of(cell), until_width=2.0 * half_width, confidence_level=confidence_level)
    rounds = runs.queries.shape[1]
    first = int(runs.averaged.any(axis=0).argmax())
    going = np.ones(len(runs.queries), dtype=np.bool_)
    covered, early, asked, missed = (np.zeros(len(going)) for _ in range(4))
    for run, evidence, last in looks_of(cell, runs, np.arange(rounds - 1, first, -every)[::-1]):
        inside, final = covers(cell, settings, evidence), last == rounds - 1
        missed[run] = max(missed[run], not inside)
        if going[run] and (final or may_stop(settings, evidence, cell.plan.scale)):
            going[run] = False
            covered[run], early[run], asked[run] = inside, not final, evidence.asked_share
    return Stopped(*(float(column.mean()) for column in (covered, early, asked, missed)))


def covers(cell: AutoCell, settings: ReportSettings, evidence: Evidence) -> bool:
    """Whether the sequence at a look holds Q*."""
    inference = as_displayed(choose_interval(settings, evidence), settings, cell.plan.scale)
    low, high = inference.interval(settings.confidence_level)
    return low <= cell.truth <= high


def looks_of(cell: AutoCell, runs: AutoRuns, rounds: NDArray[np.int64]) -> Iterator[tuple[int, Evidence, int]]:
    """Run, evidence and round of every look; a run is looked at once it may stop."""
    for last in rounds.tolist():
        seen = runs.until(last).on_host()
        averaged = seen.averaged.sum(axis=1)
        for run, evidence in enumerate(evidence_of(cell, seen)):
            if averaged[run] >= FIRST_LOOK:
                yield run, evidence, last
