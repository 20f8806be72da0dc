"""`privatile estimate`: a quantile with its interval from a column, or one for every group."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privatile.cli.options import (
    READING,
    DashboardOptions,
    account_of,
    chosen,
    confirm,
    dashboard_options,
    json_flag,
    previewed,
    reading_options,
    records_of,
    say_spent,
)
from privatile.cli.printing import echo, echo_facts, echo_json, rounds_bar
from privatile.core.kinds import options_of
from privatile.core.text import counted
from privatile.errors import InputError
from privatile.planning.options import Options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from privatile.api.groups import GroupRuns
    from privatile.api.local_run import LocalRun
    from privatile.client.order.shuffle import ShuffledColumn
    from privatile.planning.preview import GroupPreviews

GROUPS_NOT_SAVED = (
    "Nothing was saved: --save FOLDER keeps a file for every group, for report and compare. These records have "
    "answered."
)


def estimate_groups(data: object, options: Options, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Ask every group and print the table; or only say what it would cost and give."""
    from privatile.api.groups import prepare_groups

    groups = prepare_groups(data, options)
    if groups.division.how_read:
        echo(groups.division.how_read, err=True)
    say_missing(groups.division.columns.values(), options)
    say_look_alikes(groups.division.holders())
    if groups.ungrouped:
        word = "would not be asked" if dry_run else "not asked"
        echo(f"{counted(groups.ungrouped, 'record')} without {groups.named}: {word}.", err=True)
    if dry_run:
        echo_facts(_previewed(groups), as_json)
        return
    finished = sum(run.store is not None and run.store.finished is not None for run in groups.runs)
    begun = sum(run.store is not None for run in groups.runs) - finished
    if finished or begun:
        echo(
            f"Finished: {finished:,} of {len(groups.runs):,} runs; their people are not asked again."
            + (f" Going on where they stopped: {begun:,}." if begun else ""),
            err=True,
        )
    else:
        confirm(lambda: _previewed(groups), yes=yes)
    with rounds_bar(f"asking {len(groups.runs)} group(s)", unit="groups") as progress:
        results = groups.complete(progress, keep=True)
    echo_facts(results, as_json)
    sys.stdout.flush()
    # Only now are the results safe: had printing failed, the same command would show them again.
    groups.discard()
    if options.spend_again:
        say_spent(groups.runs)
    if options.save is None:
        echo(GROUPS_NOT_SAVED, err=True)
    else:
        echo(
            f"One page and one figure of them: privatile report {options.save} -o groups.html --figure groups.svg",
            err=True,
        )


def _previewed(groups: "GroupRuns") -> "GroupPreviews":
    """What the runs would cost and give, with what their ledger knows by now."""
    from privatile.planning.preview import GroupPreview, GroupPreviews, preview

    shown = []
    for group in groups.groups:
        found = None if group.run is None else preview(group.run.spec)
        shown.append(GroupPreview(group.name, group.records if found is None else found.asked, found, group.why))
    return GroupPreviews(groups.named, tuple(shown), account_of(groups.runs, groups.ledger))


NOT_SAVED = "Nothing was saved: --save run.db keeps a run for report, compare and status. These records have answered."


