"""The paper's tables, ours beside the printed ones, differences marked; from the folder of `privatile paper`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from privatile import __version__
from privatile.errors import StoreError
from privatile.paper.published import TABLES
from privatile.paper.tables import LEVEL_NAMES, Comparison, agreeing, blocks_of, compare, verdict
from privatile.report.experiment_page import plain_row
from privatile.report.pages import render_page
from privatile.simulation.store import ExperimentStore

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


def by_protocol(found: Sequence[TableFound]) -> dict[str, list[Comparison]]:
    """The cells of all tables, by protocol."""
    cells: dict[str, list[Comparison]] = {}
    for table in found:
        cells.setdefault(table.protocol, []).extend(table.cells)
    return cells


def paper_page(folder: Path) -> str:
    """The whole page."""
    found = comparisons(folder)
    cells = [cell for table in found for cell in table.cells]
    facts = [{**plain_row(cell.row()), "protocol": table.protocol} for table in found for cell in table.cells]
    shares = {
        protocol: f"{agreeing(own)} of {len(own)} agree. {verdict(own)}" for protocol, own in by_protocol(found).items()
    }
    return render_page(
        "paper.html.j2",
        "The paper's tables, reproduced",
        {"kind": "privatile paper", "format": 1, "privatile": __version__, "cells": facts},
        ("save.js",),
        package="privatile.paper",
        agree=agreeing(cells),
        cells=len(cells),
        shares=shares,
        tables=[_table(table) for table in found],
    )


def _table(table: TableFound) -> dict[str, Any]:
    """What the template shows of a table; in a block a row per level and truth rate."""
    return {
        **table._asdict(),
        "about": PROTOCOLS[table.protocol],
        "verdict": verdict(table.cells),
        "methods": list(dict.fromkeys(cell.method for cell in table.cells)),
        "blocks": [
            (
                f"{scenario}, {kind} = {size:,}",
                [(LEVEL_NAMES.get(level, level), rate, row) for (level, rate), row in rows.items()],
            )
            for (scenario, kind, size), rows in blocks_of(table.cells).items()
        ],
    }
