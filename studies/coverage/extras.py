"""What the cells do not show: stopping by width, several levels at once, comparisons, other intervals, silent clients,
populations with steps and gaps, the paper's Table 2 settings, salaries.

python -m studies.coverage.extras [--runs N] [--device cuda] [--results FILE] prints and writes kind, setting, name,
value. A part that the file holds already is replaced.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from studies.coverage.coverage import FAMILIES, make_cell
from studies.coverage.dropout import silent_runs
from studies.coverage.heaped import LogOf, Rounded
from studies.coverage.scores import Simulate, blocks, on_gpu, on_processor, warnings
from studies.coverage.stopping import Stopped, stopping

from privatile.core.mechanism import RandomizedResponse
from privatile.estimator.schedule import PRESETS
from privatile.laws.normal import two_sided_z
from privatile.paper.salary import STATED_RANGE, read_salaries
from privatile.result.compare import difference_ends
from privatile.simulation.auto_simulation import AutoCell, AutoRuns
from privatile.simulation.cells import Cell
from privatile.simulation.columns import Dithered, Empirical
from privatile.simulation.displayed_intervals import DisplayedIntervals, displayed_intervals
from privatile.simulation.engine import run_cell
from privatile.simulation.populations import Mixture, Normal

HERE = Path(__file__).parent
BLOCK = 1000
"""Runs in memory at a time on a processor."""
Rows = Iterator[tuple[str, str, str, float]]


def simulated_blocks(cell: AutoCell, runs: int, seed: int, simulated: Simulate) -> Iterator[AutoRuns]:
    """All runs of a cell, some at a time on a processor, at once on a GPU."""
    return blocks(cell, runs, seed * 1000, simulated, runs if simulated is on_gpu else BLOCK)


def displayed(
    cell: AutoCell, runs: int, seed: int, simulated: Simulate, confidence_level: float = 0.95
) -> DisplayedIntervals:
    """What the results of all runs of a cell show."""
    parts = simulated_blocks(cell, runs, seed, simulated)
    return DisplayedIntervals.joined(
        [displayed_intervals(cell, part.on_host(), (confidence_level,))[0] for part in parts]
    )


def widths(runs: int, simulated: Simulate) -> Rows:
    """Runs that stop when the sequence is narrow enough, looked at after every round, at two widths."""
    for family, level, info in (("normal", 0.5, 6000), ("log-normal", 0.8, 6000), ("hete-d", 0.5, 3000)):
        cell = make_cell("stop", family=family, clients=10, truth_rate=0.5, level=level, information=info)
        for errors in (4.0, 6.0):
            parts = [stopping(cell, part, errors * cell.bound) for part in simulated_blocks(cell, runs, 31, simulated)]
            for name, column in zip(Stopped._fields, zip(*parts, strict=True), strict=True):
                yield (
                    "until-width",
                    f"{family} τ={level:g} I={info} W={2 * errors:g} s.e.",
                    name,
                    float(np.mean(column)),
                )


def joint(runs: int, simulated: Simulate) -> Rows:
    """Several levels of one run, each asked of its share of the records, intervals at Šidák's level."""
    for family, levels in itertools.product(
        ("normal", "hete-l", "t3"), ((0.3, 0.5, 0.8), tuple(np.arange(1, 10) / 10))
    ):
        every = np.ones(runs, dtype=np.bool_)
        for place, level in enumerate(levels):
            # Enough records that the outermost level is inside the supported region.
            cell = make_cell("joint", family=family, clients=10, truth_rate=0.5, level=0.1, information=2500)
            cell = AutoCell(cell.populations, cell.truth_rates, cell.records, float(level))
            confidence = 0.95 ** (1 / len(levels))
            every &= displayed(cell, runs, 41 + place, simulated, confidence).covers(cell.truth)
        yield "levels at once", f"{family}, {len(levels)} levels", "joint coverage", float(every.mean())


def differences(runs: int, simulated: Simulate) -> Rows:
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
        ends = difference_ends(displayed(one, runs, 71, simulated), displayed(two, runs, 72, simulated))
        truth = one.truth - two.truth
        setting = f"{first} I={have} − {second} I={other} τ={level:g}"
        yield "comparisons", setting, "coverage", float(((ends[0] <= truth) & (truth <= ends[1])).mean())


