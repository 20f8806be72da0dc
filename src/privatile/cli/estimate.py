"""`privatile estimate`: a quantile with its interval from a column."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privatile.cli.dashboard_options import DashboardOptions, dashboard_options
from privatile.cli.printing import echo_json
from privatile.errors import InputError

if TYPE_CHECKING:
    from privatile.result.result import QuantileResult

BY_CLIENT = "NUMBER or CLIENT=NUMBER"

NOT_SAVED = "Nothing was saved: --save run.db keeps a run for report, compare and watch. These records have answered."


def _numbers(option: str, given: tuple[str, ...], several: bool) -> Any:
    """One number, several numbers, or one a client."""
    if not given:
        return None
    if several and given == ("curve",):
        return "curve"
    named = [text for text in given if "=" in text]
    if named and len(named) < len(given):
        raise InputError(f"--{option} takes one number for all or CLIENT=NUMBER for each, not both.")
    if named:
        pairs = [text.rpartition("=") for text in named]
        names = [name for name, _, _ in pairs]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"--{option} names client {name!r} more than once.")
        return {name: _number(option, text) for name, _, text in pairs}
    numbers = tuple(_number(option, text) for text in given)
    if len(numbers) == 1:
        return numbers[0]
    if not several:
        raise InputError(f"--{option} was given {len(numbers)} times. One for all, or CLIENT=NUMBER for each.")
    return numbers


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--{option} takes a number; got {text!r}.") from None


@click.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--value", metavar="COLUMN", help="Column with the numbers.")
@click.option("--client", metavar="COLUMN", help="Column that says who holds a record. Without it: one client, 'all'.")
@click.option("--only", metavar="CLIENT", help="This client's own quantile: only its records are asked.")
@click.option(
    "--person",
    metavar="COLUMN",
    help="Column that says whose record it is. The budget is then per person, for life; several records of one person "
    "are reduced to one at random.",
)
@click.option(
    "--q",
    "q",
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
@click.option("--log", "log_", is_flag=True, help="Work on the logarithm: for positive values over decades.")
@click.option("--scale", type=click.Choice(["linear", "log", "logit", "identity"]), help="Working scale (linear).")
@click.option("--weights", metavar="equal|size|precision|FILE", help="Weight of each client in the mixture (equal).")
@click.option("--confidence-level", type=float, metavar="LEVEL", help="Of the interval (0.95).")
@click.option(
    "--design",
    metavar="NAME",
    help="How rounds are cut: auto (tunes itself, the default), rounds (equal ones), constant:E, log, power:B, "
    "list:E,E,…, or the paper's Algorithm 1 to the letter: paper-c1, paper-c5, paper-log.",
)
@click.option(
    "--rounds",
    type=int,
    metavar="N",
    help="Number of rounds; more rounds than the smallest client has records are refused.",
)
@click.option(
    "--mode",
    type=click.Choice(["cohort", "local"]),
    help="cohort: all records of a round answer about the "
    "same q. local: each client moves its own q inside a round (Algorithm 1).",
)
@click.option("--local-level", type=click.Choice(["global", "own"]), help="Level clients step with (global).")
@click.option(
    "--interval",
    type=click.Choice(["default", "plug-in", "self-normalized", "paper"]),
    help="plug-in (default where its diagnostics hold), self-normalized with the critical value for this run's "
    "relaxations, or paper: self-normalized with the asymptotic one.",
)
@click.option(
    "--until-width",
    type=float,
    metavar="WIDTH",
    help="Stop when the anytime interval is this narrow, and leave the remaining records unasked.",
)
@click.option(
    "--simultaneous",
    is_flag=True,
    default=None,
    help="Intervals of several levels hold all at once, not each by itself.",
)
@click.option(
    "--one-distribution",
    is_flag=True,
    default=None,
    help="You know that all clients share one distribution: allows --weights precision.",
)
@click.option("--normalizer", type=click.Choice(["l2", "l1", "sup"]), help="Of the self-normalised interval (l2).")
@click.option(
    "--target",
    type=click.Choice(["population", "file"]),
    help="Who the interval is about: the population "
    "the records are a sample of (default), or the file's own records and no one else (narrower).",
)
@click.option(
    "--missing",
    type=click.Choice(["noise", "drop", "fail"]),
    help="Missing values: answer at random and "
    "stay protected (noise, default), leave them out (their number shows), or refuse the file.",
)
@click.option(
    "--dither",
    type=float,
    metavar="WIDTH",
    help="Add a uniform ±WIDTH/2 to each value: for heaped data (1 for whole numbers such as ages, 1000 for salaries "
    "in round thousands), whose quantiles sit on an atom. The estimand says so.",
)
@click.option(
    "--ledger",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Who has answered what. One for all your runs, in your state folder, unless given.",
)
@click.option(
    "--person-key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Key that hashes people; apart from the ledger, in your config folder, unless given.",
)
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    metavar="RUN.DB",
    help="Keep the run, its questions and counts, for report, compare and watch. Without it a result is printed once.",
)
@click.option(
    "--spend-again",
    is_flag=True,
    default=None,
    help="Let records that have answered answer again; the ledger adds up what they spend.",
)
@click.option(
    "--new-run",
    is_flag=True,
    default=None,
    help="Give up an unfinished run of the same command and begin anew with the records it has not asked.",
)
@click.option(
    "--new-people",
    is_flag=True,
    default=None,
    help="This file holds other people than the last one of the same client and column. Taken on your word: a "
    "re-sorted or corrected export of the same people is then not recognised, and they answer again.",
)
@click.option(
    "--max-epsilon",
    type=float,
    metavar="TOTAL",
    help="Most that one person may spend for life. Without --person: that one record may spend in this column; each "
    "column of a file has its own book.",
)
@click.option("--allow-weak", is_flag=True, default=None, help="Accept an epsilon above 10.")
@click.option("--not-private", is_flag=True, default=None, help="No privacy at all: every record tells the truth.")
@dashboard_options
@click.option(
    "--dry-run",
    is_flag=True,
    help="Who would pay what, how wide the interval would be, and whether it can be vouched for. Asks no one.",
)
@click.option("--explain", "explained", is_flag=True, help="Add why the run asked what it asked.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON.")
@click.option("--seed", hidden=True, type=int)
def estimate(
    data: Path,
    q: tuple[str, ...],
    epsilon: tuple[str, ...],
    range_: tuple[float, float] | None,
    log_: bool,
    weights: str | None,
    dry_run: bool,
    explained: bool,
    as_json: bool,
    seed: int | None,
    dashboard: DashboardOptions,
    **rest: Any,
) -> None:
    """A quantile with its confidence interval, from DATA: CSV, Parquet or JSON (also .gz), or a TOML file with options.

    Every record answers one question once, with a randomized bit; a ledger sees to the "once". Run it again after a
    crash and it goes on where it stopped.

    \b
    privatile estimate salaries.csv --value salary --client region --epsilon 1 --range 1000 1000000 --log \\
              --save run.db
    privatile estimate salaries.csv --value salary --client region --epsilon north=1 --epsilon south=0.5 \\
              --range 1000 1000000 --log --q 0.25 --weights size --save quartile.db
    privatile estimate study.toml --json --save study.db
    """
    if seed is not None:
        raise InputError(
            "a seed is for simulation: with a known seed every randomized answer could be undone. This command answers "
            "for real people and takes its randomness from the operating system only."
        )
    from privatile.planning.options import read_options, read_weights

    given: dict[str, Any] = {}
    if data.suffix == ".toml":
        data, given = read_options(data)
    chosen = {key: value for key, value in rest.items() if value is not None}
    if log_:
        if chosen.get("scale", "log") != "log":
            raise InputError(f"--log and --scale {chosen['scale']} exclude each other.")
        chosen["scale"] = "log"
    parsed = {
        "q": _numbers("q", q, several=True),
        "epsilon": _numbers("epsilon", epsilon, several=False),
        "range": range_,
        "weights": None if weights is None else read_weights(weights),
    }
    chosen |= {key: value for key, value in parsed.items() if value is not None}
    _estimate(data, {**given, **chosen}, dry_run, explained, as_json, dashboard)


def _estimate(
    data: Path, chosen: dict[str, Any], dry_run: bool, explained: bool, as_json: bool, dashboard: DashboardOptions
) -> None:
    from privatile.api.local_run import prepare
    from privatile.cli.progress import rounds_bar
    from privatile.planning.options import Options
    from privatile.planning.preview import preview

    options = Options(**chosen)
    run = prepare(data, options)
    if dry_run:
        if run.store is not None:
            done = "finished" if run.store.finished else "unfinished"
            click.echo(f"run {run.store.run} over these records is {done}: this shows all of it.", err=True)
        shown = preview(run.spec)
        if as_json:
            echo_json(shown.to_dict())
        else:
            click.echo(shown.to_text())
        return
    if run.store is not None:
        state = "is finished: shown again, no one is asked" if run.store.finished else "goes on where it stopped"
        click.echo(f"run {run.store.run} {state}.", err=True)
    if dashboard.wanted:
        run.open_store()
    with dashboard.running("" if run.store is None else run.store.path):
        with rounds_bar(f"asking {len(run.spec.clients)} client(s)") as progress:
            results = run.complete(progress, keep=True)
        if as_json:
            facts = [result.to_dict() for result in results]
            echo_json(facts[0] if len(facts) == 1 else facts)
        else:
            click.echo("\n\n".join(_text(result, explained) for result in results))
        sys.stdout.flush()
        # Only now are the results safe: had printing failed, the same command would show them again.
        run.discard()
        if options.save is None:
            click.echo(NOT_SAVED, err=True)
        dashboard.linger()


def _text(result: QuantileResult, explained: bool) -> str:
    text = result.to_text()
    if explained:
        why = result.explanation or ("This design follows fixed tables: nothing was chosen along the way.",)
        text += "\n\nWhy it asked what it asked:\n" + "\n".join(f"- {line}" for line in why)
    return text
