"""Reproduce parts of the paper into a folder: Markdown, CSV and LaTeX for tables, SVG and PNG for figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from privatile.errors import InputError
from privatile.paper import beyond_tables as beyond
from privatile.paper.figures import figure1, figure2
from privatile.paper.salary import read_salaries, salary_latex, salary_markdown, salary_table, start_table
from privatile.paper.tables import TABLES, Comparison, compare, latex, markdown, paper_experiment, verdict
from privatile.simulation.cuda import Device, open_device
from privatile.simulation.experiment import Experiment, Protocol
from privatile.simulation.output import write_rows
from privatile.simulation.runner import Progress, cores, run_experiment
from privatile.simulation.store import ExperimentStore

Say = Callable[[str], None]
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
    files: list[Path] = []
    tables = [name for name in TABLES if part in (name, "tables", "all")]
    if tables:
        files += _tables(tables, out, protocol, replications, threads, gpu, progress, say)
    if part in ("salary", "all") and clients is not None:
        files += _salary(clients, out, threads or cores())
    if part in ("figure1", "all") and clients is not None:
        files += figure1(clients, out)
    if part in ("figure2", "all"):
        files += figure2(out)
    if part in ("beyond", "all"):
        files += _beyond(out, replications, threads or cores(), gpu)
    if part == "all" and data is None:
        say("Without --data the salary table and Figure 1 are left out.")
    return files


def _tables(
    names: Sequence[str],
    out: Path,
    protocol: Protocol,
    replications: int,
    threads: int | None,
    device: Device | None,
    progress: Progress,
    say: Say,
) -> list[Path]:
    experiments = {name: paper_experiment(name, protocol, replications) for name in names}
    total, before = sum(experiment.updates for experiment in experiments.values()), 0
    files: list[Path] = []
    cells: list[Comparison] = []
    # All stores are opened before any work: one that cannot be used stops the run at once.
    stores = {
        name: ExperimentStore.open_for(out / f"{name}-{protocol}.db", experiment)
        for name, experiment in experiments.items()
    }
    try:
        for name, experiment in experiments.items():
            shifted = _shifted(progress, before, total)
            run_experiment(experiment, stores[name], threads=threads, device=device, progress=shifted)
            before += experiment.updates
            found = compare(name, stores[name].rows())
            cells += found
            files += _write(out / f"{name}-{protocol}", experiment, found, protocol)
            say(f"{experiment.title}: {len(found)} cells. {verdict(found)}")
    finally:
        for store in stores.values():
            store.close()
    return files


def _shifted(progress: Progress, before: int, total: int) -> Progress:
    return lambda done, _: progress(before + done, total)


def _write(stem: Path, experiment: Experiment, found: Sequence[Comparison], protocol: Protocol) -> list[Path]:
    texts = {".md": markdown(experiment.title, found, protocol), ".tex": latex(experiment.title, found, protocol)}
    return [*_texts(stem, texts), *_csv(stem, [cell.row() for cell in found])]


def _texts(stem: Path, texts: dict[str, str]) -> Iterator[Path]:
    for suffix, text in texts.items():
        file = stem.with_name(stem.name + suffix)
        file.write_text(text, encoding="utf-8")
        yield file


def _csv(stem: Path, rows: Sequence[dict[str, Any]]) -> Iterator[Path]:
    file = stem.with_name(f"{stem.name}.csv")
    write_rows(rows, file)
    yield file


def _salary(clients: dict[str, Any], out: Path, threads: int) -> list[Path]:
    rows, starts = salary_table(clients, threads=threads), start_table(clients)
    title = "Table 5, τ = 0.5, C1, r = 0.6: what is not stated"
    files: list[Path] = []
    for name, texts, table in (
        ("salary", {".md": salary_markdown(rows), ".tex": salary_latex(rows)}, rows),
        (
            "salary-starts",
            {".md": beyond.rows_markdown(title, starts), ".tex": beyond.rows_latex(title, starts)},
            starts,
        ),
    ):
        files += [*_texts(out / name, texts), *_csv(out / name, table)]
    return files


def _beyond(out: Path, replications: int, threads: int, device: Device | None) -> list[Path]:
    experiment = beyond.divide_experiment(replications)
    with ExperimentStore.open_for(out / "divide.db", experiment) as store:
        run_experiment(experiment, store, threads=threads, device=device)
        divided = [
            {
                name: row[name]
                for name in ("population", "records", "method", "coverage", "mae", "mae_error", "bias", "width")
            }
            for row in store.rows()
        ]
    parts = {
        "normalizers": ("L2, L1 and sup normalisers", beyond.normalizer_experiment(replications, threads=threads)),
        "divide": (experiment.title, divided),
        "cost": ("What local privacy costs", beyond.cost_experiment(min(replications, 500), threads=threads)),
    }
    files: list[Path] = []
    for name, (title, rows) in parts.items():
        texts = {".md": beyond.rows_markdown(title, rows), ".tex": beyond.rows_latex(title, rows)}
        files += [*_texts(out / name, texts), *_csv(out / name, rows)]
    return files
