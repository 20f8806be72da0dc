"""The intervals that results would show, for many simulated runs: the rule is `inference.choice`'s own."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.estimator.averaging import normalizer_of
from privatile.estimator.settings import IntervalName, ReportSettings
from privatile.inference.choice import Evidence, as_displayed, choose_interval
from privatile.inference.inference import Inference
from privatile.inference.self_normalized import AveragedPath
from privatile.inference.tuned_reading import curve_of
from privatile.simulation.auto_simulation import AutoCell, AutoRuns


class DisplayedIntervals(NamedTuple):
    """Estimates and intervals of many runs at one confidence; an end may be infinite, a result cuts it at the range."""

    center: Floats
    low: Floats
    high: Floats

    @classmethod
    def of(cls, inferences: Iterable[Inference], confidence_level: float) -> "DisplayedIntervals":
        """The intervals of inferences."""
        rows = [(inference.center, *inference.interval(confidence_level)) for inference in inferences]
        return cls(*np.array(rows, dtype=np.float64).reshape(-1, 3).T)

    @classmethod
    def joined(cls, parts: "Sequence[DisplayedIntervals]") -> "DisplayedIntervals":
        """Several blocks of runs as one."""
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def covers(self, truth: float) -> NDArray[np.bool_]:
        """Which intervals hold the truth."""
        return (self.low <= truth) & (truth <= self.high)

    @property
    def half_width(self) -> Floats:
        """Half of every interval's length."""
        return (self.high - self.low) / 2.0


def settings_of(cell: AutoCell) -> ReportSettings:
    """The defaults of a result of the design for continuous values, for a cell."""
    return ReportSettings("simulated values", (cell.level,), values="continuous")


def displayed_intervals(
    cell: AutoCell, runs: AutoRuns, levels: Sequence[float] = (0.95,), interval: IntervalName = "default"
) -> "list[DisplayedIntervals]":
    """What the results of all runs show at these confidence levels."""
    settings = replace(settings_of(cell), interval=interval)
    inferences = [
        as_displayed(choose_interval(settings, evidence), settings, cell.plan.scale)
        for evidence in evidence_of(cell, runs)
    ]
    return [DisplayedIntervals.of(inferences, level) for level in levels]


def evidence_of(cell: AutoCell, runs: AutoRuns) -> Iterator[Evidence]:
    """The evidence of every run, as `gather_evidence` gives it for a real one."""
    table = np.stack([runs.queries, runs.residuals, runs.noise])
    for run, came in enumerate(np.isfinite(runs.noise)):
        curve = curve_of(runs.fit.of_run(run), table[:, run, came], cell.level)

        def path(run: int = run) -> AveragedPath:
            averaged = runs.averaged[run]
            after, noise = runs.after[run, averaged], runs.noise[run, averaged]
            steps = np.full(len(after), runs.tuning.step[run])
            return AveragedPath(float(after.mean()), normalizer_of(after, noise), after, noise, steps)

        yield Evidence(curve, path, cell.information, float(runs.asked[run, -1]))
