"""Runs that are looked at while they go on: how often the sequence ever misses, and what stopping by its width does."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from privatile.inference.choice import as_displayed, choose_interval
from privatile.result.summary import FIRST_LOOK, may_stop
from privatile.simulation.default_design import AutoCell, AutoRuns, evidence_of, settings_of


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


def stopping(cell: AutoCell, runs: AutoRuns, half_width: float, every: int = 1) -> Stopped:
    """Stop every run at the first look at which a result would; a look `every` so many rounds."""
    settings = replace(settings_of(cell), until_width=2.0 * half_width)
    rounds = runs.queries.shape[1]
    first = int(runs.averaged.any(axis=0).argmax())
    going = np.ones(len(runs.queries), dtype=np.bool_)
    covered, early, asked, missed = (np.zeros(len(going)) for _ in range(4))
    for last in reversed(range(rounds - 1, first, -every)):
        seen, final = runs.until(last).on_host(), last == rounds - 1
        averaged = seen.averaged.sum(axis=1)
        for run, evidence in enumerate(evidence_of(cell, seen)):
            if averaged[run] < FIRST_LOOK:
                continue
            inference = as_displayed(choose_interval(settings, evidence), settings, cell.plan.scale)
            low, high = inference.interval(settings.confidence_level)
            inside = low <= cell.truth <= high
            missed[run] = max(missed[run], not inside)
            if going[run] and (final or may_stop(settings, evidence, cell.plan.scale)):
                going[run] = False
                covered[run], early[run], asked[run] = inside, not final, evidence.asked_share
    return Stopped(*(float(column.mean()) for column in (covered, early, asked, missed)))