@click.command()
@click.argument("data", type=click.Path(path_type=Path), required=False)
@chosen(*(options_of(Options).keys() - set(READING)))
@reading_options
@dashboard_options
@click.option(
    "--dry-run",
    is_flag=True,
    help="Who would pay what, how wide the interval would be, and what the result would warn of. Asks no one.",
)
@click.option("--yes", is_flag=True, help="Do not ask before a new run; where there is no terminal nothing is asked.")
@click.option("--explain", is_flag=True, help="Add why the run asked what it asked.")
@json_flag("The result")
@click.option("--seed", hidden=True, type=int)
def estimate(
    data: Path | None,
    dry_run: bool,
    yes: bool,
    explain: bool,
    as_json: bool,
    seed: int | None,
    dashboard: DashboardOptions,
    database_url_env: str | None,
    database_url_file: Path | None,
    **flags: Any,
) -> None:
    """A quantile with its confidence interval, from DATA: CSV, Parquet or JSON (also .gz), an SQLite or DuckDB file
    with --sql, or a TOML file with options.

    Every record answers one question once, with a randomized bit; a ledger ensures the "once". Run it again after a
    crash and it continues where it stopped.

    \b
    privatile estimate salaries.csv --value salary --client region --epsilon 1 --range 1000 1000000 --scale log \\
              --save run.db
    privatile estimate salaries.csv --value salary --client region --epsilon north=1 --epsilon south=0.5 \\
              --range 1000 1000000 --scale log --q 0.25 --client-weights equal --save quartile.db
    privatile estimate salaries.csv --value salary --by region --epsilon 1 --range 1000 1000000 --scale log \\
              --save regions
    privatile estimate options.toml --json --save run.db
    """
    if seed is not None:
        raise InputError(
            "a seed is for simulation: with a known seed every randomized answer could be undone. This command answers "
            "for real people and takes its randomness from the operating system only."
        )
    from privatile.api.local_run import prepare
    from privatile.core.text import is_address
    from privatile.planning.options import read_options

    given: dict[str, Any] = {}
    if data is not None and data.suffix == ".toml" and not is_address(str(data)):
        data, given = read_options(data, needs_data=database_url_env is None and database_url_file is None)
    given |= {name: value for name, value in flags.items() if value is not None}
    source = records_of(data, "DATA", given.get("sql"), database_url_env, database_url_file)
    options = Options(**given)
    if options.by is not None:
        if dashboard.wanted or explain:
            option = "--dashboard" if dashboard.wanted else "--explain"
            raise InputError(f"{option} shows one run, and --by has one for every group. Give --only COLUMN=VALUE.")
        estimate_groups(source, options, dry_run=dry_run, yes=yes, as_json=as_json)
        return
    run = prepare(source, options)
    if run.division.how_read:
        echo(run.division.how_read, err=True)
    say_missing(run.columns.values(), options)
    if run.store is not None and dry_run:
        done = "finished" if run.store.finished else "unfinished"
        echo(f"run {run.store.run} over these records is {done}: this shows all of it.", err=True)
    elif run.store is not None:
        state = "is finished: shown again, no one is asked" if run.store.finished else "continues where it stopped"
        echo(f"run {run.store.run} {state}.", err=True)
    say_look_alikes(run.holders)
    if dry_run:
        echo_facts(previewed(run), as_json)
        return
    if run.store is None:
        confirm(lambda: previewed(run), yes=yes)
    _estimate(run, explain, as_json, dashboard)


def say_missing(columns: "Iterable[ShuffledColumn]", options: "Options") -> None:
    """Tell the holder how many values are missing, and what becomes of them; no result says how many."""
    counted = list(columns)
    missing = sum(column.missing for column in counted)
    if missing:
        becomes = "they answer at random" if options.missing == "noise" else "they are not asked"
        echo(
            f"{missing:,} of {sum(column.records for column in counted):,} records without {options.value or 'value'}: "
            f"{becomes} (--missing {options.missing}). Their number is said here only.",
            err=True,
        )


def say_look_alikes(clients: "Iterable[str]") -> None:
    """Before anyone is asked: names that may be one client, and count as several."""
    from privatile.core.text import look_alikes

    for names in look_alikes(clients):
        listed = " and ".join(repr(name) for name in names)
        echo(
            f"{listed} count as {len(names)} clients or groups, each for itself: their names differ only in capital "
            "letters or in the form of their characters. If they are one, stop (Ctrl-C) and give it one name.",
            err=True,
        )


def _estimate(run: "LocalRun", explain: bool, as_json: bool, dashboard: DashboardOptions) -> None:
    if dashboard.wanted:
        run.open_store()
    with dashboard.running("" if run.store is None else run.store.path):
        holders = {client.holder or client.name for client in run.spec.clients}
        with rounds_bar(f"asking {len(holders)} client(s)") as progress:
            results = run.complete(progress, keep=True)
        if as_json:
            echo_json(results.to_dict())
        else:
            echo(results.to_text(explain=explain))
        sys.stdout.flush()
        # Only now are the results safe: had printing failed, the same command would show them again.
        run.discard()
        if run.options.spend_again:
            say_spent([run])
        if run.options.save is None:
            echo(NOT_SAVED, err=True)
        dashboard.linger()
