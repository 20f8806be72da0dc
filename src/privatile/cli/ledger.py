"""`privatile ledger`: what has been spent, by whom. Never a value."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from privatile.cli.options import file, json_flag
from privatile.cli.printing import echo, echo_json
from privatile.core.private_files import ledger_path
from privatile.core.text import counted, printable
from privatile.errors import InputError, LedgerBusy, LedgerError

if TYPE_CHECKING:
    from privatile.client.ledger.ledger import Ledger

LEDGER = file("--ledger", "FILE", "The ledger; yours in your state folder unless given.")
PATH = click.argument("path", required=False, type=click.Path(path_type=Path))
SAME = file("--ledger", "FILE", "The same as PATH.")


def _the_ledger(path: Path | None, ledger: Path | None) -> Path:
    """The ledger that a command is about: by its argument or by its option, else one's own."""
    if path is not None and ledger is not None:
        raise InputError("PATH and --ledger both name the ledger. Give one of them.")
    return path or ledger or ledger_path()


@click.group()
def ledger() -> None:
    """The account of who has answered."""


@ledger.command()
@PATH
@SAME
@json_flag("The statement")
@click.pass_context
def show(context: click.Context, path: Path | None, ledger: Path | None, as_json: bool) -> None:
    """Of the ledger at PATH (yours unless given) per data set: records, answers, runs, the most any record has spent.

    Also how many records are reserved for a run and how many are left unasked, where there are any. A data set is a
    client's column with its content. They are numbered in the order in which they first answered; where a client and
    column come twice, other content came under the same name.

    First the ledger is checked as `verify` does it. If its key is not here, the statement says that it is not checked.
    If the ledger was altered, the statement says so and the exit code is 1.
    """
    from privatile.client.ledger.datasets import statement
    from privatile.client.ledger.ledger import Ledger
    from privatile.result.shown import finite

    with Ledger.open(_the_ledger(path, ledger), create=False, read_only=True) as book, book.reading():
        verifies, found = _checked(book)
        facts = statement(book)
    code = int(verifies is False)
    if as_json:
        # JSON has no infinity, which is what records that answered without privacy have spent: null stands for it, and
        # for what is not known after a restore.
        lines = [{**asdict(line), "epsilon": finite(line.epsilon)} for line in facts.datasets]
        rest = {**asdict(facts), "datasets": lines, "person_epsilon": finite(facts.person_epsilon)}
        rest |= {
            "nameless_epsilon": finite(facts.nameless_epsilon),
            "max_epsilon": finite(facts.max_epsilon or math.inf),
        }
        echo_json({"ledger": str(book.path), "verifies": verifies, "checked": found, **rest})
        context.exit(code)
    echo(f"{book.path}: {counted(facts.entries, 'entry', 'entries')}; {found}")
    sets = facts.datasets
    # Of data sets of one name the first run tells which is which.
    several = len({(one.client, one.column) for one in sets}) < len(sets)
    columns = [
        ("no.", ">", [str(one.number) for one in sets]),
        ("client", "<", [printable(one.client) for one in sets]),
        ("column", "<", [printable(one.column) for one in sets]),
        ("records", ">", [f"{one.records:,}" for one in sets]),
        ("answers", ">", [f"{one.reports:,}" for one in sets]),
        # Of a run that is over nothing is reserved.
        ("reserved", ">", [f"{one.reserved:,}" for one in sets if any(each.reserved for each in sets)]),
        ("unasked", ">", [f"{one.unasked:,}" for one in sets if any(each.unasked for each in sets)]),
        ("runs", ">", [f"{one.runs:,}" for one in sets]),
        ("first run", "<", [printable(one.first_run) for one in sets if several]),
        ("new people", "<", ["yes" if one.new_people else "" for one in sets if any(each.new_people for each in sets)]),
        ("most ε spent", ">", [_spent(one.epsilon, one.restored) for one in sets]),
    ]
    shown = [(head, side, cells) for head, side, cells in columns if cells or not sets]
    widths = [max(map(len, (head, *cells))) for head, _, cells in shown]
    for row in range(-1, len(sets)):
        texts = zip(shown, widths, strict=True)
        echo("  ".join(f"{head if row < 0 else cells[row]:{side}{width}}" for (head, side, cells), width in texts))
    nameless = (
        f"up to ε = {_spent(facts.nameless_epsilon, facts.restored)} in data sets without a person column; whose is "
    )
    nameless += "not known, and each of their records counts as one person"
    if facts.people:
        spent = _spent(facts.person_epsilon, facts.restored)
        more = f", plus {nameless}" if facts.nameless_epsilon else ""
        echo(f"people known: {facts.people:,}; the most that one has spent for life: ε = {spent}{more}.")
    elif facts.nameless_epsilon > max((one.epsilon for one in sets), default=0.0):
        echo(f"for life one person may have spent {nameless}.")
    if facts.max_epsilon is not None:
        echo(f"the limit for life, as it was given last: ε = {facts.max_epsilon:.4g}.")
    context.exit(code)


