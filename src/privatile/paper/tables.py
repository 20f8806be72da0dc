"""The paper's Tables 1–4, ours beside the printed ones.

A difference is marked where it exceeds what the two Monte Carlo errors explain: `MARK_AT` standard errors of the
difference, the authors' error taken from their 1,000 replications and the rounding of their print. With 672 comparisons
fewer than two marks are expected by chance.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from privatile.paper.published import Published, published_tables
from privatile.simulation.experiment import Protocol
from privatile.simulation.output import MARK_AT, plain

PUBLISHED_REPLICATIONS = 1000
MARK = "*"


@dataclass(frozen=True)
class Comparison:
    """One cell: ours, theirs, and whether the Monte Carlo errors explain the difference."""

    table: str
    scenario: str
    size_kind: str
    size: int
    level: str
    truth_rate: str
    method: str
    ours: dict[str, Any]
    theirs: Published

    @property
    def coverage_like_theirs(self) -> float:
        """Our coverage with the authors' critical value: the one to compare with theirs."""
        beside = float(self.ours["coverage_beside"])
        return float(self.ours["coverage"]) if math.isnan(beside) else beside

    @property
    def coverage_differs(self) -> bool:
        """|ours − theirs| above the error of a difference of two shares (pooled; one success and failure added)."""
        count = int(self.ours["replications"])
        ours, theirs = self.coverage_like_theirs, self.theirs.coverage
        pooled = (count * ours + PUBLISHED_REPLICATIONS * theirs + 1.0) / (count + PUBLISHED_REPLICATIONS + 2.0)
        error = math.sqrt(pooled * (1.0 - pooled) * (1.0 / count + 1.0 / PUBLISHED_REPLICATIONS))
        return abs(ours - theirs) > MARK_AT * error + 0.0005

    @property
    def mae_differs(self) -> bool:
        """|ours − theirs| above the error of a difference of two means, theirs scaled from ours."""
        count, error = int(self.ours["replications"]), float(self.ours["mae_error"])
        both = error * math.sqrt(1.0 + count / PUBLISHED_REPLICATIONS)
        return abs(float(self.ours["mae"]) - self.theirs.mae) > MARK_AT * both + 0.00005

    def row(self) -> dict[str, Any]:
        """Flat, for CSV."""
        ours = self.ours
        names = ("table", "scenario", "size_kind", "size", "level", "truth_rate", "method")
        return {
            **{name: getattr(self, name) for name in names},
            "coverage": ours["coverage"],
            "coverage_error": ours["coverage_error"],
            "coverage_paper_v": self.coverage_like_theirs,
            "published_coverage": self.theirs.coverage,
            "coverage_differs": int(self.coverage_differs),
            "mae": ours["mae"],
            "mae_error": ours["mae_error"],
            "published_mae": self.theirs.mae,
            "mae_differs": int(self.mae_differs),
            "bias": ours["bias"],
            "rmse": ours["rmse"],
            "mean_width": ours["width"],
            "error_over_bound": ours["rmse"] / ours["bound"],
            **{name: ours[name] for name in ("critical_value", "truth", "replications")},
        }


def compare(table: str, rows: Sequence[dict[str, Any]]) -> list[Comparison]:
    """A finished table's rows beside the printed ones."""
    printed = published_tables()
    found = []
    for row in rows:
        kind = "records" if "records" in row else "rounds"
        key = (table, row["population"], row[kind], row["level"], row["truth_rate"], row["method"])
        found.append(
            Comparison(key[0], key[1], "t_T" if kind == "records" else "T", int(key[2]), *key[3:], row, printed[key])
        )
    return found


LEVEL_NAMES = {"low": "τ_low", "high": "τ_high"}

Blocks = dict[tuple[str, str, int], dict[tuple[str, str], dict[str, Comparison]]]


def blocks_of(cells: Sequence[Comparison]) -> Blocks:
    """(scenario, kind of size, size) -> (level, truth rate) -> method -> cell."""
    blocks: Blocks = {}
    for cell in sorted(cells, key=lambda cell: cell.size):
        block = blocks.setdefault((cell.scenario, cell.size_kind, cell.size), {})
        block.setdefault((cell.level, cell.truth_rate), {})[cell.method] = cell
    return blocks


def _pair(coverage: float, mae: float, coverage_mark: str = "", mae_mark: str = "") -> str:
    return f"{plain(coverage, '.3f')}{coverage_mark} ({plain(mae, '.4f')}{mae_mark})"


def _lines(level: str, rate: str, row: dict[str, Comparison], protocol: Protocol) -> list[list[str]]:
    """The lines of one setting: ours, its errors, ours with the authors' critical value, theirs."""
    cells, ours = row.values(), [cell.ours for cell in row.values()]
    marks = [(MARK * cell.coverage_differs, MARK * cell.mae_differs) for cell in cells]
    found = [_pair(own["coverage"], own["mae"], *mark) for own, mark in zip(ours, marks, strict=True)]
    lines = [
        [level, rate, "ours" if protocol == "published" else "ours, exact v", *found],
        ["", "", "± MC error", *(_pair(own["coverage_error"], own["mae_error"]) for own in ours)],
        ["", "", "published", *(_pair(cell.theirs.coverage, cell.theirs.mae) for cell in cells)],
    ]
    if protocol == "independent":
        lines.insert(2, ["", "", "ours, v of the paper", *(plain(cell.coverage_like_theirs, ".3f") for cell in cells)])
    return lines


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table.

    >>> print(*markdown_table(["τ", "", "C1"], [["0.5", "ours", "0.95"], ["", "published", "0.94"]]), sep=chr(10))
    | τ | | C1 |
    |---|---|---|
    | 0.5 | ours | 0.95 |
    | | published | 0.94 |
    """
    lines = ["|" + "".join(f" {cell} |" if cell else " |" for cell in row) for row in (header, *rows)]
    return [lines[0], "|" + "---|" * len(header), *lines[1:]]


def markdown(title: str, cells: Sequence[Comparison], protocol: Protocol) -> str:
    """A table of the paper as Markdown: coverage (MAE), ours above theirs."""
    parts = [f"### {title}", ""]
    for (scenario, kind, size), rows in blocks_of(cells).items():
        lines = [
            line
            for (level, rate), row in rows.items()
            for line in _lines(LEVEL_NAMES.get(level, level), rate, row, protocol)
        ]
        methods = next(iter(rows.values()))
        parts += [f"**{scenario} | {kind} = {size:,}**", "", *markdown_table(["τ", "r", "", *methods], lines), ""]
    return "\n".join(parts)


def agreeing(cells: Sequence[Comparison]) -> int:
    """How many cells agree with the printed ones, within the two Monte Carlo errors."""
    return sum(not (cell.coverage_differs or cell.mae_differs) for cell in cells)


def differing(cells: Sequence[Comparison], method: str) -> str:
    """How many of a method's cells differ from the printed ones, of how many."""
    own = [cell for cell in cells if cell.method == method]
    return f"{len(own) - agreeing(own)} of {len(own)}"


def verdict(cells: Sequence[Comparison]) -> str:
    """One sentence on how many cells differ, by method."""
    counts = [f"{method} {differing(cells, method)}" for method in dict.fromkeys(cell.method for cell in cells)]
    return "Cells that differ by more than the two Monte Carlo errors explain: " + ", ".join(counts) + "."
