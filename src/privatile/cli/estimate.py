"""`privatile estimate`: a quantile with its interval from a column, or one for every group.

`privatile estimate --by COLUMN`: an estimate for every group, in one table.

`privatile estimate`: a quantile with its interval from a column.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privatile.cli.options import (
    DashboardOptions,
    ReadingOptions,
    choice,
    conditions,
    confirm,
    dashboard_options,
    file,
    flag,
    json_flag,
    number,
    numbers_by_client,
    one_for_all,
    previewed,
    reading_options,
    say_spent,
    text,
)
from privatile.cli.printing import echo, echo_facts, echo_json
from privatile.core.text import counted
from privatile.errors import InputError
from privatile.planning.options import Options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from privatile.api.groups import GroupRuns
    from privatile.api.local_run import LocalRun
    from privatile.client.order.shuffle import ShuffledColumn
    from privatile.planning.options import Options
    from privatile.planning.preview import GroupPreview


GROUPS_NOT_SAVED = (
    "Nothing was saved: --save FOLDER keeps a file for every group, for report and compare. These records have "
    "answered."
)


def estimate_groups(
    data: object, options: Options, *, dry_run: bool, yes: bool, as_json: bool, dashboard: bool, explain: bool
) -> None:
    """Ask every group and print the table; or only say what it would cost and give."""
    from privatile.api.groups import prepare_groups
    from privatile.cli.options import confirm, say_spent

    pass
    from privatile.cli.printing import rounds_bar

    for given, option in ((dashboard, "--dashboard"), (explain, "--explain")):
        if given:
            raise InputError(f"{option} shows one run, and --by has one for every group. Give --only COLUMN=VALUE.")
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


def _previewed(groups: "GroupRuns") -> "GroupPreview":
    """What the runs would cost and give, with what their ledger knows by now."""
    from privatile.cli.options import account_of
    from privatile.planning.preview import GroupPreview, GroupWidth

    widths = tuple(
        GroupWidth(group.name, group.records, None if group.run is None else group.run.spec, group.why)
        for group in groups.groups
    )
    account = account_of(groups.runs, groups.ledger)
    return GroupPreview(groups.named, widths, account)


BY_CLIENT = "NUMBER or CLIENT=NUMBER"

NOT_SAVED = "Nothing was saved: --save run.db keeps a run for report, compare and status. These records have answered."


@click.command()
@click.argument("data", type=click.Path(path_type=Path), required=False)
@text("--value", "COLUMN", "Column with the numbers.")
@text("--client", "COLUMN", "Column that says who holds a record. Without it: one client, 'all'.")
@click.option(
    "--only",
    multiple=True,
    metavar="CLIENT|COLUMN=VALUE",
    help="Ask only this client's records, or only those with this entry in a column. Repeated: both must hold.",
)
@click.option(
    "--leave-out",
    multiple=True,
    metavar="CLIENT",
    help="Do not ask this client; the quantile is then that of the others. As often as needed.",
)
@click.option(
    "--by",
    multiple=True,
    metavar="COLUMN",
    help="An estimate for every group: each entry of this column is one. Repeated: every combination.",
)
@text(
    "--person",
    "COLUMN",
    "Column that says whose record it is. The budget is then per person, for life; several records of one person are "
    "reduced to one at random.",
)
@click.option(
    "-q",
    "--q",
    multiple=True,
    metavar=BY_CLIENT,
    help="Level: 0.5 is the median (the default). Several, or curve for 0.1 … 0.9; a record answers about one.",
)
@click.option(
    "--epsilon",
    multiple=True,
    metavar=BY_CLIENT,
    help="Privacy budget of one record: the odds of any guess about it change by at most e^epsilon. No default.",
)
@click.option(
    "--range",
    "range_",
    nargs=2,
    type=float,
    metavar="LOW HIGH",
    help="Where the quantile can lie, in the data's units. State it from outside knowledge, not from the data.",
)
@choice(
    "--scale",
    ["linear", "log", "logit", "identity"],
    "Working scale (linear). log: on the logarithm, for positive values over decades.",
)
@text(
    "--value-kind",
    "KIND",
    "What you know about the values, not from the data: any (default), continuous (with a smooth distribution around "
    "the quantile), whole (all are whole numbers) or step=NUMBER (all are multiples of it).",
)
@text(
    "--client-weights",
    "size|equal|precision|FILE",
    "Weight of each client: its number of records (size, the default), so that the answer is the quantile of all "
    "records together; all alike (equal); or a file.",
)
@text(
    "--weight",
    "COLUMN",
    "Column with the survey weight of every record: the quantile is then the weighted one. Weights, and how many "
    "records have which, are not protected.",
)
@number("--confidence-level", "LEVEL", "Of the interval (0.95).")
@text(
    "--design",
    "NAME",
    "How records are divided into rounds: auto (the default; it tunes itself: straddle, or tuned for --value-kind "
    "continuous), rounds (equal ones), constant:E, log, "
    "power:B, list:E,E,…, or the paper's Algorithm 1 to the letter: paper-c1, paper-c5, paper-log.",
)
@click.option(
    "--rounds",
    type=int,
    metavar="N",
    help="Number of rounds; more rounds than the smallest client has records are refused.",
)
@choice(
    "--mode",
    ["cohort", "local"],
    "cohort: all records of a round answer about the same q. local: each client moves its own q inside a round "
    "(Algorithm 1).",
)
@choice("--local-level", ["global", "own"], "Level clients step with (global).")
@choice(
    "--interval",
    ["default", "any-shape", "smooth", "self-normalized", "paper"],
    "any-shape: holds whatever the distribution (default). smooth: narrower, if the distribution is smooth around the "
    "quantile (default for --value-kind continuous, unless the answers contradict it). self-normalized, with the "
    "critical value for this run's relaxations, or paper: with the asymptotic one.",
)
@number(
    "--until-width",
    "WIDTH",
    "Stop when the anytime interval, from end to end, is this narrow, and leave the remaining records unasked.",
)
@flag("--simultaneous", "Intervals of several levels, and of groups, hold all at once, not each by itself.")
@flag("--one-distribution", "You know that all clients share one distribution: allows --client-weights precision.")
@choice("--normalizer", ["l2", "l1", "sup"], "Of the self-normalised interval (l2).")
@choice(
    "--target",
    ["population", "file"],
    "Who the interval is about: the population the records are a sample of (default), or the file's own records and "
    "no one else (narrower).",
)
@choice(
    "--missing",
    ["noise", "drop", "fail"],
    "Missing values: answer at random and stay protected (noise, default), leave them out (their number shows), or "
    "refuse the file.",
)
@number(
    "--dither",
    "WIDTH",
    "Add a uniform ±WIDTH/2 to each value, as the paper does; the estimand is then the quantile of those. An honest "
    "interval does not need it.",
)
@file("--ledger", "FILE", "Who has answered what. One for all your runs, in your state folder, unless given.")
@file("--person-key", "FILE", "Key that hashes people; apart from the ledger, in your config folder, unless given.")
@file(
    "--save",
    "RUN.DB",
    "Keep the run, its questions and counts, for report, compare and status. Without it a result is printed once. With "
    "--by it is a folder with a file for every group.",
)
@flag("--spend-again", "Let records that have answered answer again; the ledger adds up what they spend.")
@flag("--new-run", "Give up an unfinished run of the same command and begin again with the records it has not asked.")
@flag(
    "--new-people",
    "None of the people in this file is in any other data set of the ledger. Taken on your word: a re-sorted or "
    "corrected export of the same people is then not recognised, and they answer again.",
)
@number(
    "--max-epsilon",
    "TOTAL",
    "Most that one person may spend for life; kept in the ledger for all later runs, until another is given. Two runs "
    "over different columns without --person count twice: whose records they are is not known.",
)
@flag("--allow-weak", "Accept an epsilon above 10.")
@flag("--not-private", "No privacy at all: every record tells the truth.")
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
    q: tuple[str, ...],
    epsilon: tuple[str, ...],
    range_: tuple[float, float] | None,
    client_weights: str | None,
    only: tuple[str, ...],
    leave_out: tuple[str, ...],
    by: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    explain: bool,
    as_json: bool,
    seed: int | None,
    dashboard: DashboardOptions,
    reading: ReadingOptions,
    **rest: Any,
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
    from privatile.planning.options import Options, read_options, read_weights

    given: dict[str, Any] = {}
    if data is not None and data.suffix == ".toml" and not is_address(str(data)):
        data, given = read_options(data, needs_data=not reading.is_by_address)
    source = reading.data(data, "DATA", given.get("sql"))
    rest |= reading.text_format
    rest |= {
        "sql": reading.sql,
        "q": _levels(q),
        "epsilon": _budgets(epsilon),
        "only": conditions(only),
        "leave_out": leave_out or None,
        "by": by or None,
        "range": range_,
        "client_weights": None if client_weights is None else read_weights(client_weights),
    }
    options = Options(**given | {key: value for key, value in rest.items() if value is not None})
    if options.by is not None:
        pass

        shown = {"dashboard": dashboard.wanted, "explain": explain}
        estimate_groups(source, options, dry_run=dry_run, yes=yes, as_json=as_json, **shown)
        return
    run = prepare(source, options)
    if run.how_read:
        echo(run.how_read, err=True)
    say_missing(run.columns.values(), options)
    if dry_run:
        _preview(run, as_json)
    else:
        _estimate(run, explain, as_json, dashboard, yes)


def _levels(given: tuple[str, ...]) -> Any:
    if given == ("curve",):
        return "curve"
    levels, by_client = _all_or_each("q", given)
    return by_client or (levels if len(levels) > 1 else one_for_all("q", levels))


def _budgets(given: tuple[str, ...]) -> Any:
    budgets, by_client = _all_or_each("epsilon", given)
    return by_client or one_for_all("epsilon", budgets)


def _all_or_each(option: str, given: tuple[str, ...]) -> tuple[tuple[float, ...], dict[str, float]]:
    for_all, by_client = numbers_by_client(option, given)
    if for_all and by_client:
        raise InputError(f"--{option} takes one number for all or CLIENT=NUMBER for each, not both.")
    return for_all, by_client


def _preview(run: "LocalRun", as_json: bool) -> None:
    if run.store is not None:
        done = "finished" if run.store.finished else "unfinished"
        echo(f"run {run.store.run} over these records is {done}: this shows all of it.", err=True)
    say_look_alikes(run.holders)
    echo_facts(previewed(run), as_json)


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


def _estimate(run: "LocalRun", explain: bool, as_json: bool, dashboard: DashboardOptions, yes: bool) -> None:
    from privatile.cli.printing import rounds_bar

    if run.store is not None:
        state = "is finished: shown again, no one is asked" if run.store.finished else "continues where it stopped"
        echo(f"run {run.store.run} {state}.", err=True)
    say_look_alikes(run.holders)
    if run.store is None:
        confirm(lambda: previewed(run), yes=yes)
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