def _checked(book: "Ledger") -> tuple[bool | None, str]:
    """Whether a ledger verifies, and what to say about it; None where its key is not here."""
    try:
        _ = book.secret
    except LedgerError:
        return None, "not checked: the key is not here"
    try:
        book.verify()
    except LedgerBusy:
        raise  # nothing is known about it
    except LedgerError as error:
        return False, f"it does not verify, so do not rely on these numbers: {error}"
    return True, "checked: it verifies with its key"


def _spent(epsilon: float, restored: bool) -> str:
    """A sum of ε in words, where it is no number."""
    if restored:
        return "unknown: restored"
    return "∞ (not private)" if math.isinf(epsilon) else f"{epsilon:.4g}"


@ledger.command()
@click.argument("run")
@LEDGER
def release(run: str, ledger: Path | None) -> None:
    """Give up RUN: other runs may ask what it has reserved and not asked. What it has asked stays spent."""
    from privatile.client.ledger.account import release_run
    from privatile.client.ledger.ledger import Ledger

    with Ledger.open(ledger or ledger_path(), create=False) as book:
        released = release_run(book, run)
    echo(f"Not asked and free again: {counted(released, 'record')} reserved by run {run}.")


@ledger.command("new-people")
@click.argument("number", type=int)
@LEDGER
def new_people(number: int, ledger: Path | None) -> None:
    """Say that none of the people of data set NUMBER (see show) is in any other data set of the ledger.

    Taken on your word, and not taken back: what they have spent is then no longer added to what others have.
    """
    from privatile.client.ledger.datasets import say_new
    from privatile.client.ledger.ledger import Ledger

    with Ledger.open(ledger or ledger_path(), create=False) as book:
        say_new(book, number)
    echo(f"Kept: the people of data set {number} are in no other data set of this ledger.")


@ledger.command()
@PATH
@SAME
@json_flag("The outcome")
@click.pass_context
def verify(context: click.Context, path: Path | None, ledger: Path | None, as_json: bool) -> None:
    """Check the ledger at PATH (yours unless given) against its key: nothing was altered, removed or set back.

    Exit code 1, with the reason, where it does not verify. Who has the key can alter a ledger so that it verifies, and
    an older copy of a ledger verifies too: those are found by the runs and coordinators that have seen it further on.
    """
    from privatile.client.ledger.ledger import Ledger

    where = _the_ledger(path, ledger)
    if not where.exists():
        raise LedgerError(f"there is no ledger at {where}. Give the path of a ledger file.")
    entries, reason = None, None
    try:
        with Ledger.open(where, read_only=True) as book:
            entries, key = book.verify(), book.secret.path
    except LedgerBusy:
        raise  # nothing is known about it: exit code 2, not 1
    except LedgerError as error:
        reason = str(error)
    if as_json:
        echo_json({"ledger": str(where), "verifies": reason is None, "entries": entries, "reason": reason})
    elif entries is not None:
        echo(f"{where} verifies: {counted(entries, 'entry', 'entries')}, with the key {key}.")
    else:
        echo(f"{where} does not verify: {reason}", err=True)
    if reason is not None:
        context.exit(1)


@ledger.command()
@LEDGER
def restored(ledger: Path | None) -> None:
    """Mark a ledger that was restored from a backup: what is not provably unasked counts as spent from now on.

    The clients of a federation do this themselves when they join with --restored.
    """
    from privatile.client.ledger.ledger import Ledger
    from privatile.client.ledger.restore import mark_restored

    with Ledger.open(ledger or ledger_path(), create=False, restored=True) as book:
        told = mark_restored(book)
        people, _ = book.lifetime_budgets.totals()
    matters = [line for line in told if line.lost or line.kept]
    for line in matters:
        echo(str(line))
    if not matters:
        echo("No data set of this ledger had records left to ask.")
    if people:
        echo(f"People known: {people:,}. What they have spent since the backup is not known: they count as spent.")
    echo("Other data sets may be asked only where they hold other people (--new-people).")
