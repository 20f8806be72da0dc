"""The coverage study: a grid of cells as TOML, scored one by one into a file; a second call continues it."""

import hashlib
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from studies.any_shape.laws import Exponential, Gumbel, Triangle
from studies.coverage.rows import read_rows, write_rows
from studies.coverage.scores import Score, score

from privatile.core.decoding import read_toml
from privatile.core.mechanism import rank_noise
from privatile.errors import InputError
from privatile.simulation.cells import DATA_SEED
from privatile.simulation.default_design import BLOCK, AutoCell
from privatile.simulation.populations import Cauchy, Laplace, LogNormal, Mixture, Normal, Population, StudentT, Uniform

HETE_L = tuple(Normal(float(location)) for location in np.random.RandomState(DATA_SEED).randn(10))
"""Ten clients that differ in location, drawn as the paper's code draws them."""

HETE_D = (Normal(),) * 3 + (Uniform(-1.0, 1.0),) * 3 + (Cauchy(),) * 4
"""Ten clients that differ in kind."""

TWO_HUMPS = Mixture((Normal(-1.0, 1.0), Normal(1.0, 0.5)))
"""Its median lies on the steep side of the narrow hump: the strongest bend in the study."""

FAMILIES: dict[str, Callable[[int], tuple[Population, ...]]] = {
    "normal": lambda clients: (Normal(),) * clients,
    "log-normal": lambda clients: (LogNormal(),) * clients,
    "t3": lambda clients: (StudentT(degrees=3.0),) * clients,
    "hete-l": lambda clients: tuple(itertools.islice(itertools.cycle(HETE_L), clients)),
    "hete-d": lambda clients: tuple(itertools.islice(itertools.cycle(HETE_D), clients)),
    "laplace": lambda clients: (Laplace(),) * clients,
    "uniform": lambda clients: (Uniform(-1.0, 1.0),) * clients,
    "cauchy": lambda clients: (Cauchy(),) * clients,
    "two humps": lambda clients: (TWO_HUMPS,) * clients,
    "exponential": lambda clients: (Exponential(),) * clients,
    "gumbel": lambda clients: (Gumbel(),) * clients,
    "triangle": lambda clients: (Triangle(),) * clients,
}
NEW = "new families"
"""The group of laws on which nothing was tuned: reported separately."""
SEED = 20_250_926
ANYWHERE = (-10.0, 10.0)
AXES = ("family", "clients", "truth_rate", "sizes", "level", "information", "range", "rounds")
"""What a group lists, in the order of its cells."""
DEFAULTS: dict[str, list[Any]] = {"sizes": ["equal"], "range": [ANYWHERE], "rounds": [None]}


def read_cells(path: str | Path) -> list[AutoCell]:
    """All cells of a design, in its order."""
    return [
        make_cell(group["name"], **dict(zip(AXES, chosen, strict=True)))
        for group in read_toml(Path(path)).table["group"]
        for chosen in itertools.product(*({**DEFAULTS, **group}[name] for name in AXES))
    ]


def make_cell(
    group: str,
    *,
    family: str,
    clients: int,
    truth_rate: float | str,
    level: float,
    information: float,
    sizes: str = "equal",
    range: Sequence[float] = ANYWHERE,
    rounds: int | None = None,
) -> AutoCell:
    """A cell whose records give it the information asked for.

    >>> make_cell("demo", family="normal", clients=10, truth_rate=0.5, level=0.5, information=1000).records[0]
    1600
    """
    if family not in FAMILIES:
        raise InputError(f"family must be one of {', '.join(FAMILIES)}; got {family!r}.")
    rates = np.linspace(0.1, 0.9, clients) if truth_rate == "unequal" else np.full(clients, float(truth_rate))
    shape = 2.0 ** np.linspace(0.0, 5.0, clients) if sizes == "unequal" else np.ones(clients)
    unit = float(rank_noise(1.0 / clients, rates, shape).sum())
    records = np.ceil(information * unit / (level * (1.0 - level)) ** 2 * shape * (1 - 1e-12)).astype(int)
    name = f"{group}: {family} K={clients} r={truth_rate} τ={level:g} I={information:g}"
    name += "" if rounds is None else f" T={rounds}"
    return AutoCell(
        FAMILIES[family](clients),
        tuple(rates.tolist()),
        tuple(records.tolist()),
        level,
        low=float(range[0]),
        high=float(range[1]),
        rounds=rounds,
        name=name,
    )


def cell_seed(cell: AutoCell, seed: int) -> int:
    """A seed of its own for every cell, whatever the order."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{cell.name}".encode()).digest()[:4])


def scored(path: Path) -> dict[str, Score]:
    """The scores a file holds already, by the cell's name."""
    return {score.name: score for score in read_rows(path, Score)}


def run_cells(
    cells: Sequence[AutoCell],
    runs: int,
    path: Path,
    *,
    show: Callable[[Score], None] = lambda score: None,
    block_size: int = BLOCK,
) -> list[Score]:
    """Score the cells that the file does not hold, appending one row each."""
    known = scored(path)
    found = []
    for cell in cells:
        have = known.get(cell.name)
        if have is None or have.runs < runs:
            have = score(cell, runs, cell_seed(cell, SEED), block_size)
            write_rows([have], path, append=True)
            show(have)
        found.append(have)
    return found


def coverage_error(score: Score) -> float:
    """Monte Carlo standard error of a coverage."""
    return math.sqrt(score.coverage * (1.0 - score.coverage) / score.runs)
