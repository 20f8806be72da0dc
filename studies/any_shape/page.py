"""The tables behind docs/intervals.md, and its verdict: python -m studies.any_shape.page

docs/intervals-tables.md is written anew from the committed results of both studies and `notes.md`; in docs/intervals.md
the part between <!-- verdict --> and <!-- /verdict --> is.
"""

import csv
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from studies.any_shape.cells import cells_of
from studies.any_shape.limits import (
    MADE_UP,
    REAL,
    any_shape_shortfalls,
    continuous_shortfalls,
    grid_shortfalls,
    silence_shortfalls,
    undeclared_shortfalls,
)
from studies.any_shape.measure import Measured
from studies.any_shape.run import RESULTS, read_table
from studies.any_shape.silence import RESULTS as SILENCE
from studies.any_shape.silence import Row
from studies.coverage.calibrate import TABLE, Calibration
from studies.coverage.coverage import NEW, scored
from studies.coverage.extras import Extra
from studies.coverage.page import calibrations, draw, extras, filled, tables
from studies.coverage.rows import read_rows
from studies.coverage.scores import Score

from privatile.paper.tables import markdown_table

ROOT = Path(__file__).parents[2]
DOCS, COVERAGE = ROOT / "docs", ROOT / "studies" / "coverage"
NOTES = Path(__file__).parent / "notes.md"
TITLES = {
    "smooth": "Smooth laws, one client",
    "unseen": "Smooth laws on which no constant was chosen",
    "hard": "Hard laws, one client",
    "federated": "Hard laws, many clients, 120,000 records",
    "coverage": "The cells of the study of continuous values, asked by the default design",
    "columns": "Columns of the salary table, records drawn with replacement",
    "regions": "The same by region, one region per run",
    "file": "The salary table itself as the target",
}
HEAD = (
    "cell",
    "I",
    "runs",
    "covers",
    "bounded",
    "width",
    "90% point",
    "smooth: covers",
    "width",
    "error",
    "contradicted",
)
BESIDE = {
    "worst": "The worst distributions: F jumps to exactly τ",
    "command": "Through the command itself: `privatile estimate` on the salary table, one row per run",
    "silence": "Silent clients",
    "stopped": "Runs that are looked at: shares that miss at any look",
    "joint_levels": "One fit for nine levels: width of its joint band over that of separate fits, and its coverage",
}
"""Tables of other scripts of the study, shown as they are."""
COUNTED = {"columns": 27, "regions": 81, "file": 9}
"""Cells of the salary table, which is not part of the project."""
SET_HEAD = (*HEAD, "set covers", "1–2 values", "≤ 5")
INTRODUCTION = """# The tables behind the intervals

Written by `python -m studies.any_shape.page` from `studies/any_shape/results` and `studies/coverage`; what they
mean is on [one page](intervals.md). All intervals are 95% intervals.

*covers*, *bounded*: the any-shape interval, which a result shows first where nothing is declared. *width*: median
of the bounded ones, and its 90% point, over the width of an interval that knows the distribution (oracle Wald); in
units of the data where the values have no density. *smooth*: the interval beside it, and the mean absolute error of
its estimate over that of the efficiency bound (in units without a density). *contradicted*: share of the runs whose
answers speak against a smooth curve. I: information. *set*: with the grid of values declared.

Every table says when and with which command it was run. Commands without a seed are from before it was noted: the
default one, on processors or on one GPU (`--device cuda --block 40000`, which draws other random numbers). Values
declared continuous: `python -m studies.coverage.run --cells low_information --runs 20000 --device cuda`, 2026-11-16.
Cells of made-up laws have 20,000 runs, real columns 2,000.

The Monte Carlo standard error of a coverage near .95 is .0015 with 20,000 runs, .005 with 2,000, .010 with 500; of an
error ratio it is .756 of it over √runs.
"""


def read_all() -> dict[str, list[Measured]]:
    """The rows of every table."""
    return {table: list(read_table(table).values()) for table in TITLES}


def _number(value: float, form: str) -> str:
    return "–" if math.isnan(value) else f"{value:{form}}"


def cells_without_row(table: str, rows: Sequence[Measured]) -> tuple[int, int]:
    """How many cells of a table have not been run, and how many there are."""
    if table in REAL:
        cells = COUNTED[table]
        return cells - len(rows), cells
    names = {cell.name for cell in cells_of(["smooth" if table == "unseen" else table], Path()) if cell.table == table}
    return len(names - {row.name for row in rows}), len(names)


