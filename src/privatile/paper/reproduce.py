"""Reproduce parts of the paper into a folder, with a page and a figure of every difference.

The paper's tables, ours beside the printed ones, differences marked; from the folder of `privatile paper`.

The paper's tables as a figure for print: every cell's difference from the printed one, those that differ marked.

Reproduce parts of the paper into a folder: Markdown and CSV for tables, SVG and PNG for figures.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from privatile import __version__
from privatile.errors import InputError, StoreError
from privatile.paper.salary import read_salaries, salary_table, salary_text, start_table
from privatile.paper.tables import (
    LEVEL_NAMES,
    TABLES,
    Comparison,
    agreeing,
    blocks_of,
    compare,
    cost_experiment,
    figure1,
    figure2,
    markdown,
    markdown_table,
    normalizer_experiment,
    paper_experiment,
    verdict,
)
from privatile.report.experiment import plain_row
from privatile.report.pages import BLUE, GREY, VERMILION, render_page
from privatile.simulation.cuda import open_device
from privatile.simulation.experiment import Protocol
from privatile.simulation.runner import ExperimentStore, Progress, cores, run_experiment, write_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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


GAP = 1.0
"""Between two tables, in columns."""


def differences_figure(folder: Path) -> "Figure":
    """Coverage (ours less printed) and error (ours over printed): a row per protocol, a column per table and method."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    found = [(name, cells) for name, cells in by_protocol(comparisons(folder)).items() if cells]
    figure = Figure(figsize=(7.2, 0.9 + 4.2 * len(found)), layout="constrained")
    axes = figure.subplots(2 * len(found), 1, squeeze=False)[:, 0]
    for number, (protocol, cells) in enumerate(found):
        coverage, error = axes[2 * number], axes[2 * number + 1]
        _points(
            coverage,
            cells,
            [(cell.coverage_like_theirs - cell.theirs.coverage, cell.coverage_differs) for cell in cells],
            0.0,
        )
        _points(error, cells, [(float(cell.ours["mae"]) / cell.theirs.mae, cell.mae_differs) for cell in cells], 1.0)
        coverage.set_ylabel("coverage:\nours − printed")
        error.set_ylabel("mean absolute error:\nours / printed")
        replications = int(cells[0].ours["replications"])
        coverage.set_title(f"{protocol} data, {replications:,} replications", loc="left", fontsize=9.5, pad=16)
        coverage.tick_params(labelbottom=False)  # the panel below has the same columns
    agree = Line2D([], [], color=BLUE, marker="o", linestyle="", markersize=4, fillstyle="none",
                   label="agrees within the two Monte Carlo errors")  # fmt: skip
    differ = Line2D([], [], color=VERMILION, marker="D", linestyle="", markersize=4, label="differs")
    figure.legend(handles=[agree, differ], loc="outside upper center", ncols=2, frameon=False)
    return figure


def _columns(cells: Sequence[Comparison]) -> dict[tuple[str, str], float]:
    """Where each table's methods are on the axis."""
    keys = sorted(dict.fromkeys((cell.table, cell.method) for cell in cells), key=lambda key: key[0])
    tables = list(dict.fromkeys(table for table, _ in keys))
    return {key: number + GAP * tables.index(key[0]) for number, key in enumerate(keys)}


def _points(axis: "Axes", cells: Sequence[Comparison], values: Sequence[tuple[float, bool]], rule: float) -> None:
    """The value of every cell, those marked as different in another colour."""
    axis.axhline(rule, color=GREY, linewidth=1.0, linestyle=(0, (4, 3)))
    columns = _columns(cells)
    members: dict[tuple[str, str], list[tuple[float, bool]]] = {key: [] for key in columns}
    for cell, value in zip(cells, values, strict=True):
        members[cell.table, cell.method].append(value)
    for differs, color, marker, fill in ((False, BLUE, "o", "none"), (True, VERMILION, "D", "full")):
        # The cells of a column side by side, in the table's order.
        drawn = [
            (columns[key] + 0.7 * ((place + 0.5) / len(column) - 0.5), value)
            for key, column in members.items()
            for place, (value, marked) in enumerate(column)
            if marked is differs
        ]
        axis.plot(
            [x for x, _ in drawn], [y for _, y in drawn],
            color=color, marker=marker, fillstyle=fill, linestyle="", markersize=3.2,
        )  # fmt: skip
    axis.set_xticks(list(columns.values()), [method for _, method in columns], fontsize=7.5)
    if len(columns) > 6:
        axis.tick_params(axis="x", labelrotation=90)
    axis.grid(visible=False, axis="x")
    for table in dict.fromkeys(table for table, _ in columns):
        middle = [at for (name, _), at in columns.items() if name == table]
        axis.annotate(
            table.replace("table", "Table "), (sum(middle) / len(middle), 1.0), xycoords=("data", "axes fraction"),
            ha="center", va="bottom", fontsize=8,
        )  # fmt: skip


