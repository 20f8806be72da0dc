"""`privatile compare`: the difference of two quantiles of different people, or of all pairs of many."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privatile.cli.options import json_flag, text
from privatile.cli.printing import echo, echo_facts
from privatile.errors import InputError

if TYPE_CHECKING:
    from privatile.result.result import QuantileResult


@click.command()
@click.argument("runs", metavar="RUN…|FOLDER", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--disjoint", is_flag=True, help="You state that no person is in two of the runs.")
@click.option("--q", "level", type=float, metavar="LEVEL", help="Which level, where a run has several.")
@click.option("--confidence-level", type=float, default=0.95, show_default=True, metavar="LEVEL")
@click.option("--simultaneous", is_flag=True, help="The intervals of all differences hold at once.")
@text("--values", "KIND", "Report the runs as if they had been asked with these: any, continuous, whole, step=NUMBER.")
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
    confidence_level: float,
    simultaneous: bool,
    values: str | None,
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
    reported = {} if values is None else {"values": values}
    facts: Any
    drawn: Any
    if len(runs) == 2:
        # First minus second, one interval: whatever else is asked for, the answer is the same.
        from privatile.report.group_reading import common_value, labels
        from privatile.result.compare import compare as compared
        from privatile.result.pairs import one_pair

        first, second = (_result(path, level, reported) for path in runs)
        facts = compared(first, second, disjoint=disjoint, confidence_level=confidence_level)
        drawn = one_pair(labels(runs), facts, common_value([first.column, second.column]))
    else:
        from privatile.report.group_folder import is_group_folder
        from privatile.report.group_reading import results_of
        from privatile.result.pairs import compare_all

        if len(runs) == 1 and not is_group_folder(runs[0]):
            raise InputError(f"compare takes two runs or more, or the folder of one --by; got only {runs[0]}.")
        groups = results_of(runs, **reported)
        facts = drawn = compare_all(
            groups,
            disjoint=disjoint,
            level_index=_place(level, groups.levels, runs[0]),
            confidence_level=confidence_level,
            simultaneous=simultaneous,
        )
    for target in (*(() if output is None else (output,)), *figure):
        from privatile.report.group_page import report_groups

        echo(report_groups(drawn, target), err=True)
    echo_facts(facts, as_json)


def _place(level: float | None, levels: tuple[float, ...], path: Path) -> int:
    if level is None and len(levels) > 1:
        raise InputError(f"{path} holds {len(levels)} levels; say which with --q.")
    for place, asked in enumerate(levels):
        if level is None or abs(asked - level) < 1e-12:
            return place
    raise InputError(f"{path} holds no level {level:g}.")


def _result(path: Path, level: float | None, reported: dict[str, str]) -> "QuantileResult":
    from privatile.report.view import RunRecord
    from privatile.server.run_file import RunStore

    with RunStore.open(path / "run.db" if path.is_dir() else path, read_only=True) as store:
        results = RunRecord(store, store.spec.with_report(**reported)).results()
    result = results[_place(level, store.spec.levels, path)]
    if result is None:
        raise InputError(f"{path} has no interval yet: the run is still searching for the quantile.")
    return result
