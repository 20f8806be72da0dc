"""The page "How good are the intervals?", filled from the study's results: the verdict, a picture, the tables."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from studies.coverage.calibration import Calibration
from studies.coverage.coverage import NEW, coverage_error
from studies.coverage.scores import Score

from privatile.estimator.auto import SUPPORTED, supported

HEAD = ("cell", "coverage", "90%", "99%", "error / bound", "width / Wald", "bias / s.e.", "search", "warned")
COVERAGE_BAND = (0.935, 0.965)
"""What every supported cell must keep, and what the picture shades."""


def verdict(scores: Sequence[Score]) -> str:
    """The supported cells in three sentences, and one about laws that nothing was tuned on."""
    inside = [score for score in scores if supported(score.information)]
    new = [score for score in inside if score.name.startswith(NEW)]
    inside = [score for score in inside if score not in new]
    coverages, errors, widths = ([getattr(s, key) for s in inside] for key in ("coverage", "error", "width"))
    noise = max(coverage_error(score) for score in inside)
    fewest = min(score.runs for score in inside)
    words = (
        f"{len(inside)} supported cells (information {SUPPORTED:,.0f} or more), {fewest:,} runs or more each. Coverage "
        f"of the 95% interval: {min(coverages):.3f} to {max(coverages):.3f}, median {statistics.median(coverages):.3f} "
        f"(Monte Carlo standard error at most {noise:.4f}). Mean absolute error over the efficiency bound: median "
        f"{statistics.median(errors):.3f}, largest {max(errors):.3f}. Mean width over the oracle Wald interval: median "
        f"{statistics.median(widths):.3f}, largest {max(widths):.3f}."
    )
    if new:
        covered, wide = [score.coverage for score in new], [score.width for score in new]
        words += (
            f" In {len(new)} further cells, of families that nothing was tuned on, coverage runs from "
            f"{min(covered):.3f} to {max(covered):.3f} and width from {min(wide):.3f} to {max(wide):.3f}."
        )
    return words


def table(scores: Sequence[Score]) -> str:
    """One row a cell."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    for score in scores:
        cells = (
            score.name.partition(": ")[2],
            f"{score.coverage:.4f}",
            f"{score.coverage_90:.3f}",
            f"{score.coverage_99:.3f}",
            f"{score.error:.3f}",
            f"{score.width:.3f}",
            f"{score.bias:+.2f}",
            f"{score.search_rounds:.0f} rounds, {100 * score.search_share:.1f}%",
            f"{100 * score.warned:.2g}%",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def tables(scores: Sequence[Score]) -> str:
    """A table for each group of cells."""
    groups: dict[str, list[Score]] = {}
    for score in scores:
        groups.setdefault(score.name.partition(":")[0], []).append(score)
    return "\n\n".join(f"### {name.capitalize()}\n\n{table(members)}" for name, members in groups.items())


def extras(rows: Sequence[Mapping[str, str]]) -> str:
    """The extras by kind: one line a setting, one column a quantity."""
    kinds: dict[str, dict[str, dict[str, float]]] = {}
    for row in rows:
        kinds.setdefault(row["kind"], {}).setdefault(row["setting"], {})[row["name"]] = float(row["value"])
    found = []
    for kind, settings in kinds.items():
        names = list(dict.fromkeys(name for values in settings.values() for name in values))
        lines = [
            f"### {kind.capitalize()}",
            "",
            "| setting | " + " | ".join(names) + " |",
            "|" + "---|" * (len(names) + 1),
        ]
        lines += [
            f"| {setting} | " + " | ".join(f"{values[name]:.4g}" if name in values else "" for name in names) + " |"
            for setting, values in settings.items()
        ]
        found.append("\n".join(lines))
    return "\n\n".join(found)


def calibrations(rows: Sequence[Calibration]) -> str:
    """z of the plain interval by relaxations and level, and the curve's coverage beside it."""
    lines = ["| N | level | z of path mean ± z·s/f̂ | coverage of the curve's interval |", "|---|---|---|---|"]
    lines += [
        f"| {row.relaxations:g} | {row.confidence_level:g} | {row.plain_value:.3f} ± {row.plain_error:.3f} | "
        f"{row.curve_coverage:.4f} |"
        for row in rows
    ]
    return "\n".join(lines)


def picture(scores: Sequence[Score], width: int = 760, height: int = 320) -> str:
    """Coverage of every cell against its information, as SVG: dots with two standard errors, the band shaded."""
    left, right, top, bottom = 56, 12, 12, 44
    low, high = 0.90, 1.0
    ordered = sorted(scores, key=lambda score: score.information)
    inner, tall = width - left - right, height - top - bottom

    def x(place: int) -> float:
        return left + inner * (place + 0.5) / len(ordered)

    def y(value: float) -> float:
        return top + tall * (high - min(max(value, low), high)) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'font-family="sans-serif" font-size="12">',
        "<title>Coverage of the 95% interval in every cell of the study</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<rect x="{left}" width="{inner}" y="{y(COVERAGE_BAND[1]):.1f}" '
        f'height="{y(COVERAGE_BAND[0]) - y(COVERAGE_BAND[1]):.1f}" fill="#e8f0e8"/>',
    ]
    for tick in (0.90, 0.92, 0.94, 0.95, 0.96, 0.98, 1.0):
        parts.append(f'<text x="{left - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:.2f}</text>')
        parts.append(f'<line x1="{left}" x2="{width - right}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#ddd"/>')
    for place, score in enumerate(ordered):
        color = "#1f5f8b" if supported(score.information) else "#b04a2f"
        reach = 2 * coverage_error(score)
        parts.append(
            f'<line x1="{x(place):.1f}" x2="{x(place):.1f}" y1="{y(score.coverage - reach):.1f}" '
            f'y2="{y(score.coverage + reach):.1f}" stroke="{color}"/>'
        )
        parts.append(
            f'<circle cx="{x(place):.1f}" cy="{y(score.coverage):.1f}" r="3" fill="{color}">'
            f"<title>{score.name}: {score.coverage:.4f}</title></circle>"
        )
    parts.append(
        f'<text x="{left + inner / 2:.0f}" y="{height - 12}" text-anchor="middle">cells, by information '
        f"(red: below {SUPPORTED:,.0f}, where the result warns)</text></svg>"
    )
    return "\n".join(parts) + "\n"


def filled(text: str, parts: dict[str, str]) -> str:
    """The page with everything between <!-- name --> and <!-- /name --> replaced."""
    for name, part in parts.items():
        opening, closing = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, _, rest = text.partition(opening)
        _, found, after = rest.partition(closing)
        if found:
            text = f"{before}{opening}\n{part}\n{closing}{after}"
    return text
