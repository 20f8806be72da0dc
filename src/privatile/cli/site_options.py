"""The options of a site that answers from its own file: those of `privatile join`.

Also the question whether to take part, and the words of a unit that does so.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privatile.cli.asking import ask_first
from privatile.cli.options import file, text
from privatile.cli.printing import echo
from privatile.cli.reading_options import ReadingOptions, reading_options
from privatile.cli.service_options import operations_arguments, service_options

if TYPE_CHECKING:
    from privatile.federation.run.join import JoinOptions

OPTIONS = (
    text("--source", "FILE", "CSV, Parquet or JSON (also .gz) with this site's records; SQLite or DuckDB with --sql."),
    click.option("--value", required=True, metavar="COLUMN", help="Column with the numbers."),
    text("--person", "COLUMN", "Column with the person of each record: the budget is then per person."),
    text("--weight", "COLUMN", "Column with the survey weights, where the study asks for a weight class."),
    reading_options,
    file("--policy", "FILE", "File of this site's limits instead of policy.toml in its folder."),
    click.option(
        "--restored", is_flag=True, help="The ledger was restored from a backup: mark what it has lost as spent."
    ),
    click.option(
        "--new-people",
        is_flag=True,
        help="None of the people in this file is in any other data set of this site's ledger. Taken on your word.",
    ),
    click.option("--yes", is_flag=True, help="Agree to the study that is shown; do not ask."),
    service_options,
)


def site_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """All of them; what `site_choices` takes comes as further named values."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def site_choices(reading: ReadingOptions, policy: Path | None, values: Mapping[str, Any]) -> "JoinOptions":
    """The options as the client takes them."""
    from privatile.client.sources.text_format import TextFormat
    from privatile.federation.run.join import JoinOptions

    return JoinOptions(limits=policy, sql=reading.sql, text_format=TextFormat(**reading.text_format), **values)


def agree(rows: Iterable[tuple[str, str]], question: str, *, yes: bool) -> None:
    """Show the study and have somebody agree to it: with `yes` beforehand, else at the terminal."""
    for label, words in rows:
        echo(f"{label:>18}  {words}", err=True)
    ask_first(question, " whether you agree to the study. Read it, then agree with --yes.", yes=yes)


def unit_words(source: str | None, reading: ReadingOptions, options: "JoinOptions") -> list[str]:
    """The options as words of a command, for a unit: it agrees, and logs JSON."""
    words = ["--value", options.value, *reading.arguments()]
    words += ["--source", str(Path(source).absolute())] if source else []
    for option, value in (("--person", options.person), ("--weight", options.weight)):
        words += [option, value] if value else []
    words += ["--policy", str(options.limits.absolute())] if options.limits else []
    return [
        *words,
        "--yes",
        "--json-logs",
        *operations_arguments(options.ops_port, options.ops_host, options.ops_names),
    ]
