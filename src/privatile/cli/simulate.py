"""`privatile simulate`: Monte Carlo experiments from a design."""

from pathlib import Path

import click

from privatile.cli.printing import echo
from privatile.cli.progress import rounds_bar
from privatile.core.words import counted


@click.group()
def simulate() -> None:
    """Monte Carlo experiments: a TOML design in, operating characteristics out."""


@simulate.command("run")
@click.argument("design", type=click.Path(path_type=Path))
@click.option("--store", required=True, type=click.Path(path_type=Path), help="SQLite file; finished cells are kept.")
@click.option("--replications", type=click.IntRange(min=1), help="Instead of the design's number.")
@click.option("--protocol", type=click.Choice(["independent", "published"]), help="Instead of the design's.")
@click.option("--workers", default="threads", show_default=True, help="threads, dask, or any joblib backend.")
@click.option("--scheduler", metavar="ADDRESS", help="Dask scheduler; without it a local cluster is started.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads, or local workers; all cores without it.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="cuda: one GPU.")
@click.option("--out", type=click.Path(path_type=Path), help="Also write the results, .csv or .parquet.")
@click.option("--quiet", is_flag=True, help="No progress.")
def run(
    design: Path,
    store: Path,
    replications: int | None,
    protocol: str | None,
    workers: str,
    scheduler: str | None,
    threads: int | None,
    device: str,
    out: Path | None,
    quiet: bool,
) -> None:
    """Run a design's cells that are not in the store yet.

    Ctrl-C keeps every finished cell; the same command continues. The numbers depend on the design alone, not on
    threads, workers, device or interruptions.
    """
    from privatile.simulation.cuda import open_device
    from privatile.simulation.experiment import read_experiment
    from privatile.simulation.output import check_output, write_rows
    from privatile.simulation.runner import run_experiment
    from privatile.simulation.store import ExperimentStore

    if out is not None:
        check_output(out)
    gpu = open_device(device)
    planned = read_experiment(design, protocol=protocol, replications=replications)  # type: ignore[arg-type]
    with ExperimentStore.open_for(store, planned) as kept:
        have = len(kept.finished())
        if have and not quiet:
            echo(f"{have} of {len(planned.entries)} cells are in {store} already.", err=True)
        with rounds_bar("experiment", quiet, "million updates", each=1_000_000) as progress:
            run_experiment(
                planned, kept, workers=workers, address=scheduler, threads=threads, device=gpu, progress=progress
            )
        if out is not None:
            write_rows(kept.rows(), out)
        cells = counted(len(planned.entries), "cell")
        echo(f"{planned.title}: {cells} finished. See them: privatile simulate show {store}")


@simulate.command("show")
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Write the rows instead, .csv or .parquet.")
def show(store: Path, out: Path | None) -> None:
    """Show a store's finished cells; safe while it is being written."""
    from privatile.result.layout import WIDTH, folded
    from privatile.simulation.output import table_lines, write_rows
    from privatile.simulation.store import ExperimentStore

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
