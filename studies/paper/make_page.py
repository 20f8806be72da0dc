"""Write docs/paper.md from page.md and the folder that `privatile paper` filled.

privatile paper all --replications 1000 --data census.csv --out RESULTS
privatile paper tables --protocol published --replications 1000 --out RESULTS
python studies/paper/make_page.py RESULTS 2026-11-15
"""

from __future__ import annotations

import csv
import shutil
import sys
from pathlib import Path
from string import Template

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"
TABLES = ("table1", "table2", "table3", "table4")
METHODS = ("C1", "C5", "Log", "DP-SGD (C1)", "DC")


def rows_of(results: Path, protocol: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for table in TABLES:
        with (results / f"{table}-{protocol}.csv").open(encoding="utf-8", newline="") as stream:
            found += csv.DictReader(stream)
    return found


def share(rows: list[dict[str, str]], method: str) -> str:
    own = [row for row in rows if row["method"] == method]
    marked = sum(row["coverage_differs"] == "1" or row["mae_differs"] == "1" for row in own)
    return f"{marked} of {len(own)}"


def by_rate(rows: list[dict[str, str]], rate: str) -> tuple[float, float]:
    """Mean ratio published/ours of MAE, and mean published coverage minus ours (same v), C1 rows of one truth rate."""
    own = [row for row in rows if row["truth_rate"] == rate and row["method"] == "C1"]
    ratio = sum(float(row["published_mae"]) / float(row["mae"]) for row in own) / len(own)
    gap = sum(float(row["published_coverage"]) - float(row["coverage_paper_v"]) for row in own) / len(own)
    return ratio, gap


def within(rows: list[dict[str, str]]) -> str:
    own = [row for row in rows if row["method"] in METHODS[:3]]
    good = sum(
        abs(float(row["mae"]) / float(row["published_mae"]) - 1) <= 0.12
        and abs(float(row["coverage"]) - float(row["published_coverage"])) <= 0.025
        for row in own
    )
    return f"{good} of {len(own)} ({100 * good / len(own):.1f}%)"


def mean_coverage(rows: list[dict[str, str]], method: str, column: str) -> float:
    own = [float(row[column]) for row in rows if row["method"] == method]
    return sum(own) / len(own)


def page(results: Path, date: str) -> str:
    fresh, fixed = rows_of(results, "independent"), rows_of(results, "published")
    replications = fresh[0]["replications"]
    high, low = by_rate(fresh, "0.9"), by_rate(fresh, "0.25")
    marks = "\n".join(f"| {name} | {share(fresh, name)} | {share(fixed, name)} |" for name in METHODS)
    columns = ("coverage", "coverage_paper_v", "published_coverage")
    covers = "\n".join(
        f"| {name} | {' | '.join(f'{mean_coverage(fresh, name, column):.3f}' for column in columns)} |"
        for name in METHODS
    )

    def part(name: str) -> str:
        return (results / f"{name}.md").read_text(encoding="utf-8").strip()

    def body(name: str) -> str:
        """Without its heading."""
        return part(name).split("\n", 2)[2]

    return Template((HERE / "page.md").read_text(encoding="utf-8")).substitute(
        replications=replications,
        date=date,
        low_ratio=f"{low[0]:.2f}",
        low_gap=f"{low[1]:+.3f}",
        high_ratio=f"{high[0]:.2f}",
        high_gap=f"{high[1]:+.3f}",
        covers=covers,
        marks=marks,
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
