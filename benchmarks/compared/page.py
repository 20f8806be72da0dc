"""The tables of docs/compared.md, from the results: `python -m benchmarks.compared.page` writes them into the page.

A table stands between `<!-- table NAME -->` and `<!-- end -->`; a number inside a sentence between `<!-- NAME -->` and
`<!-- end -->`. The rest of the page is written by hand. A test compares page and results.
"""

import csv
import math
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS, PAGE = ROOT / "benchmarks" / "compared" / "results.csv", ROOT / "docs" / "compared.md"

Row = dict[str, str]
BASE = "incomes, median"
PEOPLE = 20_000
CONTINUOUS = "privatile, values continuous"
MAIN = {
    "incomes, median, ε = 0.5": "ε = 0.5",
    "incomes, median, ε = 3": "ε = 3",
    "incomes, q = 0.9": "q = 0.9",
    "heaped salaries, median": "heaped",
    "unlike clients, q = 0.9": "unlike, q = 0.9",
}


def read(path: Path = RESULTS) -> tuple[list[Row], dict[str, str]]:
    """The rows, and what stands in front of them: date, command, machine."""
    lines = path.read_text(encoding="utf-8").splitlines()
    facts = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# "))
    facts["command"] = f"`{facts['command']}`"
    return list(csv.DictReader(line for line in lines if not line.startswith("#"))), facts


def pick(rows: list[Row], setting: str, method: str) -> Row | None:
    """The row of a method in a setting, if it was run there."""
    return next((row for row in rows if row["setting"] == setting and row["method"] == method), None)


def methods(rows: list[Row], setting: str) -> list[str]:
    """The methods of a setting, in the order of the results."""
    return [row["method"] for row in rows if row["setting"] == setting]


def over_bound(row: Row | None) -> str:
    """A rank error in units of the bound, with its Monte Carlo error.

    >>> over_bound({"over_bound": "2.500", "rank_error": "0.0200", "rank_error_se": "0.0016"})
    '2.50 ± 0.20'
    """
    if row is None:
        return "–"
    factor = float(row["over_bound"])
    return f"{factor:.2f} ± {factor * float(row['rank_error_se']) / float(row['rank_error']):.2f}"


def people_needed(rows: list[Row], method: str) -> str:
    """How many people a method needs for privatile's rank error with 20,000, between measured sizes on a log scale."""
    sizes = sorted(
        (int(row["people"]), float(row["rank_error"]))
        for row in rows
        if row["method"] == method and (row["setting"] == BASE or row["setting"].startswith(f"{BASE}, n = "))
    )
    target = pick(rows, BASE, "privatile")
    assert target is not None
    if method == "privatile":
        return f"{PEOPLE:,}"
    if len(sizes) < 2:
        return "–"
    wanted = float(target["rank_error"])
    if sizes[0][1] <= wanted:
        return f"< {sizes[0][0]:,}"
    for (n, error), (more, smaller) in pairwise(sizes):
        if smaller <= wanted:
            part = math.log(error / wanted) / math.log(error / smaller)
            return f"{float(f'{n * (more / n) ** part:.2g}'):,.0f}"
    return f"> {sizes[-1][0]:,}"


def number(text: str, digits: int = 3) -> str:
    """A number with few digits and separators.

    >>> number("1.787e+04"), number("0.381"), number("12.34"), number("648")
    ('17,900', '0.381', '12.3', '648')
    """
    value = float(f"{float(text):.{digits}g}")
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:g}"


