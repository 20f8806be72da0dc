"""`privatile simulate` and `paper`: Monte Carlo experiments, and the paper's tables."""

from pathlib import Path
from typing import Any

import click

from privatile.cli.printing import echo, rounds_bar
from privatile.core.text import counted

PARTS = ("table1", "table2", "table3", "table4", "tables", "salary", "figure1", "figure2", "beyond", "all")


@click.command()
@click.argument("part", type=click.Choice(PARTS))
@click.option(
    "--protocol",
    type=click.Choice(["independent", "published"]),
    default="independent",
    show_default=True,
    help="independent: fresh data in every replication, exact critical values. published: one data set, as printed.",
)
@click.option("--replications", type=click.IntRange(min=2), default=1000, show_default=True)
@click.option("--data", type=click.Path(path_type=Path), help="Salary table (CSV, also gzip) for salary and figure1.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("paper-results"), show_default=True, help="Folder."
)
@click.option("--threads", type=click.IntRange(min=1), help="All cores without it.")
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="cuda: one GPU runs the tables; figures and the salary data stay on the CPU.",
)
@click.option("--quiet", is_flag=True, help="No progress.")
def paper(part: str, quiet: bool, **options: Any) -> None:
    """Reproduce a table or figure: Markdown and CSV, or SVG and PNG, in a folder.

    Finished cells are kept in the folder: the same command continues after Ctrl-C.
    """
    from privatile.paper.reproduce import reproduce

    with rounds_bar("paper", quiet, "million updates", each=1_000_000) as progress:
        files = reproduce(part, **options, progress=progress, say=echo)
    echo("Written: " + ", ".join(str(file) for file in files))


@click.group()
def simulate() -> None:
    """Monte Carlo experiments: a TOML design in, operating characteristics out."""


@simulate.command("run")
@click.argument("design", type=click.Path(path_type=Path))
@click.option("--store", required=True, type=click.Path(path_type=Path), help="SQLite file; finished cells are kept.")
@click.option("--replications", type=click.IntRange(min=1), help="Instead of the design's number.")
@click.option("--protocol", type=click.Choice(["independent", "published"]), help="Instead of the design's.")
@click.option("--workers", default="threads", show_default=True, help="threads, dask, or any joblib backend.")
@click.option(
    "--scheduler", "address", metavar="ADDRESS", help="Dask scheduler; without it a local cluster is started."
)
@click.option("--threads", type=click.IntRange(min=1), help="Threads, or local workers; all cores without it.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="cuda: one GPU.")
@click.option("--out", type=click.Path(path_type=Path), help="Also write the results, .csv or .parquet.")
@click.option("--quiet", is_flag=True, help="No progress.")
def run(
    design: Path,
    store: Path,
    replications: int | None,
    protocol: str | None,
    device: str,
    out: Path | None,
    quiet: bool,
    **workers: Any,
) -> None:
    """Run a design's cells that are not in the store yet.

    Ctrl-C keeps every finished cell; the same command continues. The numbers depend on the design alone, not on
    threads, workers, device or interruptions.
    """
    from privatile.simulation.cuda import open_device
    from privatile.simulation.experiment import read_experiment
    from privatile.simulation.runner import ExperimentStore, check_output, run_experiment, write_rows

    if out is not None:
        check_output(out)
    gpu = open_device(device)
    planned = read_experiment(design, protocol=protocol, replications=replications)  # type: ignore[arg-type]
    with ExperimentStore.open_for(store, planned) as kept:
        have = len(kept.finished())
        if have and not quiet:
            echo(f"{have} of {len(planned.entries)} cells are in {store} already.", err=True)
        with rounds_bar("experiment", quiet, "million updates", each=1_000_000) as progress:
            run_experiment(planned, kept, **workers, device=gpu, progress=progress)
        if out is not None:
            write_rows(kept.rows(), out)
        cells = counted(len(planned.entries), "cell")
        echo(f"{planned.title}: {cells} finished. See them: privatile simulate show {store}")


@simulate.command("show")
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Write the rows instead, .csv or .parquet.")
def show(store: Path, out: Path | None) -> None:
    """Show a store's finished cells; safe while it is being written."""
    from privatile.result.tables import WIDTH, folded
    from privatile.simulation.runner import ExperimentStore, table_lines, write_rows

    with ExperimentStore.open_existing(store) as kept:
        rows = kept.rows()
        title = (
            f"{kept.title} ({len(rows)} of {kept.cells} cells, {kept.replications} replications, {kept.protocol} data, "
            f"{100 * kept.confidence_level:g}% intervals)"
        )
    if out is not None:
        write_rows(rows, out)
        return
    echo("\n".join([*folded(title, WIDTH), "", *table_lines(rows)]))
