"""Options of commands: flags that follow from the options of an estimate, and what several commands share.

An option that is not given is None, so that what a file says in its place stays.
"""

import contextlib
import math
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privatile.cli.printing import echo
from privatile.core.kinds import Option, options_of
from privatile.errors import InputError, OptionError
from privatile.planning.options import Options

if TYPE_CHECKING:
    from privatile.api.local_run import LocalRun
    from privatile.client.ledger.ledger import Ledger
    from privatile.federation.operations.join import JoinOptions
    from privatile.planning.preview import Account, GroupPreviews, Preview
    from privatile.report.dashboard.serving import DashboardAddress


Decorator = Callable[[Any], Any]


def text(name: str, metavar: str, help: str) -> Decorator:
    """An option with a word as its value."""
    return click.option(name, metavar=metavar, help=help)


def number(name: str, metavar: str, help: str) -> Decorator:
    """An option with a number as its value."""
    return click.option(name, type=float, metavar=metavar, help=help)


def file(name: str, metavar: str, help: str) -> Decorator:
    """An option with a path as its value."""
    return click.option(name, type=click.Path(path_type=Path), metavar=metavar, help=help)


def existing(_context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """The file that an option names; one that is not there is an error of use, no finding about its content."""
    if path is None or (path.exists() and not path.is_dir()):
        return path
    why = f"{path} is a folder, not a file" if path.is_dir() else f"there is no file {path}"
    raise InputError(f"{parameter.opts[0]}: {why}. Give the path of the run's file (run.db).")


def json_flag(what: str) -> Decorator:
    """--json, which the command gets as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=f"{what} as JSON.")


def together(*options: Decorator) -> Decorator:
    """Several options as one, in the order of help."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def chosen(*names: str, **changes: Any) -> Decorator:
    """Flags for these options of an estimate; a command gets what was given under the options' names, else None.

    `changes` are arguments of `click.option` that differ from what `Options` declares.
    """

    return together(*(_flag_of(name, about, changes) for name, about in options_of(Options).items() if name in names))


def _flag_of(name: str, about: Option, changes: Mapping[str, Any]) -> Decorator:
    kind = about.kind

    def read(_context: click.Context, _parameter: click.Parameter, words: Any) -> Any:
        if words is None or words == ():
            return None
        with named(name):
            return kind.checked(kind.parsed(words if isinstance(words, tuple) else (words,)) if kind.arity else words)

    def complete(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
        return [word for word in getattr(kind, "words", ()) if word.startswith(begun)]

    shape: dict[str, Any] = {"is_flag": True}
    if kind.arity:
        metavar = about.metavar or kind.metavar
        shape = {"multiple": kind.several, "nargs": kind.arity, "metavar": metavar, "shell_complete": complete}
    words = [word for word in (about.short, f"--{name.replace('_', '-')}", name) if word]
    return click.option(*words, default=None, callback=read, **{"help": about.help, **shape, **changes})


@contextlib.contextmanager
def named(option: str) -> Iterator[None]:
    """An error inside is one of this option."""
    try:
        yield
    except OptionError:
        raise
    except InputError as error:
        raise OptionError(option, str(error)) from None


READING = ("sql", "delimiter", "decimal", "thousands", "unit")
"""Options of an estimate that say how records are read; a site's own command has them, too."""

reading_options = together(
    chosen("sql"),
    text(
        "--database-url-env",
        "NAME",
        "Variable of the environment with the database's address, its password included, in place of a file. Any "
        "database that SQLAlchemy knows.",
    ),
    file("--database-url-file", "FILE", "The same, from the first line of a file that only you can read."),
    chosen(*READING[1:]),
)
"""The command gets what `records_of` and `READING` name."""


def records_of(
    file: str | Path | None, option: str, sql: str | None, address_env: str | None, address_file: Path | None
) -> object:
    """The one place that records come from: a file, or a database by its address with a query."""
    from privatile.client.sources.databases import DatabaseUrl, address_refused
    from privatile.core.text import is_address

    if address_env is None and address_file is None:
        if file is None:
            raise InputError(f"{option} is missing: name a file, or a database with --database-url-file and --sql.")
        if is_address(str(file)):
            raise address_refused()
        return file
    if file is not None:
        raise InputError(f"{option} and the address of a database exclude each other: records come from one place.")
    if sql is None:
        raise InputError("a database by its address needs a query: --sql 'SELECT … ORDER BY …'.")
    if address_env is None:
        return DatabaseUrl.from_file(address_file or Path())
    if address_file is not None:
        raise InputError("--database-url-env and --database-url-file exclude each other: give one of them.")
    return DatabaseUrl.from_environment(address_env)


@dataclass(frozen=True)
class DashboardOptions:
    """What the command line asks for."""

    flag: bool
    at: tuple[str, int] | None
    tls: tuple[Path, Path] | None
    keep: bool = False

    @property
    def wanted(self) -> bool:
        """Whether there is to be a dashboard at all."""
        return self.flag or self.at is not None or self.keep

    @contextlib.contextmanager
    def running(self, path: str | Path) -> Iterator[None]:
        """A dashboard of the run's file while the block lasts; its address is printed."""
        if not self.wanted:
            yield
            return
        from privatile.report.dashboard.serving import run_dashboard

        with run_dashboard(Path(path), self.address()) as page:
            echo(f"dashboard: {page.url}", err=True)
            yield

    def address(self) -> "DashboardAddress":
        """Where it listens."""
        from privatile.report.dashboard.serving import DashboardAddress

        host, port = self.at or ("127.0.0.1", 0)
        certificate, key = self.tls or (None, None)
        return DashboardAddress(host, port, certificate, key)

    def linger(self, *, at_a_terminal: bool = True) -> None:
        """Keep the page open until Ctrl-C: with --keep, or for the person at the terminal."""
        if self.keep or (at_a_terminal and self.wanted and sys.stdin.isatty()):
            echo("the dashboard stays open until you press Ctrl-C.", err=True)
            with contextlib.suppress(KeyboardInterrupt):
                threading.Event().wait()


def _host_and_port(_context: click.Context, parameter: click.Parameter, at: str | None) -> tuple[str, int] | None:
    if at is None:
        return None
    host, _, port = at.rpartition(":")
    if not host or not (port.isdecimal() and int(port) < 1 << 16):
        raise InputError(f"{parameter.opts[0]} takes HOST:PORT, as in 127.0.0.1:8080; got {at!r}.")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _key_pair(
    _context: click.Context, parameter: click.Parameter, tls: tuple[Path, Path] | None
) -> tuple[Path, Path] | None:
    for path in tls or ():
        if not path.is_file():
            raise InputError(f"{parameter.opts[0]} takes the files of a certificate and its key; {path} is none.")
    return tls


def address_options(prefix: str) -> Decorator:
    """Where the dashboard listens, and with which certificate: --at and --tls, behind a prefix."""

    at = click.option(
        f"--{prefix}at",
        metavar="HOST:PORT",
        callback=_host_and_port,
        help="Where the dashboard listens (127.0.0.1, any port).",
    )
    tls = click.option(
        f"--{prefix}tls",
        nargs=2,
        type=click.Path(path_type=Path),
        metavar="CERT KEY",
        callback=_key_pair,
        help="Certificate and key: needed to show the dashboard to other machines, with a token that is printed.",
    )
    return together(at, tls)


def dashboard_options(command: Callable[..., Any]) -> Any:
    """--dashboard, --dashboard-at, --dashboard-tls and --keep; the command gets one argument, `dashboard`."""

    @click.option(
        "--dashboard", is_flag=True, help="Watch the run in a browser while it runs; the page changes nothing."
    )
    @address_options("dashboard-")
    @click.option("--keep", is_flag=True, help="Keep the dashboard open when the run has ended, until Ctrl-C.")
    @wraps(command)
    def with_options(
        *args: Any,
        dashboard: bool,
        dashboard_at: tuple[str, int] | None,
        dashboard_tls: tuple[Path, Path] | None,
        keep: bool,
        **values: Any,
    ) -> Any:
        return command(*args, dashboard=DashboardOptions(dashboard, dashboard_at, dashboard_tls, keep), **values)

    return with_options


service_options = together(
    click.option(
        "--ops-port", type=click.IntRange(0, 65535), help="Serve /metrics and /health here (0: any free port)."
    ),
    click.option("--ops-host", default="127.0.0.1", show_default=True, help="The address to serve them on."),
    click.option(
        "--ops-name",
        "ops_names",
        multiple=True,
        metavar="NAME",
        help="Another name by which they may be asked for, such as this machine's name in DNS; may be repeated.",
    ),
    click.option("--json-logs", is_flag=True, help="Log one JSON object per line."),
)


YES = click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")
NEEDS_YES = "this cannot be taken back. To do it all the same, say so with --yes."
ABORT = "Abort the run for good? What was answered stays spent."


def previewed(run: "LocalRun") -> "Preview":
    """What the run would cost and give, with what its ledger knows by now."""
    from privatile.planning.preview import preview

    return replace(preview(run.spec), account=account_of([run], run.ledger))


def account_of(runs: "Sequence[LocalRun]", ledger: "Ledger") -> "Account | None":
    """What the ledger knows of the people or records of these runs; nothing of a ledger that is not kept."""
    from privatile.client.ledger.datasets import statement
    from privatile.planning.preview import Account

    if ledger.path is None:
        return None
    facts, options = statement(ledger), runs[0].options
    limit = facts.max_epsilon if options.max_epsilon is None else options.max_epsilon
    if options.person is not None:
        return Account(str(ledger.path), "person", facts.person_epsilon + facts.nameless_epsilon, limit)
    names = {client.name for run in runs for client in run.spec.clients}
    spent = [line.epsilon for line in facts.datasets if line.client in names and line.column == options.value]
    return Account(str(ledger.path), "record of this column", max(spent, default=0.0), limit)


def confirm(found: "Callable[[], Preview | GroupPreviews]", *, yes: bool) -> None:
    """On a terminal, show what is known beforehand and ask whether to go on; elsewhere, and with --yes, go on."""
    if yes or not at_a_terminal():
        return
    known = found()
    echo("\n".join(["Before anyone is asked:", "", *known.lines(), ""]), err=True)
    if not click.confirm(f"Ask these {known.asked:,} records? They can answer once (--yes skips this)", err=True):
        echo("No one was asked, and nothing was spent.", err=True)
        raise click.exceptions.Exit(1)


def ask_first(question: str, otherwise: str, *, yes: bool, shown: str = "") -> None:
    """Have somebody agree to what cannot be taken back: with `yes` beforehand, else at the terminal.

    Where there is no terminal it is refused: `otherwise` says what to do then. `shown` is said in both cases.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError(f"{f'{shown} There' if shown else 'there'} is no terminal to ask{otherwise}")
    if shown:
        echo(shown, err=True)
    click.confirm(f"{question} (--yes skips this)", abort=True, err=True)


def at_a_terminal() -> bool:
    """Whether somebody can read a question and answer it."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def say_spent(runs: "Sequence[LocalRun]") -> None:
    """What the result does not hold and the ledger knows: what all runs together have cost. On the terminal only."""
    from privatile.client.ledger.ledger import Ledger

    path = runs[0].ledger.path
    if path is None:
        return
    with Ledger.open(path, read_only=True) as book:
        found = account_of(runs, book)
    if found is not None:
        words = f"ε = {found.spent:.4g}" if math.isfinite(found.spent) else "without a limit, or nobody knows how much"
        echo(f"All runs together, by the ledger, the most that one {found.whose} has spent: {words}.", err=True)


site_options = together(
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
"""What `site_choices` takes comes as further named values."""


def site_choices(source: str | None, policy: Path | None, values: dict[str, Any]) -> "tuple[object, JoinOptions]":
    """Where the records come from, and the options as the client takes them."""
    from privatile.client.sources.csv import TextFormat
    from privatile.federation.operations.join import JoinOptions

    address = values.pop("database_url_env"), values.pop("database_url_file")
    text_format = TextFormat(**{name: values.pop(name) for name in READING[1:]})
    options = JoinOptions(limits=policy, text_format=text_format, **values)
    return records_of(source, "--source", options.sql, *address), options


def agree(rows: Iterable[tuple[str, str]], question: str, *, yes: bool) -> None:
    """Show the study and have somebody agree to it: with `yes` beforehand, else at the terminal."""
    for label, words in rows:
        echo(f"{label:>18}  {words}", err=True)
    ask_first(question, " whether you agree to the study. Read it, then agree with --yes.", yes=yes)
