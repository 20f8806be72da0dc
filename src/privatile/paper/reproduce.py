"""Reproduce parts of the paper into a folder: Markdown and CSV for tables, SVG and PNG for figures."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from privatile.errors import InputError
from privatile.paper.beyond_tables import cost_experiment, normalizer_experiment
from privatile.paper.figures import figure1, figure2
from privatile.paper.published import TABLES, paper_experiment
from privatile.paper.salary import read_salaries, salary_table, salary_text, start_table
from privatile.paper.tables import compare, markdown, markdown_table, verdict
from privatile.simulation.cuda import open_device
from privatile.simulation.experiment import Protocol
from privatile.simulation.output import write_rows
from privatile.simulation.runner import Progress, cores, run_experiment
from privatile.simulation.store import ExperimentStore

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
