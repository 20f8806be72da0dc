"""`privatile report`: one page about a run, an experiment or the paper's tables; or a figure of it."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from privatile.cli.options import choice, flag, json_flag, number, text
from privatile.cli.printing import echo, echo_facts
from privatile.errors import InputError, StoreError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Kind = Literal["run", "groups", "experiment", "paper"]


@click.command()
@click.argument("sources", metavar="RUN…|EXPERIMENT|FOLDER", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The page (the source's name with .html).")
@click.option(
    "--figure",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Also, or only, draw for print, .svg, .pdf or .png: a run's trajectory, groups or several runs as dots with "
    "whiskers, an experiment's coverage and error, the paper's tables beside the printed ones.",
)
@text("--values", "KIND", "Report the run as if it had been asked with these: any, continuous, whole or step=NUMBER.")
@choice("--interval", ["any-shape", "smooth"], "Which of its two intervals is shown first.")
@flag("--simultaneous", "Of groups or several runs: intervals that hold all at once, not each by itself.")
@number("--confidence-level", "LEVEL", "Of groups or several runs (as they were asked; 0.95).")
@click.option("--text", "as_text", is_flag=True, help="No page: print the result as text.")
@json_flag("No page: print the result")
@click.option("--csv", "as_csv", is_flag=True, help="No page: print a table with a row per result.")
def report(
    sources: tuple[Path, ...],
    output: Path | None,
    figure: tuple[Path, ...],
    values: str | None,
    interval: str | None,
    simultaneous: bool | None,
    confidence_level: float | None,
    as_text: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    """A page about a run: the answer, how it got there, who answered, what it cost, caveats.

    RUN is what `privatile estimate --save RUN.DB` keeps, or a federation's folder. The page is one file that needs no
    network; it prints well, and holds its own data as JSON. The folder of `privatile estimate --by` gets one table of
    its groups, and so do several runs. The store of an experiment (`privatile simulate run`) and the folder of
    `privatile paper` get a page of their own kind.

    \b
    privatile report run.db -o report.html
    privatile report run.db --json
    privatile report regions --csv
    privatile report ages.db --values whole
    privatile report run.db --figure trajectory.pdf
    privatile report regions -o regions.html --figure regions.pdf
    privatile report 2024.db 2025.db 2026.db -o years.html
    privatile report results.db -o experiment.html --figure experiment.pdf
    privatile report paper-results -o paper.html --figure paper.svg
    """
    source = sources[0]
    kind, path = find(source) if len(sources) == 1 else ("groups", source)
    given = {"values": values, "interval": interval, "simultaneous": simultaneous, "confidence_level": confidence_level}
    reported = {name: value for name, value in given.items() if value is not None}
    for name in reported:
        if kind not in ("run", "groups") or (kind == "run" and name in ("simultaneous", "confidence_level")):
            what = "groups, or several runs" if name in ("simultaneous", "confidence_level") else "a run"
            raise InputError(f"--{name.replace('_', '-')} goes with {what}; {source} is none.")
    if as_text or as_json or as_csv:
        if kind not in ("run", "groups") or output is not None or figure:
            what = "a page or a figure is another command" if kind in ("run", "groups") else f"{source} is none"
            raise InputError(f"--text, --json and --csv print the result of a run; {what}.")
        facts = _facts(kind, sources if kind == "groups" else (path,), reported)
        if as_csv:
            from privatile.result.document import csv_text

            echo(csv_text(facts.to_dict()), nl=False)
        else:
            echo_facts(facts, as_json)
        return
    if not figure and output is None:
        output = source.with_suffix(".html") if len(sources) == 1 else Path("runs.html")
    if output is not None and output.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"a page must end in .html; got {output.name!r}. For a figure use --figure.")
    from privatile.report.print_style import write_figure

    page, draw = _makers(kind, path, reported) if kind != "groups" else _of_groups(sources, reported)
    if output is not None:
        output.write_text(page(), encoding="utf-8")
    for target in figure:
        write_figure(target, draw)
        echo(target)
    if output is not None:
        echo(f"{output}  {output.stat().st_size / 1000:.0f} kB")


def _facts(kind: Kind, paths: tuple[Path, ...], reported: dict[str, Any]) -> Any:
    from privatile.report.group_reading import results_of
    from privatile.report.view import read_results

    return results_of(paths, **reported) if kind == "groups" else read_results(paths[0], **reported)


def _of_groups(sources: tuple[Path, ...], reported: dict[str, Any]) -> tuple[Callable[[], str], Callable[[], "Figure"]]:
    """The same for groups, or for several runs side by side."""
    from privatile.report.group_page import figure_of, page_of
    from privatile.report.group_reading import results_of

    results = results_of(sources, **reported)
    return partial(page_of, results), partial(figure_of, results)


def _makers(kind: Kind, path: Path, reported: dict[str, Any]) -> tuple[Callable[[], str], Callable[[], "Figure"]]:
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
        from privatile.report.group_folder import is_group_folder

        if is_group_folder(source):
            return "groups", source
        if (source / "run.db").is_file():
            return "run", source / "run.db"
        from privatile.paper.page import is_paper_folder

        if is_paper_folder(source):
            return "paper", source
        raise StoreError(f"{source} is a folder without a run.db, without groups and without the paper's tables.")
    from privatile.server.run_tables import missing_run, no_run
    from privatile.server.sqlite_files import table_names

    if not source.is_file():
        raise missing_run(source)
    tables = table_names(source)
    if tables is None:
        raise no_run(source)
    return ("experiment", source) if "experiment" in tables else ("run", source)
