"""`privatile report`: one page about a run, or a figure of it."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The page (RUN with .html in place of .db).")
@click.option(
    "--figure",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Also, or only, draw the trajectory for print: .svg, .pdf or .png.",
)
def report(run: Path, output: Path | None, figure: tuple[Path, ...]) -> None:
    """A page about a run: the answer, the way there, who answered, what it cost, what to beware of.

    RUN is what `privatile estimate --save RUN.DB` keeps, or a federation's folder. The page is one file that needs no
    network; it prints well, and holds its own data as JSON.

    \b
    privatile report run.db -o report.html
    privatile report run.db --figure trajectory.pdf
    """
    from privatile.report.view import read_view

    if run.is_dir():
        run = run / "run.db"
    if not figure and output is None:
        output = run.with_suffix(".html")
    view = read_view(run)
    if output is not None:
        from privatile.report.run_page import write_run_page

        click.echo(f"{write_run_page(view, output)}  {output.stat().st_size / 1000:.0f} kB")
    for path in figure:
        from privatile.report.run_figures import write_trajectory

        click.echo(write_trajectory(view, path))
