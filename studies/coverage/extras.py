"""What the cells do not show: stopping by width, several levels at once, the paper's Table 2 settings, salaries.

python studies/coverage/extras.py [--runs N] [--results FILE] prints and writes kind, setting, name, value.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from privatile.mechanism import RandomizedResponse
from privatile.schedule import PRESETS
from privatile.study import tuned
from privatile.study.cells import Cell
from privatile.study.columns import Empirical
from privatile.study.coverage import FAMILIES, make_cell
from privatile.study.dithered import DitheredLog
from privatile.study.engine import run_cell
from privatile.study.populations import Mixture
from privatile.study.salary import STATED_RANGE, read_salaries
from privatile.study.tuned import TunedCell, simulate, stopping


def arrays() -> Any:
    """numpy, or CuPy while the study runs on a GPU."""
    return vars(tuned)["np"]


HERE = Path(__file__).parent
PAPER_RUNS = 1000
"""Replications of the paper's schedules: their errors are far enough from ours."""
Rows = Iterator[tuple[str, str, str, float]]


def widths(runs: int) -> Rows:
    """Runs that stop when the sequence is narrow enough, looked at every fourth round, at two widths."""
    for family, level, info in (("normal", 0.5, 6000), ("log-normal", 0.8, 6000), ("hete-d", 0.5, 3000)):
        cell = make_cell("stop", family=family, clients=10, truth_rate=0.5, level=level, information=info)
        got = simulate(cell, runs, arrays().random.default_rng(31))
        for errors in (4.5, 6.0):
            found = stopping(cell, got, errors * cell.bound, every=4)
            for name, value in found._asdict().items():
                yield "until-width", f"{family} τ={level:g} I={info} W={2 * errors:g} s.e.", name, value


def joint(runs: int) -> Rows:
    """Three levels of one run, each asked of a third of the records, intervals at Šidák's level."""
    for family in ("normal", "hete-l", "t3"):
        xp = arrays()
        every = xp.ones(runs, dtype=xp.bool_)
        for place, level in enumerate((0.3, 0.5, 0.8)):
            cell = TunedCell(FAMILIES[family](10), (0.5,) * 10, (5000,) * 10, level)
            got = simulate(cell, runs, xp.random.default_rng(41 + place))
            every &= abs(got.fit.center - cell.truth) <= got.reach(0.95 ** (1 / 3))
        yield "three levels", family, "joint coverage", float(every.mean())


def table2(runs: int) -> Rows:
    """The settings of the paper's Table 2 (ten clients that differ in location), beside its C5 and Log schedules."""
    rates: dict[str, tuple[float, ...]] = {
        "0.25": (0.25,) * 10,
        "0.9": (0.9,) * 10,
        "hetero": tuple(0.25 + 0.65 * k / 9 for k in range(10)),
    }
    for records, level, name in itertools.product((10_000, 50_000), (0.3, 0.5, 0.8), rates):
        laws, setting = FAMILIES["hete-l"](10), f"t_T={records} τ={level:g} r={name}"
        cell = TunedCell(laws, rates[name], (records,) * 10, level)
        got = simulate(cell, runs, arrays().random.default_rng(51))
        off, reach = abs(got.fit.center - cell.truth), got.reach()
        yield "table 2", setting, "auto error", float(off.mean())
        yield "table 2", setting, "auto half-width", float(reach.mean())
        yield "table 2", setting, "auto coverage", float((off <= reach).mean())
        for label, preset in (("C5", "paper-c5"), ("Log", "paper-log")):
            theirs = Cell(laws, (level,) * 10, rates[name], (0.1,) * 10, PRESETS[preset], (records,) * 10)
            found = run_cell(theirs, PAPER_RUNS, seed=52)
            half = theirs.critical_value * found.normalizers**0.5
            error = abs(found.estimates - theirs.truth)
            yield "table 2", setting, f"{label} error", float(error.mean())
            yield "table 2", setting, f"{label} half-width", float(half.mean())
            yield "table 2", setting, f"{label} coverage", float((error <= half).mean())


def salaries(runs: int, path: Path) -> Rows:
    """The salary table as a population, ε = 1, dithered by 5,000 dollars: seven clients of equal weight, log scale."""
    table = read_salaries(path)
    rate = RandomizedResponse.from_epsilon(1.0).truth_rate
    records = tuple(len(values) for values in table.values())
    raw = Mixture(tuple(Empirical(values) for values in table.values()), (1 / len(table),) * len(table))
    for width, level in itertools.product((5000.0, 1.0), (0.3, 0.5, 0.8)):
        laws = tuple(DitheredLog(values, width) for values in table.values())
        ends = [math.log(end) for end in STATED_RANGE]
        cell = TunedCell(laws, (rate,) * len(table), records, level, low=ends[0], high=ends[1])
        got = simulate(cell, runs, np.random.default_rng(61))
        off, reach = np.abs(got.fit.center - cell.truth), got.reach()
        setting = f"τ={level:g} dithered by {width:g}"
        yield "salaries", setting, "quantile", math.exp(cell.truth)
        yield "salaries", setting, "raw quantile", float(raw.quantile(level))
        yield "salaries", setting, "coverage", float((off <= reach).mean())
        raw_off = np.abs(got.fit.center - math.log(float(raw.quantile(level))))
        yield "salaries", setting, "coverage of the raw one", float((raw_off <= reach).mean())
        yield "salaries", setting, "half-width, dollars", math.exp(cell.truth) * float(reach.mean())


PARTS = {"joint": joint, "table2": table2, "widths": widths}


def main() -> None:
    """Run all parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--parts", nargs="*", default=[*PARTS, "salaries"], help="which parts to run")
    parser.add_argument("--data", type=Path, help="the salary table; without it that part is left out")
    parser.add_argument("--results", type=Path, default=HERE / "extras.csv")
    chosen = parser.parse_args()
    with chosen.results.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["kind", "setting", "name", "value"])
        parts = [part(chosen.runs) for name, part in PARTS.items() if name in chosen.parts]
        if chosen.data is not None and "salaries" in chosen.parts:
            parts.append(salaries(2000, chosen.data))
        for kind, setting, name, value in itertools.chain(*parts):
            print(f"{kind:14s} {setting:40s} {name:24s} {value:.6g}", flush=True)
            writer.writerow([kind, setting, name, f"{value:.6g}"])
            stream.flush()


if __name__ == "__main__":
    main()
