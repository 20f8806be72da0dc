"""What the cells do not show, for values declared continuous: stopping by width, several levels at once, comparisons,
other intervals, the paper's Table 2 settings.

python -m studies.coverage.extras [--runs N] [--results FILE] prints and writes kind, setting, name,
value. A part that the file holds already is replaced.
"""

import argparse
import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from studies.coverage.coverage import FAMILIES, make_cell
from studies.coverage.rows import read_rows, write_rows
from studies.coverage.scores import blocks
from studies.coverage.stopping import Stopped, stopping

from privatile.estimator.schedule import PRESETS
from privatile.laws.ratio import two_sided_z
from privatile.result.compare import difference_ends
from privatile.simulation.cells import Cell
from privatile.simulation.default_design import (
    AutoCell,
    DisplayedIntervals,
    SimulatedRuns,
    displayed_intervals,
    join_blocks,
)
from privatile.simulation.engine import run_cell, summarize

HERE = Path(__file__).parent
BLOCK = 1000
"""Runs in memory at a time."""


class Extra(NamedTuple):
    """One number of the file."""

    kind: str
    setting: str
    name: str
    value: float


class Work(NamedTuple):
    """How much is simulated."""

    runs: int

    def blocks(self, cell: AutoCell, seed: int) -> Iterator[SimulatedRuns]:
        """All runs of a cell, some at a time."""
        return blocks(cell, self.runs, seed * 1000, BLOCK)

    def displayed(self, cell: AutoCell, seed: int, confidence_level: float = 0.95) -> DisplayedIntervals:
        """What the results of all runs of a cell show."""
        parts = self.blocks(cell, seed)
        return join_blocks([displayed_intervals(part, (confidence_level,))[0] for part in parts])


Found = Iterator[tuple[str, dict[str, float]]]
"""Setting by setting, values by name."""


def widths(work: Work) -> Found:
    """Runs that stop when the sequence is narrow enough, looked at after every round, at two widths."""
    for family, level, info in (("normal", 0.5, 6000), ("log-normal", 0.8, 6000), ("hete-d", 0.5, 3000)):
        cell = make_cell("stop", family=family, clients=10, truth_rate=0.5, level=level, information=info)
        for errors in (4.0, 6.0):
            parts = [stopping(part, errors * cell.bound) for part in work.blocks(cell, 31)]
            means = np.mean(parts, axis=0).tolist()
            setting = f"{family} τ={level:g} I={info} W={2 * errors:g} s.e."
            yield setting, dict(zip(Stopped._fields, means, strict=True))


def joint(work: Work) -> Found:
    """Several levels of one run, each asked of its share of the records, intervals at Šidák's level."""
    several = ((0.3, 0.5, 0.8), tuple((np.arange(1, 10) / 10).tolist()))
    for family, levels in itertools.product(("normal", "hete-l", "t3"), several):
        every = np.ones(work.runs, dtype=np.bool_)
        for place, level in enumerate(levels):
            # Enough records that the outermost level is inside the supported region.
            cell = make_cell("joint", family=family, clients=10, truth_rate=0.5, level=0.1, information=2500)
            cell = AutoCell(cell.populations, cell.truth_rates, cell.records, level)
            every &= work.displayed(cell, 41 + place, 0.95 ** (1 / len(levels))).covers(cell.truth)
        yield f"{family}, {len(levels)} levels", {"joint coverage": float(every.mean())}


def differences(work: Work) -> Found:
    """The difference of two groups' quantiles, as `compare` shows it, where it is 0 and where it is not."""
    settings = (
        ("normal", "normal", 0.5, 2500, 2500),
        ("normal", "log-normal", 0.5, 2500, 8000),
        ("log-normal", "log-normal", 0.8, 2500, 20_000),
        ("hete-d", "t3", 0.8, 4000, 2500),
    )
    for first, second, level, have, other in settings:
        one = make_cell("a", family=first, clients=10, truth_rate=0.5, level=level, information=have)
        two = make_cell("b", family=second, clients=1, truth_rate=0.5, level=level, information=other)
        low, high = difference_ends(work.displayed(one, 71), work.displayed(two, 72))
        truth = one.truth - two.truth
        setting = f"{first} I={have} − {second} I={other} τ={level:g}"
        yield setting, {"coverage": float(((low <= truth) & (truth <= high)).mean())}