def main_table(rows: list[Row]) -> str:
    """Everything about the first setting."""
    lines = [
        "| method | rank error | error | 95% interval covers | its width | people needed | rounds | ms a run |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for method in methods(rows, BASE):
        row = pick(rows, BASE, method)
        assert row is not None
        covers = f"{row['coverage']} ± {row['coverage_se']}" if row["coverage"] else "none given"
        width = number(row["width"]) if row["width"] else "–"
        error = f"{number(row['error'])} ± {number(row['error_se'], 2)}"
        rounds, time = number(row["rounds"], 9), number(row["milliseconds"], 2)
        cells = (method, over_bound(row), error, covers, width, people_needed(rows, method), rounds, time)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def other_table(rows: list[Row]) -> str:
    """Rank errors in the other main settings."""
    lines = [f"| method | {' | '.join(MAIN.values())} |", "|---" * (len(MAIN) + 1) + "|"]
    for method in methods(rows, BASE):
        cells = (over_bound(pick(rows, setting, method)) for setting in MAIN)
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def interval_table(rows: list[Row]) -> str:
    """Coverage and width of those that give an interval."""
    lines = [f"| method | {' | '.join(MAIN.values())} |", "|---" * (len(MAIN) + 1) + "|"]
    for method in methods(rows, BASE):
        found = [pick(rows, setting, method) for setting in MAIN]
        if all(row is not None and row["coverage"] for row in found):
            cells = (f"{row['coverage']}, {number(row['width'])}" for row in found if row is not None)
            lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def size_table(rows: list[Row]) -> str:
    """Rank errors with fewer and with more people."""
    sizes = {int(row["people"]): row["setting"] for row in rows if row["setting"].startswith(f"{BASE}, n = ")}
    sizes = dict(sorted((sizes | {PEOPLE: BASE}).items()))
    lines = [f"| method | {' | '.join(f'n = {n:,}' for n in sizes)} |", "|---" * (len(sizes) + 1) + "|"]
    for method in methods(rows, sizes[min(sizes)]):
        cells = (over_bound(pick(rows, setting, method)) for setting in sizes.values())
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def by_size(method: str) -> Callable[[list[Row]], str]:
    """ "1.1 to 1.7": a method's rank errors over all sizes, in units of the bound."""

    def words(rows: list[Row]) -> str:
        found = [
            float(row["over_bound"])
            for row in rows
            if row["method"] == method and (row["setting"] == BASE or row["setting"].startswith(f"{BASE}, n = "))
        ]
        return f"{min(found):.1f} to {max(found):.1f}"

    return words


def pareto_errors(rows: list[Row]) -> str:
    """The Monte Carlo errors of the Pareto table, as shares of its numbers."""
    found = [float(row["rank_error_se"]) / float(row["rank_error"]) for row in rows if row["setting"].startswith("Par")]
    return f"{100.0 * min(found):.0f} to {100.0 * max(found):.0f}%"


def pareto_table(rows: list[Row]) -> str:
    """Rank errors on the Pareto incomes."""
    settings = list(dict.fromkeys(row["setting"] for row in rows if row["setting"].startswith("Pareto")))
    heads = [setting.removeprefix("Pareto, ").replace(", ε", "<br>ε") for setting in settings]
    lines = [f"| method | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for method in methods(rows, settings[0]):
        found = [pick(rows, setting, method) for setting in settings]
        cells = (f"{float(row['over_bound']):.2f}" for row in found if row is not None)
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def ratio(rows: list[Row], settings: list[str], method: str, other: str) -> tuple[float, float]:
    """The smallest and the largest ratio of two methods' rank errors over settings."""
    found = [(pick(rows, setting, method), pick(rows, setting, other)) for setting in settings]
    ratios = [float(one["rank_error"]) / float(two["rank_error"]) for one, two in found if one and two]
    return min(ratios), max(ratios)


def ratio_words(method: str, other: str, start: str) -> Callable[[list[Row]], str]:
    """ "1.1 to 1.7", of the settings whose names begin so."""

    def words(rows: list[Row]) -> str:
        settings = list(dict.fromkeys(row["setting"] for row in rows if row["setting"].startswith(start)))
        low, high = ratio(rows, settings, method, other)
        return f"{low:.1f} to {high:.1f}"

    return words


PARTS: dict[str, Callable[[list[Row]], str]] = {
    "table incomes": main_table,
    "table others": other_table,
    "table intervals": interval_table,
    "table sizes": size_table,
    "default by size": by_size("privatile"),
    "continuous by size": by_size(CONTINUOUS),
    "table pareto": pareto_table,
    "pareto errors": pareto_errors,
    "screening over privatile": ratio_words("Bayesian screening search", "privatile", "Pareto"),
    "screening over continuous": ratio_words("Bayesian screening search", CONTINUOUS, "Pareto"),
    "belief over privatile": ratio_words("… without the screening", "privatile", "Pareto"),
    "belief over continuous": ratio_words("… without the screening", CONTINUOUS, "Pareto"),
}


def render(page: str, rows: list[Row], facts: dict[str, str]) -> str:
    """The page with tables and numbers from these results."""

    def put(found: re.Match[str]) -> str:
        name = found[1]
        text = facts[name] if name in facts else PARTS[name](rows)
        space = "\n\n" if name.startswith("table ") else ""
        return f"<!-- {name} -->{space}{text}{space}<!-- end -->"

    return re.sub(r"<!-- ((?:table )?[\w ]+) -->.*?<!-- end -->", put, page, flags=re.DOTALL)


def main() -> None:
    """Write the tables into the page."""
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8"), *read()), encoding="utf-8")


if __name__ == "__main__":
    main()
