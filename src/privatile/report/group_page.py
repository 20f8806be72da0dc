"""The page of many groups, or of many runs: a table with a dot and a whisker in every row, sorted by the estimate."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privatile.core.words import counted
from privatile.errors import InputError
from privatile.report.charts import dots_axis, dots_chart
from privatile.report.group_figure import group_figure, pair_figure
from privatile.report.pages import render_page
from privatile.report.print_style import FIGURE_FORMATS, write_figure
from privatile.result.group_lines import Line, drawn_range
from privatile.result.groups import GroupResults
from privatile.result.number_words import plain
from privatile.result.pairs import Comparisons

SCRIPTS = ("save.js",)


def group_page(results: GroupResults) -> str:
    """The whole page about groups."""
    tables = []
    for index in range(len(results.levels)):
        lines = results.lines(index)
        tables.append(
            _table(
                results.title(index),
                (results.by or "run", "asked", "estimate", f"{100 * results.confidence_level:.4g}% interval"),
                lines,
                [(f"{line.asked:,}", line.estimate or "–", line.interval or "–") for line in lines],
                drawn_range(lines, results.range),
            )
        )
    where = f"by {results.by}" if results.by else f"in {len(results.groups)} runs"
    first = tables[0]["title"] if len(tables) == 1 else f"{len(tables)} quantiles of {results.value} {where}"
    epsilons = {result.epsilon for _, result in results.results}
    summary = f"{counted(len(results.groups), 'group' if results.by else 'run')}, "
    summary += f"{counted(sum(result.records for _, result in results.results), 'record')} asked"
    if epsilons:
        summary += f", each once in its run with ε {'up to ' if len(epsilons) > 1 else '= '}{max(epsilons):.4g}"
    dates = sorted({result.date[:10] for _, result in results.results if result.date is not None})
    if results.by:
        summary += f"; stated range {plain(results.range[0])} to {plain(results.range[1])}"
    begun = tuple(dict.fromkeys((dates[0], dates[-1]))) if dates else ()
    return _page(results, first, summary, tables, results.notes(), act=results.to_act_on(), begun=begun)


def pair_page(results: Comparisons) -> str:
    """The whole page about differences."""
    lines = results.lines()
    cells = [(line.estimate, line.interval, line.why) for line in lines]
    heads = ("difference of", "estimate", f"{100 * results.confidence_level:.4g}% interval", "p-value")
    ends = drawn_range(lines, results.range)
    table = _table(results.title, heads, lines, cells, (min(ends[0], 0.0), max(ends[1], 0.0)), 0.0)
    summary = f"{counted(len(lines), 'difference')} of {len(results.names):,} runs"
    return _page(results, results.title, summary, [table], results.notes(), "The dashed line is no difference.")


def report_groups(results: GroupResults | Comparisons, path: str | Path) -> Path:
    """A page for .html; a figure for .svg, .pdf and .png."""
    target = Path(path)
    if target.suffix.lower() in FIGURE_FORMATS:
        return write_figure(target, lambda: figure_of(results))
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"a page must end in .html, a figure in {', '.join(FIGURE_FORMATS)}; got {target.name!r}.")
    target.write_text(page_of(results), encoding="utf-8")
    return target


def page_of(results: GroupResults | Comparisons) -> str:
    """The page of either."""
    return group_page(results) if isinstance(results, GroupResults) else pair_page(results)


def figure_of(results: GroupResults | Comparisons) -> Any:
    """The figure of either."""
    return group_figure(results) if isinstance(results, GroupResults) else pair_figure(results)


def _table(
    title: str,
    heads: Sequence[str],
    lines: Sequence[Line],
    cells: Sequence[Sequence[str]],
    ends: tuple[float, float],
    rule: float | None = None,
) -> dict[str, Any]:
    rows = [
        {
            "line": line,
            "cells": own,
            "chart": dots_chart([[(line.place, *line.ends)] if line.is_located else []], ends, rule),
        }
        for line, own in zip(lines, cells, strict=True)
    ]
    return {"title": title, "heads": heads, "rows": rows, "axis": dots_axis(ends, ",.10g", 4)}


def _page(
    results: GroupResults | Comparisons,
    title: str,
    summary: str,
    tables: Sequence[dict[str, Any]],
    notes: Sequence[str],
    rule: str = "",
    act: Sequence[str] = (),
    begun: Sequence[str] = (),
) -> str:
    return render_page(
        "groups.html.j2",
        title,
        results.to_dict(),
        SCRIPTS,
        summary=summary,
        begun=begun,
        tables=tables,
        notes=notes,
        rule=rule,
        act=act,
    )
