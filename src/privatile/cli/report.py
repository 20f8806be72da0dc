"""`privatile report`: one page about a run, an experiment or the paper's tables; or a figure of it."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from privatile.cli.options import choice, json_flag, text
from privatile.cli.printing import echo_facts
from privatile.errors import InputError, StoreError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Kind = Literal["run", "experiment", "paper"]


@click.command()
@click.argument("source", metavar="RUN|EXPERIMENT|FOLDER", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The page (the source's name with .html).")
@click.option(
    "--figure",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Also, or only, draw for print, .svg, .pdf or .png: a run's trajectory, an experiment's coverage and error, "
    "the paper's tables beside the printed ones.",
)
@text("--values", "KIND", "Report the run as if it had been asked with these: any, continuous, whole or step=NUMBER.")
@choice("--interval", ["any-shape", "smooth"], "Which of its two intervals is shown first.")
@click.option("--text", "as_text", is_flag=True, help="No page: print a run's result as text.")
@json_flag("No page: print a run's result")
def report(
    source: Path,
    output: Path | None,
    figure: tuple[Path, ...],
    values: str | None,
    interval: str | None,
    as_text: bool,
    as_json: bool,
) -> None:
    """A page about a run: the answer, how it got there, who answered, what it cost, caveats.

    RUN is what `privatile estimate --save RUN.DB` keeps, or a federation's folder. The page is one file that needs no
    network; it prints well, and holds its own data as JSON. The store of an experiment (`privatile simulate run`)
    and the folder of `privatile paper` get a page of their own kind.

    \b
    privatile report run.db -o report.html
    privatile report run.db --json
    privatile report ages.db --values whole
    privatile report run.db --figure trajectory.pdf
    privatile report results.db -o experiment.html --figure experiment.pdf
    privatile report paper-results -o paper.html --figure paper.svg
    """
    kind, path = find(source)
    reported = {name: given for name, given in (("values", values), ("interval", interval)) if given is not None}
    if reported and kind != "run":
        raise InputError(f"--{next(iter(reported))} goes with a run; {source} is none.")
    if as_text or as_json:
        if kind != "run" or output is not None or figure:
            what = f"{source} is none" if kind != "run" else "a page or a figure is another command"
            raise InputError(f"--text and --json print the result of a run; {what}.")
        _print(path, reported, as_json)
        return
    if not figure and output is None:
        output = source.with_suffix(".html")
    if output is not None and output.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"a page must end in .html; got {output.name!r}. For a figure use --figure.")
    from privatile.report.print_style import write_figure

    page, draw = _makers(kind, path, reported)
    if output is not None:
        output.write_text(page(), encoding="utf-8")
    for target in figure:
        write_figure(target, draw)
        click.echo(target)
    if output is not None:
        click.echo(f"{output}  {output.stat().st_size / 1000:.0f} kB")


def _print(path: Path, reported: dict[str, str], as_json: bool) -> None:
    from privatile.report.view import read_results

    echo_facts(read_results(path, **reported), as_json)


def _makers(kind: Kind, path: Path, reported: dict[str, str]) -> tuple[Callable[[], str], Callable[[], "Figure"]]:
    """What gives the page's text, and what draws a figure."""
    if kind == "paper":
        from privatile.paper.differences import differences_figure
        from privatile.paper.page import paper_page

        return partial(paper_page, path), partial(differences_figure, path)
    if kind == "experiment":
        from privatile.report.experiment_figures import experiment_figure
        from privatile.report.experiment_page import experiment_page

        return partial(experiment_page, path), partial(experiment_figure, path)
    from privatile.report.run_figures import trajectory_figure
    from privatile.report.run_page import run_page
    from privatile.report.view import read_view

    view = read_view(path, **reported)
    return partial(run_page, view), partial(trajectory_figure, view)


def find(source: Path) -> tuple[Kind, Path]:
    """What a path is: a run's file, a federation's folder, an experiment's store, or the paper's folder."""
    if source.is_dir():
        if (source / "run.db").is_file():
            return "run", source / "run.db"
        from privatile.paper.page import is_paper_folder

        if is_paper_folder(source):
            return "paper", source
        raise StoreError(f"{source} is a folder without a run.db and without the paper's tables.")
    from privatile.server.run_file import table_names
    from privatile.server.run_tables import missing_run, no_run

    if not source.is_file():
        raise missing_run(source)
    tables = table_names(source)
    if tables is None:
        raise no_run(source)
    return ("experiment", source) if "experiment" in tables else ("run", source)