def others(runs: int, simulated: Simulate) -> Rows:
    """The self-normalised interval with v(N̂) under design auto, where the plug-in's diagnostics hold."""
    for family, clients, level in (("normal", 10, 0.5), ("log-normal", 1, 0.5), ("hete-l", 10, 0.8), ("t3", 100, 0.3)):
        cell = make_cell("self", family=family, clients=clients, truth_rate=0.5, level=level, information=3000)
        parts, holds = [], []
        for block in simulated_blocks(cell, runs, 81, simulated):
            found = block.on_host()
            parts += displayed_intervals(cell, found, interval="self-normalized")
            holds.append(found.fit.holds)
        usable = np.concatenate(holds)
        intervals = DisplayedIntervals(*(column[usable] for column in DisplayedIntervals.joined(parts)))
        setting = f"{family} K={clients} τ={level:g} I=3000"
        yield "self-normalized", setting, "coverage", float(intervals.covers(cell.truth).mean())
        width = float(intervals.half_width.mean()) / (two_sided_z(0.95) * cell.bound)
        yield "self-normalized", setting, "width / Wald", width
        error = float(np.abs(intervals.center - cell.truth).mean()) / (math.sqrt(2 / math.pi) * cell.bound)
        yield "self-normalized", setting, "error / bound", error


def steps(runs: int, simulated: Simulate) -> Rows:
    """Populations that no smooth curve fits: the curve's interval alone, the one shown, and how many runs warn."""
    ages, humps = Rounded(Normal(40.2, 12.0)), Mixture((Normal(30.0, 6.0), Normal(60.0, 6.0)))
    laws = {
        "whole years": (ages, 0.5),
        "half rounded to 5": (Rounded(Normal(40.2, 12.0), 5.0, 0.5), 0.5),
        "half rounded to 5, next to a heap": (Rounded(Normal(40.2, 12.0), 5.0, 0.5), 0.61),
        "a deep trough at the median": (humps, 0.5),
        "nothing at the median": (Mixture((Normal(20.0, 4.0), Normal(60.0, 4.0))), 0.5),
    }
    for (name, (law, level)), info in itertools.product(laws.items(), (2500, 6000, 60_000, 600_000)):
        records = math.ceil(info / 10 / (level * (1 - level)) ** 2)  # I = (τ(1 − τ))²·4r²·Kn, r = ½, K = 10
        cell = AutoCell((law,) * 10, (0.5,) * 10, (records,) * 10, level, low=0.0, high=120.0)
        parts = []
        for block in simulated_blocks(cell, runs, 101, simulated):
            found = block.on_host()
            alone, shown = (displayed_intervals(cell, found, interval=kind)[0] for kind in ("plug-in", "default"))
            parts.append([alone.covers(cell.truth), shown.covers(cell.truth), warnings(cell, found)])
        alone_covers, covered, warned = (np.concatenate(column) for column in zip(*parts, strict=True))
        columns = {"curve alone": alone_covers, "shown": covered, "warned": warned}
        columns["missed without a warning"] = ~(warned | covered)
        for what, column in columns.items():
            yield "steps and gaps", f"{name} τ={level:g} I={info}", what, float(column.mean())


NAMES = ("coverage", "width / Wald", "error / bound", "warned")


def silences(runs: int, simulated: Simulate) -> Rows:
    """Clients that fall silent for five rounds on average, through the estimator itself: a tenth, then three tenths."""
    del simulated
    with ProcessPoolExecutor() as pool:
        for family, share in itertools.product(("normal", "hete-l"), (0.1, 0.3)):
            cell = make_cell("silent", family=family, clients=10, truth_rate=0.5, level=0.5, information=4000)
            size = math.ceil(runs / 64)
            work = partial(silent_runs, cell, size, share=share, burst=5.0)
            parts = np.concatenate(list(pool.map(work, range(64))))[:runs]
            setting = f"{family} K=10 silent {100 * share:g}% of the rounds, 5 at a time"
            parts[~np.isfinite(parts[:, 1]), 1] = np.nan  # unbounded intervals have no width to average
            for name, value in zip(NAMES, np.nanmean(parts, axis=0), strict=True):
                yield "silent clients", setting, name, float(value)