def others(work: Work) -> Found:
    """The self-normalised interval with v(N̂) under design auto, where the smooth interval's diagnostics hold."""
    for family, clients, level in (("normal", 10, 0.5), ("log-normal", 1, 0.5), ("hete-l", 10, 0.8), ("t3", 100, 0.3)):
        cell = make_cell("self", family=family, clients=clients, truth_rate=0.5, level=level, information=3000)
        parts = []
        for found in work.blocks(cell, 81):
            readings = found.readings("self-normalized")
            shown = displayed_intervals(found, readings=readings)[0]
            holds = np.array([reading.may_stop for reading in readings])
            parts.append(DisplayedIntervals(*(column[holds] for column in shown)))
        intervals = join_blocks(parts)
        yield (
            f"{family} K={clients} τ={level:g} I=3000",
            {
                "coverage": float(intervals.covers(cell.truth).mean()),
                "width / Wald": float(intervals.half_width.mean()) / (two_sided_z(0.95) * cell.bound),
                "error / bound": float(np.abs(intervals.center - cell.truth).mean())
                / (math.sqrt(2 / math.pi) * cell.bound),
            },
        )


def table2(work: Work) -> Found:
    """The settings of the paper's Table 2 (ten clients that differ in location), beside its C5 and Log schedules."""
    rates: dict[str, tuple[float, ...]] = {
        "0.25": (0.25,) * 10,
        "0.9": (0.9,) * 10,
        "hetero": tuple(0.25 + 0.65 * k / 9 for k in range(10)),
    }
    for records, level, name in itertools.product((10_000, 50_000), (0.3, 0.5, 0.8), rates):
        laws = FAMILIES["hete-l"](10)
        cell = AutoCell(laws, rates[name], (records,) * 10, level)
        shown = work.displayed(cell, 51)
        values = {
            "auto error": float(np.abs(shown.center - cell.truth).mean()),
            "auto half-width": float(shown.half_width.mean()),
            "auto coverage": float(shown.covers(cell.truth).mean()),
        }
        for label, preset in (("C5", "paper-c5"), ("Log", "paper-log")):
            theirs = Cell(laws, (level,) * 10, rates[name], (0.1,) * 10, PRESETS[preset], (records,) * 10)
            found = summarize(theirs, run_cell(theirs, work.runs, seed=52))
            values |= {f"{label} error": found.mae, f"{label} half-width": found.width / 2}
            values[f"{label} coverage"] = found.coverage
        yield f"t_T={records} τ={level:g} r={name}", values


PARTS: dict[str, tuple[str, Callable[[Work], Found]]] = {
    "joint": ("levels at once", joint),
    "table2": ("table 2", table2),
    "widths": ("until-width", widths),
    "differences": ("comparisons", differences),
    "others": ("self-normalized", others),
}


def main() -> None:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS), help="which to run")
    parser.add_argument("--results", type=Path, default=HERE / "extras.csv")
    chosen = parser.parse_args()
    work = Work(chosen.runs)
    parts = [PARTS[name] for name in chosen.parts]
    replaced = {kind for kind, _ in parts}
    write_rows([row for row in read_rows(chosen.results, Extra) if row.kind not in replaced], chosen.results)
    for kind, part in parts:
        for setting, values in part(work):
            rows = [Extra(kind, setting, name, value) for name, value in values.items()]
            write_rows(rows, chosen.results, append=True)
            for row in rows:
                print(f"{kind:14s} {setting:50s} {row.name:24s} {row.value:.6g}", flush=True)


if __name__ == "__main__":
    main()
