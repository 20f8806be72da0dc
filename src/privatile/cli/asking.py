"""Questions before what cannot be taken back: agreement, an end for good, records that answer only once."""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from privatile.cli.printing import echo
from privatile.errors import InputError

if TYPE_CHECKING:
    from privatile.api.local_run import LocalRun
    from privatile.client.ledger.ledger import Ledger
    from privatile.planning.group_preview import GroupPreview
    from privatile.planning.preview import Account, Preview


YES = click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")
NEEDS_YES = "this cannot be taken back. To do it all the same, say so with --yes."
ABORT = "Abort the run for good? What was answered stays spent."


def previewed(run: "LocalRun") -> "Preview":
    """What the run would cost and give, with what its ledger knows by now."""
    from privatile.planning.preview import preview

    return replace(preview(run.spec), account=account_of([run], run.ledger))


def account_of(runs: "Sequence[LocalRun]", ledger: "Ledger") -> "Account | None":
    """What the ledger knows of the people or records of these runs; nothing of a ledger that is not kept."""
    from privatile.client.ledger.statement import statement
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


def confirm(found: "Callable[[], Preview | GroupPreview]", *, yes: bool) -> None:
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
