"""What the cells do not show: stopping by width, several levels at once, the paper's Table 2 settings.

python studies/coverage/extras.py [--runs N] [--gpu] [--results FILE] prints and writes kind, setting, name, value.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from privatile.study import tuned
from privatile.study.coverage import FAMILIES, make_cell
from privatile.study.on_gpu import arrays_on_gpu
from privatile.study.tuned import TunedCell, simulate, stopping


def arrays() -> Any:
    """numpy, or CuPy while the study runs on a GPU."""
    return vars(tuned)["np"]


HERE = Path(__file__).parent
Rows = Iterator[tuple[str, str, str, float]]


def widths(runs: int) -> Rows:
    """Runs that stop when the sequence is narrow enough, at two widths."""
    for family, level, info in (("normal", 0.5, 6000), ("log-normal", 0.8, 6000), ("hete-d", 0.5, 3000)):
        cell = make_cell("stop", family=family, clients=10, truth_rate=0.5, level=level, information=info)
        got = simulate(cell, runs, arrays().random.default_rng(31))
        for errors in (4.5, 6.0):
            found = stopping(cell, got, errors * cell.bound)
            for name, value in found._asdict().items():
                yield "until-width", f"{family} τ={level:g} I={info} W={2 * errors:g} s.e.", name, value


def joint(runs: int) -> Rows:
    """Three levels of one run, each asked of a third of the records, intervals at Šidák's level."""
    for family in ("normal", "hete-l", "t3"):
        np = arrays()
        every = np.ones(runs, dtype=np.bool_)
        for place, level in enumerate((0.3, 0.5, 0.8)):
            cell = TunedCell(FAMILIES[family](10), (0.5,) * 10, (5000,) * 10, level)
            got = simulate(cell, runs, np.random.default_rng(41 + place))
            every &= np.abs(got.fit.center - cell.truth) <= got.reach(0.95 ** (1 / 3))
        yield "three levels", family, "joint coverage", float(every.mean())


def table2(runs: int) -> Rows:
    """The settings of the paper's Table 2 (ten clients that differ in location) at t_T = 10,000 and 50,000."""
    settings: dict[str, tuple[float, ...]] = {
        "0.25": (0.25,) * 10,
        "0.9": (0.9,) * 10,
        "hetero": tuple(0.25 + 0.65 * k / 9 for k in range(10)),
    }
    for records in (10_000, 50_000):
        for level in (0.3, 0.5, 0.8):
            for name, rates in settings.items():
                cell = TunedCell(FAMILIES["hete-l"](10), rates, (records,) * 10, level)
                got = simulate(cell, runs, arrays().random.default_rng(51))
                off, reach = abs(got.fit.center - cell.truth), got.reach()
                setting = f"t_T={records} τ={level:g} r={name}"
                yield "table 2", setting, "mae", float(off.mean())
                yield "table 2", setting, "half-width", float(reach.mean())
                yield "table 2", setting, "coverage", float((off <= reach).mean())
                yield "table 2", setting, "error / bound", float(off.mean()) / (math.sqrt(2 / math.pi) * cell.bound)


def main() -> None:
    """Run all three."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--gpu", action="store_true", help="compute with CuPy")
    parser.add_argument("--results", type=Path, default=HERE / "extras.csv")
    chosen = parser.parse_args()
    place: Any = arrays_on_gpu() if chosen.gpu else nullcontext()
    with place, chosen.results.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["kind", "setting", "name", "value"])
        for part in (joint, table2, widths):
            for kind, setting, name, value in part(chosen.runs):
                print(f"{kind:14s} {setting:40s} {name:16s} {value:.4f}", flush=True)
                writer.writerow([kind, setting, name, f"{value:.6g}"])


if __name__ == "__main__":
    main()
