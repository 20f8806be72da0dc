"""The cells: smooth, hard, real columns."""

import csv
import gzip
import itertools
import math
from pathlib import Path

import numpy as np
from studies.any_shape.laws import Column, Pareto, Steps, WithAtom
from studies.coverage.heaped import Rounded

from privatile.core.mechanism import RandomizedResponse, rank_noise
from privatile.simulation.auto_simulation import AutoCell
from privatile.simulation.populations import Cauchy, Laplace, LogNormal, Mixture, Normal, Population, StudentT, Uniform

RATE = RandomizedResponse.from_epsilon(1.0).truth_rate

SMOOTH = {
    "normal": Normal(),
    "log-normal": LogNormal(),
    "t3": StudentT(degrees=3.0),
    "laplace": Laplace(),
    "cauchy": Cauchy(),
    "uniform": Uniform(-1.0, 1.0),
    "two humps": Mixture((Normal(-1.0, 1.0), Normal(1.0, 0.5))),
    "unequal humps": Mixture((Normal(), Normal(3.0, 0.5)), (0.7, 0.3)),
    "pareto": Pareto(1.5),
}
HARD: dict[str, tuple[Population, float, tuple[float, float]]] = {
    "trough shallow": (Mixture((Normal(-1.5), Normal(1.5))), 0.5, (-10, 10)),
    "trough": (Mixture((Normal(-3.0), Normal(3.0))), 0.5, (-10, 10)),
    "trough deep": (Mixture((Normal(-5.0), Normal(5.0))), 0.5, (-20, 20)),
    "gap": (Mixture((Uniform(-3.0, -1.0), Uniform(1.0, 3.0))), 0.5, (-10, 10)),
    "gap .52": (Mixture((Uniform(-3.0, -1.0), Uniform(1.0, 3.0))), 0.52, (-10, 10)),
    "whole years": (Rounded(Normal(40.2, 12.0)), 0.5, (0, 120)),
    "whole years .9": (Rounded(Normal(40.2, 12.0)), 0.9, (0, 120)),
    "half 1000s": (Rounded(LogNormal(math.log(48000), 0.6), 1000.0, 0.5), 0.5, (0, 1e6)),
    "half 5000s": (Rounded(LogNormal(math.log(48000), 0.6), 5000.0, 0.5), 0.5, (0, 1e6)),
    "half 5000s .8": (Rounded(LogNormal(math.log(48000), 0.6), 5000.0, 0.5), 0.8, (0, 1e6)),
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
    "density step": (Mixture((Uniform(0.0, 1.0), Uniform(1.0, 9.0))), 0.5, (-1, 12)),
    "density step .52": (Mixture((Uniform(0.0, 1.0), Uniform(1.0, 9.0))), 0.52, (-1, 12)),
    "two values": (Steps((0.0, 1.0), (0.5, 0.5)), 0.5, (-1, 2)),
    "two values .48": (Steps((0.0, 1.0), (0.48, 0.52)), 0.5, (-1, 2)),
    "ten grades": (Steps(tuple(range(1, 11)), (0.1,) * 10), 0.55, (0, 11)),
}
DATA = {"salary": ("salary", (0.0, 1e6)), "age": ("age", (0.0, 120.0)), "hours": ("hours_worked", (0.0, 100.0))}


def smooth_cells(sizes: tuple[int, ...], levels: tuple[float, ...] = (0.5, 0.8)) -> list[AutoCell]:
    """One client at ε = 1."""
    return [
        AutoCell((law,), (RATE,), (n,), level, name=f"{name} τ={level:g} n={n}")
        for n in sizes
        for level in levels
        for name, law in SMOOTH.items()
    ]


HETE_L = tuple(Normal(float(location)) for location in np.random.RandomState(42).randn(10))
HETE_D = (Normal(),) * 3 + (Uniform(-1.0, 1.0),) * 3 + (Cauchy(),) * 4


def clients_of(name: str, clients: int) -> tuple[Population, ...]:
    """The populations of a family's clients."""
    different = {"hete-l": HETE_L, "hete-d": HETE_D}.get(name)
    return tuple(itertools.islice(itertools.cycle(different), clients)) if different else (SMOOTH[name],) * clients


def make_cell(family: str, clients: int, rate: float, level: float, information: float) -> AutoCell:
    """A cell whose records give it the information asked for."""
    unit = float(rank_noise(1.0 / clients, rate, 1.0)) * clients
    records = math.ceil(information * unit / (level * (1.0 - level)) ** 2 * (1 - 1e-12))
    name = f"{family} K={clients} r={rate:g} τ={level:g} I={information:g}"
    return AutoCell(
        clients_of(family, clients), (rate,) * clients, (records,) * clients, level, low=-10.0, high=20.0, name=name
    )


def information_cells(
    informations: tuple[int, ...],
    levels: tuple[float, ...] = (0.3, 0.5, 0.8),
    clients: int = 1,
    truth_rate: float = 0.5,
) -> list[AutoCell]:
    return [
        make_cell(name, clients, truth_rate, level, info)
        for info in informations
        for level in levels
        for name in (*SMOOTH, *(("hete-l", "hete-d") if clients > 1 else ()))
    ]


def ten_clients(informations: tuple[int, ...]) -> list[AutoCell]:
    """Ten clients, alike and different."""
    return [
        make_cell(name, 10, 0.5, level, info)
        for info in informations
        for level in (0.3, 0.5, 0.8)
        for name in ("normal", "log-normal", "hete-l", "hete-d")
    ]


def hard_cells(sizes: tuple[int, ...]) -> list[AutoCell]:
    return [
        AutoCell((law,), (RATE,), (n,), level, low=low, high=high, name=f"{name} n={n}")
        for n in sizes
        for name, (law, level, (low, high)) in HARD.items()
    ]


def columns(path: Path) -> dict[str, list[float]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    return {
        name: [float(row[column]) for row in rows if row[column] not in ("", "NA")]
        for name, (column, _) in DATA.items()
    }


def region_cells(path: Path, sizes: tuple[int, ...] = ()) -> list[AutoCell]:
    """Every column of every region, with as many records as the region has."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    cells = []
    for region in sorted({row["economic_region"] for row in rows}):
        for name, (column, (low, high)) in DATA.items():
            values = [
                float(row[column]) for row in rows if row["economic_region"] == region and row[column] not in ("", "NA")
            ]
            law = Column(values)
            cells += [
                AutoCell(
                    (law,),
                    (RATE,),
                    (len(values),),
                    level,
                    low=low,
                    high=high,
                    name=f"{region} {name} τ={level:g} n={len(values)}",
                )
                for level in (0.25, 0.5, 0.9)
            ]
    return cells


def real_cells(path: Path, sizes: tuple[int, ...] = (20_000, 204_309)) -> list[AutoCell]:
    cells = []
    for name, values in columns(path).items():
        law = Column(values)
        low, high = DATA[name][1]
        cells += [
            AutoCell((law,), (RATE,), (n,), level, low=low, high=high, name=f"{name} τ={level:g} n={n}")
            for n in sizes
            for level in (0.25, 0.5, 0.9)
        ]
    return cells
