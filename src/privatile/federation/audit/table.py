"""All questions of a plan side by side, and the groups of them that are tested."""

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from privatile.federation.audit.plan import Asks, Plan

Indices = NDArray[np.intp]

SIZES = (1, 2, 10, 30, 100, 1000)
"""Classes of cohort sizes begin here."""


class Table:
    """All questions of a plan side by side, and the groups that are tested."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rows: dict[tuple[str, str], slice] = {}
        parts: list[tuple[str, str, Asks]] = [
            (sitting.name, site, asks) for sitting in plan.sittings for site, asks in sitting.asks.items()
        ]
        stop = 0
        for sitting, site, asks in parts:
            self.rows[sitting, site] = slice(stop, stop + len(asks.round))
            stop += len(asks.round)

        def column(get: Callable[[Asks], NDArray[np.generic]]) -> NDArray[np.generic]:
            return np.concatenate([get(asks) for _, _, asks in parts])

        self.round = np.asarray(column(lambda asks: asks.round), dtype=np.int64)
        self.level = np.asarray(column(lambda asks: asks.level), dtype=np.float64)
        self.query = np.asarray(column(lambda asks: asks.query), dtype=np.float64)
        self.length = np.asarray(column(lambda asks: asks.length), dtype=np.int64)
        self.above = np.asarray(column(lambda asks: asks.above), dtype=np.float64)
        self.shares = np.asarray(column(lambda asks: asks.shares), dtype=np.float64)
        self.moves = np.asarray(column(lambda asks: asks.moves), dtype=np.float64)
        self.same_truth = np.asarray(column(lambda asks: asks.same_truth), dtype=np.bool_)
        self.phase = np.asarray(column(lambda asks: asks.round / asks.round.max()), dtype=np.float64)
        self.sign = np.where(self.above >= 0.5, 1.0, -1.0)
        """Where the truths are mostly 0, a lie raises the count; where they are mostly 1, it lowers it."""
        self.pooled = np.concatenate(
            [np.arange(rows.start, rows.stop) for (sitting, _), rows in self.rows.items() if sitting != "copy"]
        )
        """The copy asks the first sitting's records: beside the first it is tested by its differences alone."""

    @cached_property
    def groups(self) -> list[tuple[str, Indices]]:
        """Groups of questions, in words and as places."""
        length, above, phase = self.length, self.above, self.phase
        low, high = self.plan.sittings[0].study.range
        truths = {
            "no record above": self.same_truth & (above == 0.0),
            "all records above": self.same_truth & (above == 1.0),
            "few records above or below": ~self.same_truth & (abs(above - 0.5) >= 0.4),
            "records on both sides": ~self.same_truth & (abs(above - 0.5) < 0.4),
        }
        phases = {
            "the first round": self.round == 1,
            "rounds 2 to 10": (self.round >= 2) & (self.round <= 10),
            "the first half": phase <= 0.5,
            "the second half": phase > 0.5,
            "the last tenth": phase > 0.9,
        }
        masks = {"all questions": np.ones(len(length), dtype=np.bool_), **truths}
        for start, stop in zip(SIZES, (*SIZES[1:], np.inf), strict=True):
            words = "cohorts of 1" if start == 1 else f"cohorts from {start}"
            size = (length >= start) & (length < stop)
            masks[words] = size
            masks |= {f"{words}, {truth}": size & mask for truth, mask in truths.items()}
        for words, mask in phases.items():
            masks |= {words: mask, f"{words}, same truth": mask & self.same_truth}
            masks[f"{words}, records on both sides"] = mask & ~self.same_truth
        masks["queries at the low end"] = self.query < low + 0.1 * (high - low)
        masks["queries at the high end"] = self.query > high - 0.1 * (high - low)
        for level in sorted(set(self.level.tolist())):
            masks[f"level {level:g}"] = self.level == level
        return [
            *((words, self.pooled[mask[self.pooled]]) for words, mask in masks.items()),
            *self._sites(),
        ]

    def _sites(self) -> Iterator[tuple[str, Indices]]:
        """Every site of every sitting, and its levels."""
        for (sitting, site), rows in self.rows.items():
            places = np.arange(rows.start, rows.stop)
            yield f"sitting {sitting}, site {site}", places
            if sitting in ("first", "long"):
                for level in sorted(set(self.level[places].tolist())):
                    yield f"sitting {sitting}, site {site}, level {level:g}", places[self.level[places] == level]

    def sequences(self) -> list[Indices]:
        """Consecutive questions to one site in one sitting, without the copy."""
        return [np.arange(rows.start, rows.stop) for (sitting, _), rows in self.rows.items() if sitting != "copy"]

    def alike(self) -> list[Indices]:
        """Questions of one query to one site in one sitting, without the copy."""
        return [
            places[self.query[places] == query]
            for places in self.sequences()
            for query in np.unique(self.query[places]).tolist()
        ]