Say = Callable[[str], None]
Run = Callable[..., int]
"""`run_experiment` with the threads and the device of the command."""

NEEDS_DATA = ("salary", "figure1")


def reproduce(
    part: str,
    out: Path,
    *,
    protocol: Protocol = "independent",
    replications: int = 1000,
    data: Path | None = None,
    threads: int | None = None,
    device: str = "cpu",
    progress: Progress = lambda done, total: None,
    say: Say = lambda text: None,
) -> list[Path]:
    """Make a part, or `all`, and return the files written. Finished cells are kept in the folder and not run again."""
    if part in NEEDS_DATA and data is None:
        raise InputError(
            f"{part} needs the salary table: give it with --data. It is `gov_census` of the R package fairadapt "
            "(2018 American Community Survey), as CSV with the columns economic_region and salary."
        )
    gpu = open_device(device)
    clients = read_salaries(data) if data is not None and part in (*NEEDS_DATA, "all") else None
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"the folder {out} cannot be made: {error.strerror}. Choose another with --out.") from None
    run = partial(run_experiment, threads=threads, device=gpu)
    files: list[Path] = []
    tables = [name for name in TABLES if part in (name, "tables", "all")]
    if tables:
        files += _tables(tables, out, protocol, replications, run, progress, say)
    if part in ("salary", "all") and clients is not None:
        files += _salary(clients, out, threads or cores())
    if part in ("figure1", "all") and clients is not None:
        files += figure1(clients, out)
    if part in ("figure2", "all"):
        files += figure2(out)
    if part in ("beyond", "all"):
        files += _beyond(out, replications, threads or cores(), run)
    if part == "all" and data is None:
        say("Without --data the salary table and Figure 1 are left out.")
    return files


def _tables(
    names: Sequence[str], out: Path, protocol: Protocol, replications: int, run: Run, progress: Progress, say: Say
) -> list[Path]:
    experiments = {name: paper_experiment(name, protocol, replications) for name in names}
    total, before = sum(experiment.updates for experiment in experiments.values()), 0
    files: list[Path] = []
    # All stores are opened before any work: one that cannot be used stops the run at once.
    with ExitStack() as stack:
        stores = {
            name: stack.enter_context(ExperimentStore.open_for(out / f"{name}-{protocol}.db", experiment))
            for name, experiment in experiments.items()
        }
        for name, experiment in experiments.items():
            run(experiment, stores[name], progress=lambda done, _, before=before: progress(before + done, total))
            before += experiment.updates
            found = compare(name, stores[name].rows())
            text = markdown(experiment.title, found, protocol)
            files += _write(out / f"{name}-{protocol}", text, [cell.row() for cell in found])
            say(f"{experiment.title}: {len(found)} cells. {verdict(found)}")
    return files


def _write(stem: Path, text: str, rows: Sequence[dict[str, Any]]) -> list[Path]:
    """The text as Markdown, and the rows as CSV, beside each other."""
    files = [stem.with_name(stem.name + suffix) for suffix in (".md", ".csv")]
    files[0].write_text(text, encoding="utf-8")
    write_rows(rows, files[1])
    return files


def _rows_text(title: str, rows: Sequence[dict[str, Any]]) -> str:
    """Flat rows as Markdown."""
    header = [name.replace("_", " ") for name in rows[0]]
    cells = [[f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows]
    return "\n".join([f"### {title}", "", *markdown_table(header, cells), ""])


def _salary(clients: dict[str, Any], out: Path, threads: int) -> list[Path]:
    rows, starts = salary_table(clients, threads=threads), start_table(clients)
    title = "Table 5, τ = 0.5, C1, r = 0.6: what is not stated"
    return [
        *_write(out / "salary", salary_text(rows), rows),
        *_write(out / "salary-starts", _rows_text(title, starts), starts),
    ]


def _beyond(out: Path, replications: int, threads: int, run: Run) -> list[Path]:
    experiment = paper_experiment("divide", replications=replications)
    with ExperimentStore.open_for(out / "divide.db", experiment) as store:
        run(experiment, store)
        names = ("population", "records", "method", "coverage", "mae", "mae_error", "bias", "width")
        divided = [{name: row[name] for name in names} for row in store.rows()]
    parts = {
        "normalizers": ("L2, L1 and sup normalisers", normalizer_experiment(replications, threads=threads)),
        "divide": (experiment.title, divided),
        "cost": ("What local privacy costs", cost_experiment(min(replications, 500), threads=threads)),
    }
    return [file for name, (title, rows) in parts.items() for file in _write(out / name, _rows_text(title, rows), rows)]
