"""A run as a page sees it: its specification, one result and one history a level, the interval along the way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privatile.inference import Trajectory, endpoint_variance
from privatile.report.band import half_widths
from privatile.report.history import LevelHistory
from privatile.report.thinning import bucket_ends, envelope
from privatile.result import QuantileResult
from privatile.scale import Scale
from privatile.server.coordinator import Coordinator
from privatile.server.store import RunStore
from privatile.spec import RunSpec

Floats = NDArray[np.float64]

POINTS = 4500
"""Points of all levels together in a page: each costs about 60 bytes, and a screen is some 2,000 pixels wide."""


@dataclass(frozen=True)
class ThinPath:
    """A thinned path in units of the data, ready to be drawn; NaN where there is no estimate yet."""

    rounds: NDArray[np.int64]
    records: NDArray[np.int64]
    question_low: Floats
    question_high: Floats
    estimate: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class LevelView:
    """One level: its result (none before two averaged rounds), its history and its interval along the way."""

    level: float
    result: QuantileResult | None
    history: LevelHistory
    widths: Floats
    """Half-widths after each averaged round, working scale."""
    scale: Scale

    def path(self, most: int) -> ThinPath:
        """At most `most` points."""
        history = self.history
        ends = bucket_ends(len(history), most)
        reach = np.concatenate([np.full(len(history) - len(self.widths), np.nan), self.widths])[ends - 1]
        center = history.mean[ends - 1]
        questions = envelope(history.after, ends)
        return ThinPath(
            ends,
            history.records[ends - 1],
            in_units(questions.low, self.scale),
            in_units(questions.high, self.scale),
            in_units(center, self.scale),
            in_units(center - reach, self.scale),
            in_units(center + reach, self.scale),
        )


@dataclass(frozen=True)
class RunView:
    """All that a page tells about a run."""

    run: str
    created: float
    finished: float | None
    spec: RunSpec
    levels: tuple[LevelView, ...]
    planned: int

    @property
    def done(self) -> int:
        """Rounds completed by every level."""
        return min(len(level.history) for level in self.levels)

    @property
    def points(self) -> int:
        """Points a level may have, so that the page stays small."""
        return max(200, min(2000, POINTS // len(self.levels)))


def in_units(values: Floats, scale: Scale) -> Floats:
    """Working values in units of the data, cut at the stated range; NaN stays."""
    return np.array(
        [math.nan if math.isnan(value) else min(max(scale.to_units(value), scale.low), scale.high) for value in values]
    )


def view_of(coordinator: Coordinator, results: Sequence[QuantileResult] | None = None) -> RunView:
    """The view of a run at hand. `results` replace the coordinator's own (they may carry more caveats)."""
    store, spec = coordinator.store, coordinator.spec
    levels = []
    for index, track in enumerate(coordinator.tracks):
        history = LevelHistory(index, len(spec.clients))
        history.refresh(store)
        averaged = track.state.averages.rounds
        result = None
        if averaged >= 2:
            result = coordinator.result(index) if results is None else results[index]
        widths = _widths(spec, history, track.trajectory, averaged)
        if result is not None and spec.target == "file":
            widths = _widths(spec, history, track.trajectory, averaged, endpoint_variance(track.state, track.plan))
        levels.append(LevelView(spec.levels[index], result, history, widths, track.plan.scale))
    return RunView(store.run, store.created, store.finished, spec, tuple(levels), coordinator.planned)


def _widths(
    spec: RunSpec, history: LevelHistory, trajectory: Trajectory, averaged: int, variance_share: float = 1.0
) -> Floats:
    kept = history.normalizer[len(history) - averaged :]
    return half_widths(
        trajectory.queries, trajectory.weights, kept, spec.confidence_level, spec.normalizer, variance_share
    )


def read_view(path: str | Path) -> RunView:
    """The view of a run's file; the file is only read."""
    store = RunStore.open(path, read_only=True)
    try:
        return view_of(Coordinator(store))
    finally:
        store.close()
