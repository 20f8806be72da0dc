"""Before the money is spent: who pays from which ledger, and the question whether to ask these people."""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from privatile.api.local_run import LocalRun
    from privatile.client.ledger.ledger import Ledger
    from privatile.planning.group_preview import GroupPreview
    from privatile.planning.preview import Account, Preview


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
    if options.person is not None:
        return Account(str(ledger.path), "person", facts.person_epsilon, options.max_epsilon)
    names = {client.name for run in runs for client in run.spec.clients}
    spent = [line.epsilon for line in facts.datasets if line.client in names and line.column == options.value]
    return Account(str(ledger.path), "record of this column", max(spent, default=0.0), options.max_epsilon)


def confirm(found: "Callable[[], Preview | GroupPreview]", *, yes: bool) -> None:
    """On a terminal, show what is known beforehand and ask whether to go on; elsewhere, and with --yes, go on."""
    if yes or not at_a_terminal():
        return
    known = found()
    click.echo("\n".join(["Before anyone is asked:", "", *known.lines(), ""]), err=True)
    if not click.confirm(f"Ask these {known.asked:,} records? They can answer once (--yes skips this)", err=True):
        click.echo("No one was asked, and nothing was spent.", err=True)
        raise click.exceptions.Exit(1)


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
        click.echo(f"All runs together, by the ledger, the most that one {found.whose} has spent: {words}.", err=True)
