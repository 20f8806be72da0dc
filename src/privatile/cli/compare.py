"""`privatile compare`: the difference of two quantiles of different people."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from privatile.cli.options import json_flag, text
from privatile.cli.printing import echo_facts
from privatile.errors import InputError

if TYPE_CHECKING:
    from privatile.result.result import QuantileResult


@click.command()
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@click.option("--disjoint", is_flag=True, help="You state that no person is in both runs.")
@click.option("--q", "level", type=float, metavar="LEVEL", help="Which level, where a run has several.")
@click.option("--confidence-level", type=float, default=0.95, show_default=True, metavar="LEVEL")
@text("--values", "KIND", "Report both runs as if they had been asked with these: any, continuous, whole, step=NUMBER.")
@json_flag("The comparison")
def compare(
    first: Path,
    second: Path,
    disjoint: bool,
    level: float | None,
    confidence_level: float,
    values: str | None,
    as_json: bool,
) -> None:
    """FIRST minus SECOND: two runs kept with --save, of people who are not in both.

    Two groups of one file are two runs: estimate each with --client GROUP_COLUMN --only GROUP --save ….db.

    \b
    privatile estimate pay.csv --value pay --client sex --only f --epsilon 1 --range 0 200000 --save f.db
    privatile estimate pay.csv --value pay --client sex --only m --epsilon 1 --range 0 200000 --save m.db
    privatile compare f.db m.db --disjoint
    """
    from privatile.result.compare import compare as compared

    reported = {} if values is None else {"values": values}
    results = (_result(path, level, reported) for path in (first, second))
    echo_facts(compared(*results, disjoint=disjoint, confidence_level=confidence_level), as_json)


def _result(path: Path, level: float | None, reported: dict[str, str]) -> "QuantileResult":
    from privatile.report.view import RunRecord
    from privatile.server.run_file import RunStore

    with RunStore.open(path, read_only=True) as store:
        results = RunRecord(store, store.spec.with_report(**reported)).results()
    if level is None and len(results) > 1:
        raise InputError(f"{path} holds {len(results)} levels; say which with --q.")
    for result, asked in zip(results, store.spec.levels, strict=True):
        if level is None or abs(asked - level) < 1e-12:
            if result is None:
                raise InputError(f"{path} has no interval yet: the run is still searching for the quantile.")
            return result
    raise InputError(f"{path} holds no level {level:g}.")
