"""Cells of an experiment that are run as `privatile estimate` runs its default design, and scored by what it shows.

`shown_results` has the rule; here are the key, the streams and the summary that every cell of an experiment has.
"""

import hashlib
import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from privatile.errors import InputError
from privatile.estimator.values import parse_values
from privatile.simulation.auto_simulation import BLOCK, AutoCell
from privatile.simulation.cells import plain_population
from privatile.simulation.columns import Empirical, LogOf
from privatile.simulation.engine import Summary
from privatile.simulation.populations import Population
from privatile.simulation.shown_results import ShownResults, simulate_results


@dataclass(frozen=True)
class DefaultCell:
    """One setting: who the clients are, what is declared about their values, and the range that is stated."""

    populations: tuple[Population, ...]
    """One per client."""
    truth_rates: tuple[float, ...]
    weights: tuple[float, ...]
    records: tuple[int, ...]
    level: float
    low: float
    high: float
    values: str = "any"
    scale: Literal["linear", "log"] = "linear"
    confidence_level: float = 0.95
    critical: ClassVar[None] = None
    critical_beside: ClassVar[None] = None

    def __post_init__(self) -> None:
        parse_values(self.values)
        if self.scale == "log" and self.low <= 0.0:
            raise InputError(f"a log scale needs a range above zero; got {self.low:g} to {self.high:g}.")
        if not self.low <= self.truth <= self.high:
            raise InputError(
                f"the range {self.low:g} to {self.high:g} does not hold the quantile of level {self.level:g}. Widen it."
            )
        self.working.plan  # noqa: B018  too few records for the design are refused here

    @cached_property
    def working(self) -> AutoCell:
        """The same on the working scale."""
        laws, ends = self.populations, (self.low, self.high)
        if self.scale == "log":
            logs = {law: LogOf(law) for law in laws}
            laws, ends = tuple(logs[law] for law in laws), (math.log(self.low), math.log(self.high))
        return AutoCell(laws, self.truth_rates, self.records, self.level, self.weights, low=ends[0], high=ends[1])

    @cached_property
    def truth(self) -> float:
        """Q*, in units."""
        return float(AutoCell(self.populations, self.truth_rates, self.records, self.level, self.weights).truth)

    @cached_property
    def bound(self) -> float:
        """The efficiency bound, in units; NaN without a density."""
        if any(isinstance(law, Empirical) for law in self.populations):
            return math.nan
        return self.working.bound * (self.truth if self.scale == "log" else 1.0)

    @property
    def updates(self) -> int:
        """Records answered in one replication, over all clients."""
        return sum(self.records)

    @cached_property
    def key(self) -> str:
        """Digest of all that decides the law of a replication."""
        plain: dict[str, Any] = {
            "populations": [plain_population(population) for population in self.populations],
            **{name: getattr(self, name) for name in ("truth_rates", "weights", "records", "level", "low", "high")},
            **{name: getattr(self, name) for name in ("values", "scale")},
        }
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()

    def block(self, index: int, runs: int, seed: int) -> ShownResults:
        """Some of the runs, in units; a block has a stream of its own, whichever thread runs it."""
        digest = hashlib.sha256(f"{seed}:{self.key}:{index}".encode()).digest()
        rng = np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))
        to_units = np.exp if self.scale == "log" else np.asarray
        return simulate_results(self.working, self.values, runs, rng, self.confidence_level, to_units)

    def run(self, replications: int, seed: int, threads: int = 1) -> ShownResults:
        """All runs."""
        sizes = [min(BLOCK, replications - first) for first in range(0, replications, BLOCK)]
        with ThreadPoolExecutor(threads) as pool:
            return ShownResults.joined(
                list(pool.map(lambda item: self.block(item[0], item[1], seed), enumerate(sizes)))
            )


def summarize_default(cell: DefaultCell, shown: ShownResults) -> Summary:
    """The operating characteristics of what the results show; widths are those of the bounded intervals."""
    replications = len(shown.sizes)
    error = shown.headline.center - cell.truth
    covered, other = (float(part.covers(cell.truth).mean()) for part in (shown.headline, shown.other))
    bounded, beside = (np.isfinite(part.half_width) for part in (shown.headline, shown.other))
    widths = 2.0 * shown.headline.half_width[bounded]
    size = 2.0 * shown.other.half_width[beside]
    sizes = shown.sizes[~np.isnan(shown.sizes)]
    root = math.sqrt(replications)
    return Summary(
        replications=replications,
        truth=cell.truth,
        critical_value=math.nan,
        coverage=covered,
        coverage_error=math.sqrt(covered * (1.0 - covered)) / root,
        coverage_beside=math.nan,
        mae=float(np.abs(error).mean()),
        mae_error=float(np.abs(error).std()) / root,
        bias=float(error.mean()),
        bias_error=float(error.std()) / root,
        rmse=float(np.sqrt(np.mean(error**2))),
        width=float(np.median(widths)) if widths.size else math.inf,
        width_error=math.nan,
        bound=cell.bound,
        updates=replications * cell.updates,
        bounded=float(bounded.mean()),
        other_coverage=other,
        other_width=float(np.median(size)) if size.size else math.inf,
        values_left=float(np.median(sizes)) if sizes.size else math.nan,
    )
