"""The cells of the study, table by table: smooth laws, hard ones, the cells of studies/coverage, real columns."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from studies.any_shape.laws import Arcsine, Exponential, Gumbel, Pareto, Steps, Triangle, WithAtom
from studies.coverage.coverage import FAMILIES, read_cells
from studies.coverage.heaped import Rounded

from privatile.core.mechanism import RandomizedResponse, rank_noise
from privatile.simulation.default_design import AutoCell
from privatile.simulation.populations import (
    Cauchy,
    Empirical,
    Laplace,
    LogNormal,
    LogOf,
    Mixture,
    Normal,
    Population,
    StudentT,
    Uniform,
    read_columns,
)

RATE = RandomizedResponse.from_epsilon(1.0).truth_rate

SMOOTH: dict[str, Population] = {
    "normal": Normal(),
    "log-normal": LogNormal(),
    "t3": StudentT(degrees=3.0),
    "laplace": Laplace(),
    "cauchy": Cauchy(),
    "uniform": Uniform(-1.0, 1.0),
    "two humps": Mixture((Normal(-1.0, 1.0), Normal(1.0, 0.5))),
    "unequal humps": Mixture((Normal(), Normal(3.0, 0.5)), (0.7, 0.3)),
    "pareto": Pareto(1.5),
    "three humps": Mixture((Normal(-2.5, 0.6), Normal(0.0, 0.8), Normal(2.5, 0.6)), (0.25, 0.5, 0.25)),
}
"""Laws on which constants were chosen, or that their reasons name."""

UNSEEN: dict[str, Population] = {
    "exponential": Exponential(),
    "gumbel": Gumbel(),
    "triangle": Triangle(),
    "arcsine": Arcsine(),
    "t1.5": StudentT(degrees=1.5),
}
"""Laws on which no constant was chosen: added when all of them stood."""
SALARIES = LogNormal(math.log(48000), 0.6)
HUMPS = {depth: Mixture((Normal(-depth), Normal(depth))) for depth in (1.5, 3.0, 5.0)}
GAP, STEP = Mixture((Uniform(-3.0, -1.0), Uniform(1.0, 3.0))), Mixture((Uniform(0.0, 1.0), Uniform(1.0, 9.0)))
HARD: dict[str, tuple[Population, float, tuple[float, float]]] = {
    "trough shallow": (HUMPS[1.5], 0.5, (-10, 10)),
    "trough": (HUMPS[3.0], 0.5, (-10, 10)),
    "trough deep": (HUMPS[5.0], 0.5, (-20, 20)),
    "gap": (GAP, 0.5, (-10, 10)),
    "gap .52": (GAP, 0.52, (-10, 10)),
    "whole years": (Rounded(Normal(40.2, 12.0)), 0.5, (0, 120)),
    "whole years .9": (Rounded(Normal(40.2, 12.0)), 0.9, (0, 120)),
    "half 1000s": (Rounded(SALARIES, 1000.0, 0.5), 0.5, (0, 1e6)),
    "half 5000s": (Rounded(SALARIES, 5000.0, 0.5), 0.5, (0, 1e6)),
    "half 5000s .8": (Rounded(SALARIES, 5000.0, 0.5), 0.8, (0, 1e6)),
    "zeros 40% .5": (WithAtom(LogNormal(), 0.0, 0.4), 0.5, (0, 100)),
    "zeros 49% .5": (WithAtom(LogNormal(), 0.0, 0.49), 0.5, (-1, 100)),
    "zeros 60% .5": (WithAtom(LogNormal(), 0.0, 0.6), 0.5, (-1, 100)),
    "zeros 60% .5 edge": (WithAtom(LogNormal(), 0.0, 0.6), 0.5, (0, 100)),
    "zeros 40% .4": (WithAtom(LogNormal(), 0.0, 0.4), 0.4, (-1, 100)),
    "90% and 10% .9": (Steps((0.0, 1.0), (0.9, 0.1)), 0.9, (-2, 3)),
    "atom at": (WithAtom(Normal(), 0.0, 0.1), 0.5, (-10, 10)),
    "atom next": (WithAtom(Normal(), 0.1, 0.1), 0.52, (-10, 10)),
    "atom far": (WithAtom(Normal(), 1.0, 0.3), 0.3, (-10, 10)),
    "pareto edge .1": (Pareto(1.5), 0.1, (0, 100)),
    "uniform edge .1": (Uniform(0.0, 1.0), 0.1, (-1, 2)),
    "density step": (STEP, 0.5, (-1, 12)),
    "density step .52": (STEP, 0.52, (-1, 12)),
    "two values": (Steps((0.0, 1.0), (0.5, 0.5)), 0.5, (-1, 2)),
    "two values .48": (Steps((0.0, 1.0), (0.48, 0.52)), 0.5, (-1, 2)),
    "ten grades": (Steps(tuple(range(1, 11)), (0.1,) * 10), 0.55, (0, 11)),
}
GRIDS = {"whole years": 1.0, "whole years .9": 1.0, "two values": 1.0, "two values .48": 1.0, "ten grades": 1.0}
SIZES = (2_000, 20_000, 120_000, 600_000)
DATA = {"salary": ("salary", (1000.0, 1e6)), "age": ("age", (0.0, 120.0)), "hours": ("hours_worked", (0.0, 100.0))}
"""Column and range, salaries as in the README: on a log scale."""
LOG_SCALE = ("salary",)
LEVELS = (0.25, 0.5, 0.9)


@dataclass(frozen=True)
class StudyCell:
    """A cell of a table of the study."""

    table: str
    name: str
    cell: AutoCell
    has_density: bool = False
    """Widths and errors are then measured by the efficiency bound."""
    step: float = 0.0
    """Grid that may be declared; 0: none."""
    log: bool = False
    """Whether the cell's populations are logarithms: ends are shown in units."""
    file: bool = False
    """Whether the records are one fixed file, whose own quantile is the target."""