def measured_table(rows: Sequence[Measured]) -> str:
    """One row per cell; columns of the declared grid where one of them has it."""
    sets = any(not math.isnan(row.set_coverage) for row in rows)
    lines = []
    for row in rows:
        line = [row.name, f"{row.information:,.0f}", f"{row.runs:,}", f"{row.coverage:.4f}", f"{row.bounded:.4f}"]
        line += [_number(row.width, ",.4g"), _number(row.width_90, ",.4g")]
        line += [f"{row.smooth_coverage:.3f}", _number(row.smooth_width, ",.4g"), _number(row.smooth_error, ",.4g")]
        line.append(f"{row.contradicted:.3f}")
        if sets:
            line += [_number(value, ".3f") for value in (row.set_coverage, row.one_or_two, row.up_to_five)]
        lines.append(line)
    return "\n".join(markdown_table(SET_HEAD if sets else HEAD, lines))


def plain_table(path: Path) -> str:
    """A CSV file as it is; what all rows say about when and how they were run is said once."""
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    shown = [name for name in rows[0] if name not in ("date", "command")]
    table = "\n".join(markdown_table(shown, [[row[name] for name in shown] for row in rows]))
    own = f"python -m studies.any_shape.{path.stem}"
    return f"{provenance([(row.get('date', ''), row.get('command') or own) for row in rows])}\n\n{table}"


def provenance(rows: Sequence[tuple[str, str]]) -> str:
    """When the rows of a table were run, and with which commands.

    >>> provenance([("2026-11-17", "run b"), ("2026-11-16", "run a"), ("2026-11-17", "run b")])
    'Run 2026-11-16: `run a` (1 row). Run 2026-11-17: `run b` (2 rows).'
    """
    counts = Counter(rows)
    return " ".join(
        f"Run {date or 'on a day that nobody noted'}: `{command}` ({number} row{'s' if number > 1 else ''})."
        for (date, command), number in sorted(counts.items())
    )


def span(values: Sequence[float], form: str = ".3f") -> str:
    """Smallest, median and largest."""
    return f"{min(values):{form}} / {statistics.median(values):{form}} / {max(values):{form}}"


def verdict(found: dict[str, list[Measured]], continuous: Sequence[Score]) -> str:
    """What was measured, in one table and the list of what falls short."""
    lines = []
    groups = (
        ("smooth laws, I = 60,000", [r for t in ("smooth", "unseen") for r in found[t] if r.information > 59_000]),
        (
            "smooth laws, I = 6,000",
            [r for t in ("smooth", "unseen") for r in found[t] if 5_900 < r.information < 6_100],
        ),
        ("smooth laws, I = 600", [r for t in ("smooth", "unseen") for r in found[t] if 590 < r.information < 610]),
        ("smooth laws, I = 150", [r for t in ("smooth", "unseen") for r in found[t] if r.information < 160]),
        ("the cells of the study below", found["coverage"]),
        ("hard laws, 2,000 records", [r for r in found["hard"] if r.records < 20_000]),
        ("hard laws, 20,000 records and more", [r for r in found["hard"] if r.records >= 20_000]),
        ("hard laws, 10 and 100 clients", found["federated"]),
        ("salary, age, hours", found["columns"]),
        ("the same by region, 1,000 records and more", [r for r in found["regions"] if r.records >= 1000]),
        ("the file itself", found["file"]),
    )
    for name, rows in groups:
        if rows:
            width = span([r.width for r in rows], ".2f") if all(r.has_density for r in rows) else "–"
            error = span([r.smooth_error for r in rows]) if all(r.has_density for r in rows) else "–"
            runs = sorted({row.runs for row in rows})
            lines.append(
                (
                    name,
                    f"{len(rows)}",
                    f"{runs[0]:,}" + (f" to {runs[-1]:,}" if len(runs) > 1 else ""),
                    f"{min(r.coverage for r in rows):.3f}",
                    f"{min(r.bounded for r in rows):.3f}",
                    width,
                    span([r.smooth_coverage for r in rows]),
                    error,
                )
            )
    head = ("cells", "number", "runs each", "any-shape covers, least", "bounded, least", "width / Wald")
    table = markdown_table((*head, "smooth covers", "smooth error / bound"), lines)
    parts = ["\n".join(table)]
    if continuous:
        declared = []
        for name, chosen in (
            ("I from 150 to 600", [s for s in continuous if s.information < 1_400 and not s.name.startswith(NEW)]),
            ("I of 1,500", [s for s in continuous if 1_400 < s.information < 2_400 and not s.name.startswith(NEW)]),
            ("I of 2,500 and more", [s for s in continuous if s.information > 2_400 and not s.name.startswith(NEW)]),
            ("families nothing was tuned on", [s for s in continuous if s.name.startswith(NEW)]),
        ):
            if chosen:
                runs = sorted({score.runs for score in chosen})
                declared.append(
                    (
                        name,
                        f"{len(chosen)}",
                        f"{runs[0]:,}" + (f" to {runs[-1]:,}" if len(runs) > 1 else ""),
                        span([s.coverage for s in chosen]),
                        span([s.width for s in chosen]),
                        span([s.error for s in chosen]),
                    )
                )
        head = ("declared continuous", "number", "runs each", "covers", "width / Wald", "error / bound")
        parts.append("\n".join(markdown_table(head, declared)))
    parts.append(shortfall_words(found, continuous))
    return "\n\n".join(["Three numbers are smallest / median / largest. *Smooth*: of the undeclared run.", *parts])