def table2(runs: int, simulated: Simulate) -> Rows:
    """The settings of the paper's Table 2 (ten clients that differ in location), beside its C5 and Log schedules."""
    rates: dict[str, tuple[float, ...]] = {
        "0.25": (0.25,) * 10,
        "0.9": (0.9,) * 10,
        "hetero": tuple(0.25 + 0.65 * k / 9 for k in range(10)),
    }
    for records, level, name in itertools.product((10_000, 50_000), (0.3, 0.5, 0.8), rates):
        laws, setting = FAMILIES["hete-l"](10), f"t_T={records} τ={level:g} r={name}"
        cell = AutoCell(laws, rates[name], (records,) * 10, level)
        shown = displayed(cell, runs, 51, simulated)
        yield "table 2", setting, "auto error", float(np.abs(shown.center - cell.truth).mean())
        yield "table 2", setting, "auto half-width", float(shown.half_width.mean())
        yield "table 2", setting, "auto coverage", float(shown.covers(cell.truth).mean())
        for label, preset in (("C5", "paper-c5"), ("Log", "paper-log")):
            theirs = Cell(laws, (level,) * 10, rates[name], (0.1,) * 10, PRESETS[preset], (records,) * 10)
            found = run_cell(theirs, runs, seed=52)
            half = theirs.critical_value * found.normalizers**0.5
            error = np.abs(found.estimates - theirs.truth)
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
        laws = tuple(LogOf(Dithered(values, width)) for values in table.values())
        ends = [math.log(end) for end in STATED_RANGE]
        cell = AutoCell(laws, (rate,) * len(table), records, level, low=ends[0], high=ends[1])
        shown = displayed(cell, runs, 61, on_processor)
        raw_quantile = math.log(float(raw.quantile(level)))
        setting = f"τ={level:g} dithered by {width:g}"
        yield "salaries", setting, "quantile", math.exp(cell.truth)
        yield "salaries", setting, "raw quantile", math.exp(raw_quantile)
        yield "salaries", setting, "coverage", float(shown.covers(cell.truth).mean())
        yield "salaries", setting, "coverage of the raw one", float(shown.covers(raw_quantile).mean())
        yield "salaries", setting, "half-width, dollars", math.exp(cell.truth) * float(np.median(shown.half_width))


PARTS: dict[str, Callable[[int, Simulate], Rows]] = {
    "joint": joint,
    "table2": table2,
    "widths": widths,
    "differences": differences,
    "others": others,
    "silences": silences,
    "steps": steps,
}
KINDS = {
    "joint": "levels at once",
    "table2": "table 2",
    "widths": "until-width",
    "differences": "comparisons",
    "others": "self-normalized",
    "silences": "silent clients",
    "steps": "steps and gaps",
    "salaries": "salaries",
}


def kept(path: Path, parts: list[str]) -> list[list[str]]:
    """Rows of the file that are not about to be replaced."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as stream:
        replaced = {KINDS[name] for name in parts}
        return [row for row in csv.reader(stream) if row[0] != "kind" and row[0] not in replaced]


def main() -> None:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--parts", nargs="*", default=[*PARTS, "salaries"], choices=list(KINDS), help="which to run")
    parser.add_argument("--data", type=Path, help="the salary table; without it that part is left out")
    parser.add_argument("--results", type=Path, default=HERE / "extras.csv")
    chosen = parser.parse_args()
    simulated = on_gpu if chosen.device == "cuda" else on_processor
    parts = [name for name in chosen.parts if name != "salaries" or chosen.data is not None]
    before = kept(chosen.results, parts)
    with chosen.results.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["kind", "setting", "name", "value"])
        writer.writerows(before)
        for name in parts:
            rows = PARTS[name](chosen.runs, simulated) if name in PARTS else salaries(chosen.runs, chosen.data)
            for kind, setting, what, value in rows:
                print(f"{kind:14s} {setting:50s} {what:24s} {value:.6g}", flush=True)
                writer.writerow([kind, setting, what, f"{value:.6g}"])
                stream.flush()


if __name__ == "__main__":
    main()
