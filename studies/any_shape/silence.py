"""Ten clients that fall silent, in both designs: width, error and coverage of both readings.

    python -m studies.any_shape.silence --runs 2000 --jobs 16

Two laws at information 4,000, one of them at 10,000 too. Runs go one by one through the code of real runs, 0.1 to 0.2 s
each. Cells that the file already holds, with as many runs, are left out.
"""

import argparse
import math
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from studies.any_shape.cells import make_cell
from studies.any_shape.laws import Steps
from studies.coverage.dropout import Silence, silent_run
from studies.coverage.rows import read_rows, write_rows

from privatile.core.arrays import Floats
from privatile.estimator.settings import ReportSettings
from privatile.laws.ratio import two_sided_z
from privatile.simulation.default_design import AutoCell

RESULTS = Path(__file__).parent / "results" / "silence.csv"
FAMILIES = ("normal", "hete-l")
SETTINGS = (("normal", 4000.0), ("hete-l", 4000.0), ("hete-l", 10_000.0))
"""Laws and informations."""
WAYS = {
    "none": Silence(0.0, 1.0),
    "10% spells": Silence(0.1, 10.0),
    "30% spells": Silence(0.3, 10.0),
    "10% single": Silence(0.1, 1.2),
    "30% single": Silence(0.3, 1.5),
}
BLOCK = 25
"""Runs of one random stream: with more workers the same numbers come out."""


class Row(NamedTuple):
    """One cell; widths and errors are medians and means over those of Wald's interval at full attendance."""

    family: str
    values: str
    silence: str
    missed: str
    """What the records of missed rounds are: spent, or asked later."""
    runs: int
    covers: float
    width: float
    width_error: float
    """Standard error of that median."""
    error: float
    any_covers: float
    any_width: float
    bounded: float
    seed: int
    date: str
    information: float = 4000.0

    @property
    def setting(self) -> tuple[str, float, str]:
        """What is the same with silence and without."""
        return self.family, self.information, self.values

    @property
    def key(self) -> tuple[str, float, str, str, str]:
        """What names the cell."""
        return (*self.setting, self.silence, self.missed)

    @property
    def cell(self) -> str:
        """In words."""
        return f"{self.family} I={self.information:g} {self.values}, {self.silence}, {self.missed}"


def runs_of(family: str, information: float, values: str, silence: Silence, seed: int, block: int) -> Floats:
    """Rows of one block: smooth covers, width, error; any-shape covers, width."""
    cell = make_cell(family, 10, 0.5, 0.5, information)
    plan = cell.plan if values == "continuous" else cell.straddle_plan
    settings = ReportSettings("simulated values", (cell.level,), value_kind=values)
    place = [seed, block, FAMILIES.index(family), len(values), int(1e3 * silence.share), int(1e3 * silence.spell)]
    rng = np.random.default_rng(
        [*place, int(silence.asked_later), *([] if information == 4000 else [int(information)])]
    )
    wald, found = two_sided_z(0.95) * cell.bound, []
    for _ in range(BLOCK):
        both, _ = silent_run(cell, plan, settings, rng, silence)
        if both.smooth is None or both.any_shape is None:
            raise RuntimeError("a whole run has both readings")
        (low, high), (first, last) = both.smooth.interval(0.95), both.any_shape.interval(0.95)
        off = abs(both.smooth.center - cell.truth) / (math.sqrt(2 / math.pi) * cell.bound)
        covers, any_covers = low <= cell.truth <= high, first <= cell.truth <= last
        found.append((covers, (high - low) / 2 / wald, off, any_covers, (last - first) / 2 / wald))
    return np.array(found)


def jump_errors(silence: Silence, runs: int, seed: int) -> float:
    """Share of runs in which the low end errs where F jumps to exactly τ: the only shape that shows an invalid test.

    Half of the values are 0 and half are 1: the median is 0, and a low end at 0 or above is wrong.
    """
    cell = AutoCell((Steps((0.0, 1.0), (0.5, 0.5)),) * 10, (0.5,) * 10, (1600,) * 10, low=-1.0, high=2.0)
    settings, rng, errors = ReportSettings("simulated values", (0.5,)), np.random.default_rng([seed, 7]), 0
    for _ in range(runs):
        reading, _ = silent_run(cell, cell.straddle_plan, settings, rng, silence)
        if reading.tests is None:
            raise RuntimeError("a whole run has been tested")
        errors += reading.tests.ends(0.95)[0] >= 0.0
    return errors / runs


def main() -> None:
    """Run the cells that are missing, append them to the file, and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--jump", type=int, default=0, metavar="RUNS", help="measure the any-shape error instead")
    given = parser.parse_args()
    if given.jump:
        for way in ("10% spells", "30% spells"):
            silence = WAYS[way]._replace(asked_later=way == "30% spells")
            print(way, jump_errors(silence, given.jump, given.seed), flush=True)
        return
    kept = {row.key: row for row in read_rows(given.results, Row)}
    wanted = [
        (family, information, values, way, missed)
        for family, information in SETTINGS
        for way in WAYS
        for missed in (("spent",) if way == "none" else ("spent", "asked later"))
        for values in ("any", "continuous")
    ]
    with ProcessPoolExecutor(given.jobs) as pool:
        for key in wanted:
            if key in kept and kept[key].runs >= given.runs:
                continue
            family, information, values, way, missed = key
            silence = WAYS[way]._replace(asked_later=missed == "asked later")
            work = partial(runs_of, family, information, values, silence, given.seed)
            rows = np.concatenate(list(pool.map(work, range(max(1, given.runs // BLOCK)))))
            covers, width, error, any_covers, any_width = rows.T
            row = Row(
                family,
                values,
                way,
                missed,
                len(rows),
                float(covers.mean()),
                float(np.median(width)),
                float(math.sqrt(math.pi / 2 / len(rows)) * 0.7413 * np.subtract(*np.quantile(width, (0.75, 0.25)))),
                float(error.mean()),
                float(any_covers.mean()),
                float(np.median(any_width)),
                float(np.isfinite(any_width).mean()),
                given.seed,
                time.strftime("%Y-%m-%d"),
                information,
            )
            kept[key] = row
            write_rows([kept[one] for one in wanted if one in kept], given.results, digits=4)
            print(*row, flush=True)


if __name__ == "__main__":
    main()