def shortfall_words(found: dict[str, list[Measured]], continuous: Sequence[Score]) -> str:
    """Every number beyond its limit, by name."""
    rows = [row for table in (*MADE_UP, *REAL) for row in found[table]]
    short = any_shape_shortfalls(rows) + grid_shortfalls(rows)
    short += undeclared_shortfalls([*found["smooth"], *found["unseen"]]) + continuous_shortfalls(continuous, NEW)
    short += silence_shortfalls(read_rows(SILENCE, Row))
    if not short:
        return (
            "No number of the tables is beyond its limit (`studies/any_shape/limits.py`) by more than two Monte Carlo "
            "standard errors."
        )
    lines = [(each.cell, each.what, f"{each.found:.3f}", f"{each.limit:.3f}") for each in short]
    table = "\n".join(markdown_table(("what falls short", "number", "found", "limit"), lines))
    return (
        "The limits are in `studies/any_shape/limits.py`, with two Monte Carlo standard errors allowed. These numbers "
        f"are beyond them:\n\n{table}"
    )


def continuous_scores() -> list[Score]:
    """The cells of values declared continuous."""
    return [*scored(COVERAGE / "low_information.csv").values(), *scored(COVERAGE / "results.csv").values()]


def long_page(found: dict[str, list[Measured]], continuous: Sequence[Score]) -> str:
    """The page of tables."""
    parts = [INTRODUCTION.rstrip(), NOTES.read_text(encoding="utf-8").rstrip()]
    for table, title in TITLES.items():
        missing, cells = cells_without_row(table, found[table])
        note = f"\n\n{missing} of {cells} cells not run yet." if missing else ""
        when = provenance([(row.date, row.command) for row in found[table]])
        text = f"\n\n{when}\n\n{measured_table(found[table])}" if found[table] else ""
        parts.append(f"## {title}{note}{text}")
    for name, title in BESIDE.items():
        if (RESULTS / f"{name}.csv").exists():
            parts.append(f"## {title}\n\n{plain_table(RESULTS / f'{name}.csv')}")
    parts.append(
        "## Values declared continuous\n\n![Coverage of every cell](intervals.svg)\n\nError: mean absolute error over "
        "that of the efficiency bound. Width: mean width over the oracle Wald interval. `warned`: share of runs whose "
        "result carries a warning. Cells with information 2,500 and more were run before z was corrected by "
        "1 + .5/√I, which widens by 1% there.\n\n" + tables(continuous)
    )
    rows = read_rows(COVERAGE / "extras.csv", Extra)
    parts.append("## Watching, several levels, other intervals, the paper's settings\n\n" + extras(rows))
    parts.append(
        "## Why no table of critical values\n\nWith the path's plain mean ± z·s/f̂, z must grow as relaxations get few, "
        "because f̂ is estimated on the same path. The curve's interval carries the slope's error itself "
        "(`studies/coverage/calibrate.py`, 200 rounds, 40,000 windows a row).\n\n"
        + calibrations(read_rows(TABLE, Calibration))
    )
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Write both pages."""
    found, continuous = read_all(), continuous_scores()
    (DOCS / "intervals-tables.md").write_text(long_page(found, continuous), encoding="utf-8")
    page = DOCS / "intervals.md"
    page.write_text(filled(page.read_text(encoding="utf-8"), {"verdict": verdict(found, continuous)}), encoding="utf-8")
    draw(continuous, DOCS / "intervals.svg")


if __name__ == "__main__":
    main()
