"""The report of a Monte Carlo experiment: coverage and error against size, method by method, and every cell."""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privatile import __version__
from privatile.report.charts import Chart, dots_axis, dots_chart, panel_chart
from privatile.report.experiment_series import ExperimentSeries, Measure, Panel, Row
from privatile.report.pages import render_page
from privatile.simulation.output import MARK_AT, coverage_text
from privatile.simulation.store import ExperimentStore

MOST_ROWS = 500


def experiment_page(path: Path) -> str:
    """The whole page, from a store as it is now."""
    with ExperimentStore.open_existing(path) as store:
        rows, confidence_level = store.rows(), store.confidence_level
    facts = {
        "kind": "privatile experiment",
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
    return render_page(
        "experiment.html.j2",
        store.title,
        facts,
        ("save.js",),
        rows=rows,
        coverages=[row["coverage"] for row in rows],
        ratios=[ratio for row in rows if math.isfinite(ratio := row["rmse"] / row["bound"])],
        too_low=sum(verdict(row, confidence_level) == "too low" for row in rows),
        level_text=f"{100 * confidence_level:g}",
        created=time.strftime("%Y-%m-%d", time.gmtime(store.created)),
        seconds=sum(row["seconds"] for row in rows),
        **(_drawn(rows, confidence_level) if rows else {}),
    )


def plain_row(row: Row) -> Row:
    """A row for JSON, which knows no NaN: six significant digits, more than any Monte Carlo error leaves.

    >>> plain_row({"coverage": 0.94921875, "coverage_beside": math.nan, "method": "C1"})
    {'coverage': 0.949219, 'coverage_beside': None, 'method': 'C1'}
    """

    def plain(value: Any) -> Any:
        if not isinstance(value, float):
            return value
        return float(f"{value:.6g}") if math.isfinite(value) else None

    return {name: plain(value) for name, value in row.items()}


def verdict(row: Row, confidence_level: float) -> str:
    """Whether a cell covers as stated: empty, `too low` or `too high`, judged by its Monte Carlo error."""
    # The error at the stated level: that of the estimate itself is zero where every interval covers.
    error = math.sqrt(confidence_level * (1.0 - confidence_level) / row["replications"])
    apart = row["coverage"] - confidence_level
    return "" if abs(apart) <= MARK_AT * error else "too low" if apart < 0 else "too high"


def decimals(error: float) -> int:
    """Decimal places that a number with this Monte Carlo error deserves: two digits of the error.

    >>> decimals(0.00123), decimals(25.0), decimals(float("nan"))
    (4, 0, 4)
    """
    return max(0, 1 - math.floor(math.log10(error))) if error > 0 else 4


def _drawn(rows: Sequence[Row], confidence_level: float) -> dict[str, Any]:
    """The charts and the table of an experiment with finished cells."""
    series = ExperimentSeries.of(rows, confidence_level)
    several = len(series.sizes) > 1
    labels = [name for name, value in rows[0].items() if isinstance(value, str)]
    heads = [*labels, "coverage", "", "mean abs. error", "bias", "mean width", "error / bound"]
    return {
        "several": several,
        "chart_title": f"Against the number of {series.size_name}"
        if several
        else f"With {series.sizes[0]:,.0f} {series.size_name}",
        "shared": series.shared,
        "methods": series.methods,
        "measures": [
            {
                "title": measure.title,
                "axis": dots_axis(measure.heights),
                "panels": [
                    {"setting": panel.setting, "chart": _chart(panel, measure, several)} for panel in measure.panels
                ],
            }
            for measure in series.measures
        ],
        "heads": [name.replace("_", " ") for name in heads],
        "cells": [_cell(row, labels, confidence_level) for row in rows[:MOST_ROWS]],
    }


def _chart(panel: Panel, measure: Measure, several: bool) -> Chart:
    if several:
        return panel_chart(panel.lines, measure.heights, measure.rule)
    dots = [[(point.value, point.low, point.high) for point in points] for points in panel.lines]
    return dots_chart(dots, measure.heights, measure.rule)


def _cell(row: Row, labels: Sequence[str], confidence_level: float) -> dict[str, Any]:
    digits, ratio = decimals(row["mae_error"]), row["rmse"] / row["bound"]
    return {
        "labels": [row[name] for name in labels],
        "coverage": coverage_text(row["coverage"], row["coverage_error"]),
        "verdict": verdict(row, confidence_level),
        "error": f"{row['mae']:.{digits}f} ± {row['mae_error']:.{digits}f}",
        "bias": f"{row['bias']:+.{digits}f}",
        "width": f"{row['width']:.4g}",
        "ratio": f"{ratio:.3f}" if math.isfinite(ratio) else "–",
    }