def make_cell(
    family: str, clients: int, rate: float, level: float, information: float, laws: dict[str, Population] = SMOOTH
) -> AutoCell:
    """A cell whose records give it the information asked for."""
    unit = float(rank_noise(1.0 / clients, rate, 1.0)) * clients
    records = math.ceil(information * unit / (level * (1.0 - level)) ** 2 * (1 - 1e-12))
    name = f"{family} K={clients} r={rate:g} τ={level:g} I={information:g}"
    members = (laws[family],) * clients if family in laws else FAMILIES[family](clients)
    return AutoCell(members, (rate,) * clients, (records,) * clients, level, low=-10.0, high=20.0, name=name)


def smooth_cells() -> Iterator[StudyCell]:
    """One client, four sizes, three levels."""
    for laws, table in ((SMOOTH, "smooth"), (UNSEEN, "unseen")):
        for info, level, name in itertools.product((150, 600, 6000, 60_000), (0.3, 0.5, 0.8), laws):
            cell = make_cell(name, 1, 0.5, level, info, laws)
            yield StudyCell(table, cell.name, cell, has_density=True)


def coverage_cells() -> Iterator[StudyCell]:
    """The cells of studies/coverage with this design; 10,000 rounds are left out, they take as long as all others."""
    for cell in read_cells(Path(__file__).parents[1] / "coverage" / "cells.toml"):
        if cell.rounds is None or cell.rounds <= 2000:
            yield StudyCell("coverage", cell.name, cell, has_density=True)


def hard_cells() -> Iterator[StudyCell]:
    """One client at ε = 1 and four sizes; at ε = ½ and 3 with 20,000 records."""
    rates = {epsilon: RandomizedResponse.from_epsilon(epsilon).truth_rate for epsilon in (0.5, 1.0, 3.0)}
    settings = [(1.0, n) for n in SIZES] + [(0.5, 20_000), (3.0, 20_000)]
    for (epsilon, n), (name, (law, level, (low, high))) in itertools.product(settings, HARD.items()):
        cell = AutoCell((law,), (rates[epsilon],), (n,), level, low=low, high=high)
        yield StudyCell("hard", f"{name} n={n} ε={epsilon:g}", cell, step=GRIDS.get(name, 0.0))


FEDERATED = ("trough", "gap", "whole years", "half 5000s", "zeros 60% .5", "atom at", "density step", "two values")


