"""`privatile report`, `status`, `dashboard` and `compare`: runs that were made, or go on.

`privatile dashboard`: one run or several in a browser, for as long as you like.

`privatile status`: where a run, a federation or a survey stands, in the terminal.

`privatile report`: one page about a run, an experiment or the paper's tables; or a figure of it.

`privatile compare`: the difference of two quantiles of different people, or of all pairs of many.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from privatile.cli.options import DashboardOptions, address_options, chosen, json_flag
from privatile.cli.printing import echo, echo_facts
from privatile.core import extensions
from privatile.core.text import disarmed
from privatile.errors import InputError, StoreError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from privatile.result.result import QuantileResult
    from privatile.run.status import RunStatus
    from privatile.survey.serving import SurveyStatus


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@address_options("")
def dashboard(runs: tuple[Path, ...], at: tuple[str, int] | None, tls: tuple[Path, Path] | None) -> None:
    """Watch runs in a browser: running, finished, or not begun yet. The page changes nothing.

    RUN is a run's file (`estimate --save RUN.DB`) or a federation's folder. Of several runs the first page lists all of
    them. Ends with Ctrl-C, not with a run.

    \b
    privatile dashboard run.db
    privatile dashboard study/ another-study/ --at 127.0.0.1:8080
    """
    from privatile.report.dashboard.live import find_run
    from privatile.report.dashboard.serving import show_runs

    address = DashboardOptions(True, at, tls).address()
    found = [find_run(run) for run in runs]
    for path in found:
        if not path.exists():
            echo(f"{path} does not exist yet: waiting for it", err=True)
    show_runs(found, address, lambda url: echo(f"dashboard: {url}", err=True))


@click.command()
@click.argument("path", metavar="[RUN|FOLDER]", default=".", type=click.Path(path_type=Path))
@click.option("--follow", is_flag=True, help="Show it again whenever it has changed, until the run is over.")
@json_flag("Where it stands")
def status(path: Path, follow: bool, as_json: bool) -> None:
    """Where a run, a federation or a survey stands: state, rounds, alarms, clients, the result so far.

    RUN is a run's file (`estimate --save RUN.DB`), FOLDER that of a federation or of a survey; this folder unless
    given. It reads files and changes nothing. --follow ends with the run, or with Ctrl-C.

    \b
    privatile status run.db
    privatile status study --follow
    """
    if follow and as_json:
        raise InputError("--json prints one document. Leave out --follow, or call status again.")
    read = _reader(path)
    if not follow:
        echo_facts(read(), as_json)
        return
    with _screen() as show:
        while True:
            began = time.monotonic()
            found = read()
            show(found)
            if found.is_over:
                return
            # A long run is replayed anew: that never takes more than a fifth of one core.
            time.sleep(max(1.0, 4.0 * (time.monotonic() - began)))


@contextmanager
def _screen() -> Iterator[Callable[[Any], None]]:
    """What shows a status: on a terminal over the last one, elsewhere below it where its facts have changed."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(console=Console(highlight=False), auto_refresh=False) as screen:
            yield lambda found: screen.update(Text(disarmed(found.to_text())), refresh=True)
        return
    before: dict[str, Any] | None = None

    def show(found: Any) -> None:
        nonlocal before
        facts = found.to_dict()
        if facts != before:
            echo(found.to_text() if before is None else f"\n{found.to_text()}")
        before = facts

    yield show


