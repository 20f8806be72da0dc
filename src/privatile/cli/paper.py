"""`privatile paper`: every table and figure of the paper."""

from pathlib import Path
from typing import Any

import click

from privatile.cli.printing import echo
from privatile.cli.progress import rounds_bar

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