def federated_cells() -> Iterator[StudyCell]:
    """Hard laws at ten and a hundred clients, 120,000 records in all.

    "by size": sizes that double five times over ten clients, weights their sizes, ε from ½ to 3. "equal weights": the
    same sizes with equal weights.
    """
    for name in FEDERATED:
        law, level, (low, high) = HARD[name]
        shape = 2.0 ** np.linspace(0.0, 5.0, 10)
        sizes = tuple(np.ceil(120_000 * shape / shape.sum()).astype(int).tolist())
        weights = tuple((np.array(sizes) / sum(sizes)).tolist())
        rates = tuple(RandomizedResponse.from_epsilon(e).truth_rate for e in np.linspace(0.5, 3.0, 10).tolist())
        for label, cell in (
            ("K=10", AutoCell((law,) * 10, (RATE,) * 10, (12_000,) * 10, level, low=low, high=high)),
            ("K=100", AutoCell((law,) * 100, (RATE,) * 100, (1200,) * 100, level, low=low, high=high)),
            ("by size", AutoCell((law,) * 10, rates, sizes, level, weights, low=low, high=high)),
            ("equal weights", AutoCell((law,) * 10, rates, sizes, level, low=low, high=high)),
        ):
            yield StudyCell("federated", f"{name} {label}", cell, step=GRIDS.get(name, 0.0))


def column_cells(data: Path) -> Iterator[StudyCell]:
    """The three columns, all records together as one client, at two sizes; and with the nine regions as clients."""
    for name, (column, _) in DATA.items():
        law = _whole(data, column)
        for n, level in itertools.product((20_000, len(law.values)), LEVELS):
            yield _column_cell("columns", f"{name} τ={level:g} n={n}", name, (law,), (n,), level)
        regions = tuple(read_columns(data, column, "economic_region").values())
        sizes = tuple(len(region.values) for region in regions)
        for level in LEVELS:
            yield _column_cell("columns", f"{name} τ={level:g} nine regions as clients", name, regions, sizes, level)


def region_cells(data: Path) -> Iterator[StudyCell]:
    """Every column of every region, with as many records as the region has."""
    for name, (column, _) in DATA.items():
        for region, law in sorted(read_columns(data, column, "economic_region").items()):
            for level in LEVELS:
                n = len(law.values)
                yield _column_cell("regions", f"{region} {name} τ={level:g} n={n}", name, (law,), (n,), level)


def file_cells(data: Path) -> Iterator[StudyCell]:
    """The salary table itself as the target: every record answers once."""
    for name, (column, _) in DATA.items():
        law = _whole(data, column)
        for level in LEVELS:
            cell = _column_cell("file", f"{name} τ={level:g}", name, (law,), (len(law.values),), level)
            yield replace(cell, file=True)


def _column_cell(
    table: str, label: str, name: str, laws: tuple[Empirical, ...], sizes: tuple[int, ...], level: float
) -> StudyCell:
    """A cell of a real column, asked with the options of the README; clients count with their sizes."""
    log, (low, high) = name in LOG_SCALE, DATA[name][1]
    members: tuple[Population, ...] = tuple(LogOf(law) for law in laws) if log else laws
    if log:
        label, low, high = f"{label}, log scale", math.log(low), math.log(high)
    weights = tuple(size / sum(sizes) for size in sizes)
    cell = AutoCell(members, (RATE,) * len(sizes), sizes, level, weights, low=low, high=high)
    return StudyCell(table, label, cell, step=float(name == "age"), log=log)


def _whole(data: Path, column: str) -> Empirical:
    (law,) = read_columns(data, column).values()
    return law


TABLES: dict[str, Callable[[Path], Iterator[StudyCell]]] = {
    "smooth": lambda data: smooth_cells(),
    "coverage": lambda data: coverage_cells(),
    "hard": lambda data: hard_cells(),
    "federated": lambda data: federated_cells(),
    "columns": column_cells,
    "regions": region_cells,
    "file": file_cells,
}


def cells_of(tables: Sequence[str], data: Path) -> list[StudyCell]:
    """The cells of some tables, in order."""
    return [cell for table in tables for cell in TABLES[table](data)]
