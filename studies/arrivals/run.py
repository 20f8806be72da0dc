"""Open-ended runs with random arrivals: python -m studies.arrivals.run [arrivals|liars|small …] [--runs N] [--jobs N]

Every cell is one row of results.csv, with date and command; a cell that is run again replaces its row. A run goes
through the program itself, so processors count, not accelerators: about 0.2 s of one core for 180,000 people, twice
that where the run with known numbers is made beside it (`KNOWN_EVERY`). Finished parts are files in `--parts`; with
`--seconds` the study stops in time, with rows of what it has, and the same command goes on later (`parts`).
"""

import math
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from studies.arrivals.parts import Part, gathered, options
from studies.arrivals.simulate import Cell, Outcome, simulate
from studies.coverage.rows import read_rows, write_rows

RESULTS = Path(__file__).parent / "results.csv"
SEED = 20_261_116
KNOWN_EVERY = 2
"""Every second run without liars has a twin with known numbers."""
PART = 20
"""Runs of a part: some seconds."""

LOST = 4.0
"""Standard errors: an estimate further away, beyond what liars may do, is lost."""

PEOPLE = 180_000
"""Information 6,000 and more with the strata's weights and rates."""

LIARS = ("first", "last", "smallest, first", "smallest, last", "heaviest", "spread")

TABLES: dict[str, tuple[Cell, ...]] = {
    "arrivals": tuple(Cell(process, PEOPLE) for process in ("poisson", "bursts", "day and night")),
    "apart": (Cell("apart", PEOPLE),),
    "small": tuple(Cell(process, 20_000) for process in ("poisson", "bursts", "day and night")),
    "levels": (Cell("poisson", 420_000, 0.8),),
    "liars": tuple(Cell("poisson", PEOPLE, 0.5, who, 0.01) for who in LIARS),
}


class Row(NamedTuple):
    """One cell."""

    cell: str
    runs: int
    date: str
    command: str
    information: float
    """In the median run."""
    bounded: float
    ever_missed: float
    width: float
    """Median of the anytime any-shape interval at the end, over the oracle's Wald interval."""
    width_90: float
    known_width: float
    """Median with known numbers."""
    smooth_coverage: float
    """At the fixed end."""
    smooth_width: float
    error: float
    """Mean absolute error of the smooth estimate over that of the efficiency bound."""
    rank: float
    """Mean of F(Q̂) − τ."""
    liars_bound: float
    """Mean sum of the largest influences of as many bits as there were liars."""
    lost: float
    """Share of runs without a result, or whose estimate is beyond `liars_bound` by more than `LOST` standard errors."""
    alarms: float
    """Share of runs whose change alarm rang at the end."""
    first_width: float
    """`width` of the first run alone: another design would give another."""
    first_known_width: float

    @property
    def ratio(self) -> float:
        """Width over that with known numbers."""
        return self.width / self.known_width


def row_of(cell: Cell, found: Sequence[Outcome], command: str) -> Row:
    """The numbers of a cell."""
    columns = {name: np.array([getattr(one, name) for one in found], dtype=float) for name in Outcome._fields}
    known = columns["known_width"][~np.isnan(columns["known_width"])]
    bounds = np.nan_to_num(columns["liars_bound"])
    has_result = np.isfinite(columns["rank"])
    noise = 1.0 / np.sqrt(np.maximum(columns["information"], 1.0) / (cell.level * (1.0 - cell.level)) ** 2)
    return Row(
        cell.name,
        len(found),
        datetime.now(UTC).strftime("%Y-%m-%d"),
        command,
        float(np.median(columns["information"])),
        float(columns["bounded"].mean()),
        float(columns["ever_missed"].mean()),
        float(np.median(columns["width"])),
        float(np.quantile(columns["width"], 0.9, method="higher")),
        float(np.median(known)) if len(known) else math.nan,
        float(columns["smooth_covers"].mean()),
        float(np.median(columns["smooth_width"])),
        float(np.abs(columns["error"][has_result]).mean() / math.sqrt(2.0 / math.pi)),
        float(columns["rank"][has_result].mean()),
        float(bounds.mean()),
        float((np.abs(columns["rank"]) > bounds + LOST * noise).mean()),
        float(columns["alarm"].mean()),
        found[0].width,
        found[0].known_width,
    )


def cell_of(name: str) -> Cell:
    """The cell of that name."""
    return next(cell for table in TABLES.values() for cell in table if cell.name == name)


def one_run(cell: Cell, seed: int, run: int) -> Outcome:
    """The run of that number; some of those without liars have a twin with known numbers."""
    return simulate(cell, (seed, *cell.name.encode(), run), known=not cell.liars and run % KNOWN_EVERY == 0)


def runs_of(part: Part) -> list[Outcome]:
    """Some runs of a cell."""
    return [one_run(cell_of(part.cell), part.seed, run) for run in range(part.first, part.last)]


def line(row: Row) -> str:
    """For people."""
    return (
        f"{row.cell:<55} {row.runs:>6} runs  I {row.information:7,.0f}  bounded {row.bounded:.4f}  ever missed "
        f"{row.ever_missed:.4f}  width {row.width:.3f} (90% {row.width_90:.2f}, known {row.known_width:.3f}, ratio "
        f"{row.ratio:.3f})  smooth {row.smooth_coverage:.4f} {row.smooth_width:.3f}  error {row.error:.3f}  rank "
        f"{row.rank:+.5f} of {row.liars_bound:.5f}  lost {row.lost:.4f}  alarms {row.alarms:.4f}"
    )


def main() -> None:
    """Run the tables that are named."""
    parser = options(__doc__, RESULTS, SEED, 10_000)
    parser.add_argument("tables", nargs="+", choices=list(TABLES))
    chosen = parser.parse_args()
    command = "python -m studies.arrivals.run " + " ".join(sys.argv[1:])
    cells = {cell.name: cell for table in chosen.tables for cell in TABLES[table]}
    rows = {one.cell: one for one in read_rows(chosen.results, Row)}
    for name, found in gathered(cells, PART, runs_of, chosen).items():
        rows[name] = row_of(cells[name], [Outcome(*one) for one in found], command)
        print(line(rows[name]), flush=True)
    write_rows(list(rows.values()), chosen.results)


if __name__ == "__main__":
    main()
