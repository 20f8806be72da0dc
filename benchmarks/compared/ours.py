"""privatile and the paper's designs: estimates with intervals, many replications at once.

privatile runs through the code of real runs, on the given people; the paper's designs, DP-SGD and divide and conquer
run in the compiled kernels, which draw people of the same distribution anew.
"""

from typing import NamedTuple

import numpy as np
from benchmarks.compared.settings import CLIENTS, Setting
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.estimator.schedule import Constant, Design
from privatile.simulation.cells import Cell
from privatile.simulation.default_design import AutoCell, displayed_intervals, read_straddled, simulate
from privatile.simulation.engine import run_cell
from privatile.simulation.populations import Empirical, Normal, Uniform


class Found(NamedTuple):
    """Estimates, and the ends of intervals where a method has any, on the scale 0 to 1; and the rounds of a run."""

    estimates: Floats
    low: Floats | None
    high: Floats | None
    rounds: int


class People:
    """The same people for every method: a cohort are a client's next records, each with its coin."""

    def __init__(self, records: list[Floats], rate: float, rng: np.random.Generator) -> None:
        self.records, self.rng = records, rng
        self.truthful = 0.5 * (1.0 + rate)
        self.used = np.zeros((len(records), CLIENTS), dtype=np.int64)

    def counts(self, queries: Floats, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ones of every run's clients."""
        above = np.zeros_like(lengths)
        for run, query in enumerate(queries.tolist()):
            for client, length in enumerate(lengths[run].tolist()):
                first = self.used[run, client]
                above[run, client] = np.count_nonzero(self.records[run][client, first : first + length] > query)
        self.used += lengths
        ones = self.rng.binomial(above, self.truthful) + self.rng.binomial(lengths - above, 1.0 - self.truthful)
        return np.asarray(ones, dtype=np.int64)


def _cell(setting: Setting) -> AutoCell:
    each = (setting.people // CLIENTS,) * CLIENTS
    return AutoCell(setting.unit_populations, (setting.rate,) * CLIENTS, each, setting.level, low=0.0, high=1.0)


def any_shape(setting: Setting, records: list[Floats], rng: np.random.Generator) -> Found:
    """The default: holds for every distribution."""
    cell, runs = _cell(setting), len(records)
    found = simulate(cell, cell.straddle_plan, runs, rng, answers=People(records, setting.rate, rng))
    shown = read_straddled(found)[0].any_shape
    ends = np.clip(shown.low, 0.0, 1.0), np.clip(shown.high, 0.0, 1.0)
    return Found(np.clip(shown.center, 0.0, 1.0), *ends, found.queries.shape[1])


def declared_continuous(setting: Setting, records: list[Floats], rng: np.random.Generator) -> Found:
    """With `--value-kind continuous`."""
    cell, runs = _cell(setting), len(records)
    found = simulate(cell, cell.plan, runs, rng, answers=People(records, setting.rate, rng))
    shown = displayed_intervals(found)[0]
    ends = np.clip(shown.low, 0.0, 1.0), np.clip(shown.high, 0.0, 1.0)
    return Found(np.clip(shown.center, 0.0, 1.0), *ends, found.queries.shape[1])


DESIGNS = {
    "the paper, C1": ("estimator", Design("c1", Constant(1), mode="local", warm_up=0.05)),
    "the paper, C5": ("estimator", Design("c5", Constant(5), mode="local", warm_up=0.05)),
    "DP-SGD": ("dp-sgd", Design("sgd", Constant(1), mode="local", warm_up=0.05)),
    "divide and conquer": ("divide", Design("dc", Constant(1), mode="local", step_scale=2.0)),
}

KERNEL_SPAN = 8.0
"""Length of the range on the kernels' scale: the paper's steps are made for values spread by about 1."""


def by_kernel(name: str, setting: Setting, replications: int, seed: int) -> Found:
    """A design of the paper, as the paper runs it, beginning in the middle of the range."""
    method, design = DESIGNS[name]
    cell = Cell(
        populations=tuple(_stretched(law) for law in setting.unit_populations),
        levels=(setting.level,) * CLIENTS,
        truth_rates=(setting.rate,) * CLIENTS,
        weights=(1.0 / CLIENTS,) * CLIENTS,
        design=design,
        records=(setting.people // CLIENTS,) * CLIENTS,
        method=method,  # type: ignore[arg-type]
        # The middle of the range; a law is wanted, so a very narrow one.
        start=Uniform(0.5 * KERNEL_SPAN - 1e-9, 0.5 * KERNEL_SPAN + 1e-9),
    )
    outcome = run_cell(cell, replications, seed)
    half = cell.critical_value * np.sqrt(outcome.normalizers)
    estimates = outcome.estimates / KERNEL_SPAN
    low, high = (np.clip(estimates + sign * half / KERNEL_SPAN, 0.0, 1.0) for sign in (-1.0, 1.0))
    return Found(np.clip(estimates, 0.0, 1.0), low, high, cell.lengths.shape[1])


def _stretched(law: object) -> "Normal | Empirical":
    """A law on 0 to 1 as one on 0 to KERNEL_SPAN."""
    if isinstance(law, Normal):
        return Normal(law.location * KERNEL_SPAN, law.scale * KERNEL_SPAN)
    assert isinstance(law, Empirical)
    return Empirical(law.values * KERNEL_SPAN)
