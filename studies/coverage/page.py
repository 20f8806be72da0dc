"""The study's results as tables and a picture; `studies.any_shape.page` puts them on pages."""

import itertools
from collections.abc import Sequence
from pathlib import Path

from studies.coverage.calibrate import Calibration
from studies.coverage.coverage import coverage_error
from studies.coverage.extras import Extra
from studies.coverage.scores import Score

from privatile.estimator.tuned import SUPPORTED, supported
from privatile.paper.tables import markdown_table
from privatile.report.pages import BLUE, VERMILION, print_style, save_figure

HEAD = ("cell", "coverage", "90%", "99%", "error / bound", "width / Wald", "bias / s.e.", "search", "warned")
COVERAGE_BAND = (0.94, 0.96)
"""What cells from information 1,500 on must keep, and what the picture shades."""


def table(scores: Sequence[Score]) -> str:
    """One row per cell."""
    rows = (
        (
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
        for score in scores
    )
    return "\n".join(markdown_table(HEAD, rows))


def tables(scores: Sequence[Score]) -> str:
    """A table for each group of cells."""
    groups = itertools.groupby(scores, key=lambda score: score.name.partition(":")[0])
    return "\n\n".join(f"### {name.capitalize()}\n\n{table(list(members))}" for name, members in groups)


def extras(rows: Sequence[Extra]) -> str:
    """A table for each kind: one row per setting, one column per quantity."""
    found = []
    for kind, members in itertools.groupby(rows, key=lambda row: row.kind):
        settings: dict[str, dict[str, str]] = {}
        for row in members:
            settings.setdefault(row.setting, {})[row.name] = f"{row.value:.4g}"
        names = list(dict.fromkeys(name for values in settings.values() for name in values))
        lines = ((setting, *(values.get(name, "") for name in names)) for setting, values in settings.items())
        found.append("\n".join([f"### {kind.capitalize()}", "", *markdown_table(("setting", *names), lines)]))
    return "\n\n".join(found)


def calibrations(rows: Sequence[Calibration]) -> str:
    """z of the plain interval by relaxations and level, and the curve's coverage beside it."""
    head = ("N", "level", "z of path mean ± z·s/f̂", "coverage of the curve's interval")
    cells = (
        (
            f"{row.relaxations:g}",
            f"{row.confidence_level:g}",
            f"{row.plain_value:.3f} ± {row.plain_error:.3f}",
            f"{row.curve_coverage:.4f}",
        )
        for row in rows
    )
    return "\n".join(markdown_table(head, cells))


def draw(scores: Sequence[Score], path: Path) -> None:
    """Coverage of every cell, sorted by information: dots with two standard errors, the band shaded."""
    from matplotlib.figure import Figure

    ordered = sorted(scores, key=lambda score: score.information)
    with print_style():
        figure = Figure(figsize=(7.6, 3.2), layout="constrained")
        axes = figure.subplots()
        axes.axhspan(*COVERAGE_BAND, color="#e8f0e8")
        for inside, color in ((True, BLUE), (False, VERMILION)):
            places = [place for place, score in enumerate(ordered) if supported(score.information) == inside]
            chosen = [ordered[place] for place in places]
            errors = [2 * coverage_error(score) for score in chosen]
            axes.errorbar(places, [score.coverage for score in chosen], errors, fmt="o", color=color, ms=3, lw=1)
        axes.set(ylim=(0.90, 1.0), ylabel="coverage of the 95% interval", xticks=[])
        axes.set_xlabel(f"cells, by information (from {SUPPORTED:,.0f} on)")
        save_figure(figure, path)


def filled(text: str, parts: dict[str, str]) -> str:
    """The page with everything between <!-- name --> and <!-- /name --> replaced."""
    for name, part in parts.items():
        opening, closing = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, _, rest = text.partition(opening)
        _, found, after = rest.partition(closing)
        if found:
            text = f"{before}{opening}\n{part}\n{closing}{after}"
    return text
