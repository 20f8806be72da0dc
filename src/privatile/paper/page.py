"""The paper's tables, ours beside the printed ones, differences marked; from the folder of `privatile paper`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from privatile import __version__
from privatile.errors import StoreError
from privatile.paper.tables import LEVEL_NAMES, Comparison, compare, verdict
from privatile.report.experiment_page import plain_row
from privatile.report.markup import Markup, tag
from privatile.report.shell import CITATION, document
from privatile.simulation.store import ExperimentStore

TABLES = ("table1", "table2", "table3", "table4")
PROTOCOLS = {
    "independent": "Fresh data in every replication, exact critical values: the honest operating characteristic.",
    "published": "One data set for all replications, as the released code does: to compare with the printed tables.",
}


def is_paper_folder(folder: Path) -> bool:
    """Whether a folder holds a store of one of the paper's tables."""
    return any(_stores(folder))


def _stores(folder: Path) -> list[tuple[str, str, Path]]:
    return [
        (table, protocol, folder / f"{table}-{protocol}.db")
        for protocol in PROTOCOLS
        for table in TABLES
        if (folder / f"{table}-{protocol}.db").is_file()
    ]


class TableFound(NamedTuple):
    """One of the paper's tables as a folder holds it."""

    name: str
    protocol: str
    title: str
    replications: int
    cells: list[Comparison]


def comparisons(folder: Path) -> list[TableFound]:
    """Every table of a folder, beside the printed one."""
    found = []
    for table, protocol, path in _stores(folder):
        with ExperimentStore.open_existing(path) as store:
            cells = compare(table, store.rows())
            found.append(TableFound(table, protocol, store.title, store.replications, cells))
    if not any(table.cells for table in found):
        raise StoreError(
            f"{folder} holds no finished cell of the paper's tables. `privatile paper all --out {folder}` makes them."
        )
    return found


def paper_page(folder: Path) -> str:
    """The whole page."""
    sections, facts = [], []
    cells: list[Comparison] = []
    found = comparisons(folder)
    for table, protocol, title, replications, compared in found:
        cells += compared
        sections.append(_table(f"{table}-{protocol}", title, protocol, replications, compared))
        facts += [{**plain_row(cell.row()), "protocol": protocol} for cell in compared]
    shares = {
        protocol: _share([cell for table in found if table.protocol == protocol for cell in table.cells])
        for protocol in dict.fromkeys(table.protocol for table in found)
    }
    differ = sum(cell.coverage_differs or cell.mae_differs for cell in cells)
    hero = tag(
        "header",
        tag("h1", "The paper's tables, reproduced"),
        tag("p", f"{len(cells) - differ} of {len(cells)}", class_="big"),
        tag("p", "cells agree with the printed ones within Monte Carlo error", class_="interval"),
        *(tag("p", f"With {protocol} data {sentence}", class_="sentence") for protocol, sentence in shares.items()),
        class_="hero",
    )
    cite = tag("section", tag("h2", "The paper"), tag("pre", CITATION, tabindex="0"), _save())
    plain = {"kind": "privatile paper", "format": 1, "privatile": __version__, "cells": facts}
    return document("The paper's tables, reproduced", [hero, *sections, cite], plain, ("save.js",))


def _share(cells: Sequence[Comparison]) -> str:
    agree = sum(not (cell.coverage_differs or cell.mae_differs) for cell in cells)
    return f"{agree} of {len(cells)} agree. {verdict(cells)}"


def write_paper_page(folder: Path, target: Path) -> Path:
    """Write the page of a folder."""
    target.write_text(paper_page(folder), encoding="utf-8")
    return target


def _save() -> Markup:
    return tag("p", tag("button", "Save the data of this page as JSON", type="button", id="save-json", class_="screen"))


def _table(name: str, title: str, protocol: str, replications: int, cells: Sequence[Comparison]) -> Markup:
    methods = list(dict.fromkeys(cell.method for cell in cells))
    blocks: dict[tuple[str, str, int], dict[tuple[str, str], dict[str, Comparison]]] = {}
    for cell in sorted(cells, key=lambda cell: cell.size):
        block = blocks.setdefault((cell.scenario, cell.size_kind, cell.size), {})
        block.setdefault((cell.level, cell.truth_rate), {})[cell.method] = cell
    bodies = []
    for (scenario, kind, size), settings in blocks.items():
        head = tag("th", f"{scenario}, {kind} = {size:,}", scope="rowgroup", colspan=2 + len(methods), class_="group")
        lines = [tag("tr", head)]
        for (level, rate), row in settings.items():
            shown = [tag("td", _cell(row[method])) if method in row else tag("td", "–") for method in methods]
            lines.append(tag("tr", tag("th", LEVEL_NAMES.get(level, level), scope="row"), tag("td", rate), *shown))
        bodies.append(tag("tbody", *lines))
    heads = ["τ", "r", *methods]
    return tag(
        "section",
        tag("h2", f"{title} ({protocol} data)", id=name),
        tag("p", f"{PROTOCOLS[protocol]} {replications:,} replications. {verdict(cells)}"),
        tag("p", "In each cell the coverage stands above the mean absolute error: ours, then the printed one. ≠ marks "
            "a difference that the two Monte Carlo errors do not explain. Our coverage is the one with the paper's "
            "critical value.", class_="soft"),
        tag(
            "div",
            tag(
                "table",
                tag("thead", tag("tr", *(tag("th", head, scope="col") for head in heads))),
                *bodies,
                class_="compared",
            ),
            class_="scroll",
            tabindex="0",
            role="region",
            aria_label=f"{title}, {protocol}",
        ),
    )  # fmt: skip


def _cell(cell: Comparison) -> Markup:
    pairs = (
        (f"{cell.coverage_like_theirs:.3f}", f"{cell.theirs.coverage:.3f}", cell.coverage_differs),
        (f"{float(cell.ours['mae']):.4f}", f"{cell.theirs.mae:.4f}", cell.mae_differs),
    )
    parts = []
    for ours, theirs, differs in pairs:
        parts.append(tag("span", f"{ours} {'≠' if differs else '·'} {theirs}", class_="differs" if differs else None))
    return tag("span", parts[0], tag("br"), parts[1])
