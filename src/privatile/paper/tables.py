"""The paper's Tables 1–4: designs, published values, and ours beside them.

A difference is marked where it exceeds what the two Monte Carlo errors explain: `MARK_AT` standard errors of the
difference, the authors' error taken from their 1,000 replications and the rounding of their print.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privatile.errors import InputError
from privatile.simulation.experiment import Experiment, Protocol, read_experiment
from privatile.simulation.output import plain

TABLES = ("table1", "table2", "table3", "table4")
PUBLISHED_REPLICATIONS = 1000
MARK_AT = 3.0
"""Standard errors: with 672 comparisons fewer than two marks are expected by chance."""
MARK = "*"


def designs_folder() -> Path:
    """Where the paper's designs are: in the installed package, or in the checkout."""
    here = Path(__file__).resolve()
    for folder in (here.parent / "designs", here.parents[3] / "studies" / "paper"):
        if folder.is_dir():
            return folder
    raise InputError("the paper's designs are missing from this installation: reinstall privatile.")


def paper_experiment(table: str, protocol: Protocol = "independent", replications: int | None = None) -> Experiment:
    """The design of a table."""
    return read_experiment(designs_folder() / f"{table}.toml", protocol=protocol, replications=replications)


@dataclass(frozen=True)
class Published:
    """A printed pair."""

    coverage: float
    mae: float


def published_tables() -> dict[tuple[str, ...], Published]:
    """(table, scenario, size, level, truth rate, method) -> what is printed there."""
    with (designs_folder() / "published_tables.csv").open(encoding="utf-8", newline="") as stream:
        return {
            (
                f"table{row['table']}",
                row["scenario"],
                row["size"],
                row["tau"],
                row["truth_rate"],
                row["method"],
            ): Published(float(row["coverage"]), float(row["mae"]))
            for row in csv.DictReader(stream)
        }


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
        return {
            "table": self.table,
            "scenario": self.scenario,
            "size_kind": self.size_kind,
            "size": self.size,
            "level": self.level,
            "truth_rate": self.truth_rate,
            "method": self.method,
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
            "critical_value": ours["critical_value"],
            "truth": ours["truth"],
            "replications": ours["replications"],
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


def _ours(cell: Comparison, coverage: float) -> str:
    return (
        f"{plain(coverage, 3)}{MARK if cell.coverage_differs else ''} "
        f"({plain(cell.ours['mae'], 4)}{MARK if cell.mae_differs else ''})"
    )


def _blocks(cells: Sequence[Comparison]) -> dict[tuple[str, str, int], dict[tuple[str, str], dict[str, Comparison]]]:
    blocks: dict[tuple[str, str, int], dict[tuple[str, str], dict[str, Comparison]]] = {}
    for cell in sorted(cells, key=lambda cell: cell.size):
        block = blocks.setdefault((cell.scenario, cell.size_kind, cell.size), {})
        block.setdefault((cell.level, cell.truth_rate), {})[cell.method] = cell
    return blocks


def _lines(row: dict[str, Comparison], protocol: Protocol) -> list[tuple[str, list[str]]]:
    """The lines of one setting: ours, its errors, ours with the authors' critical value, theirs."""
    cells = row.values()
    lines = [
        (
            "ours" if protocol == "published" else "ours, exact v",
            [_ours(cell, cell.ours["coverage"]) for cell in cells],
        ),
        ("± MC error", [f"{plain(c.ours['coverage_error'], 3)} ({plain(c.ours['mae_error'], 4)})" for c in cells]),
        ("published", [f"{plain(cell.theirs.coverage, 3)} ({plain(cell.theirs.mae, 4)})" for cell in cells]),
    ]
    if protocol == "independent":
        lines.insert(2, ("ours, v of the paper", [plain(cell.coverage_like_theirs, 3) for cell in cells]))
    return lines


def markdown(title: str, cells: Sequence[Comparison], protocol: Protocol) -> str:
    """A table of the paper as Markdown: coverage (MAE), ours above theirs."""
    parts = [f"### {title}", ""]
    for (scenario, kind, size), rows in _blocks(cells).items():
        methods = list(next(iter(rows.values())))
        parts += [f"**{scenario} | {kind} = {size:,}**", ""]
        parts += [f"| τ | r | | {' | '.join(methods)} |", f"|---|---|---|{'---|' * len(methods)}"]
        for (level, rate), row in rows.items():
            for i, (name, texts) in enumerate(_lines(row, protocol)):
                head = f"| {LEVEL_NAMES.get(level, level)} | {rate} |" if i == 0 else "| | |"
                parts.append(f"{head} {name} | {' | '.join(texts)} |")
        parts.append("")
    return "\n".join(parts)


def latex(title: str, cells: Sequence[Comparison], protocol: Protocol) -> str:
    """The same as LaTeX (booktabs)."""
    names = {"low": r"$\tau_{\mathrm{low}}$", "high": r"$\tau_{\mathrm{high}}$"}
    parts = []
    for (scenario, kind, size), rows in _blocks(cells).items():
        methods = list(next(iter(rows.values())))
        symbol = "$t_T$" if kind == "t_T" else "$T$"
        parts += [
            r"\begin{table}[htbp]\centering\small",
            rf"\caption{{{title}: {scenario}, {symbol} = {size:,}. Coverage (mean absolute error), {protocol} data.}}",
            rf"\begin{{tabular}}{{lll{'r' * len(methods)}}}",
            r"\toprule",
            rf"$\tau$ & $r$ & & {' & '.join(methods)} \\",
        ]
        for (level, rate), row in rows.items():
            parts.append(r"\midrule")
            for i, (name, texts) in enumerate(_lines(row, protocol)):
                head = f"{names.get(level, level)} & {rate}" if i == 0 else " & "
                shown = " & ".join(text.replace("–", "--") for text in texts)
                label = name.replace("±", r"$\pm$")
                parts.append(rf"{head} & {label} & {shown} \\")
        parts += [r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]
    return "\n".join(parts)


def verdict(cells: Sequence[Comparison]) -> str:
    """One sentence on how many cells differ, by method."""
    methods = list(dict.fromkeys(cell.method for cell in cells))
    counts = []
    for method in methods:
        own = [cell for cell in cells if cell.method == method]
        counts.append(f"{method} {sum(cell.mae_differs or cell.coverage_differs for cell in own)} of {len(own)}")
    return "Cells that differ by more than the two Monte Carlo errors explain: " + ", ".join(counts) + "."
