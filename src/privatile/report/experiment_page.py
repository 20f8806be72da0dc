"""The report of a Monte Carlo study: coverage and error against size, method by method, and every cell."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privatile import __version__
from privatile.report.experiment_series import (
    TITLES,
    Measure,
    Panel,
    heights,
    methods,
    panels,
    rule,
    shared_setting,
    size_name,
    sizes,
)
from privatile.report.markup import Markup, tag
from privatile.report.shell import document
from privatile.report.small_plot import dots, dots_axis, key, panel
from privatile.simulation.store import ExperimentStore

MARK_AT = 3.0
"""Monte Carlo standard errors from the stated level at which a cell is marked: 1 honest cell in 370."""

MOST_ROWS = 500
MEASURES: tuple[Measure, ...] = ("coverage", "error")


def experiment_page(store: ExperimentStore, stated_level: float | None = None) -> str:
    """The whole page, from a store as it stands. `stated_level` is for older stores, which do not hold theirs."""
    rows, confidence_level = store.rows(), store.level(stated_level)
    sections = [_hero(store, rows, confidence_level)]
    if rows:
        sections += [_charts(rows, confidence_level), _table(rows, confidence_level)]
    sections.append(_made(store, rows, confidence_level, stated_level is not None))
    facts = {
        "kind": "privatile study",
        "format": 1,
        "privatile": __version__,
        "title": store.title,
        "design": store.digest,
        "protocol": store.protocol,
        "replications": store.replications,
        "cells": store.cells,
        "confidence_level": confidence_level,
        "rows": [plain_row(row) for row in rows[:MOST_ROWS]],
    }
    return document(store.title, sections, facts, ("save.js",))


def write_experiment_page(path: Path, target: Path, stated_level: float | None = None) -> Path:
    """Write the page of a study's store."""
    with ExperimentStore.open_existing(path) as store:
        target.write_text(experiment_page(store, stated_level), encoding="utf-8")
    return target


def plain_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row for JSON, which knows no NaN: six significant digits, more than any Monte Carlo error leaves.

    >>> plain_row({"coverage": 0.94921875, "coverage_beside": math.nan, "method": "C1"})
    {'coverage': 0.949219, 'coverage_beside': None, 'method': 'C1'}
    """
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None


def verdict(row: dict[str, Any], confidence_level: float) -> str:
    """Whether a cell covers as it says: empty, `too low` or `too high`, judged by its Monte Carlo error."""
    # The error at the stated level: that of the estimate itself is zero where every interval covers.
    error = math.sqrt(confidence_level * (1.0 - confidence_level) / row["replications"])
    apart = row["coverage"] - confidence_level
    return "" if abs(apart) <= MARK_AT * error else "too low" if apart < 0 else "too high"


def counted(number: int, thing: str) -> str:
    """A number of things.

    >>> counted(1, "cell"), counted(1200, "cell")
    ('1 cell', '1,200 cells')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def decimals(error: float) -> int:
    """Digits behind the point that a number with this Monte Carlo error deserves: two of the error.

    >>> decimals(0.00123), decimals(25.0), decimals(float("nan"))
    (4, 0, 4)
    """
    return max(0, 1 - math.floor(math.log10(error))) if error > 0 else 4


def _hero(store: ExperimentStore, rows: Sequence[dict[str, Any]], confidence_level: float) -> Markup:
    if not rows:
        return tag("header", tag("h1", store.title), tag("p", "No cell is finished yet."), class_="hero")
    coverages = [row["coverage"] for row in rows]
    low = sum(verdict(row, confidence_level) == "too low" for row in rows)
    few = "no cell covers less" if not low else "1 cell covers less" if low == 1 else f"{low:,} cells cover less"
    ratio = statistics.median(row["rmse"] / row["bound"] for row in rows)
    return tag(
        "header",
        tag("h1", store.title),
        tag("p", f"{statistics.median(coverages):.1%}", class_="big"),
        tag("p", f"median coverage of {100 * confidence_level:g}% intervals", class_="interval"),
        tag(
            "p",
            f"Over {counted(len(rows), 'cell')} of {store.replications:,} replications the intervals cover the truth "
            f"{min(coverages):.1%} to {max(coverages):.1%} of the time; {few} than said by more than "
            f"chance explains. The root mean squared error is {ratio:.2f} times the least that "
            "any method can reach (median).",
            class_="sentence",
        ),
        class_="hero",
    )