def _reader(path: Path) -> "Callable[[], RunStatus | SurveyStatus]":
    """What reads where a path's run stands: the one place that knows runs, federations and surveys."""
    if (path / "survey.toml").is_file():
        from privatile.survey.folder import SurveyFolder
        from privatile.survey.serving import read_status as read_survey

        return partial(read_survey, SurveyFolder(path))
    if path.is_dir() and (extensions.of_organization(path) is not None or (path / extensions.STUDY_FILE).is_file()):
        from privatile.federation.operations.status import read_status
        from privatile.federation.setup.folder import open_folder

        return partial(read_status, open_folder(path))
    from privatile.report.dashboard.live import find_run
    from privatile.run.status import read_run

    return partial(read_run, find_run(path))


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
@chosen("value_kind", help="Report the run as if it had been asked with this: any, continuous, whole or step=NUMBER.")
@click.option(
    "--interval", type=click.Choice(["any-shape", "smooth"]), help="Which of its two intervals is shown first."
)
@chosen("simultaneous", help="Of groups or several runs: intervals that hold all at once, not each by itself.")
@chosen("confidence_level", help="Of groups or several runs (as they were asked; 0.95).")
@click.option("--text", "as_text", is_flag=True, help="No page: print the result as text.")
@json_flag("No page: print the result")
@click.option("--csv", "as_csv", is_flag=True, help="No page: print a table with a row per result.")
def report(
    sources: tuple[Path, ...],
    output: Path | None,
    figure: tuple[Path, ...],
    as_text: bool,
    as_json: bool,
    as_csv: bool,
    **flags: Any,
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
    privatile report ages.db --value-kind whole
    privatile report run.db --figure trajectory.pdf
    privatile report regions -o regions.html --figure regions.pdf
    privatile report 2024.db 2025.db 2026.db -o years.html
    privatile report results.db -o experiment.html --figure experiment.pdf
    privatile report paper-results -o paper.html --figure paper.svg
    """
    source = sources[0]
    kind, path = find(source) if len(sources) == 1 else ("groups", source)
    reported = {name: value for name, value in flags.items() if value is not None}
    for name in reported:
        if kind not in ("run", "groups") or (kind == "run" and name in ("simultaneous", "confidence_level")):
            what = "groups, or several runs" if name in ("simultaneous", "confidence_level") else "a run"
            raise InputError(f"--{name.replace('_', '-')} goes with {what}; {source} is none.")
    if as_text or as_json or as_csv:
        if kind not in ("run", "groups") or output is not None or figure:
            what = "a page or a figure is another command" if kind in ("run", "groups") else f"{source} is none"
            raise InputError(f"--text, --json and --csv print the result of a run; {what}.")
        from privatile.report.groups import results_of
        from privatile.result.document import csv_text
        from privatile.run.view import RunView

        groups = kind == "groups"
        facts = results_of(sources, **reported) if groups else RunView.read(path, **reported).all_results()
        if as_csv:
            echo(csv_text(facts.to_dict()), nl=False)
        else:
            echo_facts(facts, as_json)
        return
    if not figure and output is None:
        output = source.with_suffix(".html") if len(sources) == 1 else Path("runs.html")
    if output is not None and output.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"a page must end in .html; got {output.name!r}. For a figure use --figure.")
    from privatile.report.pages import write_figure

    page, draw = _makers(kind, sources if kind == "groups" else (path,), reported)
    if output is not None:
        output.write_text(page(), encoding="utf-8")
    for target in figure:
        write_figure(target, draw)
        echo(target)
    if output is not None:
        echo(f"{output}  {output.stat().st_size / 1000:.0f} kB")


def _makers(
    kind: Kind, paths: tuple[Path, ...], reported: dict[str, Any]
) -> tuple[Callable[[], str], Callable[[], "Figure"]]:
    """What gives the page's text, and what draws a figure."""
    if kind == "groups":
        from privatile.report.groups import figure_of, page_of, results_of

        results = results_of(paths, **reported)
        return partial(page_of, results), partial(figure_of, results)
    (path,) = paths
    if kind == "paper":
        from privatile.paper.reproduce import differences_figure, paper_page

        return partial(paper_page, path), partial(differences_figure, path)
    if kind == "experiment":
        from privatile.report.experiment import experiment_figure, experiment_page

        return partial(experiment_page, path), partial(experiment_figure, path)
    from privatile.report.charts import trajectory_figure
    from privatile.report.run_page import run_page
    from privatile.run.view import RunView

    view = RunView.read(path, drawn=True, **reported)
    return partial(run_page, view), partial(trajectory_figure, view)


def find(source: Path) -> tuple[Kind, Path]:
    """What a path is: a run's file, a federation's folder, an experiment's store, or the paper's folder."""
    if source.is_dir():
        from privatile.report.groups import is_group_folder

        if is_group_folder(source):
            return "groups", source
        if (source / "run.db").is_file():
            return "run", source / "run.db"
        from privatile.paper.reproduce import is_paper_folder

        if is_paper_folder(source):
            return "paper", source
        raise StoreError(f"{source} is a folder without a run.db, without groups and without the paper's tables.")
    from privatile.run.run_file import table_names
    from privatile.run.tables import missing_run, no_run

    if not source.is_file():
        raise missing_run(source)
    tables = table_names(source)
    if tables is None:
        raise no_run(source)
    return ("experiment", source) if "experiment" in tables else ("run", source)


@click.command()
@click.argument("runs", metavar="RUN…|FOLDER", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--disjoint", is_flag=True, help="You state that no person is in two of the runs.")
@click.option("--q", "level", type=float, metavar="LEVEL", help="Which level, where a run has several.")
@chosen("confidence_level")
@chosen("simultaneous", help="The intervals of all differences hold at once.")
@chosen("value_kind", help="Report the runs as if they had been asked with this: any, continuous, whole, step=NUMBER.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A page with all differences (.html).")
@click.option(
    "--figure",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Draw them for print, .svg, .pdf or .png.",
)
@json_flag("The comparison")
def compare(
    runs: tuple[Path, ...],
    disjoint: bool,
    level: float | None,
    confidence_level: float | None,
    simultaneous: bool | None,
    value_kind: str | None,
    output: Path | None,
    figure: tuple[Path, ...],
    as_json: bool,
) -> None:
    """The first run minus the second, kept with --save, of people who are not in both; or all pairs of many.

    FOLDER is what `privatile estimate --by COLUMN --save FOLDER` keeps: no record is in two of its groups.

    \b
    privatile estimate pay.csv --value pay --by sex --epsilon 1 --range 0 200000 --save sexes
    privatile compare sexes
    privatile compare 2024.db 2025.db 2026.db --disjoint --simultaneous -o years.html --figure years.pdf
    """
    reported = {} if value_kind is None else {"value_kind": value_kind}
    facts: Any
    drawn: Any
    if len(runs) == 2:
        # First minus second, one interval: whatever else is asked for, the answer is the same.
        from privatile.report.groups import common_value, labels
        from privatile.result.compare import compare as compared
        from privatile.result.compare import one_pair

        first, second = (_result(path, level, reported) for path in runs)
        facts = compared(first, second, disjoint=disjoint, confidence_level=confidence_level or 0.95)
        drawn = one_pair(labels(runs), facts, common_value([first.column, second.column]))
    else:
        from privatile.report.groups import is_group_folder, results_of
        from privatile.result.compare import compare_all

        if len(runs) == 1 and not is_group_folder(runs[0]):
            raise InputError(f"compare takes two runs or more, or the folder of one --by; got only {runs[0]}.")
        groups = results_of(runs, **reported)
        facts = drawn = compare_all(
            groups,
            disjoint=disjoint,
            level_index=_place(level, groups.levels, runs[0]),
            confidence_level=confidence_level or 0.95,
            simultaneous=bool(simultaneous),
        )
    for target in (*(() if output is None else (output,)), *figure):
        from privatile.report.groups import report_groups

        echo(report_groups(drawn, target), err=True)
    echo_facts(facts, as_json)


def _place(level: float | None, levels: tuple[float, ...], path: Path) -> int:
    if level is None and len(levels) > 1:
        raise InputError(f"{path} holds {len(levels)} levels; say which with --q.")
    for place, asked in enumerate(levels):
        if level is None or abs(asked - level) < 1e-12:
            return place
    raise InputError(f"{path} holds no level {level:g}.")


def _result(path: Path, level: float | None, reported: dict[str, Any]) -> "QuantileResult":
    from privatile.run.view import RunView

    view = RunView.read(path / "run.db" if path.is_dir() else path, **reported)
    result = view.results()[_place(level, view.spec.levels, path)]
    if result is None:
        raise InputError(f"{path} has no interval yet: the run is still searching for the quantile.")
    return result
