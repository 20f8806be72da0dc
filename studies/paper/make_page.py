"""Write docs/paper.md from page.md and the folder that `privatile paper` filled.

privatile paper all --replications 1000 --data census.csv --out RESULTS
privatile paper tables --protocol published --replications 1000 --out RESULTS
python studies/paper/make_page.py RESULTS 2026-11-15
"""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from string import Template

from privatile.paper.reproduce import by_protocol, comparisons
from privatile.paper.tables import TABLES, Comparison, differing

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"
METHODS = ("C1", "C5", "Log", "DP-SGD (C1)", "DC")
Cells = Sequence[Comparison]


def by_rate(cells: Cells, rate: str) -> tuple[float, float]:
    """Mean ratio published/ours of MAE, and mean published coverage minus ours (same v), C1 cells of one truth rate."""
    own = [cell for cell in cells if cell.truth_rate == rate and cell.method == "C1"]
    gap = fmean(cell.theirs.coverage - cell.coverage_like_theirs for cell in own)
    return fmean(cell.theirs.mae / cell.ours["mae"] for cell in own), gap


def within(cells: Cells) -> str:
    own = [cell for cell in cells if cell.method in METHODS[:3]]
    good = sum(
        abs(cell.ours["mae"] / cell.theirs.mae - 1) <= 0.12
        and abs(cell.ours["coverage"] - cell.theirs.coverage) <= 0.025
        for cell in own
    )
    return f"{good} of {len(own)} ({100 * good / len(own):.1f}%)"


def coverage_line(cells: Cells, method: str) -> str:
    """Mean coverage of a method: ours, ours with the paper's critical value, the printed one."""
    own = [(c.ours["coverage"], c.coverage_like_theirs, c.theirs.coverage) for c in cells if c.method == method]
    return f"| {method} | {' | '.join(f'{fmean(column):.3f}' for column in zip(*own, strict=True))} |"


def page(results: Path, date: str) -> str:
    found = comparisons(results)
    cells = by_protocol(found)
    fresh, fixed = cells["independent"], cells["published"]
    high, low = by_rate(fresh, "0.9"), by_rate(fresh, "0.25")

    def part(name: str) -> str:
        return (results / f"{name}.md").read_text(encoding="utf-8").strip()

    def body(name: str) -> str:
        """Without its heading."""
        return part(name).split("\n", 2)[2]

    return Template((HERE / "page.md").read_text(encoding="utf-8")).substitute(
        replications=found[0].replications,
        date=date,
        low_ratio=f"{low[0]:.2f}",
        low_gap=f"{low[1]:+.3f}",
        high_ratio=f"{high[0]:.2f}",
        high_gap=f"{high[1]:+.3f}",
        covers="\n".join(coverage_line(fresh, name) for name in METHODS),
        marks="\n".join(f"| {name} | {differing(fresh, name)} | {differing(fixed, name)} |" for name in METHODS),
        within=within(fixed),
        independent="\n\n".join(part(f"{table}-independent") for table in TABLES),
        published="\n\n".join(part(f"{table}-published") for table in TABLES),
        starts=body("salary-starts"),
        salary=body("salary"),
        normalizers=body("normalizers"),
        divide=body("divide"),
        cost=body("cost"),
    )


def main() -> None:
    results, date = Path(sys.argv[1]), sys.argv[2]
    (DOCS / "images").mkdir(parents=True, exist_ok=True)
    for name in ("figure1", "figure2"):
        shutil.copyfile(results / f"{name}.svg", DOCS / "images" / f"paper-{name}.svg")
    (DOCS / "paper.md").write_text(page(results, date), encoding="utf-8")


if __name__ == "__main__":
    main()