def _charts(rows: Sequence[dict[str, Any]], confidence_level: float) -> Markup:
    parts = []
    several = len(sizes(rows)) > 1
    for measure in MEASURES:
        drawn, shown, at = (
            panels(rows, measure), heights(rows, measure, confidence_level), rule(measure, confidence_level),
        )  # fmt: skip
        parts.append(tag("h3", TITLES[measure]))
        if several:
            parts.append(tag("div", *(panel(each.setting, each.lines, shown, at) for each in drawn), class_="panels"))
        else:
            parts.append(_dots(drawn, shown, at))
    shared, name = shared_setting(rows), size_name(rows)
    whose = (" of a client" if several else " a client") if name == "records" else ""
    title = f"Against the number of {name}" if several else f"With {sizes(rows)[0]:,.0f} {name}"
    return tag(
        "section",
        tag("h2", title + whose),
        tag("p", f"All cells have {shared}.") if shared else None,
        key(methods(rows), dashes=several),
        *parts,
        tag("p", "Bars are two Monte Carlo standard errors each way; the dashed line is where a method should be."),
    )


def _dots(drawn: Sequence[Panel], shown: tuple[float, float], at: float) -> Markup:
    """A study of one size: a row a setting."""
    rows = [
        tag("tr", tag("th", each.setting, scope="row"), tag("td", dots(each.lines, shown, at), class_="dots"))
        for each in drawn
    ]
    head = tag("tr", tag("th", "setting", scope="col"), tag("td", dots_axis(shown), class_="dots"))
    return tag("table", tag("thead", head), tag("tbody", *rows), class_="settings")


def _table(rows: Sequence[dict[str, Any]], confidence_level: float) -> Markup:
    labels = [name for name, value in rows[0].items() if isinstance(value, str)]
    heads = [*labels, "coverage", "", "mean abs. error", "bias", "mean width", "error / bound"]
    lines = []
    for row in rows[:MOST_ROWS]:
        mark = verdict(row, confidence_level)
        cells: list[Markup] = [tag("td", row[name]) for name in labels[1:]]
        numbers = [f"{row['coverage']:.3f} ± {row['coverage_error']:.3f}", mark]
        digits = decimals(row["mae_error"])
        numbers += [f"{row['mae']:.{digits}f} ± {row['mae_error']:.{digits}f}", f"{row['bias']:+.{digits}f}"]
        numbers.append(f"{row['width']:.4g}")
        numbers.append(f"{row['rmse'] / row['bound']:.3f}")
        lines.append(
            tag(
                "tr",
                tag("th", row[labels[0]], scope="row") if labels else tag("th", "all", scope="row"),
                *cells,
                *(tag("td", number, class_="worry" if number == "too low" else None) for number in numbers),
            )
        )
    head = tag("tr", *(tag("th", name.replace("_", " "), scope="col") if name else tag("td", "") for name in heads))
    left = len(rows) - MOST_ROWS
    return tag(
        "section",
        tag("h2", "Every cell"),
        tag("p", "After ± stands the Monte Carlo standard error.", class_="soft"),
        tag(
            "div",
            tag("table", tag("thead", head), tag("tbody", *lines), class_="cells"),
            class_="scroll",
            tabindex="0",
            role="region",
            aria_label="Table of cells",
        ),
        tag("p", f"{left:,} more cells are in the store only.") if left > 0 else None,
    )


def _made(store: ExperimentStore, rows: Sequence[dict[str, Any]], confidence_level: float, stated: bool) -> Markup:
    seconds = sum(row["seconds"] for row in rows)
    when = time.strftime("%Y-%m-%d", time.gmtime(store.created))
    return tag(
        "section",
        tag("h2", "How it was made"),
        tag(
            "p",
            f"privatile {__version__}, design {store.digest[:16]}…, {store.protocol} data, begun on {when}; "
            f"{len(rows)} of {store.cells} cells, {seconds:,.0f} s of computing.",
        ),
        None
        if store.confidence_level is not None
        else tag(
            "p",
            f"This store is of an older version and does not hold its confidence level: {confidence_level:g} was "
            + ("given." if stated else "assumed."),
        ),
        tag("p", tag("button", "Save the data of this page as JSON", type="button", id="save-json", class_="screen")),
    )
